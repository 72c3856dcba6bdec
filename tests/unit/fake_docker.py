"""The commands of a container engine that a test plays: containers are in a file, their volumes are folders.

What it says are docker 20.10's words. It needs the standard library alone, and little of it: a program is made of it,
which is started many times.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

_ALONE = {"--detach", "--all", "--quiet", "--no-trunc", "--force", "--volumes", "--follow", "--timestamps"}
_ALONE |= {"--interactive"}
_RESULT = tuple[int, bytes, str]


class RefusedError(Exception):
    """What it says in the place of an answer."""


def run(place: Path, words: Sequence[str], stdin: Callable[[], bytes]) -> _RESULT:
    """Do the command *words* to the engine whose state is in the folder *place*; return exit code, stdout, stderr."""
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads((place / "state.json").read_bytes())
        with (place / "calls").open("a") as file:
            file.write(json.dumps(list(words)) + "\n")
        command = Command(place, state, words, stdin)
        try:
            return command.run()
        except RefusedError as refused:
            return 1, command.out.getvalue(), f"{refused}\n"


class Command:
    """One command; its methods are named as its verb."""

    def __init__(self, place: Path, state: dict[str, Any], words: Sequence[str], stdin: Callable[[], bytes]) -> None:
        self.place, self.state, self.words, self.stdin = place, state, list(words), stdin
        count = 2 if words[0] in {"network", "volume", "image", "container"} else 1
        self.verb = " ".join(words[:count])
        self.given = _options(self.words[count:])
        self.names: list[str] = self.given.get("", [])
        self.containers: dict[str, Any] = state["containers"]
        self.out = io.BytesIO()

    def run(self) -> _RESULT:
        line = " ".join(self.words)
        faults = [fault for fault in self.state["faults"] if fault["verb"] == self.verb and fault["word"] in line]
        for fault in faults:
            if not fault["is_done"]:
                raise RefusedError(fault["said"])
        getattr(self, f"_{self.verb.replace(' ', '_')}", self._unknown)()
        # All or nothing, as an engine's database: a command that is refused half-way has changed nothing.
        new = self.place / "state.json.new"
        new.write_text(json.dumps(self.state))
        new.replace(self.place / "state.json")  # whole: tests read it at any time
        for fault in faults:
            raise RefusedError(fault["said"])
        return 0, self.out.getvalue(), ""

    def _print(self, text: str) -> None:
        self.out.write(f"{text}\n".encode())

    def _unknown(self) -> NoReturn:
        raise RefusedError(f"unknown command {self.verb}")

    def _named(self, word: str) -> tuple[str, Any]:
        for name, container in self.containers.items():
            if word in {name, container["Id"]}:
                return name, container
        raise RefusedError(f"Error: No such container: {word}")

    def _path(self, words: str) -> Path:
        name, _, path = words.partition(":")
        if name not in self.containers:
            raise RefusedError(f"Error: No such container:path: {words}")
        volume = self.containers[name]["volume"]
        return Path(f"{self.place}/volumes/{volume}{path.replace('/work', '', 1)}")

    # --- Its verbs ------------------------------------------------------------------------------------------------

    def _info(self) -> None:
        self._print(json.dumps(self.state["info"]))

    def _image_inspect(self) -> None:
        if self.names[0] not in self.state["images"]:
            raise RefusedError(f"Error: No such image: {self.names[0]}")
        self._print(json.dumps([{"Config": {"User": self.state.get("user", "1000")}}]))

    def _network_create(self) -> None:
        self.state["networks"].append(self.names[0])
        self._print(self.names[0])

    def _volume_create(self) -> None:
        self.state["volumes"].append(self.names[0])
        (self.place / "volumes" / self.names[0]).mkdir(parents=True)
        self._print(self.names[0])

    def _network_rm(self) -> None:
        kind = self.words[0]
        for name in self.names:
            if name not in self.state[f"{kind}s"]:
                raise RefusedError(f"Error: No such {kind}: {name}")
            self.state[f"{kind}s"].remove(name)

    _volume_rm = _network_rm

    def _run(self) -> None:
        name = self.given["--name"][0]
        if name in self.containers:
            raise RefusedError("docker: Error response: Conflict. The container name is already in use.")
        env_file = Path(self.given["--env-file"][0])
        self.state["modes"].append(env_file.stat().st_mode & 0o777)
        count = len(self.containers)
        container = {
            "Id": f"{count + 1000 * self.state['made']:064x}",
            "Image": "sha256:" + "1" * 64,
            "Config": {
                "Labels": dict(label.split("=", 1) for label in self.given["--label"]),
                "Env": env_file.read_text().splitlines() + self.given["--env"],
            },
            "State": {"Status": "running", "ExitCode": 0},
            "NetworkSettings": {"Networks": {"n": {"IPAddress": f"172.18.0.{count + 2}"}}},
            "volume": self.given["--volume"][0].partition(":")[0],
            "words": self.words,
        }
        self.containers[name] = container
        self.state["made"] += 1
        self._print(container["Id"])

    def _ps(self) -> None:
        label = self.given["--filter"][0].partition("=")[2]
        for container in self.containers.values():
            labels = container["Config"]["Labels"]
            if label in labels or label in [f"{name}={text}" for name, text in labels.items()]:
                self._print(container["Id"])

    def _container_inspect(self) -> None:
        known = {**{container["Id"]: container for container in self.containers.values()}, **self.containers}
        self._print(json.dumps([known[word] for word in self.names if word in known]))
        for word in self.names:
            if word not in known:
                raise RefusedError(f"Error: No such container: {word}")

    def _logs(self) -> None:
        _, container = self._named(self.names[0])
        text = container.get("log") or f"hello of {container['Config']['Labels']['oci-cluster.node']}\n"
        lines = text.splitlines(keepends=True)
        if "--timestamps" in self.given:
            seconds = container.get("seconds") or range(len(lines))
            # As long a fraction as docker's.
            lines = [f"2026-01-01T00:00:{at:02}.{at:09}Z {line}" for at, line in zip(seconds, lines, strict=True)]
        self.out.write("".join(lines).encode())

    def _exec(self) -> None:
        """Check that there is one; the program of the engine then becomes what is to be run."""
        name, container = self._named(self.names[0])
        if container["State"]["Status"] != "running":
            raise RefusedError(f"Error response from daemon: Container {name} is not running")

    def _stop(self) -> None:
        for word in self.names:
            _, container = self._named(word)
            if container["State"]["Status"] == "running" and not (self.verb == "stop" and self.state["deaf"]):
                container["State"] = {"Status": "exited", "ExitCode": 143 if self.verb == "stop" else 137}

    _kill = _stop

    def _rm(self) -> None:
        for word in self.names:
            del self.containers[self._named(word)[0]]

    def _cp(self) -> None:
        if self.names[0] == "-":
            path = self._path(self.names[1])
            if not path.is_dir():
                raise RefusedError("destination must be a directory")
            with tarfile.open(fileobj=io.BytesIO(self.stdin())) as tar:
                tar.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # 3.12 wants one to be named
                tar.extractall(path)  # noqa: S202 - the tests' own
            return
        path = self._path(self.names[0])
        if not os.path.lexists(path):
            raise RefusedError(f"Error: No such container:path: {self.names[0]}")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w|") as tar:
            tar.add(path, path.name)
        self.out.write(packed.getvalue()[: 700 if self.state["cut"] and path.name == "outputs" else None])


def _options(words: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if word == "-t":
            next(rest)
        elif not word.startswith("--"):
            found.setdefault("", []).append(word)
        elif word in _ALONE:
            found[word] = True
        else:
            found.setdefault(word, []).append(next(rest))
    return found
