"""The requirements that ``--with`` names, or lists of them in files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from oci_cluster.errors import UsageError
from oci_cluster.system.env_file import entries_of

# A comma between two requirements: not one in brackets, nor one before the next part of a version.
_BETWEEN = re.compile(r"\s*,(?![^\[]*\])(?!\s*[<>=!~])\s*")
# A name, perhaps [extras], and then a version, a marker, or @ and a URL; the rest is pip's to judge.
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\]\s*)?([<>=!~;@].*)?")
_FILE = re.compile(r".*\.(whl|zip|tar\.gz)")
_LIST = re.compile(r"(?:(?:-r|--requirement)[\s=]*)(?P<named>\S.*)|(?P<bare>[^<>=@]*\.txt)")


def packages_of(texts: Sequence[str], python: str) -> tuple[str, ...]:
    """Return the requirements in *texts*, the values of ``--with``; *python* is the value of ``--python``.

    A value may name a list of them: ``requirements.txt``, or as pip has it ``-r requirements.txt``.

    Raises:
        UsageError: one is none, or they are for an environment that is not ours.
        SettingsError: a list cannot be used.
    """
    words = (word.strip() for text in texts for word in _BETWEEN.split(text))
    packages = tuple(dict.fromkeys(package for word in words for package in _listed(word)))
    for word in packages:
        if not _REQUIREMENT.fullmatch(word) or _FILE.fullmatch(word):
            raise UsageError(
                f"--with '{word}' is not a package as pip names it, such as pandas or 'pandas>=2,<3'; "
                "a folder of yours is given with --code"
            )
    if packages and python:
        raise UsageError(
            f"--with adds to the framework's own environment, not to --python {python}; "
            f"install them there: python -m pip install {shlex.join(packages)}"
        )
    return packages


def _listed(word: str) -> list[str]:
    """Return the requirements in the file that *word* names; else itself."""
    found = _LIST.fullmatch(word)
    if found is None:
        return [word]
    path = Path(found["named"] or found["bare"]).expanduser()
    entries = entries_of(path)
    if option := next((entry for entry in entries if entry.startswith("-")), ""):
        instead = f"set EXTRA_ENV={shlex.quote(str(path))} instead"
        raise UsageError(f"--with {path}: '{option}' is an option of pip's, and no package; {instead}")
    return entries
