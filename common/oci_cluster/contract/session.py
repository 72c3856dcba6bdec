"""What main, a person who connects to its session, and programs that connect to its cluster must agree on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.contract.signing import derived_key

TOKEN_FILE = "session-token"  # noqa: S105 - its name
"""What the launcher keeps of a session on a backend where others may read the launch's key."""


def session_token(launch_key: str, launch_id: str) -> str:
    """Return the token of a launch's session, 64 hex digits: who has the launch's key has it, and nobody sends it.

    Where others may read the key, the launcher makes a token by chance, and nodes get its verifier.
    """
    return derived_key(launch_key, launch_id, "session").hex()


def verifier_of(token: str) -> str:
    """Return what a session's server knows of its *token*: who reads that does not get in."""
    return hashlib.sha256(token.encode()).hexdigest()


def client_token(launch_key: str, launch_id: str) -> str:
    """Return the token with which programs get into a launch's cluster, 64 hex digits, as with a session's."""
    return derived_key(launch_key, launch_id, "client").hex()


def session_dir(kind: str, root: Path) -> Path:
    """Return the folder of the sessions of this *kind* in *root*, a checkout or what an image has of one."""
    return root / "scripts" / "sessions" / kind


def session_packages(environment: Mapping[str, str], root: Path) -> list[Path]:
    """Return the file that lists what a session adds to its framework's packages, where its kind has one."""
    kind = environment.get("SESSION", "")
    path = session_dir(kind, root) / "env.yaml"
    return [path] if kind and path.is_file() else []
