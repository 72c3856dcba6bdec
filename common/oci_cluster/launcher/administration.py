"""Command lines of scripts that are about no cluster: ``setup.sh``, ``quota.sh``, ``queue.sh``, ``new.sh``, ..."""

from __future__ import annotations

from collections.abc import Sequence

from oci_cluster.backends import known_backends
from oci_cluster.launcher.command_line import CommandLine, parse, usage

BACKEND = "kubernetes"
TENANCY_BACKEND = "oci"
# The words of quota.sh, what each is followed by, and the options that are its alone.
_WORDS = {"show": "", "apply": "teams.yaml", "hold": "TEAM", "resume": "TEAM"}
_OF = {"--dry-run": "apply", "--prune": "apply", "--force": "apply", "--drain": "hold", "--json": "show"}


def read_words(verb: str, words: Sequence[str]) -> CommandLine:
    """Return what *words* say to ``quota`` or ``queue``.

    Raises:
        UsageError: something is wrong with them.
    """
    line = parse(verb, words)
    if line.has("--backend") and line.value("--backend") != BACKEND:
        raise usage(f"teams and queues are of the backend {BACKEND} alone, got --backend {line.value('--backend')}")
    if "" in line.words:  # "$TEAM" that is not set: it must not mean all
        raise usage("expected a name, got an empty word")
    if verb == "queue":
        if len(line.words) > 1:
            raise usage(f"one team at a time, got '{line.words[0]}' and '{line.words[1]}'")
        return line
    action, *more = line.words or [""]
    if action not in _WORDS:
        listed = ", ".join(f"{word} {what}".strip() for word, what in _WORDS.items())
        raise usage(f"expected one of: {listed}; got '{action}'")
    if len(more) != bool(_WORDS[action]):
        wanted = f"{action} {_WORDS[action]}".strip()
        raise usage(f"expected {wanted}, got {' '.join(line.words)}")
    for option, its_action in _OF.items():
        if line.has(option) and action != its_action:
            raise usage(f"{option} belongs to {its_action}, not to {action}")
    return line


def read_setup(words: Sequence[str]) -> CommandLine:
    """Return what *words* say to ``setup``.

    Raises:
        UsageError: something is wrong with them.
    """
    line = parse("setup", words)
    if line.has("--backend") and line.value("--backend") != TENANCY_BACKEND:
        raise usage(f"a tenancy is of the backend {TENANCY_BACKEND} alone, got --backend {line.value('--backend')}")
    if "" in line.words:  # "$FRAMEWORK" that is not set: it must not mean all
        raise usage("expected a framework, got an empty word")
    modes = [name for name in ("--apply", "--print", "--tfvars") if line.has(name)]
    if len(modes) > 1:
        raise usage(f"one of --apply, --print and --tfvars, got {' and '.join(modes)}")
    return line


def read_from_ads(words: Sequence[str]) -> CommandLine:
    """Return what *words* say to ``from-ads``.

    Raises:
        UsageError: something is wrong with them.
    """
    line = parse("from-ads", words)
    if len(line.words) != 1 or not line.words[0]:
        raise usage(f"expected one file, the YAML of ads opctl run; got {len([w for w in line.words if w])} of them")
    if line.has("--merge") and line.has("--force"):
        raise usage("one of --merge, which keeps what config.env has, and --force, which does not; got both")
    if (backend := line.value("--backend", TENANCY_BACKEND)) not in (known := known_backends()):
        raise usage(f"unknown backend '{backend}'; there is: {' '.join(known)}")
    return line


def read_new(words: Sequence[str]) -> CommandLine:
    """Return what *words* say to ``new``.

    Raises:
        UsageError: something is wrong with them.
    """
    line = parse("new", words)
    if len(line.words) < 2 or "" in line.words:
        raise usage(f"expected <framework...> <dir>, got {' '.join(map(repr, line.words)) or 'nothing'}")
    if line.has("--backend") and line.value("--backend") not in (known := known_backends()):
        raise usage(f"unknown backend '{line.value('--backend')}'; there is: {' '.join(known)}")
    if line.has("--code") and not line.has("--entry"):
        raise usage(f"--code {line.value('--code')} needs the script in it that is run: --entry FILE")
    return line


def read_update(words: Sequence[str]) -> CommandLine:
    """Return what *words* say to ``update``.

    Raises:
        UsageError: something is wrong with them.
    """
    line = parse("update", words)
    if "" in line.words:  # "$VERSION" that is not set
        raise usage("expected a version, got an empty word")
    if len(line.words) not in {1, 2}:
        raise usage(f"expected SOURCE [REF], got {len(line.words)} words")
    return line
