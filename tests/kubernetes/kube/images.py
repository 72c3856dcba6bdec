"""Images for nodes of tests, as archives that containerd imports: no registry is asked."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import secrets
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import engine as engines
import toy_image
from shop import REGISTRY, Shop

from kube.node import PAUSE

CHECKOUT = Path(__file__).resolve().parents[3]
# Beside what test engines keep.
KEPT = CHECKOUT / ".venv" / "cache" / "kubernetes"
# A shell, Python and the tools of Debian, and nothing of this project.
DEBIAN = "localhost/debian:12"
# With the frameworks of tests: plain, gang.
TOY = "localhost/toy:1"
_TOYS = ("plain", "gang")


def pause_archive(tools: Path, file: Path) -> Path:
    """Write the image that holds a pod's namespaces; return *file*."""
    layer = io.BytesIO()
    program = tools / "bin" / "pause"
    with tarfile.open(fileobj=layer, mode="w") as tar:
        info = tarfile.TarInfo("pause")
        info.size, info.mode = program.stat().st_size, 0o755
        with program.open("rb") as content:
            tar.addfile(info, content)
    # The uid that Kubernetes' own image of this name has.
    return write_archive(file, PAUSE, layer.getvalue(), {"Entrypoint": ["/pause"], "User": "65535:65535"})


def debian_archive(directory: Path) -> Path:
    """Return Debian 12 with Python as an archive in *directory*; the file system is what test engines have, too."""
    tar = engines.debian_tar()

    def make(file: Path) -> None:
        environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        write_archive(file, DEBIAN, tar.read_bytes(), {"Cmd": ["sh"], "Env": environment, "User": "1000:1000"})

    return _kept(directory, "debian", _state_of(tar), make)


def toy_archive(directory: Path, engine_place: Path) -> Path:
    """Return :data:`TOY` as an archive in *directory*: built by an engine where what it is made of has changed."""

    def make(file: Path) -> None:
        with tempfile.TemporaryDirectory() as context, engines.Engine(engine_place) as engine:
            toy_image.build_toy_image(engine, Path(context), TOY, *_TOYS)
            engine.run("save", "--output", str(file), TOY)

    toys = [CHECKOUT / "tests" / "clusters" / name for name in _TOYS]
    sessions = [CHECKOUT / "scripts" / "sessions", CHECKOUT / "tests" / "clusters" / "hello"]
    made_of = [CHECKOUT / "common", *sessions, *toys, CHECKOUT / "tests" / "toy_image.py"]
    return _kept(directory, "toy", _content_of(made_of), make)


def product_archive(directory: Path, place: Path, framework: str) -> tuple[str, Path]:
    """Return name and archive of a framework's image, as `make build` makes it of this checkout.

    Args:
        directory: Where archives are kept.
        place: For the engine and a copy of the checkout; ``TEST_ENGINE_DIR`` names an engine's directory of before.
        framework: Whose.
    """
    name = f"{REGISTRY}/{framework}:1"

    def make(file: Path) -> None:
        with engines.Engine(Path(os.environ.get("TEST_ENGINE_DIR") or place / "e")) as engine:
            Shop(engine, place, [framework]).make(f"build-{framework}")
            engine.run("save", "--output", str(file), name)

    made_of = [CHECKOUT / "common", CHECKOUT / framework, CHECKOUT / "scripts" / "sessions"]
    return name, _kept(directory, framework, _content_of(made_of), make)


def session_archive(directory: Path, place: Path) -> tuple[str, Path]:
    """Return name and archive of an image of Dask for sessions of JupyterLab and ssh, as docs/sessions.md builds it.

    Args:
        directory: Where archives are kept.
        place: As for :func:`product_archive`.
    """
    name = f"{REGISTRY}/dask:sessions"
    sessions = CHECKOUT / "scripts" / "sessions"

    def make(file: Path) -> None:
        with engines.Engine(Path(os.environ.get("TEST_ENGINE_DIR") or place / "e")) as engine:
            added = {"EXTRA_ENV": str(sessions / "jupyter" / "env.yaml"), "SYSTEM_PACKAGES": "openssh-server"}
            Shop(engine, place, ["dask"]).make("build-dask", TAG="sessions", **added)
            engine.run("save", "--output", str(file), name)

    return name, _kept(directory, "sessions", _content_of([CHECKOUT / "common", CHECKOUT / "dask", sessions]), make)


def _kept(directory: Path, name: str, state: str, make: Callable[[Path], None]) -> Path:
    """Return the file of that *name* and *state*; where there is none, it is made, and takes the place of the last."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}-{state}.tar"
    with (directory / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            new = directory / f"{name}.new"  # of one who was interrupted, too
            new.unlink(missing_ok=True)
            make(new)
            for old in directory.glob(f"{name}-*.tar"):
                old.unlink()
            new.replace(file)
    return file


def _content_of(places: Sequence[Path]) -> str:
    digest = hashlib.sha256(_state_of(engines.debian_tar()).encode())
    for place in places:
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(CHECKOUT)} {file.stat().st_mode}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _state_of(file: Path) -> str:
    state = file.stat()
    return f"{state.st_size:x}-{state.st_mtime_ns:x}"


def write_archive(file: Path, name: str, layer: bytes, config: dict[str, Any]) -> Path:
    """Write an image of one *layer*, a tar, as ``docker save`` does."""
    digest = hashlib.sha256(layer).hexdigest()
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    text = json.dumps(about).encode()
    identifier = hashlib.sha256(text).hexdigest()
    manifest = [{"Config": f"{identifier}.json", "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    new = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    with tarfile.open(new, "w") as tar:
        for path, content in (
            (f"{identifier}.json", text),
            (f"{digest}/layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    new.replace(file)
    return file


if __name__ == "__main__":  # .ci/run has them made while other tests wait
    with tempfile.TemporaryDirectory() as scratch:
        toy_archive(KEPT, Path(scratch) / "e")
        for framework in sys.argv[1:]:
            product_archive(KEPT, Path(scratch), framework)
