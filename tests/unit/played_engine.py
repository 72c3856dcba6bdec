"""A container engine that a test plays: a program that keeps containers in a file, and folders for their volumes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from oci_cluster.engine import Engine
from oci_cluster.plan import Request, make_plan

ROOT = Path(__file__).resolve().parents[2]

# What docker 20.10 says, in its words. On the standard library alone, as it is started many times.
PROGRAM = r"""#!%(python)s -IS
import fcntl, json, os, sys
place = %(place)r
lock = open(place + "/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
def load():
    with open(place + "/state.json") as file:
        return json.load(file)
def save():
    with open(place + "/state.json", "w") as file:
        json.dump(state, file)
def fail(text, code=1):
    sys.stderr.write(text + "\n")
    sys.exit(code)
def volume_path(words):
    name, _, path = words.partition(":")
    if name not in state["containers"]:
        fail("Error: No such container:path: " + words)
    return place + "/volumes/" + state["containers"][name]["volume"] + path.replace("/work", "", 1)
def named(word):
    for name, container in state["containers"].items():
        if word in (name, container["Id"]):
            return name, container
    fail("Error: No such container: " + word)
def options(words):
    found = {}
    words = iter(words)
    for word in words:
        if word == "-t":
            next(words)
        elif not word.startswith("--"):
            found.setdefault("", []).append(word)
        elif word in ("--detach", "--all", "--quiet", "--no-trunc", "--force", "--volumes", "--follow"):
            found[word] = True
        else:
            found.setdefault(word, []).append(next(words))
    return found
state = load()
words = sys.argv[1:]
with open(place + "/calls", "a") as file:
    file.write(json.dumps(words) + "\n")
verb = " ".join(words[:2]) if words[0] in ("network", "volume", "image", "container") else words[0]
for fault in state["faults"]:
    if fault["verb"] == verb and fault["word"] in " ".join(words):
        fail(fault["said"])
given = options(words[len(verb.split()):])
names = given.get("", [])
if verb == "info":
    print(json.dumps(state["info"]))
elif verb == "image inspect":
    if names[0] not in state["images"]:
        fail("Error: No such image: " + names[0])
    print("[{}]")
elif verb in ("network create", "volume create"):
    state[words[0] + "s"].append(names[0])
    if words[0] == "volume":
        os.makedirs(place + "/volumes/" + names[0])
    print(names[0])
elif verb in ("network rm", "volume rm"):
    for name in names:
        if name not in state[words[0] + "s"]:
            fail("Error: No such " + words[0] + ": " + name)
        state[words[0] + "s"].remove(name)
elif verb == "run":
    name = given["--name"][0]
    if name in state["containers"]:
        fail("docker: Error response: Conflict. The container name is already in use.")
    with open(given["--env-file"][0]) as file:
        env = file.read().splitlines() + given["--env"]
    os.chmod(given["--env-file"][0], os.stat(given["--env-file"][0]).st_mode)
    state["modes"].append(os.stat(given["--env-file"][0]).st_mode & 0o777)
    labels = dict(label.split("=", 1) for label in given["--label"])
    state["containers"][name] = {
        "Id": "%%064x" %% (len(state["containers"]) + 1000 * state["made"]),
        "Image": "sha256:" + "1" * 64,
        "Config": {"Labels": labels, "Env": env},
        "State": {"Status": "running", "ExitCode": 0},
        "NetworkSettings": {"Networks": {"n": {"IPAddress": "172.18.0.%%d" %% (len(state["containers"]) + 2)}}},
        "volume": given["--volume"][0].partition(":")[0],
        "words": words,
    }
    print(state["containers"][name]["Id"])
    state["made"] += 1
elif verb == "ps":
    label = given["--filter"][0].partition("=")[2]
    for container in state["containers"].values():
        labels = container["Config"]["Labels"]
        if label in labels or label in [name + "=" + text for name, text in labels.items()]:
            print(container["Id"])
elif verb == "container inspect":
    known = {**{c["Id"]: c for c in state["containers"].values()}, **state["containers"]}
    print(json.dumps([known[word] for word in names if word in known]))
    for word in names:
        if word not in known:
            fail("Error: No such container: " + word)
elif verb == "logs":
    name, container = named(names[0])
    print("hello of " + container["Config"]["Labels"]["oci-cluster.node"])
elif verb in ("stop", "kill"):
    for word in names:
        name, container = named(word)
        if container["State"]["Status"] == "running":
            if verb == "stop" and state["deaf"]:
                continue
            container["State"] = {"Status": "exited", "ExitCode": 143 if verb == "stop" else 137}
elif verb == "rm":
    for word in names:
        name, container = named(word)
        del state["containers"][name]
elif verb == "cp" and names[0] == "-":
    import io, tarfile
    path = volume_path(names[1])
    if not os.path.isdir(path):
        fail("destination must be a directory")
    with tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read())) as tar:
        tar.extractall(path)
elif verb == "cp":
    import tarfile
    path = volume_path(names[0])
    if not os.path.lexists(path):
        fail("Error: No such container:path: " + names[0])
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        tar.add(path, os.path.basename(path))
else:
    fail("unknown command " + verb)
save()
"""


class PlayedEngine:
    """An engine that has the image ``plain:1``, and what a test does to its containers."""

    def __init__(self, place: Path) -> None:
        self.place = place / "an engine"
        (self.place / "volumes").mkdir(parents=True)
        self.program = self.place / "docker"
        # A link, for the first line of a script can hold no blank.
        self.program.write_text(PROGRAM % {"python": os.path.realpath(sys.executable), "place": str(self.place)})
        self.program.chmod(0o755)
        self.engine = Engine(str(self.program))
        self.change(
            info={"NCPU": 4, "MemTotal": 4000},
            images=["plain:1", "sha256:" + "1" * 64],
            containers={},
            networks=[],
            volumes=[],
            faults=[],
            modes=[],
            made=0,
            deaf=False,
        )

    @property
    def state(self) -> dict[str, Any]:
        """All that it has."""
        path = self.place / "state.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def change(self, **what: Any) -> None:
        (self.place / "state.json").write_text(json.dumps({**self.state, **what}))

    def calls(self) -> list[list[str]]:
        """Return what it has been asked."""
        path = self.place / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def fail(self, verb: str, said: str, word: str = "") -> None:
        """Have it refuse the calls of *verb* in which there is *word*."""
        self.change(faults=[*self.state["faults"], {"verb": verb, "said": said, "word": word}])

    def container(self, node: str) -> dict[str, Any]:
        found = self.state["containers"].values()
        return next(c for c in found if c["Config"]["Labels"]["oci-cluster.node"] == node)

    def set(self, node: str, **state: Any) -> None:
        """Have the engine say this of the state of *node*'s container."""
        containers = self.state["containers"]
        name = next(n for n, c in containers.items() if c["Config"]["Labels"]["oci-cluster.node"] == node)
        containers[name]["State"] = state
        self.change(containers=containers)

    def end_all(self, code: int = 0) -> None:
        """Have all nodes end with *code*."""
        containers = self.state["containers"]
        for container in containers.values():
            container["State"] = {"Status": "exited", "ExitCode": code}
        self.change(containers=containers)

    def volume(self) -> Path:
        """Return the only volume, as a folder."""
        (path,) = (self.place / "volumes").iterdir()
        return path

    def left(self) -> tuple[list[str], list[str], list[str]]:
        """Return all containers, networks and volumes."""
        state = self.state
        return list(state["containers"]), state["networks"], state["volumes"]


class Checkout:
    """A project with this one's backends, and one framework whose example is one script."""

    def __init__(self, place: Path) -> None:
        self.root = place / "my project"
        (self.root / "plain" / "example").mkdir(parents=True)
        (self.root / "plain" / "example" / "train.py").write_text("print('hello')\n")
        for script in ("start-master.sh", "start-worker.sh"):
            (self.root / "plain" / script).touch()
        (self.root / "plain" / "settings.env").write_text("SOME_PORT=1234\nMIN_WORKERS=1\n")
        (self.root / "scripts").symlink_to(ROOT / "scripts")

    def plan(self, workers: int = 2, *, env: tuple[str, ...] = (), python: str = "", **settings: str) -> dict[str, Any]:
        """Return the plan of a launch with these settings in its environment."""
        given = {"IMAGE": "plain:1", "CLUSTER_NAME": "mine", **settings}
        request = Request("plain", str(workers), "docker", environment=env, python=python)
        return make_plan(request, given, root=self.root, cwd=self.root, most_workers=100)
