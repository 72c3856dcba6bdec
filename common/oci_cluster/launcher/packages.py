"""The requirements that ``--with`` names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from oci_cluster.errors import UsageError

# A comma between two requirements: not one in brackets, nor one before the next part of a version.
_BETWEEN = re.compile(r"\s*,(?![^\[]*\])(?!\s*[<>=!~])\s*")
# A name, perhaps [extras], and then a version, a marker, or @ and a URL; the rest is pip's to judge.
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\]\s*)?([<>=!~;@].*)?")
_FILE = re.compile(r".*\.(whl|zip|tar\.gz)")


def packages_of(texts: Sequence[str], python: str) -> tuple[str, ...]:
    """Return the requirements in *texts*, the values of ``--with``; *python* is the value of ``--python``.

    Raises:
        UsageError: one is none, or they are for an environment that is not ours.
    """
    packages = tuple(dict.fromkeys(word.strip() for text in texts for word in _BETWEEN.split(text)))
    for word in packages:
        if not _REQUIREMENT.fullmatch(word) or _FILE.fullmatch(word):
            msg = (
                f"--with '{word}' is not a package as pip names it, such as pandas or 'pandas>=2,<3'; "
                "a folder of yours is given with --code"
            )
            raise UsageError(msg)
    if packages and python:
        msg = (
            f"--with adds to the framework's own environment, not to --python {python}; "
            f"install them there: python -m pip install {shlex.join(packages)}"
        )
        raise UsageError(msg)
    return packages
