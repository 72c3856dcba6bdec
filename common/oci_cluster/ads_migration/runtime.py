"""`spec.runtime`: the script, its arguments, and where its code comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path

from oci_cluster.ads_migration.cluster import variables_of
from oci_cluster.ads_migration.conversion import Conversion, Kind
from oci_cluster.ads_migration.fields import Field
from oci_cluster.contract.parsers import parse_named_args
from oci_cluster.contract.settings import ads_names

_OF_FETCHED = ("uri", "branch", "commit", "gitSecretId", "codeDir", "pythonPath")
# Enough of a script to see what it imports.
_SCRIPT_BYTES = 200_000


def convert_runtime(found: Conversion, runtime: Field, folder: Path) -> None:
    """Take `spec.runtime`."""
    outer = found.open(runtime, "kind", "type", "apiVersion", "spec")
    if "kind" in outer and outer["kind"].text() != "python":
        found.lose(outer["kind"], "ADS, too, runs Python scripts alone: python")
    if "spec" not in outer:
        found.lose(runtime, "no script is named; without one, the framework's example is launched")
        return
    fields = found.open(outer["spec"], "entryPoint", "args", "kwargs", "env", *_OF_FETCHED)
    kind = outer["type"].text() if "type" in outer else ""
    if kind and "codeDir" in fields:
        found.code_dir = fields["codeDir"].text()
    if kind:
        take_fetched_code(found, {**fields, "type": outer["type"]}, kind)
    else:
        for name in _OF_FETCHED:
            if name in fields:
                found.note(Kind.NO_NEED, fields[name], "ADS, too, reads it only where runtime.type is git or remote")
    if "entryPoint" in fields:
        entry = ads_names.inside_code(fields["entryPoint"].text().strip(), found.code_dir)
        take_entry_point(found, fields["entryPoint"], entry, folder, is_fetched=bool(kind))
    else:
        found.lose(outer["spec"], "no script is named; without one, the framework's example is launched", "entryPoint")
    _take_arguments(found, fields.get("args"), fields.get("kwargs"))
    for variable, name, text in variables_of(found, fields["env"]) if "env" in fields else []:
        found.set_variable(variable, name, text)


def take_entry_point(found: Conversion, field: Field, entry: str, folder: Path, *, is_fetched: bool) -> None:
    """Take the script *entry* of *field*, in *folder* where nodes do not fetch it."""
    found.set("ENTRY_POINT", entry, field)
    if is_fetched or found.settings.get("ENTRY_POINT") != entry:
        return
    if Path(entry).is_absolute():
        # A file that the image has elsewhere: nothing can be sent for it.
        found.settings["CODE_URI"] = "image"
        found.note(Kind.CHANGED, field, "outside of /code it is a file of the image: build it in, docs/images.md")
        return
    found.settings["CODE_DIR"] = str(folder)
    script = folder / entry
    if not os.path.isfile(script):  # noqa: PTH113 - pathlib's raises for a name that is too long
        found.lose(field, f"there is no {script}: name the folder of the code with --code DIR")
    elif found.framework == "horovod":
        _take_binding(found, script)
    if folder.is_dir():
        found.note(Kind.CHANGED, field, f"the code goes with each launch, from {folder}: a change needs no new image")


def _take_binding(found: Conversion, script: Path) -> None:
    """Take Horovod's binding from the script, as ADS has no field for it."""
    with script.open("rb") as file:
        text = file.read(_SCRIPT_BYTES)
    if b"horovod.tensorflow" in text or b"horovod.keras" in text:
        found.settings["HOROVOD_FRAMEWORK"] = "tensorflow"
    elif b"horovod.torch" in text:
        found.settings["HOROVOD_FRAMEWORK"] = "pytorch"


def take_fetched_code(found: Conversion, fields: dict[str, Field], kind: str) -> None:
    """Take code that each node fetches."""
    text = {name: fields[name].text().strip() for name in _OF_FETCHED if name in fields}
    get = text.get
    uri = ads_names.code_uri(kind, get("uri", ""), get("branch", ""), get("commit", ""))
    if not uri:
        found.lose(fields["type"], "ADS knows the types git and remote, with a uri; send the code instead: --code DIR")
        return
    found.set("CODE_URI", uri, fields["uri"])
    if kind == "git":
        found.set("SYSTEM_PACKAGES", "git", fields["type"])
        found.note(Kind.CHANGED, fields["type"], "the image needs git, and gets it by SYSTEM_PACKAGES when it is built")
    else:
        why = "no hash says what the folder holds: who can write there decides what nodes run; --code DIR is checked"
        found.note(Kind.CHANGED, fields["uri"], why)
    for name, why in (
        ("branch", "the commit wins" if kind == "git" else "it is git's"),
        ("commit", "it is git's"),
    ):
        if name in text and (kind != "git" or (name == "branch" and "commit" in text)):
            found.note(Kind.NO_NEED, fields[name], why)
    if "gitSecretId" in text:
        found.lose(fields["gitSecretId"], ads_names.GIT_SECRET)
    if "codeDir" in text:
        found.note(Kind.NO_NEED, fields["codeDir"], "each node fetches the code to a place of its own, CODE_DIR")
    if "pythonPath" in text:
        found.note(Kind.NO_NEED, fields["pythonPath"], ads_names.PYTHON_PATH)


def _take_arguments(found: Conversion, args: Field | None, kwargs: Field | None) -> None:
    words: list[str] = []
    if args is not None and isinstance(args.value, list):
        for item in args.items():
            words.append(found.inside_code(item.text(), item))
            if len(ads_names.split(words[-1])) != 1:
                found.note(Kind.CHANGED, item, "it stays one argument; ADS would split it at its blanks")
    elif args is not None:
        words = [found.inside_code(word, args) for word in ads_names.split(args.text())]
    if kwargs is not None and isinstance(kwargs.value, dict):
        named = {name: value.text() for name, value in kwargs.mapping().items()}
        found.set("NAMED_ARGS", json.dumps(named), kwargs)
    elif kwargs is not None:
        text = kwargs.text().strip()
        try:
            parse_named_args(text)
            found.set("NAMED_ARGS", text, kwargs)
        except ValueError:
            words += [found.inside_code(word, kwargs) for word in ads_names.split(text)]
            found.taken += 1
    if words:
        field = args or kwargs
        assert field is not None  # noqa: S101 - words came from one of them
        found.set("ARGS", json.dumps(words), field)
