"""`make demo-oci`: launch a cluster on the stand-in for OCI, and show what was asked of it. Needs no tenancy.

Words are those of a launch: `make demo-oci LAUNCH="pytorch 2"`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

from oci_service.handle import Service

ROOT = Path(__file__).resolve().parents[1]
_EXAMPLE = ["dask", "3"]


def main(launch: list[str]) -> int:
    """Launch, list, show; return the launch's exit code."""
    prepare = [sys.executable, "-m", "oci_cluster", "prepare", launch[0]]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "common")}
    made = subprocess.run(prepare, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        return made.returncode  # it has said why
    image_name = f"iad.ocir.io/stand-in/{launch[0]}:1"
    python = Path(made.stdout.strip())
    with tempfile.TemporaryDirectory(prefix="oci-") as directory, Service(Path(directory) / "service") as service:
        image = {
            "entrypoint": [str(ROOT / "common" / "entrypoint.sh")],
            "directory": "/",
            "environment": {
                "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": sysconfig.get_path("purelib"),  # ocifs, which an image has beside the framework
            },
        }
        service.control({"images": {image_name: image}})
        tenancy = {**os.environ, **service.environ, **service.settings, "BACKEND": "oci", "IMAGE": image_name}
        print("A stand-in for OCI is running, until all of this has been shown.", flush=True)
        print(f"\n$ ./scripts/launch.sh {shlex.join(launch)}", flush=True)
        code = subprocess.run([ROOT / "scripts" / "launch.sh", *launch], env=tenancy, check=False).returncode
        print("\n$ ./scripts/list.sh --all", flush=True)
        subprocess.run([ROOT / "scripts" / "list.sh", "--all"], env=tenancy, check=False)
        calls = service.calls()
        print(f"\n{len(calls)} requests were made, by who made them:\n")
        counts = Counter((call["principal"].partition(":")[0], call["operation"], call["status"]) for call in calls)
        for (who, operation, status), count in sorted(counts.items()):
            by = {"api-key": "launcher", "resource": "nodes"}.get(who, who)
            print(f"  {count:5}  {by:9} {operation:34} {status}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or _EXAMPLE))
