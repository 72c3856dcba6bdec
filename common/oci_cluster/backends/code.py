"""The user's code on its way to the nodes, and words on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

if TYPE_CHECKING:
    from oci_cluster.system.code_files import CodeFiles

# A busy Object Storage is asked for the code so long: as any other service, see service.py.
_PATIENCE_S = 180.0
# Lines of warning, or names in a line: more of them are not read.
_MOST_TOLD = 5


@dataclass(frozen=True)
class Code:
    """The code that the nodes of a launch get."""

    uri: str
    """Their ``CODE_URI``; empty where they get none, or have it in their image."""
    archive: Path | None = None
    """The file to be put there; None where that is not the launcher's business."""
    said: Sequence[str] = ()
    """Lines that a person is told before it goes."""

    def send(self, plan: Plan, say: Say) -> None:
        """Put the archive where the nodes of *plan* fetch it, unless it is there."""
        if self.archive is None:
            return
        folder, _, name = self.uri.partition("#")[0].rpartition("/")
        storage = ClusterDir(folder, plan.launch_id, plan.launch_key, patience_s=_PATIENCE_S)
        if not storage.is_there(name):
            say(f"sending the code in {plan.code_dir}: {self.archive.stat().st_size / 1000:.0f} kB")
            storage.create()
            storage.upload(self.archive, name)


def code_of(plan: Plan, scratch: Path, to: str = "") -> Code:
    """Return the code of *plan*; an archive is made in the folder *scratch*.

    *to* is the folder of a node that will have the archive, by whatever way; empty: it goes to the work dir.
    """
    if plan.code_uri:
        return Code("" if plan.code_uri == "image" else plan.code_uri)
    if not plan.code_dir:
        return Code("")
    # May need packages that are still to come.
    from oci_cluster.system.archive import pack_code  # noqa: PLC0415
    from oci_cluster.system.code_files import code_files  # noqa: PLC0415

    folder, archive = Path(plan.code_dir), scratch / "code.tar.gz"
    files = code_files(folder)
    _check_entry(plan, folder, files)
    digest = pack_code(folder, files.paths, archive)
    place = f"file://{to}/code" if to else f"{plan.work_dir.rstrip('/')}/code/{digest}"
    uri = f"{place}.tar.gz#sha256={digest}"
    return Code(uri, archive, [*_summary(folder, files, archive), *_warnings(folder, files, plan.code_keys)])


def digest_of(plan: Plan) -> str:
    """Return the digest of the archive that *plan* has in ``WORK_DIR/code``; empty: none."""
    folder = re.escape(f"{plan.work_dir.rstrip('/')}/code/")
    found = re.fullmatch(rf"{folder}([0-9a-f]{{64}})\.tar\.gz#sha256=\1", plan.environment.get("CODE_URI", ""))
    return found[1] if found else ""


def remove_code(plan: Plan, users: Callable[[str], Sequence[str]], say: Say) -> None:
    """Remove the archive of the code from ``WORK_DIR/code``, unless somebody else uses it.

    *users* returns the names of the clusters whose nodes get the archive of a digest.
    """
    if not (digest := digest_of(plan)):
        return
    folder = f"{plan.work_dir.rstrip('/')}/code"
    if others := users(digest):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        say(f"the code of {plan.name} stays in {folder}: {others[0]}{more} may use it")
        return
    ClusterDir(folder, plan.launch_id, plan.launch_key, patience_s=_PATIENCE_S).remove(f"{digest}.tar.gz")


def _check_entry(plan: Plan, folder: Path, files: CodeFiles) -> None:
    """Raise where the entry point is there and would not be sent."""
    entry, module = plan.environment.get("ENTRY_POINT", ""), plan.environment.get("ENTRY_MODULE", "")
    places = [f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__main__.py"] if module else [entry]
    for name in places:
        if name and (folder / name).is_file() and (why := files.why_left_out(name)):
            what = f"ENTRY_MODULE {module}" if module else f"ENTRY_POINT {entry}"
            raise SettingsError(
                f"{what} would not be sent to the nodes: {why}; change that line, or give the file another name"
            )


def _summary(folder: Path, files: CodeFiles, archive: Path) -> Iterator[str]:
    size = sum(path.lstat().st_size for path in files.paths if not path.is_symlink())
    count = f"{len(files.paths)} file{'s' if len(files.paths) != 1 else ''}"
    ignored = sum("is never sent" not in why for why in files.left_out.values())
    stays = [f"{ignored} names by its ignore files" if ignored > 1 else "1 name by its ignore files"] if ignored else []
    if files.keys:
        stays.append(_named(files.keys))
    if files.environments:
        is_one = len(files.environments) == 1
        stays.append(f"{_named(files.environments)}, {'a Python environment' if is_one else 'Python environments'}")
    if others := len(files.left_out) - ignored - len(files.keys) - len(files.environments):
        stays.append(f"{others} hidden or made by tools")
    line = f"code in {folder}: {count} with {size} bytes, {archive.stat().st_size} bytes compressed"
    if stays:
        line += f"; left out: {'; '.join(stays)}"
    yield printable(line, 2000)


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_TOLD
    return ", ".join(names[:_MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def _warnings(folder: Path, files: CodeFiles, allowed: Collection[str]) -> Iterator[str]:
    """Yield a line for each file that has what looks like a key."""
    from oci_cluster.system.secret_values import PRIVATE_KEY, look_for_keys  # noqa: PLC0415 - where code is sent

    found = [(path.relative_to(folder).as_posix(), what) for path, what in look_for_keys(files.paths)]
    if private := [name for name, what in found if what == PRIVATE_KEY and name not in allowed]:
        msg = (
            f"the code has a private key, which would go to the nodes: {_named(private)}; name it in .gitignore, which "
            f"keeps it here, or say that it goes: CODE_KEYS={','.join(private)}"
        )
        raise SettingsError(printable(msg, 2000))
    for name, what in found[:_MOST_TOLD]:
        line = f"warning: {name} has what looks like {what}, and goes to the nodes; .gitignore can keep it here"
        yield printable(line)
    if (more := len(found) - _MOST_TOLD) > 0:
        yield f"warning: {more} more files have what looks like a key"
