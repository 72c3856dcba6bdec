"""A project whose clusters are Jobs of the stand-in for OCI."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from harness import PATIENCE_S, Launch, Project, processes_of, wait_until
from oci_service.handle import Service

CHECKOUT = Path(__file__).resolve().parents[1]
UNTIL_GO = (
    "import os, sys, time\nprint('entry up', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)\n"
)
ENDED = {"SUCCEEDED", "FAILED", "CANCELED"}


class Cloud:
    """A project whose clusters are Jobs of the stand-in."""

    def __init__(self, project: Project, service: Service) -> None:
        self.project = project
        self.service = service
        self.environ = {**service.environ, **service.settings, "BACKEND": "oci"}
        self.add_image("plain", Path(sys.executable))

    def add_image(self, framework: str, python: Path) -> None:
        """Push what an image of *framework* would be: its interpreter, and what the agent needs there."""
        self.service.control({"images": {image_of(framework): self.image(python)}})

    def image(self, python: Path) -> dict[str, Any]:
        """Return what an image with the interpreter *python* is."""
        return {
            "digest": f"sha256:{'0' * 64}",
            "entrypoint": [str(self.project.path / "common" / "entrypoint.sh")],
            "directory": "/",
            # On hosts of their own: what an image would hold.
            "readable": [str(path) for path in (CHECKOUT / ".venv", sys.base_prefix, self.project.path)],
            "environment": {
                "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": sysconfig.get_path("purelib"),  # ocifs, behind what the environment has itself
            },
        }

    def launch(self, framework: str, workers: int, *arguments: str, **environ: str) -> Launch:
        environ = {**self.environ, "IMAGE": image_of(framework), **environ}
        return self.project.launch(framework, str(workers), *arguments, **environ)

    def launch_plain(self, workers: int, script: str, *arguments: str, **environ: str) -> Launch:
        return self.launch("plain", workers, "--entry", self.project.write("entry.py", script), *arguments, **environ)

    def run(self, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.project.run(script, *arguments, **{**self.environ, **environ})

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return the runs by their nodes; of a rank's several, the last."""
        return {run["freeformTags"].get("oci-cluster-node", "all"): run for run in self.service.job_runs()}

    def printed(self, node: str) -> str:
        return self.service.log(self.runs()[node]["id"])

    def wait_for(self, text: str, node: str = "MAIN") -> None:
        wait_until(lambda: node in self.runs() and text in self.printed(node), f"{text!r} of {node}", PATIENCE_S)

    def assert_nothing_runs(self) -> None:
        """Whatever happened: no run that has not ended, and no process of one."""
        left = [run for run in self.service.job_runs() if run["lifecycleState"] not in {*ENDED, "DELETED"}]
        assert not left
        for tags in {run["freeformTags"]["oci-cluster-launch"] for run in self.service.job_runs()}:
            wait_until(lambda tags=tags: not processes_of(tags), f"the end of {processes_of(tags)}")


def image_of(framework: str) -> str:
    return f"iad.ocir.io/stand-in/{framework}:1"


def environment_of(project: Project, framework: str) -> Path:
    """Return the interpreter of a framework's environment, which is made where it is not there."""
    made = subprocess.run(
        [sys.executable, "-m", "oci_cluster", "prepare", framework],
        env={**project.environ, "PYTHONPATH": str(project.path / "common")},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(made.stdout.strip())


def states(cloud: Cloud) -> dict[str, str]:
    return {node: run["lifecycleState"] for node, run in sorted(cloud.runs().items())}


def wait(launch: Launch) -> int:
    return launch.wait(PATIENCE_S)
