"""A container engine that a test plays: a program that keeps containers in a file, and folders for their volumes."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from unit.fake_docker import run

from oci_cluster.backends.docker.backend import DockerBackend
from oci_cluster.contract.cluster import Cluster, NodeState, Plan
from oci_cluster.launcher.launch.plan import Request, make_plan
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.system.engine import Engine
from oci_cluster.system.files import locked, write_whole

ROOT = Path(__file__).resolve().parents[2]

# For those who start a program. It answers as FakeEngine's own Engine does, which starts none: a start takes 40 ms.
PROGRAM = """#!%(python)s -IS
import os, sys
sys.path.insert(0, %(folder)r)
from fake_docker import Path, run
code, out, err = run(Path(%(place)r), sys.argv[1:], sys.stdin.buffer.read)
sys.stdout.buffer.write(out)
sys.stderr.write(err)
if sys.argv[1] == "exec" and code == 0:  # containers are this machine
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.argv[sys.argv.index("python") + 1 :]])
sys.exit(code)
"""


class DirectEngine(Engine):
    """The same answers without a program between: what a start of the client itself does is test_engine's business."""

    def call(self, *words: str, stdin: bytes = b"", timeout_s: float | None = None) -> str:
        code, out, err = run(Path(self.program).parent, words, lambda: stdin)
        if code != 0:
            raise self.failure(words, err.encode())
        return out.decode()

    @contextmanager
    def stream(self, *words: str) -> Iterator[IO[bytes]]:
        code, out, err = run(Path(self.program).parent, words, bytes)
        printed = io.BytesIO(out)
        try:
            yield printed
        except BaseException:
            if code != 0 and not printed.read(1):
                raise self.failure(words, err.encode()) from None
            raise
        if code != 0:
            raise self.failure(words, err.encode())


class FakeEngine:
    """An engine that has the image ``plain:1``, and what a test does to its containers."""

    def __init__(self, place: Path) -> None:
        self.place = place / "an engine"
        (self.place / "volumes").mkdir(parents=True)
        self.program = self.place / "docker"
        # A link, for the first line of a script can hold no blank.
        words = {"python": os.path.realpath(sys.executable), "folder": str(Path(__file__).parent)}
        self.program.write_text(PROGRAM % {**words, "place": str(self.place)})
        self.program.chmod(0o755)
        self.engine = DirectEngine(str(self.program))
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
            cut=False,
        )

    @property
    def state(self) -> dict[str, Any]:
        """All that it has."""
        path = self.place / "state.json"
        return dict(json.loads(path.read_bytes())) if path.exists() else {}

    def change(self, **what: Any) -> None:
        with locked(self.place / "lock"):
            write_whole(self.place / "state.json", json.dumps({**self.state, **what}))

    def calls(self) -> list[list[str]]:
        """Return what it has been asked."""
        path = self.place / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def fail(self, verb: str, said: str, word: str = "", *, is_done: bool = False) -> None:
        """Have it refuse the calls of *verb* in which there is *word*; or do what they ask, and say that it has not."""
        fault = {"verb": verb, "said": said, "word": word, "is_done": is_done}
        self.change(faults=[*self.state["faults"], fault])

    def container(self, node: str) -> dict[str, Any]:
        found = self.state["containers"].values()
        return next(c for c in found if c["Config"]["Labels"]["oci-cluster.node"] == node)

    def set(self, node: str, **state: Any) -> None:
        """Have the engine say this of the state of *node*'s container."""
        containers = self.state["containers"]
        name = next(n for n, c in containers.items() if c["Config"]["Labels"]["oci-cluster.node"] == node)
        containers[name]["State"] = state
        self.change(containers=containers)

    def label(self, name: str, text: str, node: str = "") -> None:
        """Write *text* as the label *name* of *node*'s container, or of all."""
        containers = self.state["containers"]
        for container in containers.values():
            labels = container["Config"]["Labels"]
            if node in {"", labels["oci-cluster.node"]}:
                labels[f"oci-cluster.{name}"] = text
        self.change(containers=containers)

    def give(self, node: str, *pairs: str) -> None:
        """Have *node*'s container show these in its environment, too."""
        containers = self.state["containers"]
        for container in containers.values():
            if container["Config"]["Labels"]["oci-cluster.node"] == node:
                container["Config"]["Env"] += pairs
        self.change(containers=containers)

    def forget(self, node: str) -> None:
        """Have no container of *node* any more."""
        containers = self.state["containers"]
        labels = {name: container["Config"]["Labels"] for name, container in containers.items()}
        self.change(containers={n: c for n, c in containers.items() if labels[n]["oci-cluster.node"] != node})

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

    def plan(self, workers: int = 2, *, env: tuple[str, ...] = (), python: str = "", **settings: str) -> Plan:
        """Return the plan of a launch with these settings in its environment."""
        given = {"IMAGE": "plain:1", "CLUSTER_NAME": "mine", **settings}
        request = Request("plain", str(workers), "docker", environment=env, python=python)
        return make_plan(request, given, root=self.root, cwd=self.root, max_workers=100)


class Launcher:
    """One launcher, the engine that it asks, and what it says and leaves."""

    def __init__(self, place: Path, clock: Any) -> None:
        self.checkout = Checkout(place)
        self.root = self.checkout.root
        self.clock = clock
        self.sleep: Callable[[float], None] = clock.sleep
        self.fake = FakeEngine(place)
        self.is_stopped: Callable[[], bool] = lambda: False
        self.said: list[str] = []
        self.backend = self.another()

    def another(self, root: Path | None = None) -> DockerBackend:
        """Return the backend of another launcher, from this checkout or another."""
        return DockerBackend(
            self.fake.engine,
            root or self.root,
            is_stopped=lambda: self.is_stopped(),  # noqa: PLW0108 - what it will be later
            clock=self.clock,
        )

    @property
    def lifecycle(self) -> Lifecycle:
        return Lifecycle(self.backend, self.root, self.said.append, clock=self.clock, sleep=self.sleep)

    def plan(self, workers: int = 2, **words: Any) -> Plan:
        """Return a placed plan."""
        return self.backend.place(self.checkout.plan(workers, **{"DOCKER": str(self.fake.program), **words}))

    def launch(self, workers: int = 2, **words: Any) -> Cluster:
        return self.lifecycle.launch(self.plan(workers, **words))

    def scale(self, cluster: Cluster, text: str) -> int:
        return self.lifecycle.scale(cluster, text)

    def stop(self, cluster: Cluster, *, delete: bool = False) -> None:
        self.lifecycle.stop(cluster, delete=delete)

    def finish(self, cluster: Cluster) -> None:
        self.backend.finish(cluster, self.said.append)

    def found(self) -> Cluster:
        (cluster,) = self.backend.find()
        return cluster

    def work(self, cluster: Cluster) -> Path:
        """Return the cluster dir in the volume, as nodes make it."""
        path = self.fake.volume() / cluster.cluster_id
        path.mkdir(exist_ok=True)
        return path

    def words(self, verb: str) -> list[list[str]]:
        return [words for words in self.fake.calls() if words[0] == verb]

    def states(self, cluster: Cluster) -> list[NodeState]:
        return self.backend.states([cluster])[cluster.launch_id]

    def codes(self, cluster: Cluster) -> dict[str, int | None]:
        return {state.node: state.exit_code for state in self.states(cluster)}

    def leave_files(self, cluster: Cluster) -> None:
        """Leave what nodes leave in the volume, and what hostile ones would."""
        work = self.work(cluster)
        said = {"stop": "7", "MAIN_exit.json": "x", "MAIN_certificate.json": "key", "nodes.json": "evil"}
        for name, text in {**said, "cluster.json": "evil"}.items():
            (work / name).write_text(text)
        outputs = self.fake.volume() / "outputs"
        (outputs / "deep").mkdir(parents=True)
        (outputs / "deep" / "model").write_text("weights")
        (outputs / "link").symlink_to("/etc/passwd")
        (outputs / "deep" / "up").symlink_to("../../..", target_is_directory=True)


def after(words: Sequence[str], option: str) -> list[str]:
    """Return the values of *option* in a command."""
    return [words[at + 1] for at, word in enumerate(words) if word == option]
