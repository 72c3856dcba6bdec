"""Nodes of job runs as containers of an engine such as tests/engine.py makes, of images from its registry."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import hosts

from oci_service.places import Node, start_guard

_LABEL = "oci-service"
# What names that the engine cannot find or start become, as Docker's client has it.
_NOT_STARTED = {126, 127}


class EngineError(Exception):
    """The engine refused a request, with *status*, or is not there: 0."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class _Connection(http.client.HTTPConnection):
    """A connection with the engine's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("engine")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class _Engine:
    """The requests made to an engine: its API, not its client, to which a run's variables would mean something."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, method: str, path: str, body: Any = None, **query: Any) -> http.client.HTTPResponse:
        """Return the answer to a request, to be read.

        Raises:
            EngineError: it was refused, or there was no answer.
        """
        connection = _Connection(self._path)
        data = None if body is None else json.dumps(body).encode()
        try:
            # 1.41 is what Docker 20.10 speaks, and later ones still do.
            connection.request(
                method, f"/v1.41/{path}?{urlencode(query)}", data, {"Content-Type": "application/json"} if data else {}
            )
            answer = connection.getresponse()
            if answer.status >= http.HTTPStatus.BAD_REQUEST:
                raise EngineError(f"{method} {path}: {answer.status} {answer.read().decode()}", answer.status)
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"{method} {path}: {error}", 0) from error
        return answer

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return what the engine answers, read from JSON; a list where it answers with one line after the other."""
        try:
            text = self.open(method, path, body, **query).read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"{method} {path}: {error}", 0) from error
        return [json.loads(line) for line in text.splitlines()] if path == "images/create" else json.loads(text or "{}")


class _Container:
    """A container that was started; as ``Executed``."""

    def __init__(self, engine: _Engine, container: str) -> None:
        self._engine = engine
        self._id = container
        problem = ""
        # Attached, and before it starts: what follows its log can miss a last line that has no end.
        printed = engine.open("POST", f"containers/{container}/attach", stream=1, stdout=1, stderr=1)
        try:
            engine.ask("POST", f"containers/{container}/start")
            self.pid = int(engine.ask("GET", f"containers/{container}/json")["State"]["Pid"])
        except EngineError as error:
            # That there is no such program is found out here.
            if engine.ask("GET", f"containers/{container}/json")["State"]["ExitCode"] not in _NOT_STARTED:
                raise
            problem = f"{error}\n"
            printed.close()
            self.pid = 0
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        os.write(stderr, problem.encode())
        threading.Thread(target=self._copy_output, args=[printed, stdout, stderr], daemon=True).start()

    @staticmethod
    def _copy_output(printed: http.client.HTTPResponse, stdout: int, stderr: int) -> None:
        """Copy what it prints: a header says whose the bytes are that follow, and how many."""
        streams = {1: os.fdopen(stdout, "wb"), 2: os.fdopen(stderr, "wb")}
        with streams[1], streams[2], contextlib.suppress(OSError, http.client.HTTPException, struct.error):
            while True:
                kind, size = struct.unpack(">BxxxL", printed.read(8))
                streams[kind].write(printed.read(size))
                streams[kind].flush()

    def term(self) -> None:
        """Send TERM to its first process."""
        self._signal("TERM")

    def kill(self) -> None:
        """Kill all of it."""
        self._signal("KILL")

    def _signal(self, name: str) -> None:
        with contextlib.suppress(EngineError):  # it has ended
            self._engine.ask("POST", f"containers/{self._id}/kill", signal=name)

    def wait(self) -> int | None:
        """Return its exit code; None where it was lost with its engine."""
        with contextlib.suppress(EngineError):
            return int(self._engine.ask("POST", f"containers/{self._id}/wait")["StatusCode"])
        return None


class _Probe:
    """A command that was started in a container that runs; as ``Executed``, but nobody reads what it prints."""

    def __init__(self, engine: _Engine, container: str, directory: str, command: Sequence[str], environ: Any) -> None:
        self._engine = engine
        body = {"Cmd": list(command), "Env": [f"{name}={text}" for name, text in environ.items()]}
        asked = engine.ask("POST", f"containers/{container}/exec", {**body, "WorkingDir": directory})
        self._id = str(asked["Id"])
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        os.close(stdout)
        os.close(stderr)
        engine.ask("POST", f"exec/{self._id}/start", {"Detach": True})

    def wait(self) -> int | None:
        """Return its exit code."""
        with contextlib.suppress(EngineError):
            while (found := self._engine.ask("GET", f"exec/{self._id}/json"))["Running"]:
                time.sleep(0.05)  # the engine tells nobody when a command ends
            return int(found["ExitCode"])
        return None


class _InContainer(Node):
    """A node that is a container. What is started first is the container; all else is started in it."""

    mode = 0o644  # of its files: they are root's, and an image has a user of its own

    def __init__(self, place: Containers, address: str, directory: Path, image: Mapping[str, Any], name: str) -> None:
        self.address = address
        self.directory = directory
        self.environ = {}
        self.working_directory = "/"
        self.hostname = name
        self._place = place
        self._image = str(image["reference"])
        self._container = ""

    def start(self, directory: str, command: Sequence[str], environ: Mapping[str, str]) -> Any:
        engine, place = self._place.engine, self._place
        if self._container:
            return _Probe(engine, self._container, directory, command, environ)
        body = {
            "Image": self._image,
            "Hostname": self.hostname,
            "Entrypoint": list(command),
            "Env": [f"{name}={text}" for name, text in environ.items()],
            "WorkingDir": directory,
            "Labels": {_LABEL: place.name},
            "HostConfig": {
                "NetworkMode": place.decoys,
                # Where the engine runs and here: the path is the same, and so the variables that name it.
                "Binds": [f"{self.directory}:{self.directory}:ro"],
            },
        }
        self._container = str(engine.ask("POST", "containers/create", body, name=f"{place.name}-{self.hostname}")["Id"])
        try:
            there = {"Container": self._container, "EndpointConfig": {"IPAMConfig": {"IPv4Address": self.address}}}
            engine.ask("POST", f"networks/{place.subnet}/connect", there)
            return _Container(engine, self._container)
        except EngineError:
            self.close()
            raise

    def close(self) -> None:
        with contextlib.suppress(EngineError):  # is not there, or the engine is not
            self._place.engine.ask("DELETE", f"containers/{self._container}", force=1, v=1)


class Containers:
    """Nodes are containers in a subnet of the engine's own; the service is at its end."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.network = hosts.SUBNET
        # The last host address is the service's.
        *addresses, self.proxy_address = (str(address) for address in self.network.hosts())
        self.addresses = addresses[1:]
        self.name = f"{_LABEL}-{secrets.token_hex(4)}"
        self.subnet, self.decoys = f"{self.name}-subnet", f"{self.name}-decoys"
        self.engine = _Engine(about["socket"])
        self._pid = int(about["pid"])
        self.enter = hosts.enter_network(self._pid)
        self._count = 0
        self._lock = threading.Lock()
        self._guard = start_guard("from oci_service import containers", "containers.clear", about["socket"], self.name)
        # As on hosts: what has the default route leads nowhere.
        subnet = {"Subnet": str(self.network), "Gateway": self.proxy_address}
        decoys = {"Subnet": str(hosts.DECOYS)}
        for name, config, is_internal in ((self.subnet, subnet, True), (self.decoys, decoys, False)):
            body = {"Name": name, "Internal": is_internal, "IPAM": {"Config": [config]}, "Labels": {_LABEL: self.name}}
            try:
                self.engine.ask("POST", "networks/create", body)
            except EngineError as error:
                raise SystemExit(f"containers: {error}; an engine takes one service at a time") from error

    def listening_socket(self) -> socket.socket:
        """Return a socket at the service's address in the subnet, which is no address of this machine."""
        return hosts.listen_in(self._pid, self.proxy_address)

    def image(self, wanted: str, digest: str, _table: Mapping[str, Any]) -> dict[str, Any] | None:
        """Pull an image by name and digest; return what it says of itself, or None where the registry has none such."""
        name, _, of_name = wanted.partition("@")
        repository, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            repository, tag = name, ""
        if not tag and not of_name:
            return None
        # Where a tag is given it must be the one that has the digest, as in the table of images.
        try:
            lines = self.engine.ask("POST", "images/create", fromImage=repository, tag=tag or of_name)
        except EngineError as error:
            if not error.status:
                raise
            return None
        told = [line["status"].partition(" ")[2] for line in lines if line.get("status", "").startswith("Digest: ")]
        if not told or not {of_name, digest} <= {"", told[0]}:
            return None
        reference = f"{repository}@{told[0]}"
        config = self.engine.ask("GET", f"images/{quote(reference)}/json")["Config"]
        return {
            "reference": reference,
            "digest": told[0],
            "entrypoint": config["Entrypoint"],
            "cmd": config["Cmd"],
            "environment": dict(text.split("=", 1) for text in config["Env"] or []),
            "directory": config["WorkingDir"] or "/",
        }

    def node(self, address: str, directory: Path, image: Mapping[str, Any]) -> Node:
        """Return a place for a container with that address."""
        with self._lock:
            self._count += 1
            name = f"node{self._count}"
        return _InContainer(self, address, directory, image, name)

    def close(self) -> None:
        """Remove the networks, and containers that are left."""
        self._guard.communicate(timeout=60)


def clear(path: str, name: str) -> None:
    """Remove all containers and networks of the service *name*, of the engine whose socket is *path*."""
    engine = _Engine(path)
    filters = json.dumps({"label": [f"{_LABEL}={name}"]})
    with contextlib.suppress(EngineError):  # the engine is gone, and they with it
        for container in engine.ask("GET", "containers/json", all=1, filters=filters):
            with contextlib.suppress(EngineError):
                engine.ask("DELETE", f"containers/{container['Id']}", force=1, v=1)
        for network in engine.ask("GET", "networks", filters=filters):
            engine.ask("DELETE", f"networks/{network['Id']}")
