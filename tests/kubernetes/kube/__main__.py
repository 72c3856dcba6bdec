"""A Kubernetes of tests for a shell: it runs until this is ended.

PYTHONPATH=tests:tests/kubernetes .venv/bin/python -m kube DIRECTORY [NODES]
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from pathlib import Path

from kube import images
from kube.cluster import Cluster, why_not


def main() -> int:
    """Start it, print what uses it, and wait."""
    directory, count = Path(sys.argv[1]).resolve(), int((*sys.argv, "2")[2])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin = time.monotonic()
    if reason := why_not():
        sys.stderr.write(f"kube: {reason}\n")
        return 69
    with Cluster(directory, node_count=count) as cluster:
        cluster.do("import_image", archive=str(images.debian_archive(directory / "images")))
        sys.stdout.write(
            f"export KUBECONFIG={cluster.admin} PATH={cluster.bin}:$PATH\n"
            f"# ready after {time.monotonic() - begin:.1f} s: {', '.join(cluster.nodes)}; image {images.DEBIAN}; "
            f"logs in {cluster.place}/logs; Ctrl-C removes it\n"
        )
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


def hold(directory: str) -> None:
    """Hold the cluster of a directory until stdin ends: for whoever must be another process."""
    with Cluster(Path(directory)):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    sys.exit(main())
