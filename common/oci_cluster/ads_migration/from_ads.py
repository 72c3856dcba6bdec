"""``from-ads.sh``: reads ADS's YAML, writes `config.env`, and prints the launch."""

from __future__ import annotations

import configparser
import difflib
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.ads_migration.cluster import convert_cluster
from oci_cluster.ads_migration.conversion import Conversion, Kind, command
from oci_cluster.ads_migration.fields import read_yaml
from oci_cluster.ads_migration.infrastructure import convert_infrastructure, display_name
from oci_cluster.ads_migration.job import convert_job
from oci_cluster.ads_migration.runtime import convert_runtime
from oci_cluster.contract.settings.ads_names import settings_of
from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.contract.settings.settings_files import framework_defaults, framework_dir, read_settings_file
from oci_cluster.errors import ExitCode, NotPermittedError, SettingsError, UsageError
from oci_cluster.system.console import Say
from oci_cluster.system.files import at_home, write_whole
from oci_cluster.system.text import printable

PARTLY = 3
"""The exit code where a field has no counterpart, or is not known."""
# Settings of one script, of one shape, and of one launch: once config.env has those of one YAML, those of others are in
# the printed command alone. With what a command without them says; an empty setting counts as not given: nothing takes
# it back.
_OF_SCRIPT = {
    "ENTRY_POINT": "",
    "ENTRY_MODULE": "",
    "CODE_URI": "",
    "CODE_DIR": ".",
    "ARGS": "[]",
    "NAMED_ARGS": "{}",
}
_OF_SHAPE = {"OCPUS": "", "MEMORY_GBS": ""}
# Of a launch, besides what ADS gives by variables and options.
_OF_LAUNCH = ("HOROVOD_FRAMEWORK", "MAX_RUNTIME")
# Of a `config.ini`.
_MOST_BYTES = 20_000


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
    found, source = convert(asked), asked.yaml.name
    _tell(found, source, say)
    path = folder / "config.env"
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    there = read_settings_file(path) if before is not None and asked.merge else {}
    differing, kept, left = _divided(found, there, asked.backend)
    if left:
        told = f"{path} has {', '.join(left)} of another launch, and {source} has none"
        say(f"no launch is printed: {told}; take it out of there, or give {source} a project of its own: --output")
        return PARTLY
    for name, text in differing.items():
        keeps = f"keeps its own {name}" if name in there else f"gets no {name}, as it has another launch's"
        say(f"{path.name} {keeps}; the launch below has {text}, as {source}")
    after = _merged(before if asked.merge else None, there, kept, printable(source, 100))
    # As its user calls it from where he is.
    launch = (
        "./scripts/launch.sh" if folder.resolve() == Path.cwd().resolve() else str(folder / "scripts" / "launch.sh")
    )
    if asked.dry_run:
        show(after)
    else:
        _write(path, before, after, asked, say)
    if before is None and "REGISTRY" in found.settings:
        say(f"before the first launch, in {folder}: make build-{found.framework} push-{found.framework}")
    show(" ".join([*(f"{name}={shlex.quote(text)}" for name, text in differing.items()), command(found, launch)]))
    return ExitCode.OK if found.is_whole else PARTLY


def _divided(
    found: Conversion, there: Mapping[str, str], backend: str
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the settings of the command, those of config.env, and what is wrong *there*.

    The environment wins over config.env: so the printed launch is that of this YAML, whatever is there.
    """
    settings = found.settings
    has_script = bool({"ENTRY_POINT", "ENTRY_MODULE"} & {*there})
    has_shape = bool(there.get("SHAPE") and settings.get("SHAPE", there["SHAPE"]) != there["SHAPE"])
    apart = {**({**_OF_SCRIPT, **_of_launch(found, backend)} if has_script else {}), **(_OF_SHAPE if has_shape else {})}
    wanted = {**{name: text for name, text in apart.items() if name in there}, **settings}
    kept = {name: text for name, text in settings.items() if name not in apart}
    differing = {name: text for name, text in wanted.items() if there.get(name, text if name in kept else "") != text}
    return differing, kept, [name for name, text in differing.items() if not text]


def _of_launch(found: Conversion, backend: str) -> dict[str, str]:
    """Return the framework's settings of one launch, with their defaults. Empty: there is none."""
    own = framework_defaults(framework_dir(found.framework))
    defaults = {name: row.backend_defaults.get(backend, row.default or "") for name, row in SETTINGS.items()} | own
    return {name: defaults[name] for name in sorted({*settings_of(found.framework), *_OF_LAUNCH}) if name in defaults}


def convert(asked: Asked) -> Conversion:
    """Return what the YAML is here."""
    root = read_yaml(asked.yaml)
    found = Conversion()
    found.settings["BACKEND"] = asked.backend
    top = found.open(root, "kind", "apiVersion", "spec")
    kind = top["kind"].text() if "kind" in top else ""
    if kind not in {"distributed", "job"}:
        where = top["kind"].where if "kind" in top else "line 1, kind"
        raise SettingsError(
            f"{where}: expected kind: distributed, of ads opctl run, or kind: job, got '{printable(kind, 100)}'"
        )
    built = _build_choices(asked.yaml.parent)
    folder = at_home(asked.code) if asked.code else asked.yaml.parent / built.get("source_folder", "")
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay
    if kind == "job":
        if "spec" not in top:
            raise SettingsError(f"{asked.yaml.name} has no spec; give the YAML of job.to_yaml()")
        convert_job(found, top["spec"], folder, is_named=bool(asked.code))
        return found
    parts = found.open(top["spec"], "infrastructure", "cluster", "runtime") if "spec" in top else {}
    if "cluster" not in parts:
        raise SettingsError(f"{asked.yaml.name} has no spec.cluster; give the YAML of ads opctl run")
    if "infrastructure" in parts:
        convert_infrastructure(found, parts["infrastructure"])
    convert_cluster(found, parts["cluster"], display_name(parts.get("infrastructure")), built.get("registry", ""))
    if "runtime" in parts:
        convert_runtime(found, parts["runtime"], folder)
    else:
        found.lose(parts["cluster"], "there is no spec.runtime: without a script, the framework's example is launched")
    return found


def _tell(found: Conversion, source: str, say: Say) -> None:
    say(f"{found.taken} fields of {source} are taken: {found.framework}, workers: {found.workers}")
    for kind in Kind:
        for note in sorted((note for note in found.notes if note.kind is kind), key=lambda note: note.line):
            say(f"{kind.value}: {source}:{note.line}: {note.path}: {printable(note.why)}")
    if not found.is_whole:
        count = sum(note.kind in {Kind.LOST, Kind.UNKNOWN} for note in found.notes)
        say(f"fields to look at before the launch: {count}, see '{Kind.LOST.value}' and '{Kind.UNKNOWN.value}' above")


def _merged(before: str | None, there: Mapping[str, str], settings: Mapping[str, str], source: str) -> str:
    """Return a new `config.env` of *settings*, or that of *before* with what it lacks."""
    if before is None:
        return _text(settings, f"Made from {source} by from-ads.sh")
    lacking = {name: text for name, text in settings.items() if name not in there}
    if not lacking:
        return before
    start = before if before.endswith("\n") or not before else f"{before}\n"
    blank = "\n" if start else ""
    return f"{start}{blank}{_text(lacking, f'Added from {source} by from-ads.sh')}"


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


def _write(path: Path, before: str | None, after: str, asked: Asked, say: Say) -> None:
    if before == after:
        say(f"{path} is as it was")
        return
    if before is not None:
        is_wanted = asked.merge or asked.force
        now = "as it is now" if is_wanted else "as it would be"
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path.name, now, lineterm="")
        difference = "\n".join(lines)
        say(f"{'changed' if is_wanted else 'what would change'} in {path}:\n{difference}")
        if not is_wanted:
            raise SettingsError(
                f"{path} is there, and stays as it is; --merge adds what it lacks, --force replaces it by these lines"
            )
    try:
        # Nothing in it is a secret, and colleagues with other accounts may read it.
        write_whole(path.resolve(), after, mode=0o644)
    except OSError as error:
        raise NotPermittedError(
            f"{path} cannot be written: {error.strerror}; allow it, or name another folder with --output"
        ) from error
    say(f"{path} written")


def _build_choices(folder: Path) -> dict[str, str]:
    """Return what `config.ini` of ADS's `build-image` says in *folder*; nothing where it is none.

    ``registry`` is the image without its tag, which `image: "@image"` means; ``source_folder`` is that of the code.
    """
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        with (folder / "config.ini").open(encoding="utf-8") as file:
            parser.read_string(file.read(_MOST_BYTES))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    return {name: value.strip() for section in parser.values() for name, value in section.items() if value}
