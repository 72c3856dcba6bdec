"""Tokens and folders that main, its session's users and other programs must agree on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.contract.files.signing import derived_key

TOKEN_FILE = "session-token"  # noqa: S105 - its name
"""What the launcher keeps of a session on a backend where others may read the launch's key."""


def session_token(launch_key: str, launch_id: str) -> str:
    """Return the token of a launch's session, 64 hex digits, derived from its key.

    Where others may read the key, the launcher makes a token by chance, and nodes get its verifier.
    """
    return derived_key(launch_key, launch_id, "session").hex()


def verifier_of(token: str) -> str:
    """Return the hash of *token* that a session's server has: it lets nobody in."""
    return hashlib.sha256(token.encode()).hexdigest()


def client_token(launch_key: str, launch_id: str) -> str:
    """Return the token for programs that connect to a launch's cluster, 64 hex digits."""
    return derived_key(launch_key, launch_id, "client").hex()


def session_dir(kind: str, root: Path) -> Path:
    """Return the folder of sessions of this *kind* in *root*, a checkout or image."""
    return root / "scripts" / "sessions" / kind


def session_packages(environment: Mapping[str, str], root: Path) -> list[Path]:
    """Return the file of a session's packages, if its kind adds some."""
    kind = environment.get("SESSION", "")
    path = session_dir(kind, root) / "env.yaml"
    return [path] if kind and path.is_file() else []
