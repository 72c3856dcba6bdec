"""An image of the frameworks of tests, built with an engine of tests/engine.py in seconds."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import engine as engines
from engine import Engine

CHECKOUT = Path(__file__).resolve().parents[1]
DOCKERFILE = """\
FROM base:1
COPY packages /usr/lib/python3/dist-packages
COPY project /opt/oci-cluster
RUN ln -sf python3 /usr/bin/python && useradd --uid 1000 node && mkdir /work /code && chown node /work
# As in images of the product: the node's user can write none.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/oci-cluster/common /usr/lib/python3/dist-packages
USER node
ENTRYPOINT ["/opt/oci-cluster/tini", "--", "/opt/oci-cluster/common/entrypoint.sh"]
"""


def build_toy_image(engine: Engine, context: Path, tag: str, *frameworks: str) -> None:
    """Build an image *tag* that has *frameworks*, of the new directory *context*."""
    engines.base_image(engine, "base:1")
    (context / "Dockerfile").write_text(DOCKERFILE)
    # Of these the one that is compiled suits every Python 3 (abi3).
    for package in ("fsspec", "psutil", "backports"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        shutil.copytree(spec.submodule_search_locations[0], context / "packages" / package)
    shutil.copytree(CHECKOUT / "common", context / "project" / "common")
    sessions = context / "project" / "scripts" / "sessions"
    shutil.copytree(CHECKOUT / "scripts" / "sessions", sessions)
    shutil.copytree(CHECKOUT / "tests" / "clusters" / "hello", sessions / "hello")
    for framework in frameworks:
        shutil.copytree(CHECKOUT / "tests" / "clusters" / framework, context / "project" / framework)
    shutil.copy(str(shutil.which("tini")), context / "project")
    engine.run("build", "--quiet", f"--tag={tag}", "--network=none", str(context))
