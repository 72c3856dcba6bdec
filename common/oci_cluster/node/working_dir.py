"""The working directory of an entry point that writes beside its code: the same on every backend.

The code itself is the user's own folder on this machine, a mount that cannot be written to in containers, and gone with
the node on OCI. So the entry point runs in a directory of links: to all of the code, and to OUTPUT_DIR for the folders
that it writes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def make_working_dir(target: Path, code_dir: Path, folders: Sequence[str], output_dir: Path) -> None:
    """Make the directory *target*, which shows what is in *code_dir*, but for *folders*: those are in *output_dir*."""
    target.mkdir()
    inner: dict[str, list[str]] = {}
    for folder in folders:
        head, _, rest = folder.partition("/")
        inner.setdefault(head, []).append(rest)
    if code_dir.is_dir():
        for path in code_dir.iterdir():
            if path.name not in inner:
                (target / path.name).symlink_to(path)
    for head, rests in inner.items():
        if "" in rests:  # the folder itself, and so all that is in it
            (output_dir / head).mkdir(parents=True, exist_ok=True)
            (target / head).symlink_to(output_dir / head)
        else:
            make_working_dir(target / head, code_dir / head, rests, output_dir / head)
