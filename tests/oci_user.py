"""Someone with an account at the stand-in for OCI: with the clients that the product uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import wait_until
from oci_service.handle import Service

oci = pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")
ocifs = pytest.importorskip("ocifs", reason="needs an environment with oci-cli and ocifs")

CLI = Path(sys.executable).parent / "oci"
IMAGE = "iad.ocir.io/stand-in/python:1"
DIGEST = f"sha256:{'0' * 64}"
READABLE = [sys.prefix, sys.base_prefix]
UNTIL_TERM = "import time\nprint('up', flush=True)\ntime.sleep(1000)"


CONTROLS = {
    "provisioning_s": 0,
    "minute_s": 60,
    "ingest_delay_s": 0.2,
    "ingest_duplicates": 0,
    "search_shuffled": False,
    "search_most": 0,
    "page_size": 100,
    "out_of_capacity": [],
    "limit": {},
    "expire_tokens": "",
    "revoke_bucket": [],
    "free_addresses": None,
    "metadata_delay_s": 0,
    "metadata_torn_s": 0,
    "rank_counting": "through",
    "metadata_lists": "all",
    "own_run_ocids": False,
    "flipped": [],
    "stay_accepted": [],
    "needs_attention": {},
    "unseen_s": 0,
    "list_lag_s": 0,
    "state_lag_s": 0,
    "stale_every": 0,
    "faults": [],
}


class User:
    """Someone with an account in the tenancy of a service: clients, and jobs of Python text."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.settings = service.settings
        image = {"digest": DIGEST, "entrypoint": [sys.executable, "-c"], "readable": READABLE}
        service.control({"images": {IMAGE: image}, "cancel_grace_s": 0.5})
        config = oci.config.from_file(service.environ["OCI_CLI_CONFIG_FILE"])
        self.config = config
        self.science = oci.data_science.DataScienceClient(config)
        self.files = ocifs.OCIFileSystem(config=config, region=config["region"], skip_instance_cache=True)
        self.work = f"{self.settings['bucket']}@{self.settings['namespace']}/work"

    def cli(self, *arguments: str, code: int = 0) -> Any:
        """Run oci-cli; return what it prints, or what it complains of where *code* is not 0."""
        done = subprocess.run(
            [str(CLI), *arguments],
            env={**os.environ, **self.service.environ},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        if code:
            return json.loads(done.stderr[done.stderr.index("{") :])
        return json.loads(done.stdout) if done.stdout else None

    def job_details(self, **changes: Any) -> dict[str, Any]:
        """Return the body that makes a job."""
        infrastructure = {
            "jobInfrastructureType": "STANDALONE",
            "shapeName": "VM.Standard2.1",
            "blockStorageSizeInGBs": 50,
            "subnetId": self.settings["SUBNET_OCID"],
        }
        logging = {"enableLogging": True, "logGroupId": self.settings["LOG_GROUP_OCID"]}
        details = {
            "projectId": self.settings["PROJECT_OCID"],
            "compartmentId": self.settings["COMPARTMENT_OCID"],
            "displayName": "job",
            "jobConfigurationDetails": {"jobType": "DEFAULT", "environmentVariables": {}},
            "jobInfrastructureConfigurationDetails": infrastructure,
            "jobLogConfigurationDetails": {**logging, "logId": self.settings["LOG_OCID"]},
            **changes,
        }
        return {name: value for name, value in details.items() if value is not None}

    def job(self, script: str, image: str = IMAGE, **changes: Any) -> str:
        """Make a job of a Python text; return its OCID."""
        container = {"jobEnvironmentType": "OCIR_CONTAINER", "image": image, "cmd": [script]}
        details = self.job_details(jobEnvironmentConfigurationDetails=container, **changes)
        return str(self.science.create_job(details).data.id)

    def run_details(self, job: str, **changes: Any) -> dict[str, Any]:
        """Return the body that makes a run."""
        return {
            "projectId": self.settings["PROJECT_OCID"],
            "compartmentId": self.settings["COMPARTMENT_OCID"],
            "jobId": job,
            **changes,
        }

    def run(self, job: str, **environ: str) -> str:
        """Run a job; return the run's OCID."""
        configuration = {"jobType": "DEFAULT", "environmentVariables": environ}
        details = self.run_details(job, jobConfigurationOverrideDetails=configuration)
        return str(self.science.create_job_run(details).data.id)

    def wait_for(self, text: str, run: str) -> str:
        """Return what a run has printed when *text* is in it."""
        wait_until(lambda: text in self.service.log(run), f"{text!r} of {run}: {self.service.log(run)}", 120.0)
        return self.service.log(run)


def last_call(user: User, operation: str) -> dict[str, Any]:
    return user.service.calls(operation)[-1]
