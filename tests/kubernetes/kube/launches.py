"""Launches by the project's own scripts into a Kubernetes of tests, as a person makes them; and what they leave."""

from __future__ import annotations

import compileall
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from harness import PATIENCE_S, Launch, Project, processes_of, wait_until

from kube.api import Object
from kube.cluster import Cluster, User
from kube.images import TOY

CHECKOUT = Path(__file__).resolve().parents[3]
LABEL = "oci-cluster-launch"
# A script that is up, and then runs until somebody ends it.
UP = "import time\nprint('entry up', flush=True)\nwhile True: time.sleep(0.1)\n"
# Works until a file is there, on a volume of GATE: lives in the memory of main know nothing of each other.
GATE = {"VOLUMES": "gate=pvc:gate"}
UNTIL = """\
import os, time
print('life', os.environ['LIFE'], os.environ['LAUNCH_ID'], flush=True)
while not os.path.exists('/mnt/gate/go'): time.sleep(0.1)
print('trained', flush=True)
"""
# Ten seconds are long for anything here; a machine on which others work, too, has needed more than a minute.
SOON_S = PATIENCE_S


def copy_checkout(path: Path) -> Path:
    """Copy what scripts need of the checkout to *path*, with the frameworks of tests; environments are shared."""
    for folder in ("common", "scripts"):
        shutil.copytree(CHECKOUT / folder, path / folder)
    for toy in ("gang", "plain"):
        shutil.copytree(CHECKOUT / "tests" / "clusters" / toy, path / toy)
    # Processes there write none themselves: each would compile what it imports.
    compileall.compile_dir(path, quiet=2)
    (path / ".venv").symlink_to(CHECKOUT / ".venv")
    return path


class Site:
    """A project whose nodes are pods of one namespace.

    Args:
        project: A copy of the checkout, and a place for scripts.
        kubernetes: Where.
        namespace: Where there.
        kubeconfig: Who asks.
    """

    def __init__(self, project: Project, kubernetes: Cluster, namespace: str, kubeconfig: Path) -> None:
        self.project = project
        self.kubernetes = kubernetes
        self.namespace = namespace
        project.environ |= {
            "BACKEND": "kubernetes",
            "KUBECONFIG": str(kubeconfig),
            "KUBE_CONTEXT": "tests",
            "NAMESPACE": namespace,
            "IMAGE": TOY,
            "CPUS": "0.1",
            "MEMORY": "256m",
            "SHM_SIZE": "",
        }

    # --- What people do

    def launch(self, framework: str, workers: int, script: str, *options: str, **environ: str) -> Launch:
        entry = self.project.write("t.py", script)
        return self.project.launch(framework, str(workers), "--entry", entry, *options, **environ)

    def run(self, script: str, *arguments: str, code: int = 0, **environ: str) -> str:
        """Run a script to its end; return what it has printed, or said where it had to fail with *code*."""
        done = self.project.run(script, *arguments, **environ)
        assert done.returncode == code, f"{script} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def detached(self, framework: str, workers: int, script: str, *options: str, **environ: str) -> str:
        """Launch a cluster that nobody follows, wait until it is ready, and return its name."""
        launch = self.launch(framework, workers, script, "--detach", "--wait", *options, **environ)
        assert launch.wait(SOON_S) == 0, launch.err
        return launch.out.strip()

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json", name))
        return found

    def nodes(self, name: str) -> dict[str, dict[str, Any]]:
        return {node["node"]: node for node in self.status(name)["nodes"]}

    @property
    def directory(self) -> Path:
        """The directory of the only cluster that was launched here; its name has the launch id."""
        (found,) = wait_until(self.project.cluster_dirs, "the cluster's directory", SOON_S)
        return found

    @property
    def name(self) -> str:
        """The cluster's name."""
        return str(json.loads((self.directory / "cluster.json").read_text())["name"])

    @property
    def launch_id(self) -> str:
        return self.directory.name.rpartition("-")[2]

    def wait_for(self, launch: Launch, text: str) -> None:
        """Return when a launch that is followed has printed *text*, or said it."""

        def is_there() -> bool:
            has_ended = launch.process.poll() is not None  # before the text: it may have come in between
            found = text in launch.out or text in launch.err
            assert found or not has_ended, f"it ended before {text!r}:\n{launch.out}\n{launch.err}"
            return found

        wait_until(is_there, lambda: f"{text!r}:\n{launch.out}\n{launch.err}", SOON_S)

    # --- What there is in Kubernetes

    def pods(self) -> dict[int, Object]:
        """Return the pods of the namespace by their index; of two of one index the newest."""
        found = self.kubernetes.api.items(f"api/v1/namespaces/{self.namespace}/pods")
        found.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
        mark = "batch.kubernetes.io/job-completion-index"
        return {int(pod["metadata"]["labels"][mark]): pod for pod in found}

    def pod(self, index: int) -> str:
        """Return the path of the pod of that index."""
        return f"api/v1/namespaces/{self.namespace}/pods/{self.pods()[index]['metadata']['name']}"

    def jobs(self) -> list[Object]:
        return self.kubernetes.api.items(f"apis/batch/v1/namespaces/{self.namespace}/jobs")

    def left(self) -> list[str]:
        """Return what is left in the namespace, but for the account of its user."""
        return self.kubernetes.left_in(self.namespace)

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not self.left(), lambda: f"nothing to be left: {self.left()}", SOON_S)

    def left_cluster_wide(self, launch_id: str) -> list[str]:
        """Return the objects of a launch in any namespace, and without one."""
        kinds = (
            "jobs,pods,services,secrets,configmaps,networkpolicies,roles,rolebindings,clusterroles,persistentvolumes"
        )
        words = (
            "get",
            kinds,
            "--all-namespaces",
            "--ignore-not-found",
            "--output=name",
            f"--selector={LABEL}={launch_id}",
        )
        done = self.kubernetes.kubectl(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()


@contextmanager
def site_of(checkout: Path, scratch: Path, kubernetes: Cluster, namespace: str, kubeconfig: Path) -> Iterator[Site]:
    """Have a project without clusters in *checkout*; whatever a test starts is ended, and its Jobs are deleted."""
    scratch.mkdir(parents=True, exist_ok=True)
    project = Project(checkout, scratch)
    site = Site(project, kubernetes, namespace, kubeconfig)
    try:
        yield site
    finally:
        ids = [directory.name.rpartition("-")[2] for directory in project.cluster_dirs()]
        project.end_all()
        for launch_id in ids:
            wait_until(lambda i=launch_id: not processes_of(i), f"the end of all processes of {launch_id}", SOON_S)
        for job in site.jobs():
            kubernetes.api.delete(f"apis/batch/v1/namespaces/{namespace}/jobs/{job['metadata']['name']}")
        shutil.rmtree(checkout / ".clusters", ignore_errors=True)


def site_for(checkout: Path, scratch: Path, user: User, server: str = "") -> Any:
    """Return a site of *user*; with a *server*, through that proxy."""
    kubeconfig = user.by_token(server) if server else user.by_certificate()
    return site_of(checkout, scratch, user.cluster, user.namespace, kubeconfig)


def launcher_of(launch: Launch) -> psutil.Process:
    """Return the Python of a ``launch.sh``."""

    def look() -> list[psutil.Process]:
        children = psutil.Process(launch.process.pid).children()
        return [child for child in children if "python" in child.name()]

    found: list[psutil.Process] = wait_until(look, "launch.sh to start its Python", SOON_S)
    return found[0]


def lines_of(text: str, node: str) -> list[str]:
    """Return what a node has printed, of the merged lines of a launch."""
    rows = (line.partition(" | ") for line in text.splitlines())
    return [line for name, mark, line in rows if mark and name.strip() == node]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
