"""What a project has of the templates: ``.launch-templates`` for people and git, and a copy of what came.

The copy is what a later version is compared with. It is kept because nothing else is sure to be there: a project need
not be in a git, and the checkout that it came from may be gone.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_cluster.errors import SettingsError
from oci_cluster.project.files import EXECUTABLE, LINK, PLAIN, File, Files, check_name, read_file
from oci_cluster.system.text import printable

RECORD = ".launch-templates"
COPY = ".launch-templates.base.tar.gz"
_FORMAT = 1
# What all five frameworks bring is 3 MB.
_MAX_BYTES = 100 * 2**20
_FRAMEWORK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Came:
    """A file of the project as it came.

    Attributes:
        digest: SHA-256 of what came, in hex digits.
        mode: git's word for what it is.
        source: Its path in the checkout.
    """

    digest: str
    mode: str
    source: str


@dataclass(frozen=True)
class Record:
    """What a project came from.

    Attributes:
        version, commit, origin: As in ``sources.Version``.
        frameworks: The folders that were asked for.
        files: What came, by its path in the project.
    """

    version: str
    commit: str
    origin: str
    frameworks: Sequence[str]
    files: Mapping[str, Came]


def came(files: Files, sources: Mapping[str, str]) -> dict[str, Came]:
    """Return what is recorded of *files*, by their paths in a project, each out of its path in *sources*."""
    return {name: Came(file.digest, file.mode, sources[name]) for name, file in files.items()}


def record_text(record: Record) -> bytes:
    """Return the file that *record* is kept in: one line for each file, so that git shows which have changed."""
    head = {
        "about": "what update.sh compares with; commit it, and do not edit it",
        "format": _FORMAT,
        "version": record.version,
        "commit": record.commit,
        "from": record.origin,
        "frameworks": list(record.frameworks),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    files = [f"  {json.dumps(name)}: " + json.dumps(_line(name, record.files[name])) for name in sorted(record.files)]
    return "\n".join(["{", *lines, ' "files": {', ",\n".join(files), " }", "}", ""]).encode()


def _line(name: str, file: Came) -> dict[str, str]:
    found = {"sha256": file.digest, "mode": file.mode}
    return found if file.source == name else {**found, "source": file.source}


def read_record(root: Path) -> Record | None:
    """Return what the project *root* came from; None where nothing says it.

    Raises:
        SettingsError: what is there is damaged.
    """
    file = read_file(root / RECORD)
    if file is None:
        return None
    try:
        return _parsed(json.loads(file.content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        advice = f"bring it back from git: git checkout -- {RECORD}"
        msg = f"{root / RECORD} is damaged: {printable(error)}; {advice}"
        raise SettingsError(msg) from error


def _parsed(found: Any) -> Record:
    if found["format"] != _FORMAT:
        msg = f"its format is {found['format']}, this update.sh knows {_FORMAT}"
        raise ValueError(msg)
    frameworks = [str(name) for name in found["frameworks"]]
    for name in frameworks:
        if not _FRAMEWORK.fullmatch(name):
            msg = f"'{name}' is no name of a framework"
            raise ValueError(msg)
    files = {}
    for name, line in found["files"].items():
        check_name(name)
        if line["mode"] not in {PLAIN, EXECUTABLE, LINK} or not re.fullmatch("[0-9a-f]{64}", line["sha256"]):
            msg = f"the line of '{name}'"
            raise ValueError(msg)
        files[name] = Came(line["sha256"], line["mode"], str(line.get("source", name)))
    return Record(str(found["version"]), str(found["commit"]), str(found["from"]), frameworks, files)


def copy_of(files: Files) -> bytes:
    """Return the archive that *files* are kept in: the same files make the same bytes with the same Python."""
    out = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            file = files[name]
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if file.mode == EXECUTABLE else 0o644
            if file.is_link:
                entry.type, entry.linkname = tarfile.SYMTYPE, os.fsdecode(file.content)
            else:
                entry.size = len(file.content)
            tar.addfile(entry, None if file.is_link else io.BytesIO(file.content))
    return out.getvalue()


def read_copy(root: Path, record: Record) -> dict[str, File]:
    """Return the files as they came that the project *root* has kept, and that are what *record* says.

    What is missing, or damaged, is left out: whoever needs it says so.
    """
    kept = read_file(root / COPY)
    files: dict[str, File] = {}
    if kept is None or kept.is_link:
        return files
    try:
        with tarfile.open(fileobj=io.BytesIO(kept.content), mode="r:gz") as tar:
            total = 0
            for entry in tar:
                total += entry.size
                if total > _MAX_BYTES or entry.issparse():
                    break
                if entry.issym():
                    file = File(os.fsencode(entry.linkname), LINK)
                elif entry.isreg() and (content := tar.extractfile(entry)):
                    file = File(content.read(), EXECUTABLE if entry.mode & 0o100 else PLAIN)
                else:
                    continue
                came_as = record.files.get(entry.name)
                if came_as and (came_as.digest, came_as.mode) == (file.digest, file.mode):
                    files[entry.name] = file
    except (tarfile.TarError, EOFError, OSError, zlib.error):
        return files
    return files
