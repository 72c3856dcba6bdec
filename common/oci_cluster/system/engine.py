"""The container engine's command line: docker, podman, nerdctl or what else has their commands."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from oci_cluster.errors import BackendError, NotPermittedError
from oci_cluster.system.text import printable

# Of URLs that oci_cluster.backends.docker.volume_files opens: PROTOCOL://<container>/<path>.
PROTOCOL = "engine"
# The longest that an engine may take to answer: to start a container took 1.2 s on a busy machine of 2 cores.
_TIMEOUT_S = 120.0
# What clients say where nobody answers, in lower case: docker 20.10 and 28, podman 4.3, nerdctl 1.7.
_NOBODY = ("cannot connect to", "connection refused", "connect: no such file", "error during connect", "cannot access ")
# Both of what clients say of a container, network or volume that is not there, and of a path in a container.
_ABSENT = ("no such", "could not find the file", "not found", "does not exist")


class EngineError(BackendError):
    """The engine refused, or did not answer; its client has *said* so."""

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said

    @property
    def is_absent(self) -> bool:
        """Whether there is no such container, network, volume, or path in a container."""
        return any(words in self.said.lower() for words in _ABSENT)


@dataclass(frozen=True)
class Machine:
    """The machine where an engine's containers run."""

    cpus: int
    memory: int
    """Bytes."""
    keeps_users: bool
    """Whether a container's uid is the machine's: neither a rootless engine nor one that maps users."""


@dataclass(frozen=True)
class Engine:
    """A container engine by its client program; a call takes 40 ms of CPU."""

    program: str
    environ: Mapping[str, str] | None = field(default=None, compare=False)
    """The client's environment; None: this process's own."""

    @property
    def is_podman(self) -> bool:
        """Whether it is podman, which says and takes some things in another way."""
        return "podman" in Path(self.program).name

    def call(self, *words: str, stdin: bytes = b"", timeout_s: float | None = _TIMEOUT_S) -> str:
        """Run the engine's command *words* and return what it prints; None waits for ever."""
        try:
            # In a session of its own: a Ctrl-C in the terminal is for the launcher, which ends the cluster in order.
            done = subprocess.run(  # noqa: S603 - an argument list, no shell
                [self.program, *words],
                env=self.environ,
                input=stdin,
                capture_output=True,
                timeout=timeout_s,
                start_new_session=True,
                check=False,
            )
        except OSError as error:
            raise self._missing(error) from error
        except subprocess.TimeoutExpired as error:
            raise EngineError(
                f"{self._shown(words)} did not answer within {timeout_s:g} s; look at the engine: {self.program} info"
            ) from error
        if done.returncode != 0:
            raise self.failure(words, done.stderr)
        return done.stdout.decode(errors="replace")

    def inspect(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what the engine knows of those containers of *names* that there are."""
        if not names:
            return []
        try:
            found = self._json("container", "inspect", *names)
        except EngineError as error:
            if not error.is_absent:
                raise
            if len(names) == 1:
                return []
            # One has been removed just now, and clients differ in what they print then.
            return [found for name in names for found in self.inspect([name])]
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []

    def containers(self, label: str) -> list[str]:
        """Return the ids of all containers with *label*, running or not."""
        return self.call("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split()

    def machine(self) -> Machine:
        """Return the machine where containers run, which may be another one than this."""
        found = self._info()
        try:
            host = found.get("host", {})  # podman's
            options = " ".join(map(str, found.get("SecurityOptions") or []))
            is_rootless = "name=rootless" in options or bool(host and host.get("security", {}).get("rootless", True))
            return Machine(
                cpus=int(found.get("NCPU") or host["cpus"]),
                memory=int(found.get("MemTotal") or host["memTotal"]),
                keeps_users=not is_rootless and "name=userns" not in options,
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._unreadable(["info"], "does not say how many CPUs and how much memory it has") from error

    def place(self) -> Path | None:
        """Return where the engine keeps images; None where it does not tell."""
        found = self._info()
        store = found.get("store")  # podman's
        place = found.get("DockerRootDir") or (store.get("graphRoot") if isinstance(store, dict) else None)
        return Path(str(place)) if place else None

    def has_nvidia(self) -> bool:
        """Return whether the engine tells of NVIDIA's runtime, or of devices of NVIDIA's (CDI)."""
        found = self._info()
        devices = found.get("DiscoveredDevices") or []
        return "nvidia" in (found.get("Runtimes") or {}) or any("nvidia.com/gpu" in str(one) for one in devices)

    def _json(self, *words: str) -> Any:
        text = self.call(*words)
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._unreadable(words, f"is not JSON: {printable(text, 80)}") from error

    def _unreadable(self, words: Sequence[str], why: str) -> EngineError:
        return EngineError(f"the answer of {self._shown(words)} {why}; is '{self.program}' docker, podman or nerdctl?")

    def _info(self) -> dict[str, Any]:
        found = self._json("info", "--format", "{{json .}}")
        if not isinstance(found, dict):
            raise self._unreadable(["info"], f"is not a JSON object: {printable(found, 80)}")
        if errors := found.get("ServerErrors"):  # docker's client tells of itself, and succeeds, where nobody answers
            raise self.failure(["info"], "\n".join(map(str, errors)).encode())
        return found

    def image_user(self, image: str) -> str | None:
        """Return the user of *image*, empty for root; None without such an image."""
        try:
            found = self._json("image", "inspect", image)
            return str(found[0].get("Config", {}).get("User") or "").partition(":")[0]
        except EngineError as error:
            if not error.is_absent:
                raise
            return None
        except (LookupError, AttributeError) as error:
            raise self._unreadable(["image", "inspect"], "does not name the user") from error

    @contextmanager
    def stream(self, *words: str) -> Iterator[IO[bytes]]:
        """Yield what the command *words* prints, as it comes."""
        with tempfile.TemporaryFile() as errors:
            client = self._popen(words, stdout=subprocess.PIPE, stderr=errors)
            assert client.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
            try:
                yield client.stdout
                client.stdout.read()  # what stands behind the end of an archive
            except BaseException:
                # Rather than what a reader makes of an answer that has ended early: why it has.
                has_ended = not client.stdout.read(1)
                if not has_ended:
                    client.kill()
                if client.wait() > 0 and has_ended:
                    errors.seek(0)
                    raise self.failure(words, errors.read()) from None
                raise
            finally:
                client.stdout.close()
            if client.wait() != 0:
                errors.seek(0)
                raise self.failure(words, errors.read())

    def start(self, *words: str, output: Path) -> subprocess.Popen[bytes]:
        """Start the command *words*, which writes to the file *output*."""
        with output.open("wb") as file:
            return self._popen(words, stdout=file, stderr=file)

    def talk(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the command *words* with pipes on either side."""
        return self._popen(words, stdin=subprocess.PIPE, bufsize=0)

    def _popen(
        self,
        words: Sequence[str],
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        bufsize: int = -1,
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - an argument list, no shell
                [self.program, *words],
                bufsize,
                env=self.environ,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise self._missing(error) from error

    def _missing(self, error: OSError) -> EngineError:
        return EngineError(
            f"the container engine '{self.program}' cannot be run: {error.strerror}; install Docker or Podman, "
            "or name the one you have: DOCKER=podman"
        )

    def _shown(self, words: Sequence[str]) -> str:
        return " ".join([self.program, *words[:2]])

    def failure(self, words: Sequence[str], stderr: bytes) -> EngineError | NotPermittedError:
        """Return what *stderr*, which a failed command *words* has printed, means to a person."""
        said = stderr.decode(errors="replace").strip()
        # docker's last line is advice about --help.
        lines = [line for line in said.splitlines() if line.strip() and "--help" not in line] or ["it says nothing"]
        if "permission denied" in said.lower() and "connect" in said.lower():
            return NotPermittedError(
                f"you may not use the engine: {printable(lines[-1])}; join the engine's group, or run a rootless engine"
            )
        text = printable(lines[-1])
        if any(part in said.lower() for part in _NOBODY):
            text = f"the engine does not answer: {text}; start it, or name another: DOCKER=podman"
        return EngineError(f"{self._shown(words)}: {text}", said)
