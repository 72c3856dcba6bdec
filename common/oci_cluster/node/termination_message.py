"""Reports of a node without a cluster dir: a small file, and log lines.

A file of the cluster dir, as its node has signed it, stands in one line after its name. Whoever has the launch's key
checks it as any file of the cluster dir.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import STOP, exit_file, node_name
from oci_cluster.contract.outcome import Outcome, exit_fields, stop_fields
from oci_cluster.contract.settings.node import role_and_rank
from oci_cluster.contract.settings.settings_files import SettingsReader
from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.system.text import printable

log = logging.getLogger("agent")
# Its lines stand in the log as they are, without a time before them.
_told = logging.getLogger("told")

# Kubernetes keeps so much of such a file.
MAX_BYTES = 4096
# Readers show no more of a reason.
_MAX_REASON = 1000
# A pipe takes so much in one piece: the script prints into it, too.
_MAX_LINE = 4000

Sign = Callable[..., tuple[bytes, int]]


def tell(cluster_dir: ClusterDir, name: str, **fields: Any) -> None:
    """Print the file *name* with its *fields* in the log, if short enough."""
    for told in (fields, {}):
        line = f"told {name} {cluster_dir.signed(name, **told)[0].decode()}"
        if len(line) <= _MAX_LINE:
            _told.info("%s", line)
            return


def write(path: str, cluster_dir: ClusterDir, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the signed *files* to *path*; what cannot be written ends nothing."""
    try:
        # The file may be mounted: it is neither replaced nor waited for.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_fitting(cluster_dir.signed, files))
    except OSError as error:
        log.warning("TERMINATION_LOG %s cannot be written: %s", path, error.strerror)


def _fitting(sign: Sign, files: Mapping[str, Mapping[str, Any]]) -> bytes:
    def lines(most: int) -> bytes:
        return b"".join(
            b"%s %s\n" % (name.encode(), sign(name, **{**fields, "reason": _cut(str(fields["reason"]), most)})[0])
            for name, fields in files.items()
        )

    return lines(bisect_right(range(1, _MAX_REASON + 1), MAX_BYTES, key=lambda most: len(lines(most))))


def _cut(reason: str, most: int) -> str:
    reason = printable(reason, _MAX_REASON)
    return reason if len(reason) <= most else f"{reason[: max(0, most - 3)]}..."[:most]


def write_unstarted(environ: Mapping[str, str], error: BaseException) -> None:
    """Write the message of a node that an *error* ends before it starts."""
    outcome = Outcome(ExitCode.BUG, f"bug in the agent: {error!r}")
    if isinstance(error, ClusterError):
        outcome = Outcome(error.exit_code, str(error))
    elif isinstance(error, KeyboardInterrupt):
        outcome = Outcome(ExitCode.STOPPED, "stopped")
    read = SettingsReader(environ)
    path, launch_id, launch_key = map(read.setting, ("TERMINATION_LOG", "LAUNCH_ID", "LAUNCH_KEY"))
    mode, rank = role_and_rank(read)
    wrong = {problem.setting for problem in read.problems}
    if not path or wrong & {"LAUNCH_ID", "MODE", "NODE_RANK", "JOB_COMPLETION_INDEX"}:
        return  # nobody could tell of which launch, or node, it is
    # No file of it is opened: it signs.
    cluster_dir = ClusterDir("file:///", launch_id, launch_key)
    files = {exit_file(node_name(mode, rank)): exit_fields(outcome, time=time.time())}
    write(path, cluster_dir, {**files, STOP: stop_fields(outcome)} if mode == "MAIN" else files)
