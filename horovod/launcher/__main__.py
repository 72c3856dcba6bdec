"""What the start scripts run, by `python -I launcher VERB`: a folder, so that its modules are found and no others.

facts    what this node tells the others: its public key, its slots
serve    a worker: an ssh server that starts ranks for main
launch   main: starts all ranks, and ends with the exit code of the one that failed first
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "common"))

from messages import NodeError, log, report


def main() -> int:
    verb = sys.argv[1] if len(sys.argv) == 2 else ""
    # Each verb imports its own: the first is on every node's way to being known.
    try:
        if verb == "facts":
            import facts  # noqa: PLC0415

            return facts.main()
        if verb == "serve":
            import server  # noqa: PLC0415

            return server.main()
        if verb == "launch":
            import launch  # noqa: PLC0415

            return launch.main()
    except NodeError as error:
        report(error)
        return error.exit_code
    log(f"error: expected facts, serve or launch, got {sys.argv[1:]}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
