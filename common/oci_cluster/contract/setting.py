"""One setting: its names, its default, what it must look like, and who gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Receiver(Enum):
    """Who gets a setting, and from whom."""

    AS_GIVEN = "every node, as it was given to the launcher"
    RESOLVED = "every node, as the launcher has resolved it"
    DECIDED = "every node, as the launcher decides it; nobody else may set it"
    PLACED = "every node, as the backend has it"
    SCRIPT = "start scripts, as the agent decides it; nobody else may set it"
    LAUNCHER = "the launcher alone"
    BACKEND = "the backend alone"
    IMAGES = "what builds and pushes images"
    TENANCY = "what makes and checks a tenancy of OCI"


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    receiver: Receiver
    meaning: str
    """One line for people; Markdown, as tables show it. Empty where the name says it all."""
    parse: Callable[[str], Any] = str
    """What makes a value of its text; raises ValueError. ``str``: whoever reads the setting knows more of it."""
    default: str | None = ""
    """As somebody would write it. Empty: there is none. None: it must be given."""
    computed_default: str = ""
    """In words, where the default depends on other settings, or on the place."""
    aliases: tuple[str, ...] = ()
    """Second names, which count where the first is not given: the design's own, then those of ADS."""
    flag: str = ""
    """What gives it on the command line of ``launch.sh``."""
    is_flag_only: bool = False
    """Whether ``--env`` must not give it, because its flag does."""
    backend_defaults: Mapping[str, str] = field(default_factory=dict)
    """The defaults in ``scripts/backends/<name>.env``, by backend; they win over *default* there."""
    session_variable: str = ""
    """The variable in which a notebook session of OCI Data Science has its own: the default there."""
    example: str = ""
    """What ``config.env.example`` shows; empty: the default."""
    is_for_config: bool = True
    """Whether ``config.env.example`` shows it: nothing that the launcher decides, or that is one cluster's own."""
