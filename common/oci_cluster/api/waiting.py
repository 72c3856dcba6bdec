"""How a program waits for a cluster: for ready, for its end, with an end to its patience."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from oci_cluster.api.messages import Messages
from oci_cluster.api.running import Bell, Running
from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.polling import poll_delays
from oci_cluster.errors import ClusterFailedError, ExitCode, StoppedError, TimedOutError
from oci_cluster.launcher.follow import Follower
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.report import FAILED, GONE

_NODE = re.compile(r"(MAIN|(?:WORKER|PS)_\d+)\b")


def wait_for_ready(
    acting: tuple[Backend, Lifecycle], cluster: Cluster, running: Running | None, timeout_s: float | None, say: Messages
) -> bool:
    """Return whether *cluster* is ready; False: it has ended.

    Raises:
        TimedOutError: neither within *timeout_s*.
        ClusterError: nobody may see how far it is.
    """
    if running is None:
        return _follow_until_ready(acting[0], cluster, timeout_s, say)
    if not running.wait(lambda: running.has_begun, timeout_s):
        raise _too_late(cluster, timeout_s, "is not ready")
    return running.is_ready


def _follow_until_ready(backend: Backend, cluster: Cluster, timeout_s: float | None, say: Messages) -> bool:
    """Look at a cluster that this process does not follow, as ``launch.sh --detach --wait`` does."""
    deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s

    def check() -> None:
        if time.monotonic() > deadline:
            raise _too_late(cluster, timeout_s, "is not ready")

    plan = backend.load(cluster)  # in this thread, which from here on sees what its nodes tell
    return Follower(backend, cluster, plan, say=say, signals=Bell(check)).until_ready() is None


def wait_for_end(
    acting: tuple[Backend, Lifecycle],
    cluster: Cluster,
    running: Running | None,
    timeout_s: float | None,
    details: Callable[[], Mapping[str, Any]],
) -> int:
    """Return 0 when *cluster* has ended with success; *details* tells all that is known of it.

    Raises:
        TimedOutError: it has not ended within *timeout_s*.
        StoppedError: it was ended on purpose.
        ClusterFailedError: it has ended with another code.
        BaseException: what kept this process from following it.
    """
    if running is not None:
        if not running.wait(lambda: running.is_over, timeout_s):
            raise _too_late(cluster, timeout_s, "has not ended")
        if running.failure is not None:
            raise running.failure
    else:
        _look_until_end(acting, cluster, timeout_s)
    found = details()
    if found["state"] == GONE:
        raise _failed(cluster, ExitCode.LOST, found)
    code = int(found["exit_code"]) if running is None or running.code is None else running.code
    if code:
        raise _failed(cluster, code, found)
    return code


def _look_until_end(acting: tuple[Backend, Lifecycle], cluster: Cluster, timeout_s: float | None) -> None:
    backend, lifecycle = acting
    deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    pause = threading.Event()
    for delay in poll_delays(max(backend.poll_s, 1.0), first_s=backend.poll_s):
        if not lifecycle.is_running(cluster):
            return
        if time.monotonic() > deadline:
            raise _too_late(cluster, timeout_s, "has not ended")
        pause.wait(delay)


def _too_late(cluster: Cluster, timeout_s: float | None, what: str) -> TimedOutError:
    msg = f"{cluster.name} {what} after {timeout_s:g} s, and goes on; wait again, or end it: down()"
    return TimedOutError(msg)


def _failed(cluster: Cluster, code: int, found: Mapping[str, Any]) -> ClusterFailedError | StoppedError:
    reason = str(found.get("reason") or found.get("unreadable") or "nobody has told why")
    if code == ExitCode.STOPPED and found["state"] != FAILED:
        return StoppedError(f"{cluster.name} was ended: {reason}")
    named = _NODE.match(reason)
    failed = [node["node"] for node in found["nodes"] if node.get("exit_code") == code]
    node = named[1] if named else (failed[0] if len(failed) == 1 else "")
    msg = f"{cluster.name} ended with {code} ({reason}); what its nodes have printed: logs()"
    return ClusterFailedError(msg, exit_code=code, reason=reason, node=node)
