"""``from-ads.sh``: reads ADS's YAML, writes `config.env`, and prints the launch."""

from __future__ import annotations

import configparser
import difflib
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.contract.config import read_settings_file
from oci_cluster.errors import ExitCode, NotPermittedError, SettingsError, UsageError
from oci_cluster.moving.cluster import convert_cluster
from oci_cluster.moving.conversion import Conversion, Kind, command
from oci_cluster.moving.fields import Field, read_yaml
from oci_cluster.moving.infrastructure import convert_infrastructure
from oci_cluster.moving.runtime import convert_runtime
from oci_cluster.system.console import Say
from oci_cluster.system.files import write_whole
from oci_cluster.system.text import printable

PARTLY = 3
"""The exit code where a field has no counterpart, or is not known."""


@dataclass(frozen=True)
class Asked:
    """The words of the command line."""

    yaml: Path
    backend: str
    code: str = ""
    """The folder of the user's code; empty: the one that ADS has built from, else that of the YAML."""
    output: Path | None = None
    """The checkout whose config.env is written; None: this one."""
    merge: bool = False
    force: bool = False
    dry_run: bool = False


def run(asked: Asked, root: Path, show: Callable[[str], None], say: Say) -> int:
    """Convert, write and tell; return the exit code."""
    folder = asked.output or root
    if not folder.is_dir():
        raise UsageError(f"--output {folder} is not a folder; name a checkout, or a project with scripts/launch.sh")
    found = convert(asked)
    _tell(found, asked.yaml.name, say)
    file = config_file(folder, found.settings, printable(asked.yaml.name, 100), is_merged=asked.merge)
    for name in file.kept:
        say(f"{file.path.name} keeps its own {name}; {asked.yaml.name} has {found.settings[name]}")
    launch = command(found, _launch_script(folder))
    if asked.dry_run:
        show(file.after)
    else:
        _write(file, asked, say)
    if file.before is None and "REGISTRY" in found.settings:
        say(f"before the first launch, in {folder}: make build-{found.framework} push-{found.framework}")
    show(launch)
    return ExitCode.OK if found.is_whole else PARTLY


def convert(asked: Asked) -> Conversion:
    """Return what the YAML is here."""
    root = read_yaml(asked.yaml)
    found = Conversion()
    found.settings["BACKEND"] = asked.backend
    top = found.open(root, "kind", "apiVersion", "spec")
    if "kind" not in top or top["kind"].text() != "distributed":
        kind = top["kind"].text() if "kind" in top else ""
        where = top["kind"].where if "kind" in top else "line 1, kind"
        raise SettingsError(
            f"{where}: expected kind: distributed, of ads opctl run, got '{printable(kind, 100)}'; ads.jobs is not read"
        )
    parts = found.open(top["spec"], "infrastructure", "cluster", "runtime") if "spec" in top else {}
    if "cluster" not in parts:
        raise SettingsError(f"{asked.yaml.name} has no spec.cluster; give the YAML of ads opctl run")
    if "infrastructure" in parts:
        convert_infrastructure(found, parts["infrastructure"])
    built = build_choices(asked.yaml.parent)
    convert_cluster(found, parts["cluster"], _display_name(parts.get("infrastructure")), built.registry)
    if "runtime" in parts:
        folder = Path(asked.code).expanduser() if asked.code else asked.yaml.parent / built.source_folder
        convert_runtime(found, parts["runtime"], Path(os.path.abspath(folder)))  # noqa: PTH100 - links stay
    else:
        found.lose(parts["cluster"], "there is no spec.runtime: without a script, the framework's example is launched")
    return found


def _display_name(infrastructure: Field | None) -> Field | None:
    spec = infrastructure.mapping().get("spec") if infrastructure else None
    return spec.mapping().get("displayName") if spec else None


def _tell(found: Conversion, source: str, say: Say) -> None:
    """Name each field that was not simply taken."""
    say(f"{found.taken} fields of {source} are taken: {found.framework}, workers: {found.workers}")
    for kind in Kind:
        for note in sorted((note for note in found.notes if note.kind is kind), key=lambda note: note.line):
            say(f"{kind.value}: {source}:{note.line}: {note.path}: {printable(note.why)}")
    if not found.is_whole:
        count = sum(note.kind in {Kind.LOST, Kind.UNKNOWN} for note in found.notes)
        say(f"fields to look at before the launch: {count}, see '{Kind.LOST.value}' and '{Kind.UNKNOWN.value}' above")


def _write(file: ConfigFile, asked: Asked, say: Say) -> None:
    if not file.is_changed:
        say(f"{file.path} has all of it already, and is as it was")
        return
    if file.before is not None and not (asked.merge or asked.force):
        say(f"what would change in {file.path}:\n{file.difference()}")
        raise SettingsError(
            f"{file.path} is there, and stays as it is; --merge adds what it lacks, --force replaces it by these lines"
        )
    if file.before is not None:
        say(f"changed in {file.path}:\n{file.difference()}")
    file.write()
    say(f"{file.path} written")


def _launch_script(folder: Path) -> str:
    """Return how launch.sh of *folder* is called from where its user is."""
    return "./scripts/launch.sh" if folder.resolve() == Path.cwd().resolve() else str(folder / "scripts" / "launch.sh")


NAME = "config.env"
# Nothing in it is a secret, and colleagues with other accounts may read it.
_MODE = 0o644


@dataclass(frozen=True)
class ConfigFile:
    """A file of settings: as it is, and as it would be."""

    path: Path
    before: str | None
    """None: there is none."""
    after: str
    kept: tuple[str, ...] = ()
    """Settings that have another value there, which stays."""

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after

    def difference(self) -> str:
        """Return what would change, as `diff -u` shows it."""
        before = (self.before or "").splitlines()
        lines = difflib.unified_diff(before, self.after.splitlines(), self.path.name, "as it would be", lineterm="")
        return "\n".join(lines)

    def write(self) -> None:
        """Write it whole."""
        try:
            write_whole(self.path.resolve(), self.after, mode=_MODE)
        except OSError as error:
            raise NotPermittedError(
                f"{self.path} cannot be written: {error.strerror}; allow it, or name another folder with --output"
            ) from error


def config_file(folder: Path, settings: Mapping[str, str], source: str, *, is_merged: bool) -> ConfigFile:
    """Return the file of settings in *folder* as it would be with *settings*."""
    path = folder / NAME
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    if before is None or not is_merged:
        return ConfigFile(path, before, _text(settings, f"Made of {source} by from-ads.sh"))
    there = read_settings_file(path)
    lacking = {name: text for name, text in settings.items() if name not in there}
    kept = tuple(name for name, text in settings.items() if there.get(name, text) != text)
    if not lacking:
        return ConfigFile(path, before, before, kept)
    start = before if before.endswith("\n") or not before else f"{before}\n"
    blank = "\n" if start else ""
    return ConfigFile(path, before, f"{start}{blank}{_text(lacking, f'Added of {source} by from-ads.sh')}", kept)


def _text(settings: Mapping[str, str], title: str) -> str:
    lines = [f"# {title}; config.env.example explains each setting."]
    lines += [f"{name}={shlex.quote(text)}" for name, text in settings.items()]
    if settings.get("BACKEND") == "oci" and "TTL" not in settings:
        lines += [
            "",
            "# ADS had no limit: here a cluster on OCI ends after a day, unless this says otherwise.",
            "# TTL=1d",
        ]
    return "\n".join([*lines, ""])


_NAME = "config.ini"
_MOST_BYTES = 20_000


@dataclass(frozen=True)
class BuildChoices:
    """Values of ADS's `config.ini`; empty where it has none."""

    registry: str = ""
    """The image without its tag, which `image: "@image"` stands for."""
    source_folder: str = ""
    """The folder of the code, relative to that of the file."""


def build_choices(folder: Path) -> BuildChoices:
    """Return what `config.ini` of ADS's `build-image` says in *folder*."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        with (folder / _NAME).open(encoding="utf-8") as file:
            parser.read_string(file.read(_MOST_BYTES))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return BuildChoices()
    found = {name: value.strip() for section in parser.values() for name, value in section.items() if value}
    return BuildChoices(found.get("registry", ""), found.get("source_folder", ""))
