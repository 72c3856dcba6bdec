"""Where a version of the templates comes from: a checkout, a wheel, a project, or a commit that git brings.

What is read is hostile until it is checked: nothing of it is run, and only what a project needs of it is written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.project.files import File, Files, read_file
from oci_cluster.project.wheel import LOCKS, read_checkout, read_wheel, vendored
from oci_cluster.system.redaction import redact
from oci_cluster.system.text import printable

_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+|[\w.-]+@[\w.-]+:\S+", re.IGNORECASE)
# No helper that an URL names is run: ext::, and whatever else people have installed.
_PROTOCOLS = "file:git:http:https:ssh"
_OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")


def open_source(text: str, ref: str, cwd: Path) -> dict[str, File]:
    """Return the files of the version that *text* names, by their paths in a checkout.

    Args:
        text: A folder, a wheel, or an URL of git; a ref may stand behind a ``#``.
        ref: A branch, tag or commit; empty: of a folder the files as they are, of an URL its default branch.
        cwd: Where relative paths start.

    Raises:
        UsageError: it is none of these.
        SettingsError: there is something else, or something that must not be taken.
        BackendError: git failed, or did not reach the URL.
    """
    path = cwd / Path(text).expanduser()
    if not path.exists() and "#" in text:
        if ref:
            raise UsageError(f"the ref is given twice: '{text.rpartition('#')[2]}' and '{ref}'")
        text, _, ref = text.rpartition("#")
        path = cwd / Path(text).expanduser()
    if ref.startswith("-") or (ref and path.is_file()):
        raise UsageError(f"'{ref}' is no branch, tag or commit; a wheel has none")
    if path.is_dir():
        # By its path it would be cloned with hard links, and without --depth.
        return _of_git(path.resolve().as_uri(), ref) if ref else open_folder(path.resolve())
    if path.is_file():
        return _with_locks(read_wheel(path), path.resolve().parent.parent, path)
    if not _URL.fullmatch(text):
        raise UsageError(f"'{printable(text)}' is neither a folder, nor a wheel, nor an URL of git; give one of these")
    return _of_git(text, ref or "HEAD")


def open_folder(root: Path) -> dict[str, File]:
    """Return the files of *root*: of a checkout as they are, of a project those in its wheel."""
    wheel = vendored(root)
    return _with_locks(read_wheel(wheel), root, wheel) if wheel else read_checkout(root)


def _with_locks(files: dict[str, File], root: Path, wheel: Path) -> dict[str, File]:
    """Return *files* of a wheel with the locks that it has no room for, out of the project *root* that has it."""
    for digest, name in locks_of(files):
        lock = read_file(root / name)
        if lock is None or lock.digest != digest:
            raise SettingsError(
                f"{wheel} has not {printable(name)}, nor is it beside it; name a checkout, or a wheel of `make wheel`"
            )
        files[name] = lock
    return {name: file for name, file in files.items() if name != LOCKS}


def locks_of(files: Files) -> list[tuple[str, str]]:
    """Return digest and name of each lock that *files* of a project's wheel do not have."""
    lines = files[LOCKS].content.decode(errors="replace").splitlines() if LOCKS in files else []
    found = (re.fullmatch(r"([0-9a-f]{64})  (\w[\w.-]*/[\w.-]+-lock\.txt)", line) for line in lines)
    return [(match[1], match[2]) for match in found if match]


def _of_git(url: str, ref: str) -> dict[str, File]:
    """Return the version *ref* of the repository *url*."""
    if not shutil.which("git"):
        raise SettingsError(
            f"git is not installed, and {redact(url)} at {ref} needs it; install git, or give a folder or a wheel"
        )
    with tempfile.TemporaryDirectory() as scratch:
        bare, tree = ["--git-dir", f"{scratch}/bare"], Path(scratch, "tree")
        tree.mkdir()
        _must([*bare, "init", "--quiet", "--bare"], url)
        _must([*bare, "fetch", "--quiet", "--no-tags", "--depth", "1", "--", url, ref], url)
        # No filter or hook is configured here, and git writes nothing outside the tree, nor through a link.
        _must(
            [*bare, "--work-tree", str(tree), "checkout", "--quiet", "--force", "FETCH_HEAD^{commit}", "--", "."], url
        )
        return read_checkout(tree)


def _must(words: Sequence[str], url: str) -> None:
    """Run git."""
    # A hook's variables would name another repository.
    environ = {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}
    environ |= {"GIT_ALLOW_PROTOCOL": _PROTOCOLS, "GIT_LFS_SKIP_SMUDGE": "1"}
    done = subprocess.run(["git", *words], env=environ, capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        said = printable(redact(done.stderr.strip().rpartition("\n")[2])) or f"git ended with {done.returncode}"
        raise BackendError(
            f"{redact(url)}: {said}; name an URL and a ref that git can fetch, or give a folder or a wheel"
        )
