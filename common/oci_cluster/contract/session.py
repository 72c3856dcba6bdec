"""What servers of a launch, a session or a framework's own, and a person who connects to them must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oci_cluster.contract.signing import derived_key


def session_token(launch_key: str, launch_id: str) -> str:
    """Return the token of a launch's session, 64 hex digits: who has the launch's key has it, and nobody sends it."""
    return derived_key(launch_key, launch_id, "session").hex()


def client_token(launch_key: str, launch_id: str) -> str:
    """Return the token, 64 hex digits, by which a framework's nodes know each other, and programs that take part."""
    return derived_key(launch_key, launch_id, "client").hex()


def session_dir(kind: str, root: Path) -> Path:
    """Return the folder of the sessions of this *kind* in *root*, a checkout or what an image has of one."""
    return root / "scripts" / "sessions" / kind


def session_packages(environment: Mapping[str, str], root: Path) -> list[Path]:
    """Return the file that lists what a session adds to its framework's packages, where its kind has one."""
    kind = environment.get("SESSION", "")
    path = session_dir(kind, root) / "env.yaml"
    return [path] if kind and path.is_file() else []
