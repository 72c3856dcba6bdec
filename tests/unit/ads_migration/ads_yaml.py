"""A YAML of ADS's that tests change field by field."""

from __future__ import annotations

import textwrap
from pathlib import Path

from oci_cluster.ads_migration.conversion import Conversion, Kind
from oci_cluster.ads_migration.from_ads import Asked, convert

BASE = """
kind: distributed
apiVersion: v1.0
spec:
  infrastructure:
    kind: infrastructure
    type: dataScienceJob
    apiVersion: v1.0
    spec:
      {infrastructure}
  cluster:
    kind: {framework}
    apiVersion: v1.0
    spec:
      worker: {{replicas: 2, {worker}}}
      {cluster}
  runtime:
    kind: python
    apiVersion: v1.0
    {outer}
    spec:
      entryPoint: train.py
      {runtime}
"""


def indented(text: str, blanks: int) -> str:
    return textwrap.indent(textwrap.dedent(text).strip(), " " * blanks).strip()


def write(folder: Path, *, framework: str = "dask", **parts: str) -> Path:
    """Write a YAML whose sections have these lines besides."""
    (folder / "train.py").touch()
    given = {name: indented(parts.get(name, ""), 6) for name in ("infrastructure", "cluster", "runtime")}
    if not given["infrastructure"]:
        given["infrastructure"] = "shapeName:"
    text = BASE.format(framework=framework, worker=parts.get("worker", ""), outer=parts.get("outer", ""), **given)
    path = folder / "train.yaml"
    path.write_text(text)
    return path


def converted(folder: Path, *, framework: str = "dask", code: str = "", **parts: str) -> Conversion:
    return convert(Asked(write(folder, framework=framework, **parts), "oci", code=code))


def told(found: Conversion, *kinds: Kind) -> list[str]:
    """Return `<last parts of the path>: <why>` of the notes."""
    return [f"{note.path}: {note.why}" for note in found.notes if note.kind in (kinds or set(Kind))]


__all__ = ["Kind", "converted", "told", "write"]
