"""The start scripts' program, `python -I launcher VERB`: a folder, whose modules come first.

facts    what this node tells the others: its public key, its slots
serve    a worker: an ssh server that starts ranks for main
launch   main: starts all ranks, and ends with the exit code of the one that failed first
"""

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "common"))

from nodes import check_binding, read_options
from ranks import log, report

from oci_cluster.errors import ClusterError

# Each verb imports its own: the first is on every node's way to being known.
MODULES = {"facts": "nodes", "serve": "ssh", "launch": "launch"}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in MODULES:
        log(f"error: expected {', '.join(MODULES)}, got {sys.argv[1:]}")
        return 2
    try:
        options = read_options(os.environ)
        check_binding(options.framework)
        return int(importlib.import_module(MODULES[sys.argv[1]]).main(options))
    except ClusterError as error:
        report(error)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
