"""Images: `make build push` in a copy of the checkout, with a real engine and a real registry."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from engine import Engine, base_image
from harness import Launch, Project

CHECKOUT = Path(__file__).resolve().parents[1]
REGISTRY = f"{Engine.registry}/team"
# The one that the Dockerfiles name: they are built as they are.
BASE = re.search(r"^ARG BASE_IMAGE=(\S+)$", (CHECKOUT / "dask" / "Dockerfile").read_text(), re.MULTILINE)
# Of the user's pip settings: must be in nothing that is pushed.
TOKEN = "hunter2-token"  # noqa: S105 - of nobody
PATIENCE_S = 1500.0  # with torch's CUDA build, several times as large, from a slow index


class Shop:
    """A copy of the checkout that builds images, and pushes them to a registry.

    Args:
        engine: Which builds and has them.
        place: Where the copy is made, and whatever else.
        frameworks: Those that are copied.
        patience_s: For a build, or a cluster.
    """

    def __init__(
        self, engine: Engine, place: Path, frameworks: Sequence[str], *, patience_s: float = PATIENCE_S
    ) -> None:
        self.engine = engine
        self.patience_s = patience_s
        self.path = place / "my project"
        for folder in ("common", "scripts", *frameworks):
            shutil.copytree(CHECKOUT / folder, self.path / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("Makefile", ".dockerignore"):
            shutil.copy(CHECKOUT / name, self.path / name)
        (self.path / ".venv").symlink_to(CHECKOUT / ".venv")
        assert BASE is not None
        base_image(engine, BASE[1])
        self.extra_env = place / "my.yaml"
        self.extra_env.write_text('{"dependencies": [{"pip": ["lightgbm==4.6.0"]}]}')
        kept = {name: text for name, text in os.environ.items() if re.match(r"PATH$|HOME$|LANG|SSL_|COV|CI$", name)}
        self.environ = {
            **kept,
            **{
                name: text for name, text in engine.environ.items() if re.match(r"(?i)PIP_|DOCKER_|HTTPS?_PROXY$", name)
            },
            "DOCKER": engine.docker,
            "REGISTRY": REGISTRY,
            "TAG": "1",
            # The engine has no network but that of the machine, which for it is one that leads to the proxy alone.
            "BUILD_FLAGS": "--network host",
            "PIP_TRUSTED_HOST": TOKEN,
        }

    def make(self, *targets: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["make", "--no-print-directory", *targets],
            cwd=self.path,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.patience_s,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def launch_with(self, project: Project, framework: str, script: Path, workers: str) -> Launch:
        """Launch *script* as containers of what was built, and return when they have ended."""
        project.write(script.name, script.read_text())
        project.environ |= {"DOCKER": self.engine.docker, "DOCKER_HOST": self.engine.environ["DOCKER_HOST"]}
        launch = project.launch(framework, workers, "--entry", script.name, BACKEND="docker")
        assert launch.wait(self.patience_s) == 0, launch.err
        return launch

    def record(self, framework: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.path / ".images" / f"{framework}.json").read_text())
        return found

    def layers(self, framework: str) -> list[str]:
        form = "{{json .RootFS.Layers}}"
        found: list[str] = json.loads(
            self.engine.run("inspect", f"--format={form}", self.record(framework)["id"]).stdout
        )
        return found

    def inside(self, framework: str, *command: str) -> str:
        """Return what *command* prints in a container of the image."""
        container = ["run", "--rm", "--pull", "never", "--network", "none", self.record(framework)["id"]]
        return self.engine.run(*container, *command).stdout.strip()
