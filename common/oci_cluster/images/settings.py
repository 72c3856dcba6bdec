"""Settings of images, and what git tells of their checkout."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.contract.parsers import matching, parse_files
from oci_cluster.contract.settings.settings_files import SettingsReader, read_config
from oci_cluster.errors import SettingsError
from oci_cluster.system.files import at_home

# Where an image goes that is for this machine alone: podman puts `localhost/` before such names anyway.
_LOCAL_REGISTRY = "localhost/oci-cluster"
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True)
class ImageSettings:
    """Settings of images; ``config.env.example`` explains each."""

    engine: str
    registry: str
    tag: str
    platform: str
    base_image: str
    env_file: str
    extra_env: Sequence[Path]
    torch: str
    code_dir: str
    run_as: str
    system_packages: str
    flags: Sequence[str]

    def name(self, framework: str) -> str:
        """Return the name of *framework*'s image."""
        return f"{self.registry or _LOCAL_REGISTRY}/{framework}:{self.tag}"


def read_settings(environ: Mapping[str, str], root: Path) -> ImageSettings:
    """Return what environment and ``config.env`` choose."""
    read = SettingsReader(environ, read_config(root))

    def inside(text: str) -> str:
        path = at_home(text).resolve()
        if not path.exists() or not path.is_relative_to(root.resolve()):
            raise ValueError(
                f"'{text}' is outside {root}, and a build sees nothing else; copy it there, or name a folder in {root}"
            )
        return str(path.relative_to(root.resolve()))

    settings = ImageSettings(
        engine=read.text("DOCKER", "docker"),
        registry=read.value("REGISTRY", _registry, ""),
        tag=read.value("TAG", matching(_TAG, "a tag: letters, digits, _ . - and 128 of them at most"), "")
        or default_tag(root),
        platform=read.text("PLATFORM", "linux/amd64"),
        base_image=read.text("BASE_IMAGE"),
        env_file=read.value("ENV_FILE", inside, ""),
        extra_env=read.value("EXTRA_ENV", parse_files, list[Path]()),
        torch=read.setting("TORCH"),
        code_dir=read.value("CODE_DIR", inside, ""),
        run_as=read.text("RUN_AS"),
        system_packages=read.text("SYSTEM_PACKAGES"),
        flags=read.value("BUILD_FLAGS", shlex.split, list[str]()),
    )
    if read.problems:
        raise SettingsError.of(read.problems)
    return settings


def default_tag(root: Path) -> str:
    """Return the default tag: git's description of the checkout, `dev` without git."""
    described = _git(root, "describe", "--tags", "--always", "--dirty")
    return described if _TAG.fullmatch(described) else "dev"


def revision(root: Path) -> str:
    """Return the commit of *root*, with `-dirty` where files have changed."""
    return _git(root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")


def source(root: Path) -> str:
    """Return the URL that *root* was cloned from, without a password."""
    return re.sub(r"(?<=://)[^/@]*@", "", _git(root, "remote", "get-url", "origin"))


def with_dockerfile(root: Path) -> list[str]:
    """Return the frameworks of *root* that images can be built of."""
    found = (path.parent for path in root.glob("*/Dockerfile"))
    return sorted(folder.name for folder in found if (folder / "start-master.sh").exists())


def _git(root: Path, *arguments: str) -> str:
    with contextlib.suppress(OSError):
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def _registry(text: str) -> str:
    if not _REPOSITORY.fullmatch(text.rstrip("/")):
        raise ValueError(f"'{text}' is not a registry such as iad.ocir.io/mynamespace/training")
    return text.rstrip("/")
