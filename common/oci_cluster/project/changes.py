"""Changes of a project's files: all are prepared beside them first, so that an interrupted run can be completed.

The folder `STAGE` holds the new files, and in its plan what each file was and is to be. Once the plan is there, the
next run makes the rest. A file that somebody has edited meanwhile is neither what it was nor what it is to be: it is
left alone, and named.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_cluster.errors import SettingsError
from oci_cluster.project.files import File, check_name, check_way, parents, put, read_file
from oci_cluster.system.console import Say
from oci_cluster.system.files import not_writable, write_whole
from oci_cluster.system.text import printable

STAGE = ".launch-templates.tmp"
_PLAN = "plan.json"


@dataclass(frozen=True)
class Change:
    """What becomes of the file *name* of a project: None is no file."""

    name: str
    before: File | None
    after: File | None


@dataclass(frozen=True)
class _Step:
    """A change as the plan has it: what a file was and is to be by mode and digest, and where the new file lies."""

    name: str
    before: str
    after: str
    staged: str


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Be the only one that changes the project *root*.

    Raises:
        SettingsError: another process does already, or it cannot be read.
    """
    try:
        descriptor = os.open(root, os.O_RDONLY)
    except OSError as error:
        msg = f"{root} cannot be opened: {error.strerror}; allow reading it"
        raise SettingsError(msg) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        msg = f"another new.sh or update.sh changes {root} just now; wait until it has ended"
        raise SettingsError(msg) from error
    finally:
        os.close(descriptor)


def check_changes(root: Path, changes: Sequence[Change]) -> None:
    """Check that *changes* can be made below *root*.

    Raises:
        SettingsError: a file or a link is in the way of a folder.
        BackendError, NotPermittedError: a folder cannot be written.
    """
    for change in changes:
        check_way(root, change.name)
        folders = [root / name for name in parents(change.name)]
        there = next(path for path in [*folders, root, *root.parents] if path.is_dir())
        if not os.access(there, os.W_OK | os.X_OK):
            raise not_writable(there, PermissionError(13, "Permission denied"))


def make_changes(root: Path, changes: Sequence[Change]) -> None:
    """Make *changes* below *root*: what stands before is gone, what comes after is there, in their order.

    Raises:
        SettingsError: a file has changed since it was looked at.
        BackendError, NotPermittedError: something cannot be written. What is there then is what an interrupted run
            leaves: the next one completes it.
    """
    if not changes:
        return
    stage = root / STAGE
    try:
        if stage.is_dir():  # of a run that had no plan yet
            shutil.rmtree(stage)
        stage.mkdir()
        steps = []
        for number, change in enumerate(changes):
            if change.after:
                put(stage / str(number), change.after, _like(root / change.name))
            steps.append(_Step(change.name, _word(change.before), _word(change.after), str(number)))
        write_whole(stage / _PLAN, json.dumps([vars(step) for step in steps]))
        _make(root, steps)
    except OSError as error:
        raise not_writable(stage, error) from error


def finish_changes(root: Path, say: Say) -> None:
    """Make what an interrupted run has left of its changes below *root*.

    Raises:
        SettingsError: a file has changed since, or the plan is damaged.
        BackendError, NotPermittedError: something cannot be written.
    """
    plan = root / STAGE / _PLAN
    if not plan.is_file():
        return
    try:
        steps = [_parsed(found) for found in json.loads(plan.read_bytes())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        msg = f"{plan} is damaged: {printable(error)}; look at what git shows, and remove {plan.parent}"
        raise SettingsError(msg) from error
    say("an earlier run was interrupted: its changes are completed first")
    try:
        _make(root, steps)
    except OSError as error:
        raise not_writable(root, error) from error


def _parsed(found: Any) -> _Step:
    step = _Step(**{name: str(found[name]) for name in ("name", "before", "after", "staged")})
    check_name(step.name)
    if not step.staged.isdecimal():
        raise ValueError(step.staged)
    return step


def _make(root: Path, steps: Sequence[_Step]) -> None:
    stage = root / STAGE
    for step in steps:
        path = root / step.name
        check_way(root, step.name)
        there = _word(read_file(path))
        if there == step.after:
            continue
        if there != step.before:
            msg = (
                f"{path} has changed since it was looked at; move it away, run this again, and bring your change "
                "back to the file that is there then"
            )
            raise SettingsError(msg)
        if step.after:
            path.parent.mkdir(parents=True, exist_ok=True)
            (stage / step.staged).replace(path)
        else:
            path.unlink()
            _remove_empty(root, step.name)
    (stage / _PLAN).unlink()
    shutil.rmtree(stage)


def _remove_empty(root: Path, name: str) -> None:
    for parent in parents(name):
        if any((root / parent).iterdir()):
            return
        (root / parent).rmdir()


def _like(path: Path) -> Path | None:
    return path if path.is_file() and not path.is_symlink() else None


def _word(file: File | None) -> str:
    return f"{file.mode} {file.digest}" if file else ""
