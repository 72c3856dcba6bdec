"""The user's own part of a launch: code and entry point, interpreter, packages, variables."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.settings.schema import DECIDED, FLAG_ONLY, FLAGS
from oci_cluster.contract.settings.settings_files import SettingsReader, read_settings_file
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.system.envs.package_lists import entries_of
from oci_cluster.system.files import at_home

# What Linux reads of a first line that names an interpreter.
_LONGEST_SHEBANG = 256


@contextmanager
def looking() -> Iterator[None]:
    """Raise UsageError where a path that a person has named cannot be looked at."""
    try:
        yield
    except OSError as error:  # in a folder that is another user's, or with too long a name
        advice = "allow it, or name another"
        raise UsageError(f"{error.filename} cannot be looked at: {error.strerror}; {advice}") from error


def find_interpreter(text: str, cwd: Path) -> Path:
    """Return the interpreter that ``--python`` names, or its environment's folder; else raise ValueError."""
    path = cwd / at_home(text)
    if "/" not in text and not path.exists():
        path = Path(shutil.which(text) or path)  # python3.11, as a shell finds it
    path = path / "bin" / "python" if path.is_dir() else path
    if not os.access(path, os.X_OK):
        raise ValueError(f"--python {text} is not an executable; give a Python interpreter, or an environment's folder")
    return path.absolute()  # not resolved: a venv's python is a link that must stay one


def find_code(
    read: SettingsReader, folder: Path, cwd: Path, *, ephemeral: bool, is_elsewhere: bool = False
) -> tuple[Path, dict[str, str]]:
    """Return the code directory, and what of it is run: ``ENTRY_POINT`` or ``ENTRY_MODULE``.

    Problems are noted in *read*. Code that is elsewhere (``CODE_URI``) need not be here.
    """
    code, (module, entry) = read.text("CODE_DIR"), _asked_for(read)
    if code and not (cwd / code).is_dir():
        read.complain("CODE_DIR", f"CODE_DIR: '{code}' is not a directory")
    if not ephemeral:
        for name, what in (("ENTRY_MODULE", module), ("ENTRY_POINT", entry)):
            if read.sources[0].get(name):  # typed, not standing in some file
                told = f"{name} '{what}' would not be run: with --keep a cluster runs no script"
                read.complain(name, told, "leave it out")
        return (cwd / code).resolve(), {"ENTRY_POINT": ""}  # what its workers import is where its user is
    if module:
        return _find_module(read, (cwd / code).resolve(), module, is_elsewhere=is_elsewhere)
    if not entry:
        example = folder / "example"
        if code:
            told = f"CODE_DIR '{code}' has no entry point: say with --entry which file in it is to be run"
            read.complain("CODE_DIR", told)
        elif not (example / "train.py").is_file():
            told = f"ENTRY_POINT is not set, {folder.name} has no example"
            read.complain("ENTRY_POINT", told, "give your script: --entry")
        return example, {"ENTRY_POINT": "train.py"}
    if is_elsewhere and not any((cwd / place / entry).exists() for place in ("", code)):
        code_dir, entry_point = (cwd / code).resolve(), _entry_elsewhere(read, entry)
    else:
        code_dir, entry_point = _find_entry_point(read, code, entry, cwd)
    # Nodes of this machine inherit what the launcher's environment has, and a module would win there.
    hidden = {"ENTRY_MODULE": ""} if read.text("ENTRY_MODULE") else {}
    return code_dir, {"ENTRY_POINT": entry_point, **hidden}


def find_folder(read: SettingsReader, folder: Path, cwd: Path) -> Path:
    """Return the folder in which a session works: the named one, else *cwd*.

    In the checkout itself that is the example of the framework in *folder*: the checkout is no code of the user's.
    """
    if code := read.text("CODE_DIR"):
        if not (cwd / code).is_dir():
            read.complain("CODE_DIR", f"CODE_DIR: '{code}' is not a directory")
        return (cwd / code).resolve()
    example = folder / "example"
    return example if cwd.resolve() == folder.parent.resolve() and example.is_dir() else cwd.resolve()


def check_outputs(read: SettingsReader, code_dir: Path) -> None:
    """Note in *read* where folders of outputs would hide files of *code_dir*."""
    for folder in SettingsReader(*read.sources).setting("OUTPUT_FOLDERS", []):  # bad ones are noted elsewhere
        path = code_dir / folder
        if path.is_dir() and any(not inside.name.startswith(".") for inside in path.iterdir()):
            told = f"OUTPUT_FOLDERS: '{path}' has files, which the nodes would not see there"
            read.complain("OUTPUT_FOLDERS", told, "move them to another folder, or name another")


def _asked_for(read: SettingsReader) -> tuple[str, str]:
    for source in read.sources:
        here = SettingsReader(source)
        module, entry = here.text("ENTRY_MODULE"), here.text("ENTRY_POINT")
        if module and entry:
            told = f"ENTRY_MODULE '{module}' and {FLAGS['ENTRY_POINT']} '{entry}': only one of them can be run"
            read.complain("ENTRY_MODULE", told, "leave one out")
        if module or entry:
            return module, entry
    return "", ""


def _entry_elsewhere(read: SettingsReader, entry: str) -> str:
    """Return *entry* as nodes find it in the code's folder, ``/code`` in an image."""
    path = PurePosixPath(entry)
    path = path.relative_to("/code") if path.is_relative_to("/code") else path
    if path.is_absolute() or ".." in path.parts:
        told = f"ENTRY_POINT: '{entry}' is not in the code of CODE_URI"
        read.complain("ENTRY_POINT", told, "give its path in there: train.py")
    return str(path)


def _find_module(
    read: SettingsReader, code_dir: Path, module: str, *, is_elsewhere: bool
) -> tuple[Path, dict[str, str]]:
    path = code_dir.joinpath(*module.split("."))
    if read.setting("ENTRY_MODULE") and not is_elsewhere:  # a name that is none has been noted
        is_file = path.with_name(f"{path.name}.py").is_file()
        if path.is_dir() and not is_file and not (path / "__main__.py").is_file():
            told = f"ENTRY_MODULE: '{module}' is a package without __main__.py"
            read.complain("ENTRY_MODULE", told, f"name a module in it: {module}.NAME")
        elif not is_file and not path.is_dir():
            told = f"ENTRY_MODULE: there is no module '{module}' in '{code_dir}'"
            read.complain("ENTRY_MODULE", told, "its root is named with --code DIR")
    return code_dir, {"ENTRY_MODULE": module}


def _find_entry_point(read: SettingsReader, code: str, entry: str, cwd: Path) -> tuple[Path, str]:
    # As typed from here, the way completion gives it; else as it is called inside the code directory.
    looked_at = [cwd / entry, cwd / code / entry] if code else [cwd / entry]
    for path in looked_at:
        if path.is_file():
            directory = (cwd / code).resolve() if code else path.resolve().parent
            if path.resolve().is_relative_to(directory):
                _check_can_run(read, path)
                if path.suffix == ".ipynb" and (read.text("ARGS") or read.text("NAMED_ARGS")):
                    advice = "give it variables: --env NAME=VALUE"
                    read.complain("ARGS", "ARGS: a notebook takes no arguments", advice)
                return directory, str(path.resolve().relative_to(directory))
        elif path.is_dir():
            advice = f"name the script: --code {entry} --entry FILE"
            read.complain("ENTRY_POINT", f"ENTRY_POINT: '{entry}' is a folder", advice)
            return cwd, entry
    where = f" or '{code}'" if code else ""
    told = f"ENTRY_POINT: there is no file '{entry}' in '{cwd}'{where}"
    read.complain("ENTRY_POINT", told, "give the path of your script")
    return cwd, entry


def _check_can_run(read: SettingsReader, path: Path) -> None:
    if path.suffix.lower() == ".py" or path.suffix == ".ipynb":
        return
    if not os.access(path, os.X_OK):
        advice = f"allow it: chmod +x {path.name}"
        read.complain("ENTRY_POINT", f"ENTRY_POINT: '{path.name}' is not executable", advice)
        return
    first = b""
    if os.access(path, os.R_OK):  # a program may be run by who may not read it
        with path.open("rb") as file:
            first = file.readline(_LONGEST_SHEBANG)
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        convert = f"sed -i 's/\\r$//' {path.name}"
        told = f"ENTRY_POINT: '{path.name}' has Windows line ends (CRLF), and cannot be run"
        read.complain("ENTRY_POINT", told, f"convert it: {convert}")


# A comma between two requirements: not one in brackets, nor one before the next part of a version.
_BETWEEN = re.compile(r"\s*,(?![^\[]*\])(?!\s*[<>=!~])\s*")
# A name, perhaps [extras], and then a version, a marker, or @ and a URL; the rest is pip's to judge.
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\]\s*)?([<>=!~;@].*)?")
_FILE = re.compile(r".*\.(whl|zip|tar\.gz)")
_LIST = re.compile(r"(?:(?:-r|--requirement)[\s=]*)(?P<named>\S.*)|(?P<bare>[^<>=@]*\.txt)")


def packages_of(texts: Sequence[str], python: str) -> tuple[str, ...]:
    """Return the requirements that the values of ``--with`` name, or lists of them.

    A list is a file: ``requirements.txt``, or as pip has it ``-r requirements.txt``.
    """
    words = (word.strip() for text in texts for word in _BETWEEN.split(text))
    packages = tuple(dict.fromkeys(package for word in words for package in _listed(word)))
    for word in packages:
        if not _REQUIREMENT.fullmatch(word) or _FILE.fullmatch(word):
            raise UsageError(
                f"--with '{word}' is not a package as pip names it, such as pandas or 'pandas>=2,<3'; "
                "a folder of yours is given with --code"
            )
    if packages and python:
        raise UsageError(
            f"--with adds to the framework's own environment, not to --python {python}; "
            f"install them there: python -m pip install {shlex.join(packages)}"
        )
    return packages


def _listed(word: str) -> list[str]:
    found = _LIST.fullmatch(word)
    if found is None:
        return [word]
    path = at_home(found["named"] or found["bare"])
    entries = entries_of(path)
    if option := next((entry for entry in entries if entry.startswith("-")), ""):
        instead = f"set EXTRA_ENV={shlex.quote(str(path))} instead"
        raise UsageError(f"--with {path}: '{option}' is an option of pip's, and no package; {instead}")
    return entries


ARGUMENTS = "ARGS"
"""With ``--env-plain``: the entry point's arguments, which are no variable that a person sets."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variables_of(typed: Iterable[tuple[str, str]], environ: Mapping[str, str], cwd: Path) -> list[str]:
    """Return ``NAME=VALUE`` of each variable among the options *typed*; the last counts.

    No error holds a value, which may be a secret. ``--env NAME`` takes the value that NAME has in *environ*.
    """
    pairs: list[str] = []
    for option, text in typed:
        if option == "--env" or (option == "--env-plain" and text != ARGUMENTS):
            pairs.append(_with_value(text, environ))
        elif option == "--env-file":
            pairs += [f"{name}={value}" for name, value in _read_file(cwd / at_home(text)).items()]
    return pairs


def plain_names(typed: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the names of variables that are no secrets, as the person says."""
    return frozenset(text.partition("=")[0] for option, text in typed if option == "--env-plain")


def _with_value(text: str, environ: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(text):  # NAME=VALUE; what is neither is refused where pairs are checked
        return text
    if text not in environ:
        raise UsageError(
            f"--env {text}: there is no {text} in your environment; set and export it, or write {text}=VALUE"
        )
    return f"{text}={environ[text]}"


def _read_file(path: Path) -> dict[str, str]:
    try:
        values = read_settings_file(path)
    except SettingsError as error:
        raise UsageError(f"--env-file: {error}") from error
    for name in values:
        if name in DECIDED or name in FLAG_ONLY:
            why = f"is not accepted; use {FLAGS[name]}" if name in FLAG_ONLY else "is decided by the launch itself"
            advice = "" if name in FLAG_ONLY else "; leave it out"
            raise UsageError(f"--env-file {path}: {name} {why}{advice}")
    return values


# --- What may be a mistake in the world around a script ------------------------------------------------------------

# Enough of a script to see what it does.
_SCRIPT_BYTES = 1 << 20
# A command of a script, not a word in a comment.
_STARTS_RANKS = re.compile(
    r"^[ \t]*(?:(?:exec|nohup|time|env|[A-Za-z_]\w*=\S*)[ \t]+)*(?:python[0-9.]*[ \t]+-m[ \t]+)?"
    r"(?P<words>torchrun|accelerate[ \t]+launch|deepspeed|horovodrun|mpirun|torch\.distributed\.(?:run|launch)|"
    r"accelerate\.commands\.launch)\b",
    re.MULTILINE,
)
_OF_LAUNCHERS = {"accelerate launch": " with LAUNCHER=accelerate", "deepspeed": " with LAUNCHER=deepspeed"}
_ADDRESS = re.compile(
    r"""^[ \t]*os\.environ\[["'](?:(?P<master>MASTER_ADDR)["']\]\s*=\s*["'](?:localhost|127\.0\.0\.1)["']"""
    r"""|TF_CONFIG["']\]\s*=)""",
    re.MULTILINE,
)


def hints(plan: Plan, cwd: Path) -> list[str]:
    """Return warnings for a launch of *plan* from *cwd*."""
    entry, arguments = plan.environment.get("ENTRY_POINT", ""), json.loads(plan.environment.get("ARGS") or "[]")
    code_dir = Path(plan.environment.get("CODE_DIR") or cwd)
    ranks = about_ranks(code_dir / entry, plan.framework) if entry and len(plan.nodes) > 1 else []
    return [*about_files(arguments, code_dir, entry, cwd), *ranks]


def about_files(arguments: Sequence[str], code_dir: Path, entry_point: str, cwd: Path) -> list[str]:
    """Warn of *arguments* that are files in *cwd*, and none where the script runs."""
    names = [text for text in arguments if text and not Path(text).is_absolute() and not text.startswith("-")]
    # os.path: what is too long for a name, as a JSON text may be, is none, and no error.
    here = [name for name in names if os.path.exists(cwd / name) and not os.path.exists(code_dir / name)]  # noqa: PTH110
    if not here:
        return []
    entry = code_dir / entry_point
    whole = f"--code . --entry {shlex.quote(str(entry.relative_to(cwd)))}" if entry.is_relative_to(cwd) else "--code ."
    listed = ", ".join(f"'{name}'" for name in here)
    return [f"{listed} is here, and the script runs in {code_dir}; have it run here: {whole}"]


def about_ranks(entry: Path, framework: str) -> list[str]:
    """Warn of an *entry* point that starts ranks itself, or sets an address."""
    try:
        with entry.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode(errors="replace")
    except OSError:  # it is elsewhere
        return []
    if entry.suffix == ".py":
        found = _ADDRESS.search(text)
        named = found["master"] or "TF_CONFIG" if found else ""
        return (
            [f"{entry.name} sets {named}, which nodes are given: ranks would not meet; leave it out"] if named else []
        )
    if entry.suffix == ".ipynb" or not (started := _STARTS_RANKS.search(text)):
        return []
    words = " ".join(started["words"].split())
    how = _OF_LAUNCHERS.get(words, "") if framework == "pytorch" else ""
    instead = f"launch the script that it starts{how}: --entry SCRIPT.py -- ITS ARGUMENTS"
    return [f"{entry.name} starts ranks itself ({words}), on each node for itself; the cluster does that: {instead}"]
