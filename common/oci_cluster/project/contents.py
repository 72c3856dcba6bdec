"""What of a version goes into a project: its own list, ``scripts/templates/project/contents.txt``, says it.

The list is part of the version, so that an older ``update.sh`` knows what belongs to a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oci_cluster.errors import SettingsError
from oci_cluster.project.files import File, Files, check_name
from oci_cluster.system.text import printable

LIST = "scripts/templates/project/contents.txt"
_FRAMEWORK = "{framework}"
# Where a version may write in a project: a workflow, or a file that a shell reads, would run there.
_FOLDERS = ("common/", "scripts/", f"{_FRAMEWORK}/")
_FILES = ("config.env.example",)
_STARTERS = ("README.md", "CLUSTERS.md", ".dockerignore")


@dataclass(frozen=True)
class Contents:
    """What goes where.

    Attributes:
        places: Folders and files that go, and where to.
        left_out: Of what is in these folders, what does not go.
        starters: Files that ``new.sh`` puts at the first of several names that nothing has, and ``update.sh`` never.
    """

    places: Sequence[tuple[str, str]]
    left_out: Sequence[str]
    starters: Sequence[tuple[str, Sequence[str]]]

    def roots(self, frameworks: Sequence[str]) -> list[str]:
        """Return the folders and files of a checkout that hold all that goes with *frameworks*."""
        named = [source for source, _ in (*self.places, *self.starters)]
        found = [name for place in named for name in _each(place, frameworks)]
        return list(dict.fromkeys(name.rstrip("/") for name in found))

    def sources(self, files: Files, frameworks: Sequence[str]) -> dict[str, str]:
        """Return for each file of a project with *frameworks* which of *files* it is, starters apart."""
        found = {}
        for place, goal in self.places:
            for source, target in zip(_each(place, frameworks), _each(goal, frameworks), strict=True):
                if source in files:
                    found[target] = source
                if source.endswith("/"):
                    inside = [name for name in files if name.startswith(source) and not self._is_left_out(name)]
                    found |= {target + name.removeprefix(source): name for name in inside}
        return found

    def _is_left_out(self, name: str) -> bool:
        return any(name == place or (place.endswith("/") and name.startswith(place)) for place in self.left_out)


def read_contents(files: Files, where: str) -> Contents:
    """Return what the list among *files* says; *where* names them for people.

    Raises:
        SettingsError: there is none, or a line of it is not understood.
    """
    if LIST not in files:
        msg = f"{where} has no {LIST}; name a checkout of the templates, an archive of one, or a git URL and a ref"
        raise SettingsError(msg)
    places: list[tuple[str, str]] = []
    left_out: list[str] = []
    starters: list[tuple[str, Sequence[str]]] = []
    for number, line in enumerate(files[LIST].content.decode(errors="replace").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            if text.startswith("- "):
                left_out.append(_checked(text[2:]))
            elif text.startswith("? "):
                source, _, goals = text[2:].partition(" -> ")
                starters.append((_checked(source), [_goal(each, _STARTERS) for each in (goals or source).split(" | ")]))
            else:
                source, _, goal = text.partition(" -> ")
                places.append((_checked(source), _goal(goal or source, _FILES)))
                if (_FRAMEWORK in goal) > (_FRAMEWORK in source):  # one file, to each framework's folder
                    places[-1] = (f"{source}{_EACH}", goal)
        except ValueError as error:
            msg = f"{where}: {LIST}:{number}: {error}; if that version is right, its own update.sh is needed"
            raise SettingsError(msg) from error
    return Contents(places, left_out, starters)


# Marks a source that goes to each framework's folder; no name of a file has it.
_EACH = "\0"


def _each(place: str, frameworks: Sequence[str]) -> list[str]:
    if place.endswith(_EACH):
        return [place.rstrip(_EACH)] * len(frameworks)
    return [place.replace(_FRAMEWORK, name) for name in frameworks] if _FRAMEWORK in place else [place]


def _goal(name: str, files: Sequence[str]) -> str:
    """Return the checked *name* of something in a project.

    Raises:
        ValueError: it is none of *files*, nor in a folder of the templates.
    """
    name = _checked(name)
    if name not in files and not name.startswith(_FOLDERS):
        msg = f"'{printable(name)}' is in none of {', '.join(_FOLDERS)}, where a version writes"
        raise ValueError(msg)
    return name


def _checked(name: str) -> str:
    name = name.strip()
    check_name(name.removesuffix("/"))
    return name


def frameworks_of(files: Files) -> list[str]:
    """Return the frameworks that *files* have: folders with start scripts."""
    found = (name.partition("/")[0] for name in files if name.count("/") == 1 and name.endswith("/start-master.sh"))
    return sorted(name for name in found if not name.startswith("."))


def chosen(files: Files, sources: Mapping[str, str]) -> dict[str, File]:
    """Return the files of a project, out of *files* of a version."""
    return {target: files[source] for target, source in sources.items()}
