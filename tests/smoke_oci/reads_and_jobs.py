"""The rungs that cost nothing: reads, and Jobs that have no nodes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from smoke_oci.guesses import Findings
from smoke_oci.tenancy import Refused, Tenancy, request_id

# The table of tests/oci_service/data_science.py: OCPUs and GB of memory, of flexible shapes the most.
SHAPES = {
    "VM.Standard2.1": (1, 15),
    "VM.Standard2.4": (4, 60),
    "VM.Standard3.Flex": (32, 512),
    "VM.Standard.E4.Flex": (64, 1024),
    "VM.Standard.E5.Flex": (94, 1049),
    "VM.GPU2.1": (12, 72),
    "VM.GPU3.1": (6, 90),
    "VM.GPU.A10.1": (15, 240),
    "VM.GPU.A10.2": (30, 480),
}
_FLEX = "VM.Standard.E4.Flex"
# Of the 20,000 that a Job may have: two such parts are more.
_HALF = 11_000


def reads(tenancy: Tenancy, findings: Findings) -> None:
    """Ask for what there is."""
    client, compartment = tenancy.service.data_science, tenancy.settings["compartment"]
    response = tenancy.ask("list the shapes", client.list_job_shapes, compartment)
    date = response.headers.get("date")
    findings.note(
        "answers-date", is_right=bool(date), evidence=f"Date: {date or 'none'}", request_id=request_id(response)
    )
    found = {shape.name: (shape.core_count, shape.memory_in_gbs) for shape in response.data}
    other = [
        f"{name} is {found.get(name) or 'not there'}" for name, size in SHAPES.items() if found.get(name, ()) != size
    ]
    evidence = "; ".join(other) or f"{len(found)} shapes, and those of the table among them"
    findings.note("shapes-table", is_right=not other, evidence=evidence, request_id=request_id(response))


def jobs(tenancy: Tenancy, findings: Findings) -> None:
    """Make Jobs, or have them refused: a Job without runs costs nothing."""
    first = tenancy.create_job(tenancy.body("job-1"))
    state = first.data.lifecycle_state
    findings.note("job-active", is_right=state == "ACTIVE", evidence=f"it is {state}", request_id=request_id(first))
    second = tenancy.create_job(tenancy.body("job-2"))
    _order(tenancy, findings, first.data.id, second.data.id)
    _refusals(tenancy, findings)
    _tokens(tenancy, findings)
    _environment(tenancy, findings)
    _deletion(tenancy, findings, second.data.id)


def _order(tenancy: Tenancy, findings: Findings, first: str, second: str) -> None:
    client, compartment = tenancy.service.data_science, tenancy.settings["compartment"]

    def both() -> tuple[list[str], str] | None:
        # The second before this look may be that of the first.
        response = tenancy.ask("list the Jobs", client.list_jobs, compartment, limit=100)
        found = [job.id for job in response.data if job.id in {first, second}]
        return (found, request_id(response)) if len(found) == 2 else None

    listed = tenancy.until(both, minutes=1)
    is_right = listed[0] == [second, first] if listed else None
    evidence = "of two Jobs, the second is listed first" if is_right else f"the order is {listed and listed[0]}"
    findings.note("list-order", is_right=is_right, evidence=evidence, request_id=listed[1] if listed else "")


def _refusals(tenancy: Tenancy, findings: Findings) -> None:
    def try_to(guess: str, what: Callable[[], Any], is_right: Callable[[Refused], bool]) -> None:
        try:
            response = what()
        except Refused as refused:
            evidence = f"{refused.status} {refused.code}: {refused}"
            findings.note(guess, is_right=is_right(refused), evidence=evidence, request_id=refused.request_id)
        else:
            evidence = f"it was accepted: {response.data.id}"
            findings.note(guess, is_right=False, evidence=evidence, request_id=request_id(response))

    def job(name: str, **infrastructure: Any) -> Callable[[], Any]:
        return lambda: tenancy.create_job(tenancy.body(name, jobInfrastructureConfigurationDetails=infrastructure))

    def is_400(refused: Refused) -> bool:
        return refused.status == 400

    def is_invalid(refused: Refused) -> bool:
        return (refused.status, refused.code) == (400, "InvalidParameter")

    try_to("errors-invalid", job("no-shape", shapeName="VM.NoSuchShape.1"), is_invalid)
    try_to("storage-bounds", job("storage", blockStorageSizeInGBs=49), is_400)
    try_to("flex-config", job("flex", shapeName=_FLEX, jobShapeConfigDetails=None), is_400)


def _tokens(tenancy: Tenancy, findings: Findings) -> None:
    token = f"{tenancy.name}-{secrets.token_hex(4)}"
    first = tenancy.create_job(tenancy.body("token-1"), token)
    try:
        second = tenancy.create_job(tenancy.body("token-2"), token)
    except Refused as refused:
        evidence = f"{refused.status} {refused.code}"
        findings.note("token-body", is_right=refused.status == 409, evidence=evidence, request_id=refused.request_id)
    else:
        is_same = second.data.id == first.data.id
        evidence = f"accepted: {'the first Job once more' if is_same else 'another Job'}"
        findings.note("token-body", is_right=False, evidence=evidence, request_id=request_id(second))


def _environment(tenancy: Tenancy, findings: Findings) -> None:
    parts = [{"jobType": "DEFAULT", "environmentVariables": {name: "x" * _HALF}} for name in ("A", "B")]
    # One that is accepted all the same runs nothing, and is ended at once.
    job = tenancy.create_job(
        tenancy.body(
            "environment",
            jobConfigurationDetails=parts[0],
            jobEnvironmentConfigurationDetails=tenancy.command("/bin/true"),
        )
    )
    try:
        run = tenancy.create_run(job.data.id, jobConfigurationOverrideDetails=parts[1])
    except Refused as refused:
        evidence = f"{2 * _HALF} characters: {refused.status} {refused.code}"
        findings.note(
            "environment-together", is_right=refused.status == 400, evidence=evidence, request_id=refused.request_id
        )
    else:
        tenancy.cancel(run.data.id)
        evidence = f"a run with {2 * _HALF} characters in all was accepted"
        findings.note("environment-together", is_right=False, evidence=evidence, request_id=request_id(run))


def _deletion(tenancy: Tenancy, findings: Findings, job: str) -> None:
    client, compartment = tenancy.service.data_science, tenancy.settings["compartment"]
    deleted = tenancy.ask("delete a Job", client.delete_job, job, delete_related_job_runs=True)
    try:
        state = tenancy.ask("look at a Job", client.get_job, job).data.lifecycle_state
    except Refused as refused:
        state = f"not there ({refused.status})"
    is_gone = state == "DELETED" or state.startswith("not")
    findings.note("delete-at-once", is_right=is_gone, evidence=f"it is {state}", request_id=request_id(deleted))

    def gone() -> bool:
        try:
            return bool(tenancy.ask("look at a Job", client.get_job, job).data.lifecycle_state == "DELETED")
        except Refused:
            return True

    tenancy.until(gone, minutes=5)
    listed = tenancy.service.all_pages("list the Jobs", client.list_jobs, compartment)
    found = next((item.lifecycle_state for item in listed if item.id == job), None)
    evidence = f"listed as {found}" if found else "a list has it no more"
    findings.note("deleted-listed", is_right=found == "DELETED", evidence=evidence)
