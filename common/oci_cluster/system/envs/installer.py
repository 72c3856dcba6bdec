"""Runs uv, which makes all environments, with pip's settings; standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.system.console import Say

_PROGRESS = re.compile(r"^\s*(Downloading|Building|Installing collected|Resolved|Prepared|Installed) ?.*")
# A download whose size uv tells, and that is over within seconds: there are dozens of them.
_SMALL = re.compile(r"\s*Downloading .*\((\d?\d(\.\d+)?MiB|[\d.]+[Kk]iB)\)")
# What a post-install.sh means to be shown begins with two blanks.
_HOOK_PROGRESS = re.compile(rf"^  \S|{_PROGRESS.pattern}")
# uv's words where requirements contradict each other, or are none; and where something is on no index.
_CONTRADICTION = re.compile(r"No solution found|Couldn't parse")
_MISSING = re.compile(r"was not found in|[Tt]here (is|are) no versions? of")
_COMPILER = Path(__file__).with_name("bytecode.py")
# How long processes of an installer that is killed are looked for: meanwhile one may start another.
_SESSION_ENDS_S = 5.0


class Uv:
    """The program uv, told all that pip is told by its files and variables."""

    def __init__(
        self, program: str | Path, say: Say, *, torch: str = "", compiles: bool = True, **variables: str
    ) -> None:
        self._program = str(program)
        self._say = say
        self.settings = pip_settings(os.environ)
        self._options, environ = uv_options(self.settings, say)
        self._compiles = compiles
        self._environ = {"UV_COMPILE_BYTECODE": "0", **environ, **variables}
        if torch:  # PyTorch's own index for torch and what goes with it, and no other
            self._environ["UV_TORCH_BACKEND"] = torch

    def venv(self, directory: Path, base: str | Path) -> None:
        """Make the environment *directory* for the interpreter *base*; what is there stays."""
        words = ["venv", "--quiet", "--allow-existing", "--python", base, directory]
        run_installer([self._program, *words], self._say, self._environ)

    def install(self, directory: Path, words: Sequence[str | Path]) -> None:
        """Install what *words* say into the environment *directory*."""
        try:
            run_installer([*self._command(directory), *words], self._say, self._environ)
        except BackendError as error:
            if _CONTRADICTION.search(str(error)) and not _MISSING.search(str(error)):
                raise SettingsError(str(error)) from error
            raise
        self._compile(directory)

    def run_hook(self, hook: Path, directory: Path, kept: Path, **variables: str) -> None:
        """Run the ``post-install.sh`` *hook*, which gets interpreter, cache, and the command that installs."""
        told: list[str | Path] = [hook.absolute(), directory / "bin" / "python", kept]
        run_installer([*told, *self._command(directory)], self._say, {**self._environ, **variables}, _HOOK_PROGRESS)
        self._compile(directory)

    def _command(self, directory: Path) -> list[str]:
        return [self._program, "pip", "install", "--python", str(directory / "bin" / "python"), *self._options]

    def _compile(self, directory: Path) -> None:
        # Here and now: an uncompiled start costs seconds, and where nobody may write to the environment each time.
        if self._compiles:
            compile_packages(directory, self._say, "checkout")


def compile_packages(directory: Path, say: Say, kind: str) -> None:
    """Compile the environment *directory* of an `image` or a `checkout`."""
    run_installer([directory / "bin" / "python", "-I", _COMPILER, kind], say)


def run_installer(
    command: Sequence[str | Path],
    say: Say,
    extra: Mapping[str, str] | None = None,
    progress: re.Pattern[str] = _PROGRESS,
) -> None:
    """Run *command* with *extra* variables, and show its lines of *progress*."""
    said: list[str] = []
    # A signal that comes while a program is being started would leave one that nobody knows of.
    release_signals = _hold_signals()
    try:
        process = subprocess.Popen(  # noqa: S603 - an argument list, no shell
            [str(part) for part in command],
            env={**os.environ, **(extra or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # to be ended with all that it has started
        )
    except OSError as error:
        release_signals()
        raise BackendError(f"{command[0]} cannot be run: {error.strerror}") from error
    try:
        release_signals()
        for line in process.stdout or ():
            said.append(line.rstrip())
            if progress.match(line) and not _SMALL.match(line):
                say(f"  {line.strip()[:100]}")
        process.wait()
    except BaseException:  # Ctrl-C, TERM: what it makes is wanted by nobody now
        _kill_session(process.pid)
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    if process.returncode:
        shown = " ".join(str(part) for part in command[:4])
        raise BackendError(f"'{shown} ...' failed with exit code {process.returncode}:\n" + "\n".join(said[-15:]))


def _kill_session(leader: int) -> None:
    """Kill *leader* with its session: ninja gives each compiler a group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    deadline = time.monotonic() + _SESSION_ENDS_S
    while (members := _members_of(leader)) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _members_of(session: int) -> list[int]:
    """Return which processes of a *session* run; where there is no /proc, none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            state, _, _, of_session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(of_session) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _hold_signals() -> Callable[[], None]:
    """Have signals wait; return what lets them through. By handlers: children inherit masks."""
    held: dict[int, None] = {}
    if threading.current_thread() is not threading.main_thread():  # no handler runs there
        return held.clear
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)  # the last by system/lost_interrupts.py
    old = {number: handler for number in numbers if (handler := signal.getsignal(number)) not in {signal.SIG_IGN, None}}
    for number in old:
        signal.signal(number, lambda came, _: held.setdefault(came))

    def release() -> None:
        for number, handler in old.items():
            signal.signal(number, handler)
        for came in held:
            signal.raise_signal(came)

    return release


# pip's options that decide where packages come from; uv's variables for them, and what stands there between two words.
# Source: https://docs.astral.sh/uv/reference/environment/
_UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
# Those that are one word, which may have a blank.
_SAME = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),  # the same, as PIP_DEFAULT_TIMEOUT
}
_YES = {"1", "y", "yes", "t", "true", "on"}  # pip takes them all (distutils' strtobool)
_SECTIONS = ("global", "install")  # the later wins


def pip_settings(environ: Mapping[str, str], *, prefix: Path | None = None) -> dict[str, str]:
    """Return what pip's files and variables set for ``pip install``; variables win.

    `pip config list` takes a third of a second, and an environment that uv has made has no pip to ask.

    *prefix* is the Python environment whose own ``pip.conf`` counts; None: that of this program.
    """
    import configparser  # noqa: PLC0415 - where something is installed

    values: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path in _files(environ, prefix or Path(sys.prefix)):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")  # one that is not there counts as empty
        except (configparser.Error, UnicodeDecodeError) as error:
            # Not the error's own text: it quotes the line, in which a password may stand.
            raise SettingsError(
                f"pip's settings in {path} cannot be read ({type(error).__name__}); 'pip config list' tells more"
            ) from None
        for section in filter(parser.has_section, _SECTIONS):
            values[section] |= {_option(name): value or "" for name, value in parser.items(section)}
    variables = {_option(name[4:]): value for name, value in environ.items() if name.startswith("PIP_")}
    levels = [*values.values(), variables]
    return {name: value for level in levels for name, value in level.items() if value}  # pip ignores empty ones


def _files(environ: Mapping[str, str], prefix: Path) -> list[Path]:
    """Return the files that pip reads, the last wins (pip's documentation, "Configuration")."""
    own = environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return []
    home = Path(environ.get("HOME", "/"))
    users = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
    if sys.platform == "darwin":
        machines = [Path("/Library/Application Support/pip")]
        application = home / "Library" / "Application Support" / "pip"
        users = application if application.is_dir() else home / ".config" / "pip"
    else:
        shared = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        machines = [*(Path(folder, "pip") for folder in shared.split(os.pathsep)), Path("/etc")]
    # A file that the user names takes the place of the user's others.
    folders = [*machines, *([] if own and Path(own).exists() else [home / ".pip", users]), prefix]
    return [*(folder / "pip.conf" for folder in folders), *([Path(own)] if own else [])]


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def uv_options(settings: Mapping[str, str], say: Say) -> tuple[list[str], dict[str, str]]:
    """Return uv's options and environment for pip's *settings*: uv does not read pip's configuration.

    The URLs of indexes, which may hold a password, are in the environment: everybody on the machine sees arguments.
    Of a place in ``find-links`` that is not there pip warns; uv fails. It is left out here, and *say* is told.
    """
    variables: dict[str, str] = {}
    for name, (variable, between) in _UV_VARIABLES.items():
        words = []
        for word in map(os.path.expanduser, settings.get(name, "").split()):
            if name == "find-links" and not _is_there(word):
                say(f"pip's find-links names '{word}', which is not there: left out")
            else:
                words.append(_as_url(word) if between in word else word)
        if words:
            variables[variable] = between.join(words)
    if "extra-index-url" in settings:  # pip takes the best version of all indexes, uv that of the first that has any
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    for name in sorted(_SAME.keys() & settings.keys()):
        variables |= dict.fromkeys(_SAME[name], settings[name])
    has_no_index = settings.get("no-index", "").lower() in _YES
    return ["--no-index"] if has_no_index else [], variables  # there is no variable for it


def _as_url(place: str) -> str:
    """Return *place* with its commas escaped, which would end it in a list."""
    return place.replace(",", "%2C") if "://" in place else Path(place).absolute().as_uri().replace(",", "%2C")


def _is_there(place: str) -> bool:
    """Return whether a path of this machine exists; of URLs nothing is known."""
    path = unquote(urlsplit(place).path) if place.startswith("file:") else place
    return ("://" in place and path is place) or os.path.exists(path)  # noqa: PTH110 - never raises
