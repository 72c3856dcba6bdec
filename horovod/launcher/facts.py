"""What a node tells the others, before they start: the public half of its key, and how many ranks it takes.

Main's key opens the workers' ssh servers; a worker's proves that it is the one that published it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from options import check_binding, gpu_count, read_options

KEY_FILE = "ssh_key"


def main() -> int:
    options = read_options(os.environ)
    check_binding(options.framework)
    public_key = make_key(Path(os.environ["NODE_DIR"], KEY_FILE))
    name = "ssh_public_key" if os.environ["MODE"] == "MAIN" else "ssh_host_key"
    sys.stdout.write(f"{name}={public_key}\nslots={options.slots or gpu_count() or 1}\n")
    return 0


def make_key(path: Path) -> str:
    """Write a new private key to *path*, for this user's eyes only, and return its public half."""
    key = Ed25519PrivateKey.generate()
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
