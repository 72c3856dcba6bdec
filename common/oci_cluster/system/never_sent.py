"""What leaves the machine in no archive and no image."""

from __future__ import annotations

NEVER_SENT = (
    ".*",
    "__pycache__",
    "node_modules",
    "config.env",
    "config.mk",
    "_netrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
)
"""Names, whatever an ignore file says: keys, settings with passwords, what is hidden (.env, .netrc, .oci, .ssh, .git),
and what tools make again. .dockerignore has the same; a test compares."""
