"""`kind: job` of ADS's jobs, with a runtime `pyTorchDistributed`: its command, nodes and code."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from oci_cluster.ads_migration.cluster import count_of, take_name, variables_of
from oci_cluster.ads_migration.conversion import Conversion, Kind
from oci_cluster.ads_migration.fields import Field
from oci_cluster.ads_migration.infrastructure import (
    convert_infrastructure,
    display_name,
    take_defined_tags,
    take_freeform_tags,
)
from oci_cluster.ads_migration.runtime import take_entry_point, take_fetched_code
from oci_cluster.errors import SettingsError
from oci_cluster.system.files import at_home
from oci_cluster.system.text import printable

TYPE = "pyTorchDistributed"
# Of other types: what their jobs are here.
_OTHERS = {
    "container": "its command is its image's own; to train with it, give ./scripts/launch.sh your script",
    "python": "it is one node: ./scripts/launch.sh pytorch 0 --entry FILE",
    "gitPython": "it is one node: CODE_URI=git+URL@REF ./scripts/launch.sh pytorch 0 --entry FILE",
    "notebook": "it is one node: ./scripts/launch.sh pytorch 0 --entry FILE.ipynb",
    "script": "it is one node, and a script of Python's runs there: ./scripts/launch.sh pytorch 0 --entry FILE",
}
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
# Options of these that the launch decides, as ADS does, without dashes and underscores.
_DECIDED = {
    *("nnodes", "noderank", "masteraddr", "masterport", "localaddr", "standalone", "rdzvbackend", "rdzvendpoint"),
    *("rdzvid", "numprocesses", "nummachines", "machinerank", "mainprocessip", "mainprocessport"),
    *("hostfile", "numnodes", "numgpus"),
}
# Others that are settings here.
_SETTINGS = {"nprocpernode": "NPROC_PER_NODE", "maxrestarts": "MAX_RESTARTS"}
_PER_GPU = {"auto", "gpu"}


def convert_job(found: Conversion, spec: Field, folder: Path, *, is_named: bool) -> None:
    """Take `spec` of `kind: job`.

    The code is in *folder*, which somebody has named or which is the YAML's.
    """
    parts = found.open(spec, "id", "name", "infrastructure", "runtime")
    if "runtime" not in parts:
        raise SettingsError(f"{spec.where}: a job of ADS's has runtime; give the YAML of job.to_yaml()")
    outer = found.open(parts["runtime"], "kind", "type", "apiVersion", "spec")
    kind = outer["type"].text() if "type" in outer else ""
    if kind != TYPE or "spec" not in outer:
        why = _OTHERS.get(kind, "see docs/from-ads.md")
        at = outer.get("type", parts["runtime"]).where
        raise SettingsError(f"{at}: of jobs, those of the type {TYPE} are read, got '{printable(kind, 100)}'; {why}")
    found.framework = "pytorch"
    if "id" in parts:
        found.note(Kind.NO_NEED, parts["id"], "each launch is a Job of its own")
    infrastructure = parts.get("infrastructure")
    if infrastructure is not None:
        convert_infrastructure(found, infrastructure)
    take_name(found, parts.get("name"), display_name(infrastructure))
    _Runtime(found, outer["spec"], folder, is_named=is_named).take()


class _Runtime:
    """`spec.runtime.spec` of one job."""

    def __init__(self, found: Conversion, spec: Field, folder: Path, *, is_named: bool) -> None:
        self._found, self._spec, self._folder, self._is_named = found, spec, folder, is_named
        self._fields = found.open(spec, *FIELDS)
        self._inside = ""
        """What paths in the command begin with, in the artifact of ADS's job: the folder's name."""

    def take(self) -> None:
        """Take all fields."""
        self._take_count()
        self._take_source()
        self._take_command()
        for name, take in _TAKEN.items():
            if name in self._fields:
                take(self._found, self._fields[name])
        if "dependencies" in self._fields:
            self._take_dependencies(self._fields["dependencies"])
        for kind, reasons in ((Kind.NO_NEED, _NO_NEED), (Kind.LOST, _LOST)):
            for name, why in reasons.items():
                if name in self._fields:
                    self._found.note(kind, self._fields[name], why)

    def _take_count(self) -> None:
        """Take the number of nodes, of which main is one."""
        if replicas := self._fields.get("replicas"):
            self._found.workers = count_of(replicas, minimum=1) - 1
            self._found.taken += 1

    def _take_source(self) -> None:
        source, git = self._fields.get("scriptPathURI"), self._fields.get("git")
        if git is not None:
            fields = self._found.open(git, "url", "branch", "commit", "gitSecretId")
            named = {"uri": fields["url"]} if "url" in fields else {}
            take_fetched_code(self._found, {**fields, **named, "type": git}, "git")
        elif source is not None and not self._is_named:
            path = at_home(source.text())
            where = self._folder / path
            if "://" in source.text() or path.suffix in {".zip", ".tar", ".gz", ".tgz"}:
                self._found.lose(source, "unpack it here, and name the folder with --code DIR")
            elif where.is_file():
                self._folder = where.parent
            else:
                self._folder, self._inside = where, f"{path.name}/"
        elif source is not None:
            self._inside = f"{self._folder.name}/"

    def _take_command(self) -> None:
        found, field = self._found, self._fields.get("command")
        entry, args = self._fields.get("entrypoint"), self._fields.get("args")
        given = [] if args is None else [item.text() for item in args.items()]
        # ADS puts arguments before a command, and behind a script.
        words = (
            [*given, *_split(field)] if field is not None else ["torchrun", *(_split(entry) if entry else []), *given]
        )
        at = field or entry or args or self._spec
        launcher = words[0] if words else ""
        rest = words[2:] if words[:2] == ["accelerate", "launch"] else words[1:]
        if launcher not in _LAUNCHERS:
            found.lose(
                at, "torchrun, accelerate launch or deepspeed start the ranks here; give your script: --entry FILE"
            )
            return
        place = next((number for number, word in enumerate(rest) if word.endswith(".py")), len(rest))
        modules = [number for number, word in enumerate(rest[:place]) if word in {"-m", "--module"}]
        if launcher != "torchrun":
            found.variables["LAUNCHER"] = launcher
        if launcher == "deepspeed":
            found.note(Kind.CHANGED, at, "the image has no DeepSpeed; build it in, pytorch/README.md")
        if modules and modules[0] + 1 < len(rest):
            place = modules[0] + 1
            found.set("ENTRY_MODULE", rest[place], at)
            found.settings["CODE_DIR"] = str(self._folder)
        elif place == len(rest):
            found.lose(at, "it names no script of Python's; without one, the framework's example is launched")
        else:
            self._take_script(at, rest[place])
        self._take_options(at, rest[: modules[0] if modules else place])
        if rest[place + 1 :]:
            found.set("ARGS", json.dumps([found.inside_code(word, at) for word in rest[place + 1 :]]), at)

    def _take_script(self, at: Field, script: str) -> None:
        working = self._fields.get("workingDir")
        inside = working.text().strip().strip("/").removeprefix(".").strip("/") if working else ""
        path = f"{inside}/{script.removeprefix('./')}".lstrip("/")
        own = path.removeprefix(self._inside)
        is_fetched = "git" in self._fields
        below = inside.removeprefix(self._inside.rstrip("/")).strip("/")
        if below and not is_fetched:
            # The script runs in the folder of its code: so that is ADS's working directory.
            self._folder, own = self._folder / below, own.removeprefix(f"{below}/")
        elif below and working:
            self._found.lose(working, f"the script runs in the folder of the code, and not in {below}")
        take_entry_point(self._found, at, own, self._folder, is_fetched=is_fetched)

    def _take_options(self, at: Field, options: list[str]) -> None:
        """Take the launcher's *options*; those that are left are handed on."""
        left: list[str] = []
        number = 0
        while number < len(options):
            name, equals, value = options[number].partition("=")
            is_pair = not equals and number + 1 < len(options) and not options[number + 1].startswith("-")
            key, text = re.sub("[-_]", "", name), options[number + 1] if is_pair else value
            if key in _SETTINGS and text not in _PER_GPU:
                self._found.variables[_SETTINGS[key]] = text
            elif key in _DECIDED or key in _SETTINGS:
                self._found.note(Kind.NO_NEED, at, "the launch decides it", name)
            else:
                left += options[number : number + 1 + is_pair]
            number += 1 + is_pair
        if left:
            self._found.variables["LAUNCHER_ARGS"] = shlex.join(left)

    def _take_dependencies(self, dependencies: Field) -> None:
        fields = self._found.open(dependencies, "pipRequirements", "pipPackages")
        path = fields.get("pipRequirements")
        if path is not None and "git" not in self._fields:
            own = path.text().removeprefix(self._inside)
            self._found.set("EXTRA_ENV", str(self._folder / own), path)
            self._found.note(Kind.CHANGED, path, "the image gets them when it is built, and no node installs anything")
        elif path is not None:
            self._found.lose(path, "copy the file here, and build it into the image: EXTRA_ENV=FILE")
        if "pipPackages" in fields:
            why = "list them in a file, and build them into the image: EXTRA_ENV=requirements.txt"
            self._found.lose(fields["pipPackages"], why)


def _split(field: Field) -> list[str]:
    try:
        return shlex.split(field.text())
    except ValueError as error:
        raise SettingsError(f"{field.where}: {error}") from error


def _take_env(found: Conversion, env: Field) -> None:
    """Take the variables; the SDK writes them as a list or as fields."""
    if isinstance(env.value, dict):
        variables = [(item, name, item.text()) for name, item in env.mapping().items()]
    else:
        variables = variables_of(found, env)
    for item, name, text in variables:
        found.set_variable(item, name, text)


def _take_output(found: Conversion, folder: Field) -> None:
    found.outputs = folder.text().strip().strip("/")
    found.taken += 1
    found.note(Kind.CHANGED, folder, "what the script writes there goes to <WORK_DIR>/<cluster>/outputs")


def _take_longest(found: Conversion, minutes: Field) -> None:
    found.set("MAX_RUNTIME", f"{minutes.text()}m", minutes)


_TAKEN: dict[str, Callable[[Conversion, Field], None]] = {
    "env": _take_env,
    "outputDir": _take_output,
    "outputUri": Conversion.set_work_dir,
    "maximumRuntimeInMinutes": _take_longest,
    "freeformTags": take_freeform_tags,
    "definedTags": take_defined_tags,
}
_NO_NEED = {
    "conda": "the image has Python and PyTorch, of the versions in pytorch/env.yaml",
    "deepspeed": "nodes need no host file and no ssh key; the command says what is launched",
    "pythonPath": "modules beside the script and in the folder of the code can be imported",
}
_LOST = {
    "inputs": "no file is copied before the start: have the script read it, or mount it: STORAGE_MOUNTS",
    "entryFunction": "a script is run, and no function of it",
}
FIELDS = (
    *("replicas", "command", "entrypoint", "args", "git", "scriptPathURI", "workingDir", "dependencies"),
    *(*_TAKEN, *_NO_NEED, *_LOST),
)
