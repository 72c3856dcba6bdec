"""What ends a way whose process was killed: ssh, its key, and the sessions of its bastion."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oci_cluster.errors import ClusterError
from oci_cluster.system.guard import wait

if TYPE_CHECKING:
    from oci_cluster.backends.oci.bastion import Sessions

# A request of the killed process may still be on its way: so long its session is looked for. As for Jobs.
_APPEARS_S = 10.0
# How long all is tried; then the sessions end by themselves, after three hours at most.
_PATIENCE_S = 600.0
_LOOK_S = 1.0


def main(arguments: Sequence[str]) -> None:
    """Wait, and clean up: ``DIRECTORY [BASTION NAME]``. Who asks OCI, the environment says."""
    directory, *of_bastion = arguments
    if not wait():
        return
    shutil.rmtree(directory, ignore_errors=True)
    if of_bastion:
        from oci_cluster.backends.oci.bastion import Sessions  # noqa: PLC0415 - with the SDK: when it is needed
        from oci_cluster.backends.oci.service import Service  # noqa: PLC0415

        end_sessions(Sessions(Service(os.environ), *of_bastion))


def end_sessions(sessions: Sessions) -> None:
    """Delete all *sessions*, and those that appear in the next seconds."""
    began = time.monotonic()
    while True:
        time_s = time.monotonic() - began
        try:
            going = sessions.going()
            for session in going:
                sessions.delete(session.id)
            if not going and time_s > _APPEARS_S:
                return
        except ClusterError:
            if time_s > _PATIENCE_S:
                raise
        time.sleep(_LOOK_S)
