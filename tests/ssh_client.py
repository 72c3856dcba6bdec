"""Programs of OpenSSH as the user of a session runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def make_keys(place: Path) -> tuple[Path, Path]:
    """Make in *place* the user's key and a stranger's; return both."""
    keys = place / "mine", place / "other"
    for key in keys:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return keys


def ssh(program: str, config: Path, key: Path, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Run ssh, scp or sftp with the printed configuration, and one key."""
    options = ["-F", str(config), "-i", str(key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
    environ = {**os.environ, "SSH_AUTH_SOCK": ""}
    command = [program, *options, *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60, input=typed)
