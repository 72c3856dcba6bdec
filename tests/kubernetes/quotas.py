"""Two teams of a table of their own, and the verbs of an administrator: what tests of quotas and queues share."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from harness import wait_until
from kube import jobs
from kube.api import Object
from kube.cluster import Cluster
from kube.identity import new_name

from oci_cluster.backends.kubernetes.quota import run as quota
from oci_cluster.launcher.args.command_line import read

API = "apis/kueue.x-k8s.io/v1beta2"
# Of each worker alone: others give it to the nodes, and take it away, at the same time.
GPU = f"quota.example/gpu-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
ENDLESS = "trap 'exit 143' TERM; while :; do sleep 0.2; done"


@dataclass
class Ran:
    """What a verb has printed and said."""

    shown: str
    said: str

    def json(self) -> Any:
        return json.loads(self.shown)


def run(kubeconfig: Path, *words: str) -> Ran:
    """Run ``quota show``, say, as the user of *kubeconfig*."""
    line = read(words[0], words[1:])
    shown: list[str] = []
    said: list[str] = []
    given = {"KUBECONFIG": str(kubeconfig)}
    assert quota.run(words[0], line.words, line.given, given, quota.Out(shown.append, said.append)) == 0
    return Ran("\n".join(shown), "\n".join(said))


@dataclass
class Two:
    """Teams a and b of 8 GPUs each, in a table of their own; their namespaces are there before."""

    cluster: Cluster
    file: Path
    a: str
    b: str
    table: dict[str, Any] = field(default_factory=dict)

    def quota(self, *words: str) -> Ran:
        return run(self.cluster.admin, "quota", *words)

    def apply(self, *options: str) -> Ran:
        self.file.write_text(yaml.safe_dump(self.table, sort_keys=False))
        return self.quota("apply", str(self.file), *options)

    def queue(self, *words: str) -> Ran:
        return run(self.cluster.admin, "queue", *words)

    def row(self, team: str) -> dict[str, Any]:
        """Return what show says of the GPUs of a team, and of the team."""
        (found,) = [one for one in self.quota("show", "--json").json() if one["team"] == team]
        return {**found, **found["flavors"][self.flavor][GPU]}

    def row_of(self, team: str, cluster: str) -> dict[str, Any]:
        rows = [one for one in self.queue(team, "--json").json() if one["cluster"] == cluster]
        return rows[0] if rows else {}

    @property
    def flavor(self) -> str:
        return str(next(iter(self.table["flavors"])))

    def job(self, team: str, name: str, count: int, *, script: str = ENDLESS, **labels: str) -> Any:
        """Return what runs a Job of *count* nodes with a GPU each."""
        marks = {"kueue.x-k8s.io/queue-name": team} | {f"kueue.x-k8s.io/{key}": value for key, value in labels.items()}
        return jobs.running(self.cluster.api, team, jobs.job(name, count, script, labels=marks, **{GPU: "1"}))

    def objects(self) -> dict[str, Object]:
        """Return all of Kueue that carries the table's label, by its path; in the order in which it can be removed."""
        found = {}
        for kind in ("localqueues", "clusterqueues", "resourceflavors", "workloadpriorityclasses"):
            for item in self.cluster.api.items(
                f"{API}/{kind}", labelSelector=f"oci-cluster-teams={self.table['name']}"
            ):
                place = f"namespaces/{item['metadata']['namespace']}/" if kind == "localqueues" else ""
                found[f"{API}/{place}{kind}/{item['metadata']['name']}"] = item
        return found

    def generations(self) -> dict[str, int]:
        return {path: item["metadata"]["generation"] for path, item in self.objects().items()}

    def remove(self) -> None:
        """Remove all of the table, and wait until it is gone."""
        for path in self.objects():
            self.cluster.api.delete(path)
        wait_until(lambda: not self.objects(), lambda: f"all to be removed: {list(self.objects())}")


@contextlib.contextmanager
def two_teams(kubernetes: Cluster, file: Path) -> Iterator[Two]:
    """Have two teams, whose table is not applied yet; at the end all of it is removed."""
    for node in kubernetes.nodes:
        kubernetes.set_resource(node, GPU, 8)
    with kubernetes.namespace() as a, kubernetes.namespace() as b:
        mine = new_name("table")
        row = {"gpus": 8, "cpus": 100, "memory": "100Gi"}
        flavor = new_name("flavor")
        team = {"quota": {flavor: row}}
        found = Two(kubernetes, file, a, b)
        found.table = {
            "name": mine,
            "cohort": mine,
            "priorities": {new_name("low"): -10, new_name("lowest"): -20},
            "flavors": {flavor: {"gpu": GPU}},
            "teams": {a: team, b: json.loads(json.dumps(team))},
        }
        try:
            yield found
        finally:
            for namespace in (a, b):
                for job in kubernetes.api.items(f"apis/batch/v1/namespaces/{namespace}/jobs"):
                    kubernetes.api.delete(f"apis/batch/v1/namespaces/{namespace}/jobs/{job['metadata']['name']}")
            found.remove()
    for node in kubernetes.nodes:
        kubernetes.set_resource(node, GPU, 0)


def ready(count: int) -> Callable[[Object], bool]:
    return lambda job: job["status"].get("ready", 0) == count
