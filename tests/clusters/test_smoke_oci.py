"""`make smoke-oci` against the stand-in: it resolves every guess, finds those that are wrong, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from harness import PATIENCE_S, wait_until
from oci_service.handle import Service

pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")
# It measures how long nodes go on, and when each begins.
pytestmark = pytest.mark.quiet

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "iad.ocir.io/stand-in/dask:1"
# As the real service, but sooner: the longest time of a run is 80 s.
SHORT = {"minute_s": 8, "ingest_delay_s": [0, 2], "ingest_duplicates": 0.2}


class Smoke:
    """Somebody with a tenancy, and what a ladder has left in it."""

    def __init__(self, service: Service, place: Path) -> None:
        self.service = service
        self._page = place / "guesses.md"
        image = {
            "entrypoint": [str(ROOT / "common" / "entrypoint.sh")],
            "environment": {
                "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": sysconfig.get_path("purelib"),
            },
        }
        service.control({"images": {IMAGE: image}, **SHORT})

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        paths = f"{ROOT}/tests:{ROOT}/common"
        given = {**self.service.environ, **self.service.settings, "IMAGE": IMAGE, "SMOKE_READY_S": "2", **environ}
        command = [sys.executable, "-m", "smoke_oci", "--framework", "dask", "--page", str(self._page), *words]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": paths, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def climb(self, *words: str, **environ: str) -> tuple[int, str]:
        """Return the exit code, and what was said."""
        process = self.start(*words, **environ)
        _, said = process.communicate(timeout=PATIENCE_S * 2)
        return process.returncode, said

    def verdicts(self) -> dict[str, str]:
        rows = re.findall(
            r"^\| `([\w-]+)` \| .* \| (right|WRONG|could not tell|not tested) \|", self.text(), re.MULTILINE
        )
        return dict(rows)

    def text(self) -> str:
        return self._page.read_text()

    def assert_nothing_is_left(self, but: str = "") -> None:
        left = [job["id"] for job in self.service.jobs() if job["lifecycleState"] not in {"DELETED", "DELETING"}]
        assert left == ([but] if but else [])
        ended = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}
        assert {run["lifecycleState"] for run in self.service.job_runs()} <= ended
        assert self.service.objects("work/smoke-") == []
        made = [call["body"]["name"] for call in self.service.calls("create_bucket") if call["status"] == 200]
        deleted = [
            call["path"].rpartition("/")[2] for call in self.service.calls("delete_bucket") if call["status"] == 204
        ]
        assert made == deleted
        policies = [len(self.service.calls(operation)) for operation in ("create_policy", "delete_policy")]
        assert policies[0] == policies[1]


@pytest.fixture
def smoke(tmp_path: Path) -> Iterator[Smoke]:
    with Service(tmp_path / "oci", start=warm.command("oci_service")) as service:
        yield Smoke(service, tmp_path)


def to_be_told() -> set[str]:
    from smoke_oci.guesses import GUESSES  # noqa: PLC0415 - beside what it is started as

    return {name for name, guess in GUESSES.items() if guess.rung}


# First, with the longest of all first.
@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("controls", "wrong"),
    [
        (
            {"flipped": ["environment-together", "delete-at-once", "image-arguments", "exit-no-program", "groups-end"]},
            {"environment-together", "delete-at-once", "image-arguments", "exit-no-program", "groups-end"},
        ),
        (
            {"rank_counting": "restart", "own_run_ocids": True, "flipped": ["token-body", "deleted-listed", "log-id"]},
            {"groups-rank", "groups-run-ocid", "token-body", "deleted-listed", "log-id"},
        ),
        (
            {
                "cancel_grace_s": 0,
                "policy_late_s": 2,
                "flipped": ["job-active", "details-image", "groups-order", "storage-bounds"],
            },
            {"cancel-term", "policy-at-once", "job-active", "details-image", "groups-order", "storage-bounds"},
        ),
        (
            {"flipped": ["list-order", "errors-invalid", "flex-config", "shapes-table", "groups-details", "log-maker"]},
            {"list-order", "errors-invalid", "flex-config", "shapes-table", "groups-details", "log-maker"},
        ),
        (
            {"flipped": ["errors-cancel", "principal-files", "details-runtime", "groups-file", "groups-states"]},
            {"errors-cancel", "principal-files", "details-runtime", "groups-file", "groups-states"},
        ),
    ],
    ids=["ends", "tokens and ranks", "states", "refusals", "files"],
)
def test_the_guesses_that_are_wrong_are_those_that_it_reports(
    smoke: Smoke, controls: dict[str, Any], wrong: set[str]
) -> None:
    """Of a stand-in in which some are turned around; the others are right, but where one hides what would tell."""
    smoke.service.control(controls)
    code, said = smoke.climb("--yes")
    assert code == 1, said
    verdicts = smoke.verdicts()
    assert {name for name, verdict in verdicts.items() if verdict == "WRONG"} == wrong, smoke.text()
    unknown = {name for name, verdict in verdicts.items() if verdict == "could not tell"}
    expected = {"principal-files", "first-process"} if "image-arguments" in wrong else set()
    assert unknown == expected | ({"groups-file"} if "groups-order" in wrong else set()), smoke.text()
    assert f"{len(wrong)} wrong: " in said
    smoke.assert_nothing_is_left()


@pytest.mark.timeout(400)
def test_every_guess_is_resolved(smoke: Smoke) -> None:
    """Those that it lists as testable: all are right of the stand-in that the guesses describe."""
    code, said = smoke.climb("--yes")
    assert code == 0, said + smoke.text()
    verdicts = smoke.verdicts()
    assert {name for name, verdict in verdicts.items() if verdict == "right"} == to_be_told(), smoke.text()
    assert set(verdicts.values()) == {"right", "not tested"}
    smoke.assert_nothing_is_left()


def of_somebody_else(smoke: Smoke, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have another person's ladder be there; return its Job."""
    import oci  # noqa: PLC0415 - see above

    for name, value in smoke.service.environ.items():
        monkeypatch.setenv(name, value)
    client = oci.data_science.DataScienceClient(oci.config.from_file(smoke.service.environ["OCI_CLI_CONFIG_FILE"]))
    settings = smoke.service.settings
    body = {
        "compartmentId": settings["COMPARTMENT_OCID"],
        "projectId": settings["PROJECT_OCID"],
        "freeformTags": {"oci-cluster-smoke": "smoke-00000000", "oci-cluster-smoke-owner": "somebody else"},
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "ME_STANDALONE",
            "shapeName": "VM.Standard2.1",
            "blockStorageSizeInGBs": 50,
        },
        "jobConfigurationDetails": {"jobType": "DEFAULT"},
    }
    return str(client.create_job(body).data.id)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_nothing_stays_of_one_that_is_ended_in_the_middle(
    smoke: Smoke, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cleans up after itself; what a killed one leaves is found by its tags, and removed by the next."""
    other = of_somebody_else(smoke, monkeypatch)
    process = smoke.start("--yes")
    wait_until(lambda: any("wait-" in name for name in smoke.service.objects("work/smoke-")), "a node that tells")
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    if number == signal.SIGINT:
        assert process.returncode == 143, said
        assert "`cancel-term`" in smoke.text()
    else:
        assert {run["lifecycleState"] for run in smoke.service.job_runs()} & {"IN_PROGRESS"}
        code, said = smoke.climb("--only-remove")
        assert code == 0, said
    smoke.assert_nothing_is_left(but=other)


def test_nothing_is_sent_before_somebody_has_agreed(smoke: Smoke) -> None:
    """Time and money are shown first; without a terminal it takes --yes, without a list price one's own."""
    code, said = smoke.climb()
    assert code == 78
    assert "at most 13 nodes of VM.Standard.E4.Flex (4 OCPUs, 64 GB), 10 minutes each" in said
    assert re.search(r"at most \$\d+\.\d\d, with \$0\.1960 for a node and hour", said)
    assert "add --yes" in said
    code, said = smoke.climb("--yes", SHAPE="BM.GPU.H100.8", OCPUS="0", MEMORY_GBS="0")
    assert (code, "say yours with --price-per-hour" in said) == (78, True)
    code, said = smoke.climb("--yes", WORK_DIR="file:///work", STORAGE_MOUNTS="data=oci://b@n")
    assert (code, "nodes tell what they see in a bucket" in said) == (78, True)
    assert smoke.service.calls() == []


def test_reads_make_nothing(smoke: Smoke) -> None:
    """The first rung; what the others would tell is not known, and no guess is wrong for that."""
    code, said = smoke.climb("--yes", "--up-to", "reads")
    assert code == 0, said
    assert not smoke.service.jobs()
    assert {call["operation"].partition(".")[2] for call in smoke.service.calls()} <= {
        *("list_job_shapes", "list_jobs", "list_objects", "get_namespace", "head_object"),
        *("list_limit_values", "get_resource_availability", "list_availability_domains"),
        *("create_compute_capacity_report", "get_token", "get_manifest", "get_blob"),
    }
    assert set(smoke.verdicts().values()) == {"right", "could not tell", "not tested"}
