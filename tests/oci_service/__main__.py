"""Run the service in a new or empty directory, until TERM, INT, or with --until-eof the end of stdin.

python -I tests/oci_service DIR [--hosts | --engine JSON] [--empty] [--until-eof]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # tests/: the folder here is a package, hosts.py is beside it


def main() -> None:
    parser = argparse.ArgumentParser(prog="oci_service", description="A stand-in for OCI on this machine.")
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="new or empty; DIR/service.json says when it is ready"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--hosts", action="store_true", help="each run on a host of its own; needs root on Linux")
    place.add_argument("--engine", type=json.loads, metavar="JSON", help="each run as containers; see tests/engine.py")
    parser.add_argument("--empty", action="store_true", help="begin with an empty tenancy, in which policies count")
    parser.add_argument("--until-eof", action="store_true", help="end when stdin does")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        parser.error(f"{directory} is not empty")
    # Takes a second: arguments are checked before.
    from oci_service.containers import Containers  # noqa: PLC0415
    from oci_service.places import Loopback, Machines  # noqa: PLC0415
    from oci_service.server import Service  # noqa: PLC0415

    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    given = arguments.engine
    place = Containers(given) if given else Machines() if arguments.hosts else Loopback()
    service = Service(directory, place, is_empty=arguments.empty)
    new = directory / "service.new"
    new.touch(mode=0o600)
    new.write_text(json.dumps(service.about(), indent=1))
    new.replace(directory / "service.json")

    def wait_for_eof() -> None:
        sys.stdin.read()
        over.set()

    if arguments.until_eof:
        threading.Thread(target=wait_for_eof, daemon=True).start()
    over.wait()
    service.close()
    os._exit(0)  # connections of clients have threads that wait


if __name__ == "__main__":
    main()
