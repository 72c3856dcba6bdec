"""A cluster of a thousand nodes, and two hundred clusters: what a launcher asks for does not grow with them.

Nodes are fake: kwok says that their pods run. No product code looks at them, so a hundred machines have room enough.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from harness import wait_until
from kube.api import Object
from kube.cluster import Cluster
from kube.faults import FaultyProxy
from kube.launches import LABEL, SOON_S, UP, Site, copy_checkout, site_of

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

# What a verb may take, whatever the number of nodes and clusters.
CPU_S, RSS_MB = 3.0, 200.0
# What the launcher may take until it asks for the first time.
START_S = 0.5
FEW, MANY = 10, 1000
CLUSTERS = 200
NODES = 100
# On two idle cores a thousand pods take 20 s; where others work, too, two minutes were seen.
MADE_S = 240.0


@dataclass(frozen=True)
class Used:
    """What a script has printed, what it and its children have taken, and what was asked of the API meanwhile."""

    out: str
    cpu_s: float
    rss_mb: float
    asked: Counter[str]

    def assert_small(self, what: str) -> None:
        assert self.cpu_s < CPU_S, what
        assert self.rss_mb < RSS_MB, what


class Place:
    """A namespace whose pods land on machines that are none; all is asked through a proxy."""

    def __init__(self, site: Site, proxy: FaultyProxy) -> None:
        self.site = site
        self.proxy = proxy
        self.api = site.kubernetes.api
        site.project.environ |= {"NODE_SELECTOR": "type=kwok", "TOLERATIONS": "kwok.x-k8s.io/node:NoSchedule"}
        # A tracer of lines more than doubles what is measured.
        for name in [name for name in site.project.environ if name.startswith("COV")]:
            del site.project.environ[name]

    def start(self, script: str, *words: str) -> subprocess.Popen[str]:
        project = self.site.project
        return subprocess.Popen(
            [str(project.path / "scripts" / f"{script}.sh"), *words],
            cwd=project.code,
            env=project.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def use(self, script: str, *words: str) -> Used:
        """Run a script to its end, and measure it."""
        before, began_at = len(self.proxy.seen), time.monotonic()
        process = self.start(script, *words)
        assert process.stdout is not None
        with process.stdout:
            out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{script} {words}: {out}"
        asked = Counter(_kind_of(one.method, one.path) for one in self.proxy.seen[before:])
        used = Used(out, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, asked)
        told = f"{used.cpu_s:.2f} s of CPU, {used.rss_mb:.0f} MB, {time.monotonic() - began_at:.1f} s"
        sys.stderr.write(f"{script} {' '.join(words)}: {told}: {dict(asked)}\n")
        return used

    def dry_run(self, *words: str) -> list[Object]:
        """Return the objects of a launch."""
        entry = self.site.project.write("t.py", UP)
        printed = self.site.run("launch", *words, "--entry", entry, "--dry-run", "--json")
        found: list[Object] = json.loads(printed)["objects"]
        return found

    def path(self, kind: str) -> str:
        return f"apis/batch/v1/namespaces/{self.site.namespace}/{kind}"

    def wait_until_ready(self, clusters: int, nodes: int) -> None:
        """Return when as many clusters, and no others, have so many nodes each that are said to run."""
        began_at = time.monotonic()

        def ready() -> list[int]:
            return [count for job in self.site.jobs() if (count := job["status"].get("ready", 0))]

        wait_until(lambda: ready() == [nodes] * clusters, lambda: f"{nodes} pods each: {ready()}", MADE_S)
        sys.stderr.write(f"{clusters * nodes} pods after {time.monotonic() - began_at:.1f} s\n")


def _kind_of(method: str, path: str) -> str:
    """Return what a request is for, without names, of which each launch has others; a later page is another kind."""
    found = re.match(r".*/namespaces/[^/?]+/(?P<kind>\w+)(?P<name>/[^/?]+)?(?P<sub>/\w+)?(\?(?P<query>.*))?$", path)
    if found is None:
        return f"{method} {path.partition('?')[0]}"
    what = found["kind"] + ("/NAME" if found["name"] else "") + (found["sub"] or "")
    return f"{method} {what}" + (" (next page)" if "continue=" in (found["query"] or "") else "")


@pytest.fixture(scope="module")
def fake_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a Kubernetes with machines that are none."""
    with Cluster(tmp_path_factory.mktemp("large") / "k", node_count=1, with_kueue=False) as cluster:
        resources = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        cluster.do("add_fake_nodes", count=NODES, resources=resources)
        yield cluster


@pytest.fixture
def place(fake_machines: Cluster, tmp_path: Path) -> Iterator[Place]:
    """Return an empty namespace there."""
    cluster = fake_machines
    checkout = copy_checkout(tmp_path / "my project")
    with cluster.namespace() as namespace, FaultyProxy(cluster.server, cluster.authority) as proxy:
        kubeconfig = cluster.user(namespace).by_token(proxy.url)
        with site_of(checkout, tmp_path / "mine", cluster, namespace, kubeconfig) as site:
            site.run("list")  # the first one may install what the launcher needs
            yield Place(site, proxy)


def life_of(place: Place, nodes: int) -> dict[str, Used]:
    """Launch a cluster of so many nodes, look at it in all ways, and remove it; return what each verb has used."""
    entry = place.site.project.write("t.py", UP)
    found = {"launch": place.use("launch", "plain", str(nodes - 1), "--entry", entry, "--detach", "--name", "mine")}
    assert found["launch"].out == "mine\n"
    place.wait_until_ready(1, nodes)
    found["list"] = place.use("list")
    assert re.search(rf"^mine +plain +kubernetes +IN_PROGRESS +{nodes} ", found["list"].out, re.MULTILINE)
    found["status"] = place.use("status", "mine")
    assert len(re.findall(r"^(?:MAIN|WORKER_\d+) .* IN_PROGRESS ", found["status"].out, re.MULTILINE)) == nodes
    found["status --json"] = place.use("status", "--json", "mine")
    assert len(json.loads(found["status --json"].out)["nodes"]) == nodes
    found["stop"] = place.use("stop", "--delete", "mine")
    place.site.assert_nothing_left()
    return found


def test_a_thousand_nodes_are_asked_for_as_ten_are(place: Place) -> None:
    """`stop` asks until nothing is left, as long as Kubernetes needs; and for none of a thousand pods by its name."""
    few = life_of(place, FEW)
    many = life_of(place, MANY)
    stop = many.pop("stop")
    assert {what for what in stop.asked if "pods/" in what} <= {"GET pods/NAME/log"}
    assert stop.asked["GET pods/NAME/log"] == few["stop"].asked["GET pods/NAME/log"]
    assert stop.rss_mb < RSS_MB
    for verb, used in many.items():
        used.assert_small(verb)
        assert used.asked == few[verb].asked, verb


def clusters_of(objects: Sequence[Object]) -> Iterator[Object]:
    """Yield the Jobs of clusters like the one of a dry run; only each tenth has pods, which take Kubernetes longest."""
    (job,) = [item for item in objects if item["kind"] == "Job"]
    for number in range(CLUSTERS):
        launch_id = f"{number:08x}"
        made = copy.deepcopy(job)
        made["metadata"] |= {"name": f"many-{number}-{launch_id}"}
        made["metadata"]["annotations"]["oci-cluster-name"] = f"many-{number}"
        made["spec"]["suspend"] = number % 10 > 0
        for one in (made["metadata"], made["spec"]["template"]["metadata"]):
            one["labels"][LABEL] = launch_id
        yield made


def test_two_hundred_clusters_are_listed_at_once(place: Place) -> None:
    """In one page of Jobs, and one of pods."""
    jobs = list(clusters_of(place.dry_run("plain", "1")))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: place.api.create(place.path("jobs"), job), jobs))
    place.wait_until_ready(CLUSTERS // 10, 2)
    for words in ((), ("--json",), ("--all",)):
        used = place.use("list", *words)
        used.assert_small("list")
        assert used.asked == {"GET jobs": 1, "GET pods": 1}
        listed = json.loads(used.out) if words == ("--json",) else used.out.splitlines()[1:]
        assert len(listed) == CLUSTERS


def test_the_launcher_has_hardly_worked_when_it_asks_for_the_first_time(place: Place) -> None:
    """With the kubeconfig read and the connection made; the shell that starts it counts, too."""

    def start_s() -> float:
        with place.proxy.misbehaving(delay_s=3.0, times=1) as fault, place.start("list") as process:
            wait_until(lambda: fault.hits, "the first request", SOON_S)
            shell = psutil.Process(process.pid)
            times = [one.cpu_times() for one in [shell, *shell.children(recursive=True)]]
            process.communicate()
            assert process.returncode == 0
        return sum(one.user + one.system + one.children_user + one.children_system for one in times)

    taken = [start_s() for _ in range(3)]
    sys.stderr.write(f"list has taken {', '.join(f'{one:.2f}' for one in taken)} s of CPU when it asks first\n")
    assert min(taken) < START_S
