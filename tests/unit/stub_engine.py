"""A checkout whose container engine is a stub: a program that notes what it is asked, and answers what a test says."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from oci_cluster.images import build, records, registry
from oci_cluster.images.client import Client
from oci_cluster.images.settings import read_settings

# Notes its calls, and keeps of an image what STUB says: its id is that of the file `id`.
STUB = """#!/bin/sh
printf '%s\\n' "$*" >>"$STUB/calls"
for last; do :; done
case "$1 $2" in
  info*) cat "$STUB/info" || { echo 'Cannot connect to the engine' >&2; exit 1; } ;;
  build*)
    cp "$STUB/../checkout/dask/"extra-env-* "$STUB/" 2>/dev/null
    printf '%s' "$http_proxy" >"$STUB/proxy"
    cat "$STUB/build" && [ ! -e "$STUB/fails" ] || exit "$(cat "$STUB/fails")"
    while [ "$1" != --iidfile ]; do shift; done
    cp "$STUB/id" "$2" ;;
  push*)
    cat "$STUB/push" && [ ! -e "$STUB/fails" ] || exit "$(cat "$STUB/fails")"
    [ "$2" != --digestfile ] || printf 'sha256:%064d' 7 >"$3" ;;
  create*) echo a-container ;;
  cp*) echo 'dask==1.0' >"$last" ;;
  rm*) ;;
  "image inspect")
    case "$*" in
      *RepoDigests*) cat "$STUB/digests" ;;
      *Architecture*) cat "$STUB/platform" ;;
    esac ;;
  pull*) [ ! -e "$STUB/fails" ] || { echo 'manifest unknown' >&2; exit 1; } ;;
  *) echo "stub: unknown call: $*" >&2; exit 64 ;;
esac
"""
DIGEST = "sha256:" + "7".rjust(64, "0")


class Checkout:
    """A checkout with two frameworks, and an engine that is a stub."""

    def __init__(self, place: Path, engine: str = "docker") -> None:
        self.root = place / "checkout"
        self.stub = place / "stub"
        self.said: list[str] = []
        self.stub.mkdir()
        for framework in ("dask", "pytorch"):
            (self.root / framework).mkdir(parents=True)
            for name in ("Dockerfile", "start-master.sh"):
                (self.root / framework / name).touch()
        self.engine = self.stub / engine
        self.engine.write_text(STUB)
        self.engine.chmod(0o755)
        self.set(info=json.dumps({"DockerRootDir": str(place)}), id="sha256:1", build="", push="")
        self.set(platform="linux/amd64\n")
        self.set(digests=json.dumps([f"elsewhere/dask@sha256:{1:064}", f"r.example/team/dask@{DIGEST}"]))
        self.environ = {"STUB": str(self.stub), "PATH": "/usr/bin:/bin", "DOCKER": str(self.engine), "HOME": str(place)}
        self.environ |= {"PIP_CONFIG_FILE": "/dev/null", "TAG": "v1"}

    def set(self, **files: str) -> None:
        for name, text in files.items():
            (self.stub / name).write_text(text)

    def images(self, **environ: str) -> SimpleNamespace:
        """Return what can be done with the checkout's images, with more of an *environ*."""
        self.environ |= environ
        settings = read_settings(self.environ, self.root)
        client = Client(settings.engine, self.root, self.environ, self.said.append)
        return SimpleNamespace(
            check=partial(build.check, client, settings),
            build=partial(build.build, client, settings),
            push=partial(registry.push, client, settings),
        )

    def run(self, action: str, *frameworks: str, to_push: bool = False) -> int:
        """Do what the verb does."""
        return build.run(
            action, frameworks, to_push=to_push, environ=self.environ, root=self.root, say=self.said.append
        )

    def calls(self) -> list[str]:
        text = (self.stub / "calls").read_text() if (self.stub / "calls").exists() else ""
        (self.stub / "calls").write_text("")
        return text.splitlines()

    def record(self, framework: str = "dask") -> dict[str, str] | None:
        return records.read(framework, self.root)
