"""`hosts`: Job Runs of the stand-in for OCI, each on a host of its own, whose link can fail."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from chaos.place_oci import OciPlace
from chaos.places import ONCE, Place, Struck
from chaos.schedules import Fault, Schedule

_CUT_S = 3.0
_LINK = "eth1"
# A third of what comes: the kernel's own delays of what is sent again are what is tested.
_LOSS = ("INPUT", "-i", _LINK, "-m", "statistic", "--mode", "random", "--probability", "0.33", "-j", "DROP")


class HostsPlace(OciPlace):
    """Job Runs on hosts; their storage, too, is at the other end of the link."""

    has_hosts = True

    def strike(self, fault: Fault) -> Struck | None:
        if fault.kind not in {"link cut", "link gone", "packets lost"}:
            return super().strike(fault)
        with contextlib.suppress(IndexError, psutil.NoSuchProcess, OSError):
            # Its namespace stays while this does, whatever becomes of the agent.
            namespace = os.open(f"/proc/{self.agent(fault.target)[0].pid}/ns/net", os.O_RDONLY)
            return self._fail(fault.kind, namespace)
        return None

    def _fail(self, kind: str, namespace: int) -> Struck:
        def inside(*command: str) -> None:
            enter = ["nsenter", f"--net=/proc/self/fd/{namespace}"]
            # The host can have ended meanwhile: then there is no such interface, and nothing to heal.
            subprocess.run([*enter, *command], pass_fds=[namespace], check=False, capture_output=True, timeout=60)

        if kind == "packets lost":
            inside("iptables", "-A", *_LOSS)
            return _CUT_S, lambda: (inside("iptables", "-D", *_LOSS), os.close(namespace))
        inside("ip", "link", "set", _LINK, "down")
        if kind == "link gone":
            os.close(namespace)
            return ONCE
        return _CUT_S, lambda: (inside("ip", "link", "set", _LINK, "up"), os.close(namespace))


@contextlib.contextmanager
def shared(_scratch: Path) -> Iterator[None]:
    """Share nothing."""
    yield None


def open_place(checkout: Path, scratch: Path, schedule: Schedule, _shared: None) -> Place:
    """Return the place for one schedule."""
    return HostsPlace(checkout, scratch, schedule)
