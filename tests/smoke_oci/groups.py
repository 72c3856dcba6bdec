"""The last rung: main and two workers that the service starts."""

from __future__ import annotations

from typing import Any

from smoke_oci.guesses import Findings
from smoke_oci.tenancy import Tenancy, names, request_id

# How far the clocks of two nodes are apart at most, as far as the order of starts is told by them.
_CLOCKS_S = 0.5


def groups(tenancy: Tenancy, findings: Findings, ready_s: float) -> None:
    """Run them twice: once to their end, once with workers that fail."""
    job = tenancy.create_job(tenancy.groups_body("groups", "group", ready_s)).data.id
    ended = tenancy.ended(tenancy.create_run(job).data.id)
    main, workers = tenancy.told("groups", "main"), tenancy.told("groups", "worker")
    if len(main) != 1 or len(workers) != 2:
        said = f": {ended.data.lifecycle_state}: {ended.data.lifecycle_details}" if ended else ""
        evidence = f"{len(main)} main and {len(workers)} workers have told something in WORK_DIR{said}"
        for guess in ("groups-file", "groups-rank", "groups-run-ocid", "groups-order", "groups-end", "groups-states"):
            findings.note(guess, is_right=None, evidence=evidence)
    else:
        _told(findings, main[0], workers, request_id(ended) if ended else "")
        if ended:
            _ended(findings, ended, main[0], workers)
    job = tenancy.create_job(tenancy.groups_body("failing", "group-fails", ready_s)).data.id
    ended = tenancy.ended(tenancy.create_run(job).data.id)
    details = ended.data.lifecycle_details if ended else ""
    is_right = "exit code 5" in details and "'worker'" in details if ended else None
    evidence = details or "the run did not end in time"
    findings.note("groups-details", is_right=is_right, evidence=evidence, request_id=request_id(ended) if ended else "")


def _told(findings: Findings, main: dict[str, Any], workers: list[dict[str, Any]], own_id: str) -> None:
    def note(guess: str, evidence: str, *, is_right: bool | None) -> None:
        findings.note(guess, is_right=is_right, evidence=evidence, request_id=own_id)

    after_s = min(names(workers, "started")) - main["ready"]
    evidence = f"the first worker began {after_s:.1f} s after main's probe could succeed"
    is_in_order = after_s >= -_CLOCKS_S
    note("groups-order", evidence, is_right=is_in_order)
    # Of nodes that begin side by side, nobody can see how the list grows.
    is_growing = any(0 < size < 3 for size in main["sizes"])
    evidence = f"main saw lists of {main['sizes']} nodes"
    note("groups-file", evidence, is_right=is_growing if is_in_order or is_growing else None)
    ranks = [main["rank"], *sorted(names(workers, "rank"))]
    listed = [sorted(rank for rank, _ in node["nodes"]) for node in (main, *workers) if node.get("nodes")]
    is_through = ranks == ["0", "1", "2"] and all(seen == [0, 1, 2] for seen in listed)
    note("groups-rank", f"NODE_RANK is {ranks}, in the files {listed}", is_right=is_through)
    runs = {node["run"] for node in (main, *workers)}
    note("groups-run-ocid", f"{len(runs)} for three nodes: {', '.join(sorted(runs))}", is_right=len(runs) == 1)


def _ended(findings: Findings, ended: Any, main: dict[str, Any], workers: list[dict[str, Any]]) -> None:
    left = [node["name"] for node in (main, *workers) if "left" in node]
    cut_short = [node for node in workers if "beat" in node and "done" not in node]
    state = ended.data.lifecycle_state
    if sorted(left) == ["main", "worker"]:
        how = ("with TERM" if any("term" in node for node in cut_short) else "without TERM") if cut_short else ""
        stayed = f"was cut short {how}" if cut_short else "was not ended"
        evidence = f"main and a worker have left by themselves; the other worker {stayed}; the run is {state}"
        is_right = state == "SUCCEEDED" and len(cut_short) == 1
    else:
        # One of them has failed, which says nothing of how the service ends those that have not.
        evidence = f"not main and a worker have left by themselves, but {' and '.join(left) or 'none'}"
        evidence += f", of workers that saw {names(workers, 'seen')}"
        evidence, is_right = f"{evidence}; the run is {state}: {ended.data.lifecycle_details}", None
    findings.note("groups-end", is_right=is_right, evidence=evidence, request_id=request_id(ended))
    found = {group.name: group.lifecycle_state for group in ended.data.node_group_details_list or []}
    is_deleted = set(found.values()) == {"DELETED"}
    findings.note("groups-states", is_right=is_deleted, evidence=str(found or "none"), request_id=request_id(ended))
