"""What leaves the machine in no archive and no image."""

from __future__ import annotations

NEVER_SENT = (
    ".*",
    "__pycache__",
    "node_modules",
    "config.env",
    "config.mk",
    "_netrc",
    "credentials.json",
    "client_secret*.json",
    "kubeconfig",
    "*.kubeconfig",
    "*.tfstate",
    "*.tfstate.*",
    "*.tfvars",
    "cwallet.sso",
    "ewallet.*",
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
"""Names, in small and capital letters, whatever an ignore file says: keys, settings with passwords, what is hidden
(.env, .netrc, .oci, .ssh, .git), and what tools make again."""

NEVER_SENT_AS_CODE = (*NEVER_SENT, "*.env")
"""The same, for a user's folder: an image also has the settings of its framework."""

# Of an image with the project: whose folders these are, is the project's maker to say.
_OF_IMAGES = ("*/settings.env", "*/client/*.env", "scripts/sessions/**/*.env")


def docker_lines() -> list[str]:
    """Return the lines by which an engine leaves these names out of a build: ``.dockerignore``; a test compares."""
    never = [f"**/{_in_any_case(name)}" for name in NEVER_SENT_AS_CODE]
    return [*never, *(f"!{name}" for name in _OF_IMAGES)]


def _in_any_case(name: str) -> str:
    """Return a *name* as engines take it, which know capital letters from small ones."""
    is_of_tools = name in {"__pycache__", "node_modules"}
    return name if is_of_tools else "".join(f"[{one}{one.upper()}]" if one.islower() else one for one in name)
