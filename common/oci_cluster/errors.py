"""The exit codes of agent and launcher, and one error for each that a user can do something about."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What an exit code means. 64 to 78 follow BSD ``sysexits.h``; 143 is 128 + SIGTERM."""

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
        """What is wrong: the text without the next step."""
        return self._parts()[0]

    @property
    def next_step(self) -> str:
        """What to do: what stands after the last ``;`` of the text; empty where nothing does."""
        return self._parts()[1]

    def _parts(self) -> tuple[str, str]:
        before, _, after = str(self).rpartition("; ")
        return (before, after) if before else (after, "")


class UsageError(ClusterError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


class LostPlanError(UsageError):
    """What was launched is not known any more: somebody has removed or changed what was kept of it."""


class StorageError(ClusterError):
    """The work dir did not answer, or answered with an error: nothing is known about the file.

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
        """Why it ended, as its nodes tell it."""
        return self._reason


class SettingsError(ClusterError):
    """A setting, or a file that configures a node, is missing or wrong."""

    exit_code = ExitCode.SETTINGS
    _problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, problems: Sequence[str], explained: str = "config.env.example explains each") -> SettingsError:
        """Return the error that names all *problems*; *explained* says where a person reads about them, if anywhere."""
        told = "; ".join(problems)
        error = cls(f"bad settings: {told} ({explained})" if explained else told)
        error._problems = tuple(problems)
        return error

    @property
    def problems(self) -> tuple[str, ...]:
        """Each thing that is wrong; most begin with the setting's name."""
        return self._problems or (str(self),)


class StoppedError(ClusterError):
    """Somebody asked the cluster to stop."""

    exit_code = ExitCode.STOPPED


class LifeInterruptedError(StoppedError):
    """This life of the cluster is over, and not the cluster: its nodes may be started again."""
