"""Where the launcher's own Python environment is: ``.venv``, unless that is the user's own."""

from __future__ import annotations

from pathlib import Path

# What shows that an environment is the launcher's, also one that is not whole yet: the lock is there before it is made.
_MARKS = (".launcher.lock", ".tools-*", ".dev-installed")


def own_venv(root: Path) -> Path:
    """Return the folder of the launcher's environment in the checkout or project *root*, whether it exists yet or not.

    A project may have a ``.venv`` of its user's, in which nothing of ours is installed: then it is ``.venv-clusters``.
    ``common/lib.sh`` knows the same.
    """
    usual = root / ".venv"
    is_users = (usual / "pyvenv.cfg").exists() and not any(any(usual.glob(mark)) for mark in _MARKS)
    return root / ".venv-clusters" if is_users else usual
