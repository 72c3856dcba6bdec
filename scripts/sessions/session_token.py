"""Who has the token of a session: its server knows the token's hash alone."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path


def hashed(token: str) -> str:
    """Return the hash of *token* as the session's server knows it."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def read_verifier() -> str:
    """Return the hash of this session's token."""
    return (Path(os.environ["NODE_DIR"]) / "session-verifier").read_text()


def is_token(text: str) -> bool:
    """Return whether *text* is this session's token."""
    return hmac.compare_digest(hashed(text), read_verifier())
