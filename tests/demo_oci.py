"""`make demo-oci`: launch a Dask cluster on the stand-in for OCI, and show what was asked of it. Needs no tenancy."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

from oci_service.handle import Service

ROOT = Path(__file__).resolve().parents[1]
IMAGE = "iad.ocir.io/stand-in/dask:1"


def main() -> int:
    """Launch, list, show; return the launch's exit code."""
    prepare = [sys.executable, "-m", "oci_cluster", "prepare", "dask"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "common")}
    made = subprocess.run(prepare, env=environ, stdout=subprocess.PIPE, text=True, check=True)
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
        service.control({"images": {IMAGE: image}})
        tenancy = {**os.environ, **service.environ, **service.settings, "BACKEND": "oci", "IMAGE": IMAGE}
        print(
            "A stand-in for OCI is running, until all of this has been shown.\n\n$ ./scripts/launch.sh dask 3",
            flush=True,
        )
        code = subprocess.run([ROOT / "scripts" / "launch.sh", "dask", "3"], env=tenancy, check=False).returncode
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
    sys.exit(main())
