"""Machines of a Kubernetes of tests: a test host each, whose programs can be killed and started again."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from hosts import Host

from kube import cgroups

# A machine with two busy cores needed 20 s for what an idle one does in 3.
PATIENCE_S = 120.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")
# Settings of the whole kernel that a kubelet would change, with the values that it wants: it sees them, and leaves
# those of this machine alone. (kubernetes 1.36, pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables)
_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


class NotReadyError(RuntimeError):
    """A program ended, or did not answer in time."""


class Machine:
    """One machine.

    Args:
        host: Its namespaces.
        tools: Where the programs are, for its PATH.
        logs: A directory for what its programs print.
        cgroup: Of all that runs there, for a machine that runs containers; empty for another.
    """

    def __init__(self, host: Host, tools: Path, logs: Path, *, cgroup: str = "") -> None:
        self.host = host
        self.logs = logs
        self._tools = tools
        self._enter = [str(shutil.which("nsenter")), f"--target={host.pid}", *_NAMESPACES]
        self._cgroups: list[Path] = []
        self.programs: dict[str, tuple[subprocess.Popen[bytes], list[str]]] = {}
        if cgroup:
            self._cgroups = cgroups.make(cgroup)
            self._be_a_node(cgroup)

    def _be_a_node(self, cgroup: str) -> None:
        """Give it cgroups as if there were no others, and kernel settings that a kubelet has no wish to change."""
        commands = cgroups.mounts()
        for name, value in _TUNABLES.items():
            shown = f"/run/tunables/{name}"
            commands += [
                f"mkdir -p $(dirname {shown})",
                f"echo {value} >{shown}",
                f"mount --bind {shown} /proc/sys/{name}",
            ]
        commands += ["echo", "exec cat"]
        process = subprocess.Popen(
            [*self._joining(), *self._enter, "unshare", "--cgroup", "sh", "-ec", "\n".join(commands)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert process.stdout is not None
        if process.stdout.read(1) != b"\n":
            raise NotReadyError(f"a node's cgroups could not be mounted; stderr says why ({process.wait(60)})")
        self._holder = process  # its stdin ends it, and so does the host's end
        self._cgroups = cgroups.hand_down(cgroup)
        self._enter.append(f"--cgroup=/proc/{_inside(process).pid}/ns/cgroup")

    def _joining(self) -> list[str]:
        """Return what runs a command in this machine's cgroup."""
        join = 'for file; do [ "$file" = -- ] && break; echo 0 >"$file"; shift; done; shift; exec "$@"'
        places = [str(path / "cgroup.procs") for path in self._cgroups]
        return ["sh", "-ec", join, "sh", *places, "--"]

    def start(self, name: str, *command: object, **environ: str) -> None:
        """Start a program there; its output goes to the file ``<machine>-<name>.log``."""
        words = [str(word) for word in command]
        variables = {"PATH": f"{self._tools}:{PATH}", "HOME": "/root", "LC_ALL": "C.UTF-8", **environ}
        settings = [f"{key}={value}" for key, value in variables.items()]
        # What nsenter has started ends with it.
        inside = [*self._enter, "setpriv", "--pdeathsig=KILL", "env", "-i", *settings, *words]
        with self.log(name).open("ab") as output:
            process = subprocess.Popen(
                [*self._joining(), *inside],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.programs[name] = process, words

    def log(self, name: str) -> Path:
        return self.logs / f"{self.host.name}-{name}.log"

    def is_up(self, name: str) -> bool:
        return self.programs[name][0].poll() is None

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a program a signal, and return when it has ended."""
        process = self.programs[name][0]
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            _inside(process).send_signal(number)
        try:
            process.wait(PATIENCE_S if number == signal.SIGKILL else 10)
        except subprocess.TimeoutExpired:
            self.kill(name)

    def start_again(self, name: str) -> None:
        """Start a program as it was started before; one that runs is killed first."""
        process, words = self.programs[name]
        if process.poll() is None:
            self.kill(name)
        self.start(name, *words)

    def run(self, *command: object, stdin: Path = Path("/dev/null")) -> str:
        """Run a command there to its end, with a file of this machine to read; return what it printed."""
        words = ["env", f"PATH={self._tools}:{PATH}", *map(str, command)]
        with stdin.open("rb") as given:
            done = subprocess.run(
                [*self._enter, *words],
                stdin=given,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S * 3,
            )
        if done.returncode != 0:
            raise RuntimeError(f"'{' '.join(words[2:])}' on {self.host.name}: {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def answers(self, port: int, path: str) -> bool:
        """Return whether a program there says on its loopback, by HTTP, that it is well."""
        asked = ("get", f"--raw=/{path}", f"--server=http://127.0.0.1:{port}", "--kubeconfig=/dev/null")
        return bool(self.run("kubectl", *asked))

    def wait_for(self, answers: Callable[[], object], name: str) -> None:
        """Return when a program that was started *answers*."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError, RuntimeError):
                if answers():
                    return
            if not self.is_up(name) or time.monotonic() > deadline:
                said = self.log(name).read_text(errors="replace")[-3000:]
                raise NotReadyError(f"{name} on {self.host.name} ended, or did not answer in {PATIENCE_S:g} s:\n{said}")
            time.sleep(0.05)


def _inside(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the program that an ``nsenter`` has started: it enters a namespace of processes as its child."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        if children := psutil.Process(process.pid).children():
            return children[0]
        time.sleep(0.01)
    raise IndexError(process.args)
