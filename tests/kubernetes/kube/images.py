"""Images for nodes of tests, as archives that containerd imports: no registry is asked."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import tarfile
from pathlib import Path
from typing import Any

import engine as engines

from kube.node import PAUSE

# A shell, Python and the tools of Debian, and nothing of this project.
DEBIAN = "localhost/debian:12"


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
    state = tar.stat()
    file = directory / f"debian-{state.st_size}-{state.st_mtime_ns}.tar"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        write_archive(file, DEBIAN, tar.read_bytes(), {"Cmd": ["sh"], "Env": environment, "User": "1000:1000"})
    return file


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


def saved(engine: engines.Engine, name: str, directory: Path) -> Path:
    """Return an image of *engine* as an archive in *directory*, named by its id: what is there is not written again."""
    identifier = engine.run("image", "inspect", "--format={{.Id}}", name).stdout.strip().rpartition(":")[2]
    named = hashlib.sha256(f"{identifier} {name}".encode()).hexdigest()[:16]
    file = directory / f"{named}.tar"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        new = directory / f"{named}.{secrets.token_hex(4)}.tar"
        engine.run("save", "--output", str(new), name)
        new.replace(file)
    return file
