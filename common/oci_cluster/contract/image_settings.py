"""The rows of the table of settings that say what images are made of, and where they go."""

from __future__ import annotations

from typing import Any

from oci_cluster.contract.setting import Receiver, Setting
from oci_cluster.contract.values import parse_torch


def _image(name: str, meaning: str, default: str = "", **more: Any) -> Setting:
    return Setting(name, Receiver.IMAGES, meaning, default=default, **more)


IMAGE_SETTINGS: tuple[Setting, ...] = (
    _image(
        "REGISTRY",
        "where images go: `<region>.ocir.io/<namespace>/<folder>`. Their names are `REGISTRY/<framework>:TAG`",
        example="iad.ocir.io/<namespace>/training",
    ),
    _image("TAG", "the images' tag", computed_default="the output of `git describe`, else `dev`", example="1"),
    _image(
        "EXTRA_ENV",
        "more environment files or a `requirements.txt`, besides the framework's file; several are separated by blanks",
        example="my.yaml",
        backend_defaults={"local": ""},
    ),
    _image(
        "TORCH",
        "`cpu`: PyTorch's own build for CPUs, a fifth of the size of PyPI's",
        parse=parse_torch,
        example="cpu",
        backend_defaults={"local": ""},
    ),
    _image(
        "ENV_FILE",
        "an environment file instead of the framework's",
        computed_default="`<framework>/env.yaml`",
        example="pytorch/env-gpu.yaml",
    ),
    _image("SYSTEM_PACKAGES", "Debian packages: `'git libgl1'`", example="git libgl1"),
    _image("BASE_IMAGE", "another base, see [below](#another-base)", "python:3.11-slim-bookworm"),
    _image(
        "RUN_AS",
        "the uid of the user; `0` is root. Kubernetes runs pods as this user, and as no root",
        "1000",
        backend_defaults={"kubernetes": "1000"},
    ),
    _image("PLATFORM", "the platform of OCI's x86 shapes, also when you build on an ARM machine", "linux/amd64"),
    _image(
        "BUILD_FLAGS",
        "more options for the engine's `build`: `'--network host'`, `--no-cache`",
        example="--network host",
    ),
)
