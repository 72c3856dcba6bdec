"""``from-ads.sh``: reads the YAML of `ads opctl run`, writes `config.env`, and prints the command that launches it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.errors import ExitCode, SettingsError, UsageError
from oci_cluster.moving.build_choices import build_choices
from oci_cluster.moving.cluster import convert_cluster
from oci_cluster.moving.config_file import ConfigFile, config_file
from oci_cluster.moving.conversion import Conversion, Kind, command
from oci_cluster.moving.fields import Field, read_yaml
from oci_cluster.moving.infrastructure import convert_infrastructure
from oci_cluster.moving.runtime import convert_runtime
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

PARTLY = 3
"""The exit code where a field has no counterpart, or is not known."""


@dataclass(frozen=True)
class Asked:
    """What stands on the command line."""

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
    """Convert, write and tell; return the exit code.

    Args:
        asked: The command line.
        root: The checkout.
        show: Prints a result.
        say: Tells a line to who sits there.

    Raises:
        UsageError: there is no folder to write to.
        SettingsError: the YAML describes no cluster, or a file is there that nobody has said to change.
        NotPermittedError: the file cannot be written.
    """
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
    """Return what the YAML is here.

    Raises:
        SettingsError: it cannot be read, or describes no cluster.
    """
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
