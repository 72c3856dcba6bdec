"""Reads a ``requirements.txt``: what it lists is as good as the ``pip:`` list of an environment file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from oci_cluster.errors import SettingsError

_COMMENT = re.compile(r"(?:^|\s)#.*")
_FILE_OPTION = re.compile(r"(?:-r|--requirement)(?:\s+|\s*=\s*|(?=\S))(?P<file>\S.*)")
# Of one requirement: what pip checks, or hands on to a build.
_OWN_OPTIONS = re.compile(r"\s--(?:hash|config-settings?|global-option)\b.*")
# A folder or an archive of this machine, which nobody else has.
_LOCAL = re.compile(r"(?:-e|--editable)\b.*|\.{0,2}/.*|\.|file:.*|[^\s@]*\.(?:whl|zip|tar\.gz)")
_CONSTRAINT = re.compile(r"(?:-c|--constraint)\b.*")


def entries_of(path: Path) -> list[str]:
    """Return the requirements, and pip's options, that *path* and the files that it names list, in their order.

    Hashes are left out: what is installed beside them has none.

    Raises:
        SettingsError: a file cannot be read, or lists what is on this machine only, or constraints.
    """
    return list(_entries(path, ()))


def _entries(path: Path, above: tuple[Path, ...]) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    above = (*above, path.resolve())
    for line in text.replace("\\\n", " ").splitlines():
        entry = _OWN_OPTIONS.sub("", _COMMENT.sub("", line)).strip()
        if found := _FILE_OPTION.fullmatch(entry):
            other = path.parent / found["file"]
            if other.resolve() not in above:
                yield from _entries(other, above)
        elif _LOCAL.fullmatch(entry):
            raise SettingsError(
                f"{path}: '{entry}' is on this machine only; your own code goes by itself (--code), so leave it out"
            )
        elif _CONSTRAINT.fullmatch(entry):
            raise SettingsError(
                f"{path}: '{entry}' names constraints, which are not taken; list the versions that you want"
            )
        elif entry:
            yield entry
