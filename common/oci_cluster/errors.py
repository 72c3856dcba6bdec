"""Exit codes of agent and launcher, and the errors that have them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; 64 to 78 follow BSD ``sysexits.h``; 143 is 128 + SIGTERM."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 69
    BUG = 70
    TIMED_OUT = 75
    LOST = 76
    NOT_PERMITTED = 77
    SETTINGS = 78
    STOPPED = 143


class Problem(str):
    """A problem with a setting: a sentence whose parts are fields.

    Attributes:
        setting: The name of the setting; empty where it is about none, or several.
        text: The sentence without the next step; where it is about a setting, it begins with the name.
        next_step: What fixes it; empty where nothing in particular does.
    """

    __slots__ = ("next_step", "setting", "text")
    setting: str
    text: str
    next_step: str

    def __new__(cls, setting: str, text: str, next_step: str = "") -> Problem:
        """Make the sentence of its parts."""
        made = super().__new__(cls, f"{text}; {next_step}" if next_step else text)
        made.setting, made.text, made.next_step = setting, text, next_step
        return made

    def called(self, name: str) -> Problem:
        """Return the problem with *name*, an option, as its setting."""
        return Problem(self.setting, name + self.text.removeprefix(self.setting), self.next_step)


class ClusterError(Exception):
    """An expected failure: its text names the value, the limit and the next step.

    Attributes:
        exit_code: What the process ends with.
    """

    exit_code: int = ExitCode.BUG

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code

    @property
    def reason(self) -> str:
        """The text without the next step."""
        return self._parts()[0]

    @property
    def next_step(self) -> str:
        """The next step: the text after the last ``;``, or empty."""
        return self._parts()[1]

    def _parts(self) -> tuple[str, str]:
        message = self.args[0]
        if isinstance(message, Problem):
            return message.text, message.next_step
        before, _, after = str(self).rpartition("; ")
        return (before, after) if before else (after, "")


class UsageError(ClusterError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


class LostPlanError(UsageError):
    """The record of what was launched is gone: somebody removed or changed it."""


class StorageError(ClusterError):
    """The work dir did not answer, or failed: the file is unknown.

    Attributes:
        retry_after_s: How long storage asks its clients to wait; 0 where it does not.
    """

    exit_code = ExitCode.UNAVAILABLE
    retry_after_s: float = 0.0


class BackendError(ClusterError):
    """The backend cannot run nodes now."""

    exit_code = ExitCode.UNAVAILABLE


class TimedOutError(ClusterError):
    """Something that was waited for did not come in time."""

    exit_code = ExitCode.TIMED_OUT


class LostError(ClusterError):
    """Main, or a worker that was needed, is gone."""

    exit_code = ExitCode.LOST


class NotPermittedError(ClusterError):
    """Storage or backend refused."""

    exit_code = ExitCode.NOT_PERMITTED


class ClusterFailedError(ClusterError):
    """A cluster has ended, and not with success."""

    def __init__(self, message: str, *, exit_code: int, reason: str, node: str) -> None:
        super().__init__(message, exit_code=exit_code)
        self._reason = reason
        self.node = node

    @property
    def reason(self) -> str:
        """The reason of its end, as its nodes tell it."""
        return self._reason


class SettingsError(ClusterError):
    """A setting, or a file that configures a node, is missing or wrong."""

    exit_code = ExitCode.SETTINGS
    _problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, problems: Sequence[Problem], explained: str = "config.env.example explains each") -> SettingsError:
        """Return the error that names all *problems*; *explained* names the page about them."""
        told = "; ".join(problems)
        error = cls(f"bad settings: {told} ({explained})" if explained else told)
        error._problems = tuple(problems)
        return error

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Each thing that is wrong."""
        return self._problems or (Problem("", self.reason, self.next_step),)


class StoppedError(ClusterError):
    """Somebody asked the cluster to stop."""

    exit_code = ExitCode.STOPPED


class LifeInterruptedError(StoppedError):
    """The end of one life of the cluster: its nodes may be started again."""
