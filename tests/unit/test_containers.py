"""Clusters of containers, with an engine that the test plays: it refuses, and holds what others have put there."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from unit.played_engine import Checkout, PlayedEngine

from oci_cluster import container_commands, containers, docker_verbs, image_records
from oci_cluster.clusters import Cluster
from oci_cluster.containers import Containers
from oci_cluster.engine import Engine, EngineError
from oci_cluster.errors import BackendError, SettingsError, StoppedError, UsageError
from oci_cluster.exchange import Exchange
from oci_cluster.follow import cluster_code

NODES = ["MAIN", "WORKER_1", "WORKER_2"]


class Launcher:
    """One launcher, the engine that it asks, and what a launch says and leaves."""

    def __init__(self, place: Path, clock: Any) -> None:
        self.checkout = Checkout(place)
        self.root = self.checkout.root
        self.clock = clock
        self.played = PlayedEngine(place)
        self.is_stopped: Callable[[], bool] = lambda: False
        self.said: list[str] = []
        self.backend = self.another()

    def another(self, root: Path | None = None) -> Containers:
        return Containers(
            self.played.engine,
            root or self.root,
            is_stopped=lambda: self.is_stopped(),  # noqa: PLW0108 - what it will be later
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def submit(self, workers: int = 2, **words: Any) -> Cluster:
        return self.backend.submit(self.checkout.plan(workers, **words), self.root, self.said.append)

    def scale(self, cluster: Cluster, text: str) -> int:
        return self.backend.scale(self.backend.load(cluster), text, self.root, self.said.append, most=100)

    def found(self) -> Cluster:
        (cluster,) = self.backend.find()
        return self.backend.load(cluster)

    def work(self, cluster: Cluster) -> Path:
        """Return the cluster dir in the volume, as nodes make it."""
        path = self.played.volume() / cluster.plan["cluster_id"]
        path.mkdir(exist_ok=True)
        return path

    def words(self, verb: str) -> list[list[str]]:
        return [words for words in self.played.calls() if words[0] == verb]

    def codes(self, cluster: Cluster) -> dict[str, int | None]:
        return {node["node"]: node["exit_code"] for node in self.backend.state(cluster)["nodes"]}


@pytest.fixture
def launcher(tmp_path: Path, clock: Any) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path.resolve(), clock)
    yield launcher
    launcher.backend.close()


@pytest.fixture
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an engine do what it is asked before time goes on."""
    start = Engine.start

    def start_and_wait(self: Engine, *words: str, output: Path) -> Any:
        client = start(self, *words, output=output)
        client.wait()
        return client

    monkeypatch.setattr(Engine, "start", start_and_wait)


def after(words: Sequence[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


# --- What is asked ----------------------------------------------------------------------------------------


def test_a_launch_makes_what_nodes_share_then_main_then_workers(launcher: Launcher) -> None:
    """All with labels; the nodes' environment is in a private file that is gone afterwards."""
    cluster = launcher.submit(env=("API_TOKEN=s3cret", "PLAIN=a b"))
    id_ = cluster.plan["cluster_id"]
    nodes, *shared = launcher.played.left()
    assert (nodes[0], sorted(nodes), shared) == (f"{id_}-MAIN", [f"{id_}-{node}" for node in NODES], [[id_], [id_]])
    made = [words[0] for words in launcher.played.calls() if words[0] in {"network", "volume", "run"}]
    assert made == ["network", "volume", "run", "run", "run"]
    main, worker, _ = sorted(launcher.words("run"), key=lambda words: after(words, "--hostname"))
    assert after(main, "--hostname") + after(worker, "--hostname") == ["main", "worker-1"]
    assert after(worker, "--env") == ["MODE=WORKER", "NODE_RANK=1", "NODE_NAME=WORKER_1"]
    assert (after(main, "--volume"), after(main, "--shm-size"), main[-1]) == ([f"{id_}:/work"], ["1g"], "plain:1")
    assert f"oci-cluster.launch={cluster.launch_id}" in after(main, "--label")
    assert "s3cret" not in str(launcher.played.calls())
    assert launcher.played.state["modes"] == [0o600] * 3
    assert not (cluster.directory / "nodes.env").exists()
    environment = dict(text.split("=", 1) for text in launcher.played.container("WORKER_2")["Config"]["Env"])
    assert (
        environment.items()
        >= {
            "API_TOKEN": "s3cret",
            "PLAIN": "a b",
            "CODE_DIR": "/code",
            "WORK_DIR": "file:///work",
            "OUTPUT_DIR": "/work/outputs",
            "NODE_CPUS": "1",
            "NODE_MEMORY": str(4000 // 3),
            "POLL_CEILING": "0.2",
            "NODE_RANK": "2",
        }.items()
    )


def test_code_is_mounted_read_only(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder; where this machine has SELinux, without its labels."""
    odd = launcher.root / 'a,b "c": d'
    odd.mkdir()
    (odd / "e.py").touch()
    launcher.submit(1, ENTRY_POINT=str(odd / "e.py"))
    main = launcher.words("run")[0]
    quoted = str(odd).replace('"', '""')
    assert after(main, "--mount") == [f'type=bind,"source={quoted}",target=/code,readonly']
    assert after(main, "--security-opt") == []
    monkeypatch.setattr(container_commands, "_SELINUX", launcher.root)
    launcher.submit(1, CLUSTER_NAME="other")
    assert after(launcher.words("run")[-1], "--security-opt") == ["label=disable"]


@pytest.mark.parametrize(
    ("code_uri", "expected"),
    [("image", {"CODE_DIR": "/code"}), ("git+https://x@main", {"CODE_URI": "git+https://x@main"})],
)
def test_code_that_nodes_have_or_fetch_is_not_mounted(
    launcher: Launcher, code_uri: str, expected: dict[str, str]
) -> None:
    """`image` is the image's own; a URL goes to the agents."""
    cluster = launcher.submit(1, CODE_URI=code_uri)
    given = {name: text for name, text in cluster.plan["environment"].items() if name in {"CODE_DIR", "CODE_URI"}}
    assert given == expected
    assert after(launcher.words("run")[0], "--mount") == []


def test_settings_become_limits(launcher: Launcher) -> None:
    """Of each node; ports are main's alone."""
    launcher.submit(1, CPUS="2.5", MEMORY="1G", SHM_SIZE="2g", GPUS="all", PUBLISH="8787, 9000:80")
    main, worker = launcher.words("run")
    for words in (main, worker):
        given = [after(words, option) for option in ("--cpus", "--memory", "--shm-size", "--gpus")]
        assert given == [["2.5"], ["1g"], ["2g"], ["all"]]
    assert after(main, "--publish") == ["127.0.0.1:8787:8787", "127.0.0.1:9000:80"]
    assert after(worker, "--publish") == []
    environment = launcher.found().plan["environment"]
    assert (environment["NODE_CPUS"], environment["NODE_MEMORY"]) == ("2", str(2**30))


def test_podman_has_another_word_for_gpus(launcher: Launcher) -> None:
    """Devices with names."""
    launcher.played.program = launcher.played.program.rename(launcher.played.place / "podman")
    plan = launcher.checkout.plan(1, GPUS="all")
    engine = type(launcher.played.engine)(str(launcher.played.program))
    text = container_commands.check(plan, launcher.root, engine)
    assert ("--device nvidia.com/gpu=all" in text, "--gpus" in text) == (True, False)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("CPUS", "many", "CPUS: 'many' is not a number of CPUs"),
        ("CPUS", "0", "CPUS: '0' is not a number of CPUs"),
        ("MEMORY", "4 GB", "MEMORY: '4 GB' is not a size such as 512m"),
        ("SHM_SIZE", "-1", "SHM_SIZE: '-1' is not a size"),
        ("GPUS", "all; x", "GPUS: 'all; x' is not what --gpus takes"),
        ("PUBLISH", "8787:0", "PUBLISH: .*1"),
        ("IMAGE", "--privileged", "IMAGE: '--privileged' is not an image"),
        ("IMAGE", "other:1", "has no image other:1; get it: .* pull other:1"),
    ],
)
def test_a_wrong_setting_is_named(launcher: Launcher, name: str, text: str, told: str) -> None:
    """Before anything is made."""
    with pytest.raises(SettingsError, match=told):
        launcher.submit(1, **{name: text})
    assert launcher.played.left() == ([], [], [])


def test_what_cannot_be_given_to_a_node_is_refused(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line breaks, lines that an engine would cut, and another Python than the image's."""
    with pytest.raises(SettingsError, match="TWO has a line break"):
        launcher.submit(1, env=("TWO=a\nb",))
    with pytest.raises(SettingsError, match=r"LONG has 65000 characters, .* lines of 65000 bytes"):
        launcher.submit(1, env=("LONG=" + "x" * 65000,))
    (launcher.root / "py").touch(0o755)
    with pytest.raises(UsageError, match="--python is for nodes that are processes of this machine"):
        launcher.submit(1, python="py")
    assert launcher.played.left() == ([], [], [])


def test_without_an_image_the_last_one_that_was_built_is_run(launcher: Launcher) -> None:
    """By its id; where there is none, it is said how to build it."""
    with pytest.raises(SettingsError, match="no image for plain; build one: make build-plain"):
        launcher.submit(1, IMAGE="")

    def record(image_id: str) -> None:
        found = {
            "image": "localhost/oci-cluster/plain:1",
            "id": image_id,
            "digest": "",
            "built": "2026-01-02T03:04:05Z",
        }
        image_records.write("plain", launcher.root, found)

    record("plain:1")  # a name, which may be another image by now
    with pytest.raises(SettingsError, match="no image for plain; build one: make build-plain"):
        launcher.submit(1, IMAGE="")
    record("sha256:" + "1" * 64)
    launcher.submit(1, IMAGE="")
    assert launcher.words("run")[0][-1] == "sha256:" + "1" * 64
    record("sha256:" + "2" * 64)
    with pytest.raises(SettingsError, match=r"has no image sha256:2+; build it again: make build-plain"):
        launcher.submit(1, IMAGE="", CLUSTER_NAME="other")


def test_a_check_prints_the_commands_of_the_launch(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text and as JSON, without secrets, and changes nothing."""
    plan = launcher.checkout.plan(1, env=("API_TOKEN=s3cret",), DOCKER=str(launcher.played.program))
    monkeypatch.setattr(docker_verbs, "PROJECT_ROOT", launcher.root)
    outputs = []
    for as_json in (False, True):
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(plan)))
        assert docker_verbs.run_check(type("Args", (), {"json": as_json})(), "x") == 0
        outputs.append(capsys.readouterr().out)
    assert launcher.played.left() == ([], [], [])
    assert not (launcher.root / ".clusters").exists()
    assert "s3cret" not in "".join(outputs)
    assert "API_TOKEN=(not shown)\n" in outputs[0]
    launcher.backend.submit(plan, launcher.root, launcher.said.append)
    made = [words for words in launcher.played.calls() if words[:2] in (["network", "create"], ["volume", "create"])]
    made += launcher.words("run")
    assert [words[1:] for words in json.loads(outputs[1])["commands"]] == made
    assert all(words[-1] in outputs[0] for words in made)


# --- Nothing, or all --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "word"), [("network create", ""), ("volume create", ""), ("run", "worker-2")])
def test_a_launch_that_fails_leaves_nothing(launcher: Launcher, verb: str, word: str) -> None:
    """Wherever it fails."""
    launcher.played.fail(verb, "docker: no space left", word)
    with pytest.raises(EngineError, match="no space left"):
        launcher.submit()
    assert launcher.played.left() == ([], [], [])
    assert [path for path in (launcher.root / ".clusters").iterdir() if path.is_dir()] == []
    assert launcher.said == ["the launch failed; ending what was started"]


def test_what_cannot_be_ended_is_named(launcher: Launcher) -> None:
    """With the command that ends it, which finds it again."""
    launcher.played.fail("run", "docker: no space left", "worker-1")
    launcher.played.fail("rm", "docker: stuck")
    with pytest.raises(EngineError, match="no space left"):
        launcher.submit()
    assert "NOT ENDED: mine may still be running" in launcher.said[-1]
    assert "scripts/stop.sh mine --delete --backend docker" in launcher.said[-1]
    launcher.played.change(faults=[])
    launcher.backend.stop(launcher.found(), launcher.said.append, delete=True)
    assert launcher.played.left() == ([], [], [])


@pytest.mark.parametrize("made", ["network", "run"])
def test_a_signal_in_the_middle_of_a_launch_ends_it(launcher: Launcher, made: str) -> None:
    """143, and nothing is left."""
    launcher.is_stopped = lambda: any(words[0] == made for words in launcher.played.calls())
    with pytest.raises(StoppedError):
        launcher.submit()
    assert launcher.played.left() == ([], [], [])
    assert launcher.said == ["stopped before all nodes were started"]
    assert len(launcher.words("run")) == (made == "run")


def test_a_name_is_one_running_clusters(launcher: Launcher) -> None:
    """Once that has ended, it is free."""
    launcher.submit()
    with pytest.raises(UsageError, match=r"'mine' is running; .* scripts/stop.sh mine --backend docker"):
        launcher.submit()
    launcher.played.end_all()
    assert launcher.submit().name == "mine"


# --- State ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "state", "code"),
    [
        ({"Status": "running", "ExitCode": 0}, "IN_PROGRESS", None),
        ({"Status": "created", "ExitCode": 0}, "IN_PROGRESS", None),
        ({"Status": "paused", "ExitCode": 0}, "IN_PROGRESS", None),
        ({"Status": "exited", "ExitCode": 0}, "SUCCEEDED", 0),
        ({"Status": "exited", "ExitCode": 143}, "CANCELED", 143),
        ({"Status": "exited", "ExitCode": 7}, "FAILED", 7),
        ({"Status": "dead"}, "FAILED", 76),
        ({"Status": "created", "ExitCode": 127, "Error": "no such file"}, "FAILED", 69),
    ],
)
def test_the_engine_tells_how_a_node_is(launcher: Launcher, said: dict[str, Any], state: str, code: int | None) -> None:
    """A node that could not be started has no exit code of anybody's script."""
    cluster = launcher.submit(1)
    launcher.played.set("WORKER_1", **said)
    node = launcher.backend.state(cluster)["nodes"][1]
    assert (node["state"], node["exit_code"], node["never_started"]) == (state, code, "Error" in said)
    assert node["address"] == "172.18.0.3"


def test_memory_that_ran_out_is_the_cause(launcher: Launcher) -> None:
    """The code alone is any SIGKILL's."""
    cluster = launcher.submit(1)
    launcher.played.set("MAIN", Status="exited", ExitCode=137, OOMKilled=True)
    assert launcher.backend.state(cluster)["nodes"][0]["cause"].startswith("its memory ran out")


def test_an_engine_that_does_not_answer_tells_of_no_node(launcher: Launcher) -> None:
    """It does not become a cluster without nodes."""
    cluster = launcher.submit(1)
    launcher.played.fail("container inspect", "Cannot connect to the Docker daemon")
    with pytest.raises(BackendError, match="does not answer"):
        launcher.backend.state(cluster)


def test_a_look_is_one_call(launcher: Launcher) -> None:
    """Which nodes there are is asked for every few seconds."""
    cluster = launcher.submit()
    launcher.backend.state(cluster)
    (launcher.root / "logs").mkdir()
    fetch = launcher.backend.logs(cluster, launcher.root / "logs", follow=False)
    before = len(launcher.played.calls())
    launcher.backend.state(cluster)
    assert len(launcher.played.calls()) == before + 1
    fetch()
    assert [words[0] for words in launcher.played.calls()[before + 1 :]] == ["logs"] * 3
    before = len(launcher.played.calls())
    launcher.clock.sleep(containers._LIST_S)
    launcher.backend.state(cluster)
    assert len(launcher.played.calls()) == before + 2


def test_a_cluster_is_found_from_any_checkout(launcher: Launcher, tmp_path: Path) -> None:
    """With its nodes' environment, by its labels alone."""
    cluster = launcher.submit(1, env=("PLAIN=a=b c",))
    other = launcher.another(tmp_path / "other")
    (found,) = other.find()
    assert (found.name, found.launch_id, found.url) == (cluster.name, cluster.launch_id, cluster.url)
    assert other.load(found).plan["environment"]["PLAIN"] == "a=b c"
    (shown,) = other.overview()
    assert (shown["framework"], shown["state"], len(shown["nodes"])) == ("plain", "IN_PROGRESS", 2)


@pytest.mark.parametrize(
    ("label", "text"),
    [("name", "../../x"), ("name", "a/b"), ("name", ""), ("launch", "../x"), ("created", "now"), ("name", ".x")],
)
def test_labels_that_are_nobodys_of_ours_are_no_cluster(launcher: Launcher, label: str, text: str) -> None:
    """They would become names of files."""
    launcher.submit(1)
    state = launcher.played.state["containers"]
    for container in state.values():
        container["Config"]["Labels"][f"oci-cluster.{label}"] = text
    launcher.played.change(containers=state)
    for path in (launcher.root / ".clusters").glob("*/cluster.json"):
        path.unlink()
    assert launcher.backend.find() == []


def test_a_node_label_that_is_no_nodes_is_left_out(launcher: Launcher) -> None:
    """It would become a log's name."""
    cluster = launcher.submit(1)
    state = launcher.played.state["containers"]
    state[f"{cluster.plan['cluster_id']}-WORKER_1"]["Config"]["Labels"]["oci-cluster.node"] = "../../WORKER_1"
    launcher.played.change(containers=state)
    assert list(launcher.codes(cluster)) == ["MAIN"]


# --- The end ----------------------------------------------------------------------------------------------


def leave_files(launcher: Launcher, cluster: Cluster) -> None:
    work = launcher.work(cluster)
    for name, text in {
        "stop": "7",
        "MAIN_exit.json": "x",
        "MAIN_certificate.json": "key",
        "nodes.json": "evil",
    }.items():
        (work / name).write_text(text)
    (work / "cluster.json").write_text("evil")
    outputs = launcher.played.volume() / "outputs"
    (outputs / "deep").mkdir(parents=True)
    (outputs / "deep" / "model").write_text("weights")
    (outputs / "link").symlink_to("/etc/passwd")
    (outputs / "deep" / "up").symlink_to("../../..", target_is_directory=True)


def test_what_an_ended_cluster_leaves_is_copied_and_the_rest_removed(launcher: Launcher) -> None:
    """Logs, outputs, what the nodes said and how they ended: no key, no link, and no file of the launcher's own."""
    cluster = launcher.submit(1)
    leave_files(launcher, cluster)
    launcher.played.end_all(7)
    launcher.backend.finish(cluster, launcher.said.append)
    assert launcher.played.left() == ([], [], [])
    directory = cluster.directory
    assert (directory / "logs" / "WORKER_1.log").read_text() == "hello of WORKER_1\n"
    assert (directory / "outputs" / "deep" / "model").read_text() == "weights"
    assert not list(directory.rglob("link"))
    assert not list(directory.rglob("up"))
    assert not (directory / "MAIN_certificate.json").exists()
    assert (directory / "stop").read_text() == "7"
    assert json.loads((directory / "cluster.json").read_text())["name"] == "mine"
    (kept,) = launcher.another().find()
    assert launcher.codes(kept) == {"MAIN": 7, "WORKER_1": 7}
    assert kept.url == f"file://{directory}"
    launcher.backend.finish(cluster, launcher.said.append)  # a second time, as a stop.sh beside it does
    assert launcher.codes(kept) == {"MAIN": 7, "WORKER_1": 7}


@pytest.mark.parametrize("verb", ["logs", "cp"])
def test_what_could_not_be_copied_stays_in_the_engine(launcher: Launcher, verb: str) -> None:
    """With the command that tries again."""
    cluster = launcher.submit(1)
    leave_files(launcher, cluster)
    launcher.played.end_all()
    launcher.played.fail(verb, "docker: input/output error", "" if verb == "logs" else "outputs")
    with pytest.raises(BackendError, match=r"could not be copied .* try again: scripts/stop.sh mine --backend docker"):
        launcher.backend.finish(cluster, launcher.said.append)
    assert len(launcher.played.left()[0]) == 2
    launcher.played.change(faults=[])
    launcher.backend.stop(launcher.found(), launcher.said.append)
    assert launcher.played.left() == ([], [], [])


def test_logs_are_of_containers_then_of_what_was_kept(launcher: Launcher, tmp_path: Path) -> None:
    """logs.sh does not tell the two apart."""
    cluster = launcher.submit(1)
    for step in ("before", "after"):
        (tmp_path / step).mkdir()
        fetch = launcher.backend.logs(launcher.found(), tmp_path / step, follow=False)
        fetch()
        assert (tmp_path / step / "WORKER_1.log").read_text() == "hello of WORKER_1\n"
        if step == "before":
            launcher.played.end_all()
            launcher.backend.finish(cluster, launcher.said.append)
    launcher.backend.close()


def test_stop_asks_by_the_file_first(launcher: Launcher) -> None:
    """Nodes that obey are not told by the engine."""
    cluster = launcher.submit(1)
    work = launcher.work(cluster)
    sleep = launcher.clock.sleep

    def obey(seconds: float) -> None:
        sleep(seconds)
        if (work / "stop").exists():
            launcher.played.end_all(143)

    launcher.backend._sleep = obey
    launcher.backend.stop(launcher.found(), launcher.said.append)
    assert launcher.words("stop") == []
    assert launcher.codes(launcher.found()) == {"MAIN": 143, "WORKER_1": 143}
    assert launcher.played.left() == ([], [], [])


@pytest.mark.usefixtures("_prompt")
@pytest.mark.parametrize("deaf", [False, True])
def test_stop_ends_nodes_that_do_not_obey(launcher: Launcher, *, deaf: bool) -> None:
    """By the engine's TERM, then by KILL."""
    cluster = launcher.submit(1, GRACE_PERIOD="3")
    launcher.work(cluster)
    launcher.played.change(deaf=deaf)
    launcher.backend.stop(launcher.found(), launcher.said.append)
    assert launcher.said[1] == "mine has not ended by itself; ending its containers"
    assert [after(words, "-t") for words in launcher.words("stop")] == [["13"]]
    assert set(launcher.codes(launcher.found()).values()) == {137 if deaf else 143}


def test_stop_with_delete_keeps_nothing(launcher: Launcher) -> None:
    """Before the cluster's end or after it."""
    cluster = launcher.submit(1)
    launcher.work(cluster)
    launcher.played.end_all()
    launcher.backend.stop(launcher.found(), launcher.said.append, delete=True)
    assert (launcher.played.left(), cluster.directory.exists()) == (([], [], []), False)
    other = launcher.submit(1)
    launcher.played.end_all()
    launcher.backend.finish(other, launcher.said.append)
    launcher.backend.stop(launcher.found(), launcher.said.append, delete=True)
    assert (launcher.backend.find(), other.directory.exists()) == ([], False)


def test_a_cluster_that_somebody_has_removed_is_no_success(launcher: Launcher) -> None:
    """Nothing is known of its end."""
    cluster = launcher.submit(1)
    launcher.backend._remove(cluster)
    launcher.clock.sleep(60)
    state = launcher.backend.state(cluster)
    assert (state["running"], cluster_code(state["nodes"], None)) == (False, 76)


# --- Scale ------------------------------------------------------------------------------------------------


def test_workers_are_added_as_the_others_were_started(launcher: Launcher, tmp_path: Path) -> None:
    """From any checkout: image, code and limits are main's, and so is the environment."""
    launcher.submit(1, CPUS="2", MEMORY="1g", GPUS="all", env=("PLAIN=a b",))
    before = launcher.words("run")[1]
    assert launcher.scale(launcher.found(), "+2") == 3
    added = launcher.words("run")[2]
    for option in ("--cpus", "--memory", "--shm-size", "--gpus", "--mount", "--volume", "--network"):
        assert after(added, option) == after(before, option)
    assert (after(added, "--hostname"), added[-1]) == (["worker-2"], "sha256:" + "1" * 64)
    pairs = [text.split("=", 1) for text in launcher.played.container("WORKER_3")["Config"]["Env"]]
    environment = dict(pairs)
    assert len(pairs) == len(environment)  # nothing of main's own is in there
    assert (environment["PLAIN"], environment["NODE_RANK"], environment["MODE"]) == ("a b", "3", "WORKER")
    assert launcher.said == ["WORKER_2 started", "WORKER_3 started"]
    assert not list((launcher.root / ".clusters").rglob("nodes.env"))


def test_what_image_and_engine_add_is_not_handed_on(launcher: Launcher) -> None:
    """They add it to the others themselves; and what they may have, no file for them can hold."""
    launcher.submit(1)
    state = launcher.played.state["containers"]
    name = next(name for name in state if name.endswith("-MAIN"))
    state[name]["Config"]["Env"] += ["PATH=/image/bin", "HOSTNAME=main", "TEXT=of\nthe image"]
    launcher.played.change(containers=state)
    launcher.scale(launcher.found(), "+1")
    names = {text.partition("=")[0] for text in launcher.played.container("WORKER_2")["Config"]["Env"]}
    assert (names & {"PATH", "HOSTNAME", "TEXT", "the image"}, "LAUNCH_ID" in names) == (set(), True)


def test_a_lost_workers_rank_is_given_to_its_replacement(launcher: Launcher) -> None:
    """Its container makes room."""
    launcher.submit()
    launcher.played.set("WORKER_1", Status="exited", ExitCode=137)
    assert launcher.scale(launcher.found(), "+1") == 2
    assert set(launcher.codes(launcher.found()).values()) == {None}


@pytest.mark.usefixtures("_prompt")
def test_the_highest_ranks_are_ended(launcher: Launcher) -> None:
    """And their ends waited for."""
    launcher.submit(3)
    assert launcher.scale(launcher.found(), "-2") == 1
    launcher.clock.sleep(60)
    assert launcher.codes(launcher.found()) == {"MAIN": None, "WORKER_1": None, "WORKER_2": 143, "WORKER_3": 143}


def test_workers_that_do_not_end_are_named(launcher: Launcher) -> None:
    """With what ends them."""
    launcher.submit()
    launcher.played.change(deaf=True)
    with pytest.raises(BackendError, match=r"WORKER_2 did not end; end the whole cluster: scripts/stop.sh mine"):
        launcher.scale(launcher.found(), "-1")


def test_a_worker_that_cannot_be_started_leaves_nothing(launcher: Launcher) -> None:
    """The others stay as they are."""
    launcher.submit(1)
    launcher.played.fail("run", "docker: no space left", "worker-3")
    with pytest.raises(EngineError, match="no space left"):
        launcher.scale(launcher.found(), "+2")
    assert launcher.codes(launcher.found()) == {"MAIN": None, "WORKER_1": None}


def test_a_worker_of_another_scale_stays(launcher: Launcher) -> None:
    """Two that choose the same rank at once: the second is refused, and ends nothing of the first's."""
    launcher.submit(1)
    found = launcher.found()
    call = Engine.call

    def call_late(self: Engine, *words: str, **options: Any) -> str:
        if words[0] == "run":
            call(self, *words, **options)  # the other was a moment earlier
        return call(self, *words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "call", call_late)
        with pytest.raises(EngineError, match="already in use"):
            launcher.scale(found, "+1")
    assert list(launcher.codes(launcher.found())) == ["MAIN", "WORKER_1", "WORKER_2"]


@pytest.mark.parametrize(("label", "text"), [("memory", "1g --privileged"), ("code", "/none-of-that")])
def test_labels_that_somebody_has_changed_start_no_worker(launcher: Launcher, label: str, text: str) -> None:
    """They are checked as a launch's settings are."""
    cluster = launcher.submit(1)
    state = launcher.played.state["containers"]
    state[f"{cluster.plan['cluster_id']}-MAIN"]["Config"]["Labels"][f"oci-cluster.{label}"] = text
    launcher.played.change(containers=state)
    with pytest.raises(SettingsError):
        launcher.scale(launcher.found(), "+1")
    assert list(launcher.codes(launcher.found())) == ["MAIN", "WORKER_1"]


def test_an_ended_cluster_is_not_scaled(launcher: Launcher) -> None:
    """It is launched again."""
    launcher.submit(1)
    launcher.played.end_all()
    with pytest.raises(UsageError, match="mine has ended; launch it again"):
        launcher.scale(launcher.found(), "+1")


def test_files_of_nodes_are_read_through_the_engine(launcher: Launcher) -> None:
    """As on every backend."""
    cluster = launcher.submit(1)
    body = {"schema": 1, "launch_id": cluster.launch_id, "phase": "running"}
    (launcher.work(cluster) / "MAIN_heartbeat.json").write_text(json.dumps(body))
    exchange = Exchange(cluster.url, cluster.launch_id)
    found = exchange.read("MAIN_heartbeat.json")
    assert found is not None
    assert found["phase"] == "running"
    exchange.publish("stop", reason="enough")
    assert json.loads((launcher.work(cluster) / "stop").read_text())["reason"] == "enough"


def test_settings_say_which_engine_is_asked(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """config.env, and the environment before it; else docker."""
    monkeypatch.setattr(docker_verbs, "PROJECT_ROOT", launcher.root)
    monkeypatch.delenv("DOCKER", raising=False)
    assert docker_verbs.backend()._engine.program == "docker"
    (launcher.root / "config.env").write_text("DOCKER=nerdctl\n")
    assert docker_verbs.backend()._engine.program == "nerdctl"
    monkeypatch.setitem(os.environ, "DOCKER", "podman")
    assert docker_verbs.backend()._engine.program == "podman"
    assert docker_verbs.backend({"DOCKER": "mine"})._engine.program == "mine"
