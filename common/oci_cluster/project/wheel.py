"""The wheel of a version, and the sources that versions come from.

``python -m oci_cluster.project.wheel FOLDER`` writes one with every framework, as ``make wheel`` does.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import posixpath
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.project.files import EXECUTABLE, PLAIN, File, Files, is_inside, is_rubbish, put, read_file, read_folder
from oci_cluster.system.console import Say
from oci_cluster.system.files import at_home, not_writable
from oci_cluster.system.text import printable

START_SCRIPTS = ("start-master.sh", "start-worker.sh")
FOLDER = "vendor"
# In a project whose wheel is elsewhere: what pip fetches it by. See `fetch_wheel` in common/lib.sh.
PIN = "requirements.txt"
# Of a framework's locks, which are large, a project's wheel has the sha256 alone: to know those that were edited.
LOCKS = "locks.sha256"
_PACKAGE, _PYPROJECT = "common/oci_cluster/", "common/pyproject.toml"
_PLACES = ("common", "scripts", "LICENSE", "config.env.example", ".dockerignore")
# Pages go along, to where what is unpacked is; links in texts follow them.
_PAGES, _PAGES_HERE = "docs", "common/docs"
CHANGES = f"{_PAGES_HERE}/CHANGELOG.md"
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)*)([\w./-]*)(#[\w-]*)?\)")
_UNPACKED = ("common/", "scripts/templates/", "scripts/backends/", "scripts/sessions/")
_COMPLETION = ("scripts/completion.bash", "scripts/completion.zsh")
_NAME = re.compile(r"oci_cluster-([0-9][^-]*)-(0_[0-9a-f]{12})-py3-none-any\.whl")
_ARRAY = re.compile(r'^([\w-]+) = (\[(?:"[^"]*"|[^"\]])*\])', re.MULTILINE)
# All five frameworks are 5 MB in 440 files.
_MAX_BYTES, _MAX_FILES = 100 * 2**20, 5_000


def frameworks_of(files: Collection[str]) -> list[str]:
    """Return the frameworks among *files*: folders with start scripts."""
    found = (name.partition("/")[0] for name in files if name.count("/") == 1 and name.endswith("/start-master.sh"))
    return sorted(name for name in found if not is_rubbish(name) and name not in {"common", "scripts", FOLDER})


def is_lock(name: str) -> bool:
    """Return whether the file *name* is a framework's lock."""
    return name.count("/") == 1 and name.endswith("-lock.txt") and not name.startswith("common/")


def is_placed(name: str, frameworks: Collection[str]) -> bool:
    """Return whether git of a project with *frameworks* has the file *name*."""
    top, _, rest = name.partition("/")
    is_script = top == "scripts" and "/" not in rest and name.endswith((".sh", ".mk"))
    is_ours = top in frameworks and not any(map(is_rubbish, rest.split("/")))
    return is_ours or is_script or name in {"common/lib.sh", "config.env.example"}


def unpacked_to(name: str) -> str:
    """Return where the file *name* is unpacked to; empty where it is not."""
    if name != "common/lib.sh" and (name.startswith(_UNPACKED) or name in _COMPLETION):
        return name
    return "common/LICENSE" if name == "LICENSE" else ""


def read_checkout(root: Path) -> dict[str, File]:
    """Return the files of the checkout *root* that go into projects."""
    if not (root / _PYPROJECT).is_file():
        raise SettingsError(f"{root} has no {_PYPROJECT}; name a checkout of the templates, or a wheel of one")
    tops = frameworks_of([path.relative_to(root).as_posix() for path in root.glob("*/start-master.sh")])
    files = read_folder(root, [*_PLACES, *tops])
    pages = {name: file for name, file in read_folder(root, [_PAGES]).items() if name.endswith(".md")}
    if changes := read_file(root / "CHANGELOG.md"):
        files[CHANGES] = changes
    files |= {name.replace(_PAGES, _PAGES_HERE, 1): file for name, file in pages.items()}
    files |= {name: _with_links(name, file, files) for name, file in files.items() if name.endswith(".md")}
    return {name: file for name, file in files.items() if name != "scripts/dev-setup.sh"}


def _with_links(name: str, file: File, files: Files) -> File:
    """Return the text *name* with links to what a project has alone."""
    folder = PurePosixPath(name.replace(_PAGES_HERE, _PAGES, 1)).parent
    others = {"README.md", *files}

    def link(found: re.Match[str]) -> str:
        text, up, path, anchor = found[1], found[2], found[3], found[4] or ""
        meant = posixpath.normpath(str(folder / up / path)) if path else ""
        here = meant.replace(f"{_PAGES}/", f"{_PAGES_HERE}/", 1) if meant.startswith(f"{_PAGES}/") else meant
        if not path or here in others or any(other.startswith(f"{here}/") for other in others):
            to = posixpath.relpath(here, str(PurePosixPath(name).parent)) if path else ""
            return f"[{text}]({to}{anchor if here != 'README.md' else ''})"
        return text

    return File(_LINK.sub(link, file.content.decode()).encode(), file.mode)


def _without_links(name: str, file: File, others: Collection[str]) -> File:
    """Return the text *name* without links to the frameworks *others*."""

    def link(found: re.Match[str]) -> str:
        to = posixpath.normpath(str(PurePosixPath(name).parent / found[2] / found[3]))
        return found[1] if to.partition("/")[0] in others else found[0]

    return File(_LINK.sub(link, file.content.decode()).encode(), file.mode)


def pack(files: Files, frameworks: Collection[str], *, with_locks: bool = False) -> tuple[str, bytes]:
    """Return name and content of a wheel; the same files make the same bytes."""
    others = set(frameworks_of(files)) - set(frameworks)
    chosen = {name: file for name, file in files.items() if name.partition("/")[0] not in others}
    pages = [name for name in chosen if name.endswith(".md") and not is_placed(name, frameworks)]
    chosen |= {name: _without_links(name, chosen[name], others) for name in pages}
    locks = {name: file for name, file in chosen.items() if is_lock(name)}
    if not with_locks:
        lines = [f"{file.digest}  {name}\n" for name, file in sorted(locks.items())]
        chosen = {name: file for name, file in chosen.items() if name not in locks}
        chosen[LOCKS] = File("".join(lines).encode())
    found = re.search(rb'^__version__ = "([0-9][0-9a-z.]*)"$', files[f"{_PACKAGE}__init__.py"].content, re.MULTILINE)
    assert found, "the package says which version it is"  # noqa: S101 - a test reads it
    start = f"oci_cluster-{(version := found[1].decode())}"
    members = {
        name.removeprefix("common/")
        if name.startswith(_PACKAGE)
        else f"{start}.data/data/share/oci-cluster/{name}": file
        for name, file in chosen.items()
    }
    members[f"{start}.dist-info/METADATA"] = File(_metadata(version, files[_PYPROJECT].content.decode()))
    listed = "".join(f"{name}\0{file.mode}\0{file.digest}\n" for name, file in sorted(members.items()))
    build = f"0_{hashlib.sha256(listed.encode()).hexdigest()[:12]}"
    about = f"Wheel-Version: 1.0\nGenerator: oci-cluster\nRoot-Is-Purelib: true\nTag: py3-none-any\nBuild: {build}\n"
    members[f"{start}.dist-info/WHEEL"] = File(about.encode())
    record = f"{start}.dist-info/RECORD"
    members[record] = File("".join(f"{name},{_hash(file)}\n" for name, file in sorted(members.items())).encode())
    members[record] = File(members[record].content + f"{record},,\n".encode())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, file in sorted(members.items()):
            entry = zipfile.ZipInfo(name)  # of 1980: the time says nothing
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            entry.external_attr = int(file.mode, 8) << 16
            archive.writestr(entry, file.content)
    return f"{start}-{build}-py3-none-any.whl", out.getvalue()


def _hash(file: File) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.content).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(file.content)}"


def _metadata(version: str, pyproject: str) -> bytes:
    """Return what pip reads; Python 3.10 has nothing that reads TOML."""
    project, _, extras = pyproject.partition("[project.optional-dependencies]")
    python = re.search(r'^requires-python = "(.*)"', project, re.MULTILINE)
    assert python, _PYPROJECT  # noqa: S101 - a test reads it
    lines = ["Metadata-Version: 2.1", "Name: oci-cluster", f"Version: {version}", f"Requires-Python: {python[1]}"]
    lines += ["License: Apache-2.0", "Classifier: Private :: Do Not Upload"]
    lines += [f"Requires-Dist: {each}" for each in dict(_arrays(project))["dependencies"]]
    for extra, needed in _arrays(extras):
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {each}; extra == "{extra}"' for each in needed)]
    return "\n".join([*lines, ""]).encode()


def _arrays(toml: str) -> list[tuple[str, list[str]]]:
    return [(found[1], ast.literal_eval(found[2])) for found in _ARRAY.finditer(toml)]


def read_wheel(path: Path) -> dict[str, File]:
    """Return the files in the wheel *path*, by their paths in a checkout."""
    files: dict[str, File] = {}
    try:
        if not _NAME.fullmatch(path.name):
            raise ValueError("its name is not oci_cluster-VERSION-0_BUILD-py3-none-any.whl")
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > _MAX_BYTES or len(entries) > _MAX_FILES:
                raise ValueError(f"more than {_MAX_BYTES >> 20} MiB or {_MAX_FILES} files")
            for entry in entries:
                name, mode = entry.filename, entry.external_attr >> 16
                if not stat.S_ISREG(mode) or name in files or not is_inside(name):
                    raise ValueError(f"'{printable(name)}' is there twice, is no file, or leads out")
                files[name] = File(archive.read(entry), EXECUTABLE if mode & stat.S_IXUSR else PLAIN)
        found = {_in_checkout(name): file for name, file in files.items() if ".dist-info/" not in name}
        if clash := [name for name in found if any(parent in found for parent in _parents(name))]:
            raise ValueError(f"'{printable(clash[0])}' is in a folder that is a file")
    except (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise SettingsError(
            f"{path} cannot be used as a wheel of the templates: {printable(error)}; make it anew, or bring it from git"
        ) from error
    return found


def _in_checkout(name: str) -> str:
    if name.startswith("oci_cluster/"):
        return f"common/{name}"
    data = re.fullmatch(r"oci_cluster-[^/]+\.data/data/share/oci-cluster/(.+)", name)
    if not data:
        raise ValueError(f"'{printable(name)}' is no place in a wheel of ours")
    return data[1]


def _parents(name: str) -> list[str]:
    return [name[:place] for place, letter in enumerate(name) if letter == "/"]


def vendored(root: Path) -> Path | None:
    """Return the wheel in the project *root*; None where there is none: a checkout."""
    found = sorted((root / FOLDER).glob("oci_cluster-*.whl"))
    if found[1:]:
        names = " and ".join(path.name for path in found)
        raise SettingsError(
            f"{root / FOLDER} has {names}; remove all but the one that counts: git log tells when each came"
        )
    return found[0] if found else None


def replace_wheel(root: Path, old: Path | None, name: str, content: bytes, say: Say) -> None:
    """Put the wheel *name* into the project *root*, in the place of *old*."""
    path = old or root / FOLDER / name
    # Under the old name first, which is where an interrupted run is completed by the next one.
    put(root, f"{FOLDER}/{path.name}", File(content))
    try:
        path.rename(path.with_name(name))
    except OSError as error:
        raise not_writable(path, error) from error
    if (pin := path.with_name(PIN)).exists():
        say(f"{pin} names another wheel: put {name} where that one is, and write its hash there")


def version_of(path: Path) -> str:
    """Return version and build, as the name of the wheel *path* says them."""
    return path.name.removeprefix("oci_cluster-").removesuffix("-py3-none-any.whl")


def open_source(text: str, cwd: Path) -> dict[str, File]:
    """Return the files of the version that *text* names.

    Nothing of it is run, and only what a project needs of it is written.
    """
    path = (cwd / at_home(text)).resolve()
    if path.is_dir():
        return open_folder(path)
    if path.is_file():
        return _with_locks(read_wheel(path), path.parent.parent, path)
    raise UsageError(f"'{printable(text)}' is neither a folder nor a wheel; give a checkout: git clone brings one")


def open_folder(root: Path) -> dict[str, File]:
    """Return the files of *root*: a checkout's own, or those of a project's wheel."""
    wheel = vendored(root)
    return _with_locks(read_wheel(wheel), root, wheel) if wheel else read_checkout(root)


def _with_locks(files: dict[str, File], root: Path, wheel: Path) -> dict[str, File]:
    """Return *files* of a wheel with the locks, which the project *root* has."""
    for digest, name in locks_of(files):
        lock = read_file(root / name)
        if lock is None or lock.digest != digest:
            raise SettingsError(
                f"{wheel} has not {printable(name)}, nor is it beside it; name a checkout, or a wheel of `make wheel`"
            )
        files[name] = lock
    return {name: file for name, file in files.items() if name != LOCKS}


def locks_of(files: Files) -> list[tuple[str, str]]:
    """Return digest and name of each lock that a project's wheel lacks."""
    lines = files[LOCKS].content.decode(errors="replace").splitlines() if LOCKS in files else []
    found = (re.fullmatch(r"([0-9a-f]{64})  (\w[\w.-]*/[\w.-]+-lock\.txt)", line) for line in lines)
    return [(match[1], match[2]) for match in found if match]


def main(folder: str) -> None:
    """Write the wheel of this checkout, with every framework, into *folder*; print its path."""
    files = read_checkout(Path(__file__).resolve().parents[3])
    name, content = pack(files, frameworks_of(files), with_locks=True)
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / name).write_bytes(content)
    sys.stdout.write(f"{Path(folder) / name}\n")


if __name__ == "__main__":
    main(sys.argv[1])
