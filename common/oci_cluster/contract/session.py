"""What a session on main and a person who connects to it must agree on."""

from __future__ import annotations

from oci_cluster.contract.signing import derived_key


def session_token(launch_key: str, launch_id: str) -> str:
    """Return the token of this launch's session, 64 hex digits; who has the launch's key knows it: nobody sends it."""
    return derived_key(launch_key, launch_id, "session").hex()
