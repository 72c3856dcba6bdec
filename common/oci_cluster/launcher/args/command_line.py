"""Parses command lines: options of a script's header, and words of each verb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from oci_cluster.backends import known_backends
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import UsageError
from oci_cluster.launcher.args.help import read_header
from oci_cluster.system.console import program

T = TypeVar("T")

# Verbs that take what a launch takes: the words, and behind -- the entry point's arguments.
_OF_A_LAUNCH = ("launch", "check")
# The words that a verb takes, with their least and their largest number.
_COUNTS = {
    "launch": ("<framework> <workers>", 2, 2),
    "scale": ("NAME WORKERS", 2, 2),
    "session": ("KIND [NAME]", 1, 2),
    "update": ("SOURCE", 1, 1),
}
# What the first word is, where it is no cluster's name.
_FIRST_WORD = {"check": "a framework", "setup": "a framework", "queue": "a name", "update": "a version"}
# Verbs of one backend alone.
ONE_BACKEND = {"quota": "kubernetes", "queue": "kubernetes", "setup": "oci"}
# The words of quota.sh, what each is followed by, and the options that are its alone.
_QUOTA = {"show": "", "apply": "teams.yaml", "hold": "TEAM", "resume": "TEAM"}
_OF_QUOTA = {"--dry-run": "apply", "--prune": "apply", "--force": "apply", "--drain": "hold", "--json": "show"}


@dataclass
class CommandLine:
    """Words of a command line, and options with their values."""

    words: list[str] = field(default_factory=list)
    given: dict[str, list[str]] = field(default_factory=dict)
    typed: list[tuple[str, str]] = field(default_factory=list)
    """Options with their values, in the order in which they were typed."""
    rest: list[str] | None = None
    """What stands behind ``--``: the entry point's arguments."""

    def has(self, *names: str) -> bool:
        """Return whether one of the options *names* was given."""
        return any(name in self.given for name in names)

    def value(self, name: str, default: str = "") -> str:
        """Return the last value of the option *name*."""
        return self.given[name][-1] if name in self.given else default

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return the option *name* as *parse* reads it; None where it was not given."""
        try:
            return parse(self.value(name)) if self.has(name) else None
        except ValueError as error:
            raise usage(f"{name}: {error}") from error


def options_of(verb: str) -> dict[str, bool]:
    """Return the options in a script's header, each with whether it takes a value."""
    options = read_header(PROJECT_ROOT / "scripts" / f"{verb}.sh").options
    found = {name: one.value is not None for name, one in options.items() if name not in {"--version", "--help"}}
    return {**found, **({"-f": False} if "--follow" in found else {})}


def read(verb: str, words: Sequence[str]) -> CommandLine:
    """Return what *words* say to *verb*; raise UsageError where words alone are wrong."""
    line = parse(verb, words)
    if (backend := ONE_BACKEND.get(verb)) and line.value("--backend", backend) != backend:
        what = "a tenancy is" if verb == "setup" else "teams and queues are"
        raise usage(f"{what} of the backend {backend} alone, got --backend {line.value('--backend')}")
    checks = {"quota": _check_quota, "from-ads": _check_from_ads, "new": _check_new}
    checks.get(verb, partial(_check_words, verb))(line)
    return line


def parse(verb: str, words: Sequence[str]) -> CommandLine:
    """Return options and words; raise UsageError where an option cannot be."""
    known = options_of(verb)
    line = CommandLine()
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--" and verb in _OF_A_LAUNCH:
            line.rest = left
            break
        # A number that begins with a sign is a word: -1 worker.
        if not word.startswith("-") or (word[1:].isdecimal() and verb in {*_OF_A_LAUNCH, "scale"}):
            line.words.append(word)
            continue
        name, is_joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name not in known:
            advice = f"; if it is your script's, write -- before it: ... -- {name}" if verb in _OF_A_LAUNCH else ""
            raise usage(f"unknown option '{name}'{advice}")
        values = line.given.setdefault(name, [])
        if not known[name]:
            if is_joined:
                raise usage(f"{name} takes no value, got '{value}'")
            continue
        if not is_joined and not left:
            raise usage(f"{name} needs a value")
        values.append(value if is_joined else left.pop(0))
        if not values[-1]:  # "$MY_SCRIPT" of a variable that is not set
            raise usage(f"{name} was given an empty value; name one, or leave {name} out")
        line.typed.append((name, values[-1]))
    return line


def _check_words(verb: str, line: CommandLine) -> None:
    names = line.words if verb in {"stop", "setup", "queue", "update"} else line.words[:1]
    if verb != "launch" and "" in names:  # "$CLUSTER" that is not set: it must not mean the only cluster, or all
        first = _FIRST_WORD.get(verb, "a cluster's name")
        raise usage(f"expected {first}, got an empty word")
    if verb in {"launch", "session"} and line.has("--json") and not (line.has("--dry-run") or line.has("--detach")):
        raise usage("--json goes with --dry-run or --detach: a launch that is followed prints its nodes' logs")
    if verb in _OF_A_LAUNCH and len(line.words) > 2:
        advice = "a script is given with --entry FILE, its arguments behind --"
        raise usage(f"unexpected '{line.words[2]}' after {' '.join(line.words[:2])}; {advice}")
    wanted, least, most = _COUNTS.get(verb, ("", 0, len(line.words)))
    if not least <= len(line.words) <= most:
        raise usage(f"expected {wanted}, got {len(line.words)} of them")
    if verb in {"status", "list", "logs", "connect", "queue"} and len(line.words) > 1:
        what = "team" if verb == "queue" else "name"
        raise usage(f"one {what} at a time, got '{line.words[0]}' and '{line.words[1]}'")
    if verb == "list" and line.words:
        raise usage(f"unexpected '{line.words[0]}'")
    _check_options(verb, line)


def _check_options(verb: str, line: CommandLine) -> None:
    if verb == "stop" and line.words and line.has("--ended", "--older-than"):
        raise usage(f"name clusters, or choose them with --ended and --older-than; got '{line.words[0]}' too")
    if verb == "session" and len(line.words) == 2 and line.has("--name"):
        raise usage(f"the name is given twice: '{line.words[1]}' and --name {line.value('--name')}")
    if verb == "launch" and line.has("--wait") and not line.has("--detach"):
        raise usage("--wait belongs to --detach; without these, launch.sh follows the cluster to its end")
    modes = [name for name in ("--apply", "--print", "--tfvars") if line.has(name)]
    if len(modes) > 1:
        raise usage(f"one of --apply, --print and --tfvars, got {' and '.join(modes)}")


def _check_quota(line: CommandLine) -> None:
    if "" in line.words:  # "$TEAM" that is not set: it must not mean all
        raise usage("expected a name, got an empty word")
    action, *more = line.words or [""]
    if action not in _QUOTA:
        listed = ", ".join(f"{word} {what}".strip() for word, what in _QUOTA.items())
        raise usage(f"expected one of: {listed}; got '{action}'")
    if len(more) != bool(_QUOTA[action]):
        raise usage(f"expected {f'{action} {_QUOTA[action]}'.strip()}, got {' '.join(line.words)}")
    for option, its_action in _OF_QUOTA.items():
        if line.has(option) and action != its_action:
            raise usage(f"{option} belongs to {its_action}, not to {action}")


def _check_from_ads(line: CommandLine) -> None:
    if len(line.words) != 1 or not line.words[0]:
        raise usage(f"expected one file, the YAML of ads opctl run; got {len([w for w in line.words if w])} of them")
    if line.has("--merge") and line.has("--force"):
        raise usage("one of --merge, which keeps what config.env has, and --force, which does not; got both")
    check_backend(line.value("--backend", "oci"))


def _check_new(line: CommandLine) -> None:
    if len(line.words) < 2 or "" in line.words:
        raise usage(f"expected <framework...> <dir>, got {' '.join(map(repr, line.words)) or 'nothing'}")
    check_backend(line.value("--backend", "local"))
    if line.has("--code") and not line.has("--entry"):
        raise usage(f"--code {line.value('--code')} needs the script in it that is run: --entry FILE")


def check_backend(name: str) -> None:
    """Raise UsageError where there is no backend called *name*."""
    if name not in (known := known_backends()):
        raise usage(f"unknown backend '{name}'; there is: {' '.join(known)}")


def usage(text: str) -> UsageError:
    """Return the error *text*, with the way to --help."""
    return UsageError(f"{text} ({program()} --help says more)")
