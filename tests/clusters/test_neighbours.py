"""Others who can reach the nodes: what they may not do, tried."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from harness import Launch, Project, is_listening, wait_until
from oci_cloud import Cloud, environment_of, image_of
from oci_user import User
from readers import PURPOSES, WAYS, made_of, opens, strings_of
from ssh_client import make_keys, ssh

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.signing import derived_key
from oci_cluster.contract.session import TOKEN_FILE, session_dir
from oci_cluster.launcher.session.kinds import read_kind
from oci_cluster.system.envs.python_env import with_packages

UNTIL_GO = "import os, time\nprint('entry up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
UNSIGNED = "not signed by this launch"

# Ranks that wait for each other, as long as nobody ends them.
FOR_EVER = """
import time
import torch.distributed as dist

dist.init_process_group("gloo")
print("start: rank", dist.get_rank(), flush=True)
time.sleep(1000)
"""
# All that another account of the machine sees is in `ps`: the launch's id. It puts a pickle where torch unpickles.
FORGED = """
import base64, pickle, sys
from datetime import timedelta
from torch.distributed import TCPStore

class Evil:
    def __reduce__(self):
        return open, (sys.argv[3], "w")

store = TCPStore(sys.argv[1], 29400, timeout=timedelta(seconds=60))
store.set("torch.rendezvous." + sys.argv[2], base64.b64encode(pickle.dumps(Evil())))
print("written")
"""


KEYS = """
import sys

sys.path.insert(0, sys.argv[1])
import rendezvous

print(rendezvous.own_key({"LAUNCH_KEY": "key"}).hex())
rendezvous.own_key({})
"""


def test_state_of_the_rendezvous_is_not_taken_from_a_neighbour(project: Project, tmp_path: Path) -> None:
    """torch unpickles it on every node, every second: nothing of it runs, and the cluster says what happened.

    It is signed by a key of its own, made of the launch's, as the contract says; where there is none, a line says so.
    """
    launch = project.launch("pytorch", "1", "--entry", project.write("train.py", FOR_EVER))
    launch.wait_for("start: rank 0")
    python = project.path / ".venv" / "envs" / "pytorch" / "bin" / "python"
    plan = json.loads((launch.directory / "cluster.json").read_bytes())
    address = plan["nodes"][0]["environment"]["NODE_ADDRESS"]
    witness = tmp_path / "witness"
    words = [python, "-c", FORGED, address, launch.launch_id, str(witness)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "written\n", done.stderr
    assert launch.wait() == 1
    assert not witness.exists()
    assert "the rendezvous holds a state that this launch has not signed" in launch.err
    assert "LAUNCH_KEY" not in launch.err + launch.out
    launch.assert_nothing_left()
    words = [python, "-c", KEYS, str(project.path / "pytorch" / "launch")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == f"{derived_key('key', '', 'rendezvous').hex()}\n"
    assert done.stderr.startswith("rendezvous.py: LAUNCH_KEY is not set")
    assert done.stderr.count("\n") == 1


class Shared:
    """A cluster with a certificate, in a work dir that others can read and write; they do not have its key."""

    def __init__(self, project: Project, work: Path) -> None:
        self.project = project
        self.launch: Launch = project.launch_plain(
            1, UNTIL_GO, "--name", "shared", "--env", "CLUSTER_TLS=1", WORK_DIR=f"file://{work}"
        )
        self.launch.wait_for("entry up")
        self.launch.wait_for("worker works", "WORKER_1")
        self.folder = work / self.launch.directory.name
        self.stranger = ClusterDir(f"file://{self.folder}", self.launch.launch_id, "")
        wait_until((self.folder / "MAIN_heartbeat.json").exists, "main's first heartbeat")
        # What is being written has another name, which is soon gone.
        self.kept = {path.name: path.read_bytes() for path in self.folder.glob("MAIN_*.json")}

    def put_back(self, name: str) -> None:
        """Write what was there at the beginning."""
        (self.folder / name).write_bytes(self.kept[name])

    def beat(self) -> int:
        """Return the number of main's last heartbeat."""
        return int(json.loads((self.folder / "MAIN_heartbeat.json").read_bytes())["beat"])

    @property
    def kept_beat(self) -> int:
        return int(json.loads(self.kept["MAIN_heartbeat.json"])["beat"])

    def wait_for(self, text: str, node: str) -> None:
        self.launch.wait_for(text, node)

    def key_of(self, node: str) -> Path:
        return self.project.temporary / f"{self.launch.launch_id}-{node}" / "key.pem"

    def ends(self) -> None:
        """End it as its script does; nobody else has had a say in that."""
        self.project.go()
        assert self.launch.wait() == 0, self.launch.err
        assert "evil" not in self.launch.err + self.launch.out
        self.launch.assert_nothing_left()


@pytest.fixture
def shared(project: Project, tmp_path: Path) -> Iterator[Shared]:
    (tmp_path / "work").mkdir()
    yield Shared(project, tmp_path / "work")
    project.go()


def test_who_writes_to_the_work_dir_is_main_of_no_worker(shared: Shared) -> None:
    """A worker that joins waits for its own main and its own certificate, and says what it has seen instead."""
    shared.stranger.publish("MAIN_config.json", node="MAIN", rank=0, address="127.6.6.6", tls=True, attempt=0)
    shared.stranger.publish("MAIN_certificate.json", certificate="evil", key="evil")
    assert shared.project.run("scale", "shared", "+1").returncode == 0
    shared.wait_for(f"MAIN_config.json ignored: {UNSIGNED}", "WORKER_2")
    assert not shared.key_of("WORKER_2").exists()
    shared.put_back("MAIN_config.json")
    shared.wait_for(f"MAIN_certificate.json ignored: {UNSIGNED}", "WORKER_2")
    assert "worker works" not in shared.launch.log("WORKER_2")
    shared.put_back("MAIN_certificate.json")
    shared.wait_for("worker works", "WORKER_2")
    shared.ends()


def test_who_writes_to_the_work_dir_stops_no_cluster(shared: Shared) -> None:
    """Nor does what they have kept count once there is something newer; `status.sh` says what is ignored."""
    shared.stranger.publish("stop", reason="evil", exit_code=0)
    for node in ("MAIN", "WORKER_1"):
        shared.wait_for(f"stop file ignored: {UNSIGNED}", node)
    shown = shared.project.run("status", "shared")
    assert f"ignored: stop: {UNSIGNED}" in shown.stdout, shown.stderr
    assert "IN_PROGRESS" in shown.stdout
    older = "MAIN_heartbeat.json ignored: older"
    wait_until(lambda: shared.beat() > shared.kept_beat + 3, "heartbeats that the worker has seen")
    wait_until(lambda: shared.put_back("MAIN_heartbeat.json") or older in shared.launch.log("WORKER_1"), older)
    shared.stranger.publish("WORKER_1_exit.json", exit_code=9, reason="evil", attempt=0, time=0.0, has_left=True)
    shared.wait_for(f"WORKER_1_exit.json ignored: {UNSIGNED}", "MAIN")
    (shared.folder / "WORKER_1_exit.json").unlink()
    shared.ends()


def test_who_writes_to_the_work_dir_holds_nobody_up(shared: Shared) -> None:
    """Pipes, devices and files without an end in the place of files: all look, `list.sh` too, and TERM ends it."""
    endless = shared.folder / "endless"
    with endless.open("wb") as file:
        file.truncate(10 << 30)
    for name, kind in {"stop": "pipe", "MAIN_config.json": "zero", "WORKER_1_exit.json": "endless"}.items():
        (shared.folder / name).unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(shared.folder / name)
        else:
            (shared.folder / name).symlink_to(endless if kind == "endless" else "/dev/zero")
    shared.wait_for("stop file ignored: not a regular file", "WORKER_1")
    begun = time.monotonic()
    for verb in ("list", "status"):
        shown = shared.project.run(verb, *(["shared"] if verb == "status" else []))
        assert "IN_PROGRESS" in shown.stdout, shown.stderr
    assert time.monotonic() - begun < 30, "a script of a busy machine takes a second or two"
    shared.launch.interrupt(signal.SIGTERM)
    assert shared.launch.wait() == 143, shared.launch.err
    shared.launch.assert_nothing_left()


def test_who_reads_the_work_dir_gets_no_key(shared: Shared) -> None:
    """Neither that of the certificate, which all nodes have, nor the one with which they sign."""
    keys = [shared.key_of(node).read_bytes() for node in ("MAIN", "WORKER_1")]
    assert keys[0] == keys[1]
    assert keys[0].startswith(b"-----BEGIN PRIVATE KEY-----")
    assert {shared.key_of(node).stat().st_mode & 0o777 for node in ("MAIN", "WORKER_1")} == {0o600}
    plan = json.loads((shared.launch.directory / "cluster.json").read_bytes())
    secrets = [plan["environment"]["LAUNCH_KEY"].encode(), b"BEGIN PRIVATE KEY", keys[0].splitlines()[1]]
    readable = b""
    for path in shared.folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # what was being written has another name now
            readable += path.read_bytes()
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in readable
    assert [secret for secret in secrets if secret in readable] == []
    shared.ends()


def test_who_writes_to_the_work_dir_makes_no_node_say_anything(cloud: Cloud, tmp_path: Path) -> None:
    """`logs.sh` shows what the nodes have said, and one line says that there is more."""
    where = {"WORK_DIR": f"file://{tmp_path}/work", "STORAGE_MOUNTS": "data=oci://data@stand-in", "NODE_LOGS": "1"}
    launch = cloud.launch_plain(1, "print('hello')", "--name", "shared", **where)
    assert launch.wait() == 0, launch.err
    (logs,) = (tmp_path / "work").glob("shared-*/logs")
    (main,) = logs.glob("MAIN.*.log")
    (logs / "MAIN.1600000000000.000000.log").write_text("2020-09-13T12:26:40.000Z evil\n")
    (logs / "WORKER_1.1600000000000.000000.log").write_bytes(main.read_bytes())
    for more in ([], ["--tail", "9"]):
        shown = cloud.run("logs", "shared", *more)
        assert "MAIN     | hello\n" in shown.stdout, shown.stderr
        assert "WORKER_1 | hello\n" not in shown.stdout
        assert "evil" not in shown.stdout
        assert shown.stderr.count("MAIN.1600000000000.000000.log") == 1
    cloud.assert_nothing_runs()


def test_who_makes_up_a_job_has_nothing_opened_and_nothing_removed(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at it, or ends it, dials nobody; the settings of who looks do not name these work dirs."""
    for variable, text in cloud.service.environ.items():
        monkeypatch.setenv(variable, text)
    maker, told = User(cloud.service), {"LAUNCH_KEY": "ab" * 16, "CODE_URI": "image", "ENTRY_POINT": "evil.py"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = f"127.0.0.1:{listener.getsockname()[1]}"
        bucket, namespace = cloud.service.settings["bucket"], cloud.service.settings["namespace"]
        # The last one is a bucket of who looks, where the maker of the Job may not write.
        places = [
            *(f"oci://b@n/x::http://{end}/x", f"oci://{bucket}@elsewhere/x", f"file://{tmp_path}"),
            f"oci://{bucket}@{namespace}/team-b",
        ]
        names = [f"evil-{number}" for number in range(len(places))]
        for launch_id, (name, url) in enumerate(zip(names, places, strict=True)):
            own = f"{name}-{launch_id:08x}"
            (tmp_path / own).mkdir()
            variables = {**told, "WORK_DIR": url, "CLUSTER_ID": own, "CLUSTER_NAME": name}
            tags = {"oci-cluster": name, "oci-cluster-launch": f"{launch_id:08x}", "oci-cluster-framework": "plain"}
            kind = {"jobType": "DEFAULT", "environmentVariables": variables}
            job = maker.job("", displayName="evil", freeformTags=tags, jobConfigurationDetails=kind)
            body = maker.run_details(job, freeformTags={**tags, "oci-cluster-node": "MAIN"})
            cloud.service.wait(str(maker.science.create_job_run(body).data.id))
        listed = cloud.run("list", "--all")
        assert all(name in listed.stdout for name in names), listed.stderr
        for name, words in zip(names[:-1], (["logs"], ["logs"], ["stop", "--delete"]), strict=True):
            said = cloud.run(words[0], name, *words[1:])
            assert "names a WORK_DIR that is not opened without being asked" in said.stderr, said
        theirs = f"{bucket}@{namespace}/team-b/{own}/outputs/model"
        maker.files.pipe_file(theirs, b"x")
        said = cloud.run("stop", names[-1], "--delete")
        assert said.returncode == 0, said
        assert f"files stay in oci://{theirs.partition('/outputs')[0]}: no file" in said.stderr
        assert maker.files.cat_file(theirs) == b"x"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert len(list(tmp_path.glob("evil-*"))) == len(names)


def shown_to(reader: User) -> set[str]:
    """Return all that OCI shows *reader* of the one Job of the compartment, and of its one run."""
    compartment, science = str(reader.settings["COMPARTMENT_OCID"]), reader.science
    (job,), (run,) = science.list_jobs(compartment).data, science.list_job_runs(compartment).data
    shown = [job, run, science.get_job(job.id).data, science.get_job_run(run.id).data]
    return {text for each in shown for text in strings_of(json.loads(str(each)))}


@pytest.mark.parametrize(
    "name",
    ["hello", *(pytest.param(name, marks=pytest.mark.timeout(900)) for name in ("tensorboard", "jupyter"))],
)
def test_who_reads_a_job_gets_into_no_session(cloud: Cloud, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that OCI shows of it, and what can be made of that, is tried on its server, by each way.

    By each the owner gets in; nobody does without a token, or with one that is nearly the owner's.
    """
    project, folder = cloud.project, session_dir(name, cloud.project.path)
    if name == "hello":
        shutil.copytree(Path(__file__).parent / name, folder, dirs_exist_ok=True)
    else:
        python = with_packages(project.path, environment_of(project, "dask"), [], [folder / "env.yaml"], print)
        cloud.add_image("plain", python)
    for variable, text in cloud.service.environ.items():
        monkeypatch.setenv(variable, text)
    reader = User(cloud.service)
    kind, environ = read_kind(project.path, name), {**cloud.environ, "IMAGE": image_of("plain")}
    session = project.session(name, "mine", "--framework", "plain", "--detach", **environ)
    assert session.wait() == 0, session.err
    (kept,) = project.cluster_dirs()
    wait_until(lambda: "node=MAIN address=" in cloud.printed("MAIN"), lambda: cloud.printed("MAIN"))
    (address,) = re.findall(r"node=MAIN address=(\S+)", cloud.printed("MAIN"))

    texts = shown_to(reader)
    environment = json.loads((kept / "cluster.json").read_text())["environment"]
    assert {environment["LAUNCH_KEY"], environment["SESSION_VERIFIER"]} <= texts, "a reader of the Job sees both"
    token, launch_id = (kept / TOKEN_FILE).read_text(), kept.name.rpartition("-")[2]

    wait_until(lambda: is_listening(address, kind.port), lambda: cloud.printed("MAIN"))
    assert opens(address, kind, launch_id, token) == WAYS[name]
    words = set().union({"", "0" * 64, token[:-1], f"{token}0", token.upper()}, *map(made_of, texts))
    assert [word for word in words if opens(address, kind, launch_id, word)] == []
    assert cloud.run("stop", "mine").returncode == 0
    cloud.assert_nothing_runs()


def test_who_reads_a_job_gets_into_no_shell(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word that could be a key of ssh is one; no word is a password, as none is asked for."""
    mine, _ = make_keys(tmp_path)
    for variable, text in cloud.service.environ.items():
        monkeypatch.setenv(variable, text)
    reader = User(cloud.service)
    kind, environ = read_kind(cloud.project.path, "ssh"), {**cloud.environ, "IMAGE": image_of("plain")}
    words = ("--framework", "plain", "--key", f"{mine}.pub", "--detach")
    session = cloud.project.session("ssh", "box", *words, **environ)
    assert session.wait() == 0, session.err
    wait_until(lambda: "node=MAIN address=" in cloud.printed("MAIN"), lambda: cloud.printed("MAIN"))
    (address,) = re.findall(r"node=MAIN address=(\S+)", cloud.printed("MAIN"))
    wait_until(lambda: is_listening(address, kind.port), lambda: cloud.printed("MAIN"))

    config = tmp_path / "config"
    lines = ("UserKnownHostsFile /dev/null", "StrictHostKeyChecking no", f"HostName {address}", f"Port {kind.port}")
    config.write_text("\n".join(["Host box", *lines, ""]))
    shown = ssh("ssh", config, mine, "box", "echo in")
    assert (shown.returncode, shown.stdout) == (0, "in\n"), shown.stderr
    tried, key = 0, tmp_path / "guess"
    for word in set().union(*map(made_of, shown_to(reader))):
        if re.fullmatch("[0-9a-f]{64}", word):
            guess = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(word))
            key.touch(0o600)
            key.write_bytes(guess.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
            refused = ssh("ssh", config, key, "box", "echo in")
            assert (refused.returncode, refused.stdout) == (255, ""), word
            assert "Permission denied (publickey)" in refused.stderr
            tried += 1
    assert tried >= len(("LAUNCH_KEY", "its hash", *PURPOSES))
    assert cloud.run("stop", "box").returncode == 0
    cloud.assert_nothing_runs()
