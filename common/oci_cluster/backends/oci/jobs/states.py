"""Jobs and Job Runs of Data Science, as clusters and states of nodes.

Whoever may write in the compartment can write tags: none of them is a name before it has been checked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.backends.oci.errors import run_advice
from oci_cluster.backends.oci.jobs.requests import (
    TAG_CODE,
    TAG_FRAMEWORK,
    TAG_LAUNCH,
    TAG_NAME,
    TAG_NODE,
    TAG_PROJECT,
    TAG_SIZE,
    TAG_STYLE,
)
from oci_cluster.contract.cluster import Cluster, NodeState, Plan, State, limits_of, planned_nodes
from oci_cluster.contract.files import untrusted_work_dir
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import exit_file, rank_of
from oci_cluster.contract.outcome import outcome_of
from oci_cluster.contract.parsers import parse_count, parse_name
from oci_cluster.contract.settings.settings_files import SettingsReader
from oci_cluster.errors import ClusterError, ExitCode, SettingsError, UsageError
from oci_cluster.system.text import printable, seconds_since

if TYPE_CHECKING:
    from oci_cluster.backends.oci.jobs.client import Jobs

ENDED = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}
# Source: OCI's documentation of Job Runs.
CAN_BE_CANCELED = ("ACCEPTED", "IN_PROGRESS", "NEEDS_ATTENTION")
# The groups that a Job with node groups has, by the roles of their nodes.
_GROUPS = {"MAIN": "main", "WORKER": "worker", "PS": "ps"}
_GONE = {"DELETING", "DELETED"}
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_NODE = re.compile(r"MAIN|(WORKER|PS)_[1-9][0-9]{0,5}")
_LAUNCH_ID = re.compile(r"[0-9a-f]{8}")
_SIZE = re.compile(r"\d{1,4}")
_EXIT_CODE = re.compile(r"exit code (\d{1,3})\b")
# Whose code is known though the service tells none.
_CODES = {State.SUCCEEDED: ExitCode.OK, State.CANCELED: ExitCode.STOPPED, State.DELETED: ExitCode.LOST}


def is_cluster(job: Any) -> bool:
    """Return whether a listed *job* is a cluster: anybody may write its tags."""
    tags = job.freeform_tags or {}
    has_launch = _LAUNCH_ID.fullmatch(tags.get(TAG_LAUNCH, "")) is not None
    return not is_gone(job) and _is_name(tags.get(TAG_NAME, "")) and has_launch


def is_gone(job: Any) -> bool:
    """Return whether *job*, as a list has it, has been deleted."""
    return job.lifecycle_state in _GONE


def age_s(job: Any) -> int:
    """Return for how many seconds *job* has been there, by this machine's clock."""
    return seconds_since(job.time_created.strftime(_TIME))


def _is_name(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(parse_name(text))
    return False


def cluster_of(job: Any, clusters_dir: Path) -> Cluster:
    """Return the cluster of a listed *job*."""
    tags = job.freeform_tags
    cluster = Cluster(
        name=tags[TAG_NAME],
        launch_id=tags[TAG_LAUNCH],
        framework=printable(tags.get(TAG_FRAMEWORK, "")),
        backend="oci",
        created=job.time_created.strftime(_TIME),
        project=printable(tags.get(TAG_PROJECT, "")),
        directory=clusters_dir,
        handle=str(job.id),
        style=tags.get(TAG_STYLE, "runs"),
    )
    return replace(cluster, directory=clusters_dir / cluster.cluster_id)


def users_of_code(jobs: Sequence[Any], digest: str, removed: str) -> list[str]:
    """Return the clusters of *jobs* that may use an archive of code.

    A Job that has ended counts: somebody may start a run of it. So does one without the tag, of an older launcher. The
    Job *removed* does not.
    """
    others = [job for job in jobs if job.id != removed]
    return [job.freeform_tags[TAG_NAME] for job in others if job.freeform_tags.get(TAG_CODE, digest) == digest]


def plan_of(cluster: Cluster, job: Any, root: Path, max_workers: int, own: Collection[str] = ()) -> Plan:
    """Return the plan of *cluster* by its *job*; *own* are the reader's work dirs."""
    details = job.job_configuration_details
    if groups := getattr(job.job_node_configuration_details, "job_node_group_configuration_details_list", None):
        details = groups[0].job_configuration_details
    environment = dict(getattr(details, "environment_variables", None) or {})
    problem = f"the Job of {cluster.name} ({cluster.handle}) is not one that launch.sh has made"
    if environment.get("CLUSTER_ID") != cluster.cluster_id or not environment.get("WORK_DIR"):
        raise UsageError(problem)
    framework = cluster.framework if _is_name(cluster.framework) else "none"
    read = SettingsReader(environment)
    workers, servers = (
        read.value(name, lambda text: parse_count(text, maximum=max_workers), 0)
        for name in ("WORKER_COUNT", "PS_COUNT")
    )
    if read.problems:
        raise UsageError(f"{problem}: {printable('; '.join(read.problems))}")
    try:
        limits = limits_of(environment, root / framework)
    except SettingsError as error:
        raise UsageError(f"{problem}: {printable(error)}") from error
    log_group = getattr(getattr(job, "job_log_configuration_details", None), "log_group_id", None)
    return Plan(
        **cluster.head,
        nodes=planned_nodes(workers, servers),
        environment=environment,
        settings={},
        limits=limits,
        work_dir=untrusted_work_dir.checked(environment["WORK_DIR"], own, f"the Job of {cluster.name}"),
        placed={
            "job": cluster.handle,
            "compartment": str(job.compartment_id),
            "project": str(job.project_id),
            "log_group": log_group or "",
            "style": cluster.style,
        },
    )


def is_going(run: Any) -> bool:
    """Return whether *run* has not ended."""
    return word_of(run) not in ENDED


def word_of(run: Any) -> str:
    """Return the word for the state of *run*; a known one."""
    word = str(run.lifecycle_state)
    if word in State.__members__:
        return word
    return "IN_PROGRESS" if getattr(run, "time_finished", None) is None else "FAILED"


def node_of(run: Any) -> str:
    """Return the node that *run* is; empty where its tags name none."""
    name = (run.freeform_tags or {}).get(TAG_NODE, "")
    return name if _NODE.fullmatch(name) else ""


def states_of_runs(runs: Sequence[Any], created: Mapping[str, str]) -> list[NodeState]:
    """Return the nodes whose last runs these are, by rank.

    A list may not hold yet what this launcher has *created*, by node: those have not ended.
    """
    latest = {name: run for run in sorted(runs, key=_age) if (name := node_of(run))}
    found = {name: _state_of(name, run) for name, run in latest.items()}
    known = {run.id for run in runs}
    found |= {name: unlisted(name, ocid) for name, ocid in created.items() if ocid not in known}
    return sorted(found.values(), key=lambda state: rank_of(state.node))


def unlisted(node: str, run: str = "") -> NodeState:
    """Return the state of a *node* whose *run* no list has yet."""
    return NodeState(node, State.ACCEPTED, id=run, is_waiting=True)


def state_of_group(runs: Sequence[Any], created: Mapping[str, str]) -> NodeState | None:
    """Return the state of the run of all nodes, as main's; None without one."""
    if runs:
        return _state_of("MAIN", max(runs, key=_age))
    return next((unlisted("MAIN", run) for run in created.values()), None)


def size_of_group(runs: Sequence[Any]) -> int:
    """Return how many nodes the last of *runs* says to have."""
    size = (max(runs, key=_age).freeform_tags or {}).get(TAG_SIZE, "") if runs else ""
    return int(size) if _SIZE.fullmatch(size) else 1


def _age(run: Any) -> tuple[str, str]:
    """Return the sort key of a run; a new one may have no time."""
    return (run.time_accepted.isoformat() if run.time_accepted else "9999", run.id)


def _state_of(name: str, run: Any) -> NodeState:
    state = State(word_of(run))
    details = _details_of(run)
    code: int | None = _CODES.get(state)
    has_started = getattr(run, "time_started", None) is not None
    is_waiting = state is State.ACCEPTED or (state is State.NEEDS_ATTENTION and not has_started)
    never_started = state is State.CANCELED and not has_started
    if state is State.FAILED:
        told = _EXIT_CODE.search(details)
        # Without a code of its own it never ran: no image, no capacity. That is no exit code of anybody's script.
        never_started = told is None
        code = int(told[1]) if told and 1 <= int(told[1]) <= 255 else ExitCode.UNAVAILABLE
        if never_started and (advice := run_advice(details)):
            details = f"{details}; {advice}"
    return NodeState(
        name,
        state,
        exit_code=None if code is None else int(code),
        id=str(run.id),
        details=details,
        never_started=never_started,
        is_waiting=is_waiting,
        accepted=run.time_accepted.strftime(_TIME) if run.time_accepted else "",
    )


def _details_of(run: Any) -> str:
    """Return what the service says of *run*, and of its groups that have failed."""
    groups = getattr(run, "node_group_details_list", None) or []
    failed = [group for group in groups if group.lifecycle_state == "FAILED"]
    told = [f"node group {printable(group.name)}: {printable(group.lifecycle_details or 'FAILED')}" for group in failed]
    return "; ".join(filter(None, [printable(run.lifecycle_details or ""), *told]))


def nodes_of(jobs: Jobs, plan: Plan, whole: NodeState, run: Any) -> list[NodeState]:
    """Return the nodes of *plan* that share *run*: their files tell their ends.

    Of a run that has failed, a list does not tell the groups.
    """
    if whole.state is State.FAILED and not hasattr(run, "node_group_details_list"):
        run = jobs.run(run.id) or run
        whole = _state_of(whole.node, run)
    nodes = nodes_of_group(plan.node_names, whole, run)
    if whole.exit_code is None or whole.never_started or whole.state is State.SUCCEEDED:
        return nodes
    cluster_dir = ClusterDir(plan.url, plan.launch_id, plan.launch_key)
    return [_as_told(state, cluster_dir) for state in nodes]


def nodes_of_group(names: Sequence[str], whole: NodeState, run: Any) -> list[NodeState]:
    """Return the nodes *names* of one run, by the *whole* state and its groups."""
    groups = {group.name: group for group in getattr(run, "node_group_details_list", None) or []}
    found = []
    for name in names:
        group = groups.get(_GROUPS[name.partition("_")[0]])
        state = replace(whole, node=name)
        if whole.state is State.IN_PROGRESS and group is not None and group.lifecycle_state == "CREATING":
            state = replace(state, state=State.ACCEPTED, is_waiting=True)
        found.append(state)
    return found


def _as_told(state: NodeState, cluster_dir: ClusterDir) -> NodeState:
    """Return *state* with the exit code that the node has left, if any."""
    with contextlib.suppress(ClusterError):
        if (said := cluster_dir.read(exit_file(state.node))) is not None:
            code = outcome_of(said).exit_code
            # Main's 0 does not make a success of a run that the service calls failed; of one that was canceled when
            # main had ended, because another node never started, it does.
            if code or state.node != "MAIN" or state.state is State.CANCELED:
                return replace(state, exit_code=code)
    return state
