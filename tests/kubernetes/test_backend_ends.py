"""Launches that somebody ends, in every phase and in every way; and what a dry run prints. Nothing may be left."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import Launch, processes_of, wait_until
from kube import schemas
from kube.api import Object
from kube.cluster import Cluster, User
from kube.faults import FaultyProxy
from kube.launches import LABEL, SOON_S, UP, Site, is_alive, launcher_of, lines_of

OBSTINATE = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UP


def job_is_there(site: Site) -> bool:
    return bool(site.jobs())


def pods_are_there(site: Site) -> bool:
    return len(site.pods()) == 3


# --- Ctrl-C


@pytest.mark.parametrize("moment", [job_is_there, pods_are_there])
def test_ctrl_c_while_it_starts(site: Site, moment: Callable[[Site], bool]) -> None:
    launch = site.launch("plain", 2, UP)
    wait_until(lambda: moment(site), "the moment", SOON_S)
    launch.interrupt()
    assert launch.wait(SOON_S) == 143, launch.err
    assert site.left() == []
    assert "Traceback" not in launch.err


def test_ctrl_c_before_anything_is_there(site_behind: Site, proxy: FaultyProxy) -> None:
    """The Job's creation is on its way, and its answer late: what is made then is found and removed, too."""
    with proxy.misbehaving(delay_s=3, method="POST", path="/jobs$") as fault:
        launch = site_behind.launch("plain", 2, UP)
        wait_until(lambda: fault.hits, lambda: launch.err, SOON_S)
        launch.interrupt()
        assert launch.wait(SOON_S) == 143, launch.err
    site_behind.assert_nothing_left()


def test_ctrl_c_when_the_answer_to_the_creation_is_lost(site_behind: Site, proxy: FaultyProxy) -> None:
    """The Job is there, and the launcher does not know."""
    with proxy.misbehaving(is_lost=True, times=2, method="POST", path="/jobs(\\?|$)") as fault:
        launch = site_behind.launch("plain", 2, UP)
        wait_until(lambda: fault.hits, lambda: launch.err, SOON_S)
        launch.interrupt()
        assert launch.wait(SOON_S) == 143, launch.err
    site_behind.assert_nothing_left()


def test_ctrl_c_when_it_hangs_and_says_where(site: Site) -> None:
    """Under Pod Security `restricted`: no other process is looked into."""
    hangs = "import threading\nprint('up', flush=True)\nthreading.Event().wait()\n"
    launch = site.launch("plain", 1, hangs, "--env", "SILENCE_TIMEOUT=6", "--env", "HEARTBEAT_INTERVAL=2")
    site.wait_for(launch, ": MAIN waits in wait (t.py:3); --ttl limits this")
    launch.interrupt()
    assert launch.wait(SOON_S) == 143, launch.err
    site.assert_nothing_left()


def test_ctrl_c_while_it_runs(site: Site) -> None:
    """The end is recorded in the checkout, with its reason, though all pods are gone."""
    launch = site.launch("plain", 2, UP)
    site.wait_for(launch, "entry up")
    launch.interrupt()
    assert launch.wait(SOON_S) == 143, launch.err
    assert site.left() == []
    shown = site.run("status", site.name)
    assert "with 143" in shown
    assert "stopped" in shown
    assert "entry up" in site.run("logs", site.name)


def test_a_second_ctrl_c_does_not_wait_for_the_script(site: Site) -> None:
    """The entry point ignores TERM, and its grace is long."""
    launch = site.launch("plain", 1, OBSTINATE, GRACE_PERIOD="600")
    site.wait_for(launch, "entry up")
    launch.interrupt()
    site.wait_for(launch, "Ctrl-C again ends it at once")

    def press() -> bool:  # what comes within a second is taken for the first one, as wrappers pass it on
        launch.interrupt()
        return "ending the cluster at once" in launch.err

    wait_until(press, lambda: launch.err)
    assert launch.wait(SOON_S) == 143, launch.err
    site.assert_nothing_left()
    assert "Traceback" not in launch.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_launcher_is_told_to_end(site: Site, number: int) -> None:
    """A terminal's end comes to the shell that stays, which passes it on: under nohup it does not."""
    launch = site.launch("plain", 1, UP)
    site.wait_for(launch, "entry up")
    told = launch.process if number == signal.SIGHUP else launcher_of(launch)
    told.send_signal(number)
    assert launch.wait(SOON_S) == 143, launch.err
    assert site.left() == []


# --- Killed


@pytest.mark.parametrize("moment", [job_is_there, lambda site: pods_are_there(site) and running(site)])
def test_the_guard_ends_the_cluster_of_a_launcher_that_is_killed(site: Site, moment: Callable[[Site], bool]) -> None:
    launch = site.launch("plain", 2, UP)
    wait_until(lambda: moment(site), "the moment", SOON_S)
    launch.kill()
    assert launch.wait(SOON_S) == -signal.SIGKILL
    site.assert_nothing_left()
    wait_until(lambda: not processes_of(site.launch_id), "the guard to end", SOON_S)
    shown = site.run("status", site.name)
    assert "with 143" in shown
    assert "its launcher was killed" in shown


def running(site: Site) -> bool:
    return {pod["status"]["phase"] for pod in site.pods().values()} == {"Running"}


def test_a_cluster_outlives_launcher_and_guard_and_another_checkout_stops_it(site: Site, other_site: Site) -> None:
    """As when the machine of the launch is switched off."""
    launch = site.launch("plain", 1, UP, "--name", "orphan")
    site.wait_for(launch, "entry up")
    python = launcher_of(launch)
    family = [python, *python.children(recursive=True), *guards(launch)]
    for process in family:
        process.suspend()  # none may see another one's death
    launch.kill()
    for process in family:
        if is_alive(process.pid):
            process.kill()
    assert launch.wait(SOON_S) == -signal.SIGKILL
    (found,) = json.loads(other_site.run("list", "--json"))
    assert found["name"] == "orphan"
    states = lambda: {node["state"] for node in other_site.status("orphan")["nodes"]}  # noqa: E731
    # Main waits for no worker.
    wait_until(lambda: states() == {"IN_PROGRESS"}, lambda: str(other_site.status("orphan")), SOON_S)
    other_site.run("stop", "orphan")
    assert "with 143" in other_site.run("status", "orphan")
    other_site.run("stop", "--delete", "orphan")
    other_site.assert_nothing_left()


def guards(launch: Launch) -> list[psutil.Process]:
    """Return those of the launcher's processes that have left its family: they have its environment."""
    kubeconfig = psutil.Process(launch.process.pid).environ()["KUBECONFIG"]
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("KUBECONFIG") == kubeconfig and process.pid != launch.process.pid
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        found += [process] if is_ours else []
    return found


def test_stop_without_delete_leaves_the_outcome(site: Site) -> None:
    """The follower ends with 143, too, and says who has stopped it."""
    launch = site.launch("plain", 1, UP, "--name", "mine")
    site.wait_for(launch, "entry up")
    site.run("stop", "mine")
    assert launch.wait(SOON_S) == 143, launch.err
    site.assert_nothing_left()
    assert "with 143" in site.run("status", "mine")


def test_ttl_ends_a_kept_cluster_with_0(site: Site) -> None:
    launch = site.project.launch("plain", "1", "--keep", "--ttl", "20s")  # longer than its pod may take to start
    assert launch.wait(SOON_S) == 0, launch.err
    site.assert_nothing_left()


# --- Dry run


def plain_spec(item: dict[str, Any], launch_id: str) -> Any:
    """Return what two launches of the same must have in common of an object."""
    kept = {key: value for key, value in item.items() if key not in {"metadata", "status", "stringData", "data"}}
    kept["labels"] = item["metadata"].get("labels", {})
    text = json.dumps(kept, sort_keys=True).replace(launch_id, "<launch>")
    text = re.sub(r"[0-9a-f]{64}", "<hex>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)
    text = text.replace('"0.1"', '"100m"')  # as the API writes it
    return json.loads(re.sub(r"plain-[0-9a-f]{4,}[-0-9a-z]*", "<name>", text))


def id_of(objects: list[dict[str, Any]]) -> str:
    (job,) = [item for item in objects if item["kind"] == "Job"]
    return str(job["metadata"]["labels"][LABEL])


def test_what_a_dry_run_prints_runs_to_its_end(site: Site, kubernetes: Cluster, user: User, tmp_path: Path) -> None:
    """`kubectl apply -f -` by the same user, who has no checkout. Its logs are those of any pods."""
    dry = site.launch("plain", 2, "print('the result')", "--dry-run")
    assert dry.wait(SOON_S) == 0, dry.err
    assert site.left() == []
    assert site.project.cluster_dirs() == []
    assert schemas.faults(dry.out) == []
    file = tmp_path / "objects.yaml"
    file.write_text(dry.out)
    done = kubernetes.kubectl("apply", "-f", str(file), kubeconfig=user.by_certificate())
    assert done.returncode == 0, done.stderr
    assert "unknown field" not in done.stderr
    (job,) = site.jobs()
    path = f"apis/batch/v1/namespaces/{site.namespace}/jobs/{job['metadata']['name']}"
    kubernetes.api.until(path, lambda job: "completionTime" in job["status"], "the Job to be complete")
    assert "the result" in kubernetes.api.get(f"{site.pod(0)}/log")
    assert kubernetes.kubectl("delete", "-f", str(file), kubeconfig=user.by_certificate()).returncode == 0
    site.assert_nothing_left()


def test_a_dry_run_prints_what_a_launch_sends_and_no_secret(site: Site, kubernetes: Cluster) -> None:
    """The same specs, but for ids, names and keys. The only secret is the launch's own key, in its Secret."""
    script = UP
    dry = site.launch("plain", 2, script, "--dry-run", "--json")
    assert dry.wait(SOON_S) == 0, dry.err
    printed = json.loads(dry.out)["objects"]
    launch = site.launch("plain", 2, script)
    site.wait_for(launch, "entry up")
    made = {}

    def which(item: Object) -> tuple[str, bool]:
        """Return what tells two objects of a launch from each other: of Secrets one holds the code."""
        return str(item["kind"]), item["metadata"]["name"].endswith("-code")

    for item in printed:
        group = item["apiVersion"]
        kind = {"NetworkPolicy": "networkpolicies"}.get(item["kind"], f"{item['kind'].lower()}s")
        base = f"{'api' if '/' not in group else 'apis'}/{group}/namespaces/{site.namespace}/{kind}"
        listed = [{**one, "apiVersion": group, "kind": item["kind"]} for one in kubernetes.api.items(base)]
        ours = [one for one in listed if one["metadata"].get("labels", {}).get(LABEL) == site.launch_id]
        made |= {which(one): one for one in ours}
    for item in printed:
        wanted = plain_spec(item, id_of(printed))
        is_like = plain_spec(made[which(item)], site.launch_id)
        assert differences(wanted, is_like) == [], item["kind"]
    keys = [item["stringData"]["LAUNCH_KEY"] for item in printed if "stringData" in item]
    assert len(keys) == 1
    assert dry.out.count(keys[0]) == 1
    site.run("stop", "--delete", site.name)
    site.assert_nothing_left()


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--dry-run", "--json")])
def test_what_looks_like_a_secret_is_refused_and_not_shown(site: Site, options: tuple[str, ...]) -> None:
    """All who may look at Jobs would see it."""
    launch = site.launch("plain", 1, UP, "--env", "API_TOKEN=s3cret#1", *options)
    assert launch.wait(SOON_S) == 78, launch.out
    assert "ENV_SECRETS" in launch.err
    assert "s3cret#1" not in launch.out + launch.err
    assert site.left() == []


def test_a_secret_of_the_namespace_reaches_the_nodes(site: Site, kubernetes: Cluster, namespace: str) -> None:
    """By its name alone; the launch does not read it."""
    secrets = f"api/v1/namespaces/{namespace}/secrets"
    kubernetes.api.create(secrets, {"metadata": {"name": "mine"}, "stringData": {"API_TOKEN": "s3cret#1"}})
    script = "import os; print(os.environ['API_TOKEN'] == 's3cret#1')"
    launch = site.launch("plain", 1, script, ENV_SECRETS="mine")
    code = launch.wait(SOON_S)
    kubernetes.api.delete(f"{secrets}/mine")
    assert code == 0, launch.err
    assert "True" in lines_of(launch.out, "MAIN")
    site.assert_nothing_left()


def differences(wanted: Any, found: Any, place: str = "") -> list[str]:
    """Return where *found*, to which the API adds defaults, is not as *wanted*."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [line for key in wanted for line in differences(wanted[key], found.get(key), f"{place}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [line for i, one in enumerate(wanted) for line in differences(one, found[i], f"{place}[{i}]")]
    return [] if wanted == found or place in {".suspend", ".spec.suspend"} else [f"{place}: {wanted} {found}"]


def test_an_end_that_was_seen_is_kept_and_one_that_nobody_saw_is_not_known(site: Site, kubernetes: Cluster) -> None:
    """Kubernetes removes Jobs that have ended, and so may a colleague: Friday's success is no failure on Monday."""
    done = {name: site.launch("plain", 1, "print('ok')", "--detach", "--name", name) for name in ("seen", "unseen")}
    assert {name: launch.wait(SOON_S) for name, launch in done.items()} == {"seen": 0, "unseen": 0}
    wait_until(lambda: {is_over(job) for job in site.jobs()} == {True}, lambda: str(site.jobs()), SOON_S)
    assert site.status("seen")["state"] == "SUCCEEDED"
    for job in site.jobs():
        path = f"apis/batch/v1/namespaces/{site.namespace}/jobs/{job['metadata']['name']}"
        kubernetes.api.delete(path)
    wait_until(lambda: not site.jobs(), "the Jobs to go", SOON_S)
    seen = site.status("seen")
    assert (seen["state"], seen["exit_code"], len(seen["nodes"])) == ("SUCCEEDED", 0, 2)
    assert seen["reason"] == "the entry point ended: exit code 0"
    unseen = site.status("unseen")
    assert (unseen["state"], unseen["exit_code"]) == ("GONE", None)
    assert "KEEP_ENDED after its end" in unseen["reason"]
    assert json.loads(site.run("list", "--json")) == []
    listed = {one["name"]: (one["state"], one["exit_code"]) for one in json.loads(site.run("list", "--all", "--json"))}
    assert listed == {"seen": ("SUCCEEDED", 0), "unseen": ("GONE", None)}
    assert "GONE" in site.run("status", "unseen")
    site.run("stop", "unseen", "--delete")
    assert "unseen" not in site.run("list", "--all")
    site.assert_nothing_left()


def is_over(job: Object) -> bool:
    return any(one["type"] == "Complete" and one["status"] == "True" for one in job["status"].get("conditions", []))
