"""The rungs with runs: of one node each, and two that meet."""

from __future__ import annotations

import contextlib
import datetime
import time
from typing import Any

from oci_cluster.backends.oci.logs import LogSearch
from smoke_oci.guesses import Findings
from smoke_oci.tenancy import Refused, Tenancy, request_id

# How long a run may outlast its first process until it counts as one that waits for the others, which stay 10 minutes.
_FIRST_S = 180.0
# Around the 10 s that the stand-in has: a node's beats come twice a second, and writing one takes a while.
_GRACE_S = (5.0, 20.0)
_LATE_S = 90.0


def one(tenancy: Tenancy, findings: Findings) -> None:
    """Run five nodes of one each, side by side, and see how they end."""
    words = ("smoke", "a b")
    report = {"jobType": "DEFAULT", "environmentVariables": tenancy.variables("report", "report")}
    report |= {"maximumRuntimeInMinutes": 10, "commandLineArguments": tenancy.arguments(*words)}
    own = tenancy.body("report", "report", jobConfigurationDetails=report)
    for part in ("entrypoint", "cmd"):
        own["jobEnvironmentConfigurationDetails"].pop(part, None)
    no_image = {"image": f"{tenancy.settings['image']}-no-such-tag", "imageDigest": None}
    bodies = {
        "report": own,
        "wait": tenancy.body("wait", "wait"),
        "no-program": tenancy.body(
            "no-program",
            "report",
            jobEnvironmentConfigurationDetails=tenancy.command("/no/such/program"),
        ),
        "no-image": tenancy.body("no-image", "report", jobEnvironmentConfigurationDetails=no_image),
    }
    runs = {name: tenancy.create_run(tenancy.create_job(body).data.id).data.id for name, body in bodies.items()}
    runs["long"] = _long(tenancy, findings)
    _canceled(tenancy, findings, runs["wait"])
    _reported(tenancy, findings, runs["report"], words)
    for guess, name, text in (
        ("exit-no-program", "no-program", "exit code 127"),
        ("details-image", "no-image", "Error pulling image"),
        ("details-runtime", "long", "exceeded its maximum runtime"),
    ):
        run = tenancy.ended(runs[name])
        details = f"{run.data.lifecycle_state}: {run.data.lifecycle_details}" if run else ""
        is_right = run.data.lifecycle_state == "FAILED" and text in details if run else None
        evidence = details or "the run did not end in time"
        findings.note(guess, is_right=is_right, evidence=evidence, request_id=request_id(run) if run else "")
    if "log-maker" not in findings.found:
        _who_made_the_log(tenancy, findings, runs["long"])


def _long(tenancy: Tenancy, findings: Findings) -> str:
    """Start the run that takes too long, with a log that nobody has made; without one where that is refused."""
    limit = {"jobConfigurationDetails": {"maximumRuntimeInMinutes": 1}}
    if group := tenancy.settings["log_group"]:
        logs = {"enableLogging": True, "enableAutoLogCreation": True, "logGroupId": group, "logId": None}
        try:
            job = tenancy.create_job(tenancy.body("logged", "wait", jobLogConfigurationDetails=logs, **limit))
            return str(tenancy.create_run(job.data.id).data.id)
        except Refused as refused:
            # A refusal of another kind says nothing of who may make logs.
            is_right = False if refused.status in {401, 403, 404} else None
            evidence = f"refused to who launches: {refused.status} {refused.code}"
            findings.note("log-maker", is_right=is_right, evidence=evidence, request_id=refused.request_id)
    else:
        findings.note("log-maker", is_right=None, evidence="LOG_GROUP_OCID is not set")
    return str(tenancy.create_run(tenancy.create_job(tenancy.body("long", "wait", **limit)).data.id).data.id)


def _who_made_the_log(tenancy: Tenancy, findings: Findings, run: str) -> None:
    """Read it from the tag that tenancies give to all that is made; remove the log, where we may."""
    details = tenancy.run(run).data.log_details
    logging = tenancy.service.log_groups
    try:
        log = tenancy.ask("look at the log", logging.get_log, details.log_group_id, details.log_id)
    except Refused as refused:
        evidence = f"the run was accepted, and its log is not seen: {refused.status} {refused.code}"
        findings.note("log-maker", is_right=None, evidence=evidence, request_id=refused.request_id)
        return
    by = (log.data.defined_tags or {}).get("Oracle-Tags", {}).get("CreatedBy", "")
    is_right = run in by if by else None
    evidence = f"the log was made by {by}" if by else "the log has no tag Oracle-Tags.CreatedBy"
    findings.note("log-maker", is_right=is_right, evidence=evidence, request_id=request_id(log))
    with contextlib.suppress(Refused):
        tenancy.ask("delete the log", logging.delete_log, details.log_group_id, details.log_id)


def _canceled(tenancy: Tenancy, findings: Findings, run: str) -> None:
    if not tenancy.until(lambda: tenancy.told("wait", "wait")):
        findings.note("cancel-term", is_right=None, evidence=_why_silent(tenancy, run))
        return
    response = tenancy.cancel(run)
    ended = tenancy.ended(run)
    (seen,) = tenancy.told("wait", "wait")
    lasted_s = seen["beat"] - seen["term"] if "term" in seen else None
    is_right = lasted_s is not None and _GRACE_S[0] <= lasted_s <= _GRACE_S[1]
    evidence = "no TERM came" if lasted_s is None else f"it went on for {lasted_s:.1f} s after TERM"
    findings.note("cancel-term", is_right=is_right, evidence=evidence, request_id=request_id(response))
    if ended is None:
        return
    try:
        again = tenancy.cancel(run)
        findings.note("errors-cancel", is_right=False, evidence="it was accepted", request_id=request_id(again))
    except Refused as refused:
        is_right = (refused.status, refused.code) == (409, "IncorrectState")
        evidence = f"{refused.status} {refused.code}"
        findings.note("errors-cancel", is_right=is_right, evidence=evidence, request_id=refused.request_id)


def _why_silent(tenancy: Tenancy, run: str) -> str:
    found = tenancy.run(run).data
    return f"its node has told nothing in WORK_DIR; the run is {found.lifecycle_state}: {found.lifecycle_details}"


def _reported(tenancy: Tenancy, findings: Findings, run: str, words: tuple[str, ...]) -> None:
    ended = tenancy.ended(run)
    facts = tenancy.told("report", "report")
    own_id = request_id(ended) if ended else ""
    if not facts:
        # Other nodes have told something, with an entrypoint of their own: it is this image's that has not run.
        is_right = False if tenancy.told("wait") else None
        findings.note("image-arguments", is_right=is_right, evidence=_why_silent(tenancy, run), request_id=own_id)
        return
    (seen,) = facts
    evidence = f"its arguments are {seen['arguments']}"
    findings.note("image-arguments", is_right=seen["arguments"] == list(words), evidence=evidence, request_id=own_id)
    is_right = seen["version"] == "2.2" and all(seen["readable"])
    evidence = f"version {seen['version'] or 'none'}, files readable {seen['readable']}, user id {seen['uid']}"
    findings.note("principal-files", is_right=is_right, evidence=evidence, request_id=own_id)
    if ended is None or ended.data.time_finished is None:
        findings.note("first-process", is_right=None, evidence="the run did not end in time")
        return
    lasted_s = ended.data.time_finished.timestamp() - seen["started"]
    evidence = f"it ended {lasted_s:.0f} s after its first process began; another process stayed"
    findings.note("first-process", is_right=lasted_s < _FIRST_S, evidence=evidence, request_id=own_id)


def two(tenancy: Tenancy, findings: Findings) -> None:
    """Run two nodes that meet, and print a little."""
    names = ("first", "second")
    job = tenancy.create_job(tenancy.body("two", "meet")).data.id
    runs = {}
    for name in names:
        override = {"jobType": "DEFAULT", "environmentVariables": tenancy.variables("meet", name, "two")}
        runs[name] = tenancy.create_run(job, jobConfigurationOverrideDetails=override).data.id
    ended = [tenancy.ended(run) for run in runs.values()]
    ended_at = time.time()
    told = tenancy.told("two")
    reached = next((node["reached"] for node in told if "reached" in node), "")
    is_right = bool(reached) if len(told) == len(names) else None
    evidence = f"the second has reached the first at {reached}" if reached else "they have not met"
    own_id = request_id(ended[0]) if ended[0] else ""
    findings.note("runs-reach", is_right=is_right, evidence=evidence, request_id=own_id)
    if not (group := tenancy.settings["log_group"]):
        for guess in ("log-search-or", "log-id", "log-late"):
            findings.note(guess, is_right=None, evidence="LOG_GROUP_OCID is not set")
        return
    _searched(tenancy, findings, LogSearch(tenancy.service, tenancy.settings["compartment"], group), runs, ended_at)


def _searched(tenancy: Tenancy, findings: Findings, search: LogSearch, runs: dict[str, str], ended_at: float) -> None:
    """See when OCI Logging has the 20 lines of both runs, by the search that a launch makes."""
    expected = {f"smoke {name} {number}\n".encode() for name in runs for number in range(20)}
    found: list[Any] = []

    def is_all() -> bool:
        start = ended_at - 3600
        found[:] = [line for line in search.lines([*runs.values()], start) if line.text in expected]
        return {line.text for line in found} == expected

    try:
        is_there = tenancy.until(is_all, minutes=5)
    except Exception as error:  # noqa: BLE001 - whatever the service says of such a search is what is asked for
        findings.note("log-search-or", is_right=False, evidence=str(error))
        return
    late_s = time.time() - ended_at
    lines = {(line.run, line.text) for line in found}
    evidence = f"{len(lines)} of {len(expected)} lines of {len({line.run for line in found})} runs"
    findings.note("log-search-or", is_right=bool(is_there), evidence=evidence)
    at = f"{datetime.datetime.fromtimestamp(ended_at, datetime.timezone.utc):%H:%M:%S}Z"
    evidence = f"all lines were found {late_s:.0f} s after {at}, the end of the runs"
    findings.note("log-late", is_right=bool(is_there) and late_s <= _LATE_S, evidence=evidence)
    # Lines that were delivered twice have one id; lines that share one have other texts.
    shared = len({(line.run, line.key) for line in found}) < len(lines)
    evidence = f"{len(lines)} lines have {len({line.key for line in found})} ids"
    findings.note("log-id", is_right=not shared and bool(lines), evidence=evidence)
