"""The words of a command line: which each verb takes, and what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from oci_cluster.contract.values import parse_count, parse_duration
from oci_cluster.errors import UsageError
from oci_cluster.system.console import program

T = TypeVar("T")

# Options that nearly every verb takes, and those of each verb; a name that ends with = takes a value.
_EVERY = ("--backend=",)
NO_BACKEND = frozenset({"update"})
"""Verbs that are the same wherever clusters run."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "launch": (
        *("--entry=", "--module=", "--code=", "--outputs=", "--python=", "--with="),
        *("--env=", "--env-plain=", "--env-file="),
        *("--name=", "--ps=", "--ttl=", "--keep", "--detach", "--wait", "--dry-run", "--json"),
        *("--queue=", "--priority=", "--wait-for-quota="),
    ),
    "check": (
        *("--entry=", "--module=", "--code=", "--outputs=", "--python=", "--with="),
        *("--env=", "--env-plain=", "--env-file="),
        *("--name=", "--ps=", "--ttl=", "--keep", "--queue=", "--priority=", "--wait-for-quota=", "--json"),
        "--live",
    ),
    "session": (
        *("--framework=", "--workers=", "--in=", "--idle=", "--key=", "--open"),
        *("--code=", "--python=", "--with=", "--env=", "--env-plain=", "--env-file=", "--name=", "--ttl="),
        *("--detach", "--dry-run", "--json", "--queue=", "--priority=", "--wait-for-quota="),
    ),
    "status": ("--json",),
    "list": ("--all", "--json"),
    "logs": ("-f", "--follow", "--node=", "--tail="),
    "stop": ("--delete", "--ended", "--older-than="),
    "scale": (),
    "connect": ("--port=", "--node=", "--open", "--python", "--check"),
    "quota": ("--dry-run", "--prune", "--force", "--drain", "--json"),
    "queue": ("--json",),
    "setup": ("--apply", "--print", "--tfvars"),
    "from-ads": ("--code=", "--output=", "--merge", "--force", "--dry-run"),
    "new": ("--code=", "--entry=", "--from=", "--dry-run"),
    "update": ("--dry-run",),
}


# Verbs that take what a launch takes: the words, and behind -- the entry point's arguments.
_OF_A_LAUNCH = ("launch", "check")
_A_NAME = "a cluster's name"


@dataclass
class CommandLine:
    """What was typed: words, and options with their values."""

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

    def number(self, name: str) -> int | None:
        """Return the option *name* as a whole number from 0; None where it was not given.

        Raises:
            UsageError: it is none.
        """
        return self._parsed(name, parse_count) if self.has(name) else None

    def seconds(self, name: str) -> float:
        """Return the option *name*, a duration, in seconds; 0 where it was not given.

        Raises:
            UsageError: it is none.
        """
        return self._parsed(name, parse_duration) if self.has(name) else 0.0

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(self.value(name))
        except ValueError as error:
            raise usage(f"{name}: {error}") from error


def parse(verb: str, words: Sequence[str]) -> CommandLine:
    """Return what *words* say to *verb*.

    Raises:
        UsageError: an option is not known, or lacks its value.
    """
    every = () if verb in NO_BACKEND else _EVERY
    known = {name.rstrip("="): name.endswith("=") for name in (*every, *OPTIONS[verb])}
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


def check_words(verb: str, line: CommandLine) -> None:
    """Check how many words there are, and which.

    Raises:
        UsageError: too many, too few, or an empty name.
    """
    wanted = {"launch": "<framework> <workers>", "scale": "NAME WORKERS"}
    names = line.words if verb == "stop" else line.words[:1]
    if verb != "launch" and "" in names:  # "$CLUSTER" that is not set: it must not mean the only cluster
        raise usage(f"expected {'a framework' if verb == 'check' else _A_NAME}, got an empty word")
    if verb in _OF_A_LAUNCH and len(line.words) > 2:
        advice = "a script is given with --entry FILE, its arguments behind --"
        raise usage(f"unexpected '{line.words[2]}' after {' '.join(line.words[:2])}; {advice}")
    if verb in wanted and len(line.words) != 2:
        raise usage(f"expected {wanted[verb]}, got {len(line.words)} of them")
    if verb == "stop" and line.words and line.has("--ended", "--older-than"):
        raise usage(f"name clusters, or choose them with --ended and --older-than; got '{line.words[0]}' too")
    if verb == "session" and not 1 <= len(line.words) <= 2:
        raise usage(f"expected KIND [NAME], got {len(line.words)} of them")
    if verb == "session" and len(line.words) == 2 and line.has("--name"):
        raise usage(f"the name is given twice: '{line.words[1]}' and --name {line.value('--name')}")
    if verb == "launch" and line.has("--wait") and not line.has("--detach"):
        raise usage("--wait belongs to --detach; without these, launch.sh follows the cluster to its end")
    if verb not in {*wanted, "check", "stop", "session"} and len(line.words) > 1:
        raise usage(f"one name at a time, got '{line.words[0]}' and '{line.words[1]}'")
    if verb == "list" and line.words:
        raise usage(f"unexpected '{line.words[0]}'")


def usage(text: str) -> UsageError:
    """Return the error that *text* is, with who tells more."""
    return UsageError(f"{text} ({program()} --help tells more)")
