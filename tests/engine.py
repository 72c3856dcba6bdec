"""A container engine of its own on this machine: Debian's ``dockerd`` and a registry, in namespaces that end with them.

The engine's namespaces are the network, mounts and processes: its bridges and containers are on no interface of this
machine, and when the first process there ends, the kernel ends everything that the engine has started and undoes its
mounts. Whoever made the engine holds a pipe to its keeper, so it cannot outlive them.

Nothing in there reaches the outside but through an HTTP proxy, which is in there too, and lets nobody go but to the
package registries of this machine: an image whose build ignores the proxy of whoever builds it cannot be built. The
proxy serves what lies in the directories of pip's ``find-links``, which no container sees.

Needs root on Linux; docker.io, docker-registry, iproute2, iptables, mmdebstrap, mount, util-linux.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hosts
import psutil
from engine_proxy import ADDRESS, PORT, WHEELS, Proxy, apt_uris

# By their paths: another client that stands first on PATH may have no BuildKit.
DOCKER = "/usr/bin/docker"
_DOCKERD = "/usr/sbin/dockerd"
_NAMESPACES = ("--net", "--mount", "--pid")
_REGISTRY_PORT = 5000
_KEPT = Path(__file__).resolve().parents[1] / ".venv" / "cache"
# dockerd was ready after 0.3 to 1.1 s, on a busy machine.
_PATIENCE_S = 120.0
_CGROUPS = Path("/sys/fs/cgroup")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_not() -> str:
    """Return what is missing to run an engine here; empty where nothing is."""
    if reason := hosts.why_not():
        return reason
    commands = {
        _DOCKERD: "docker.io",
        DOCKER: "docker.io",
        "docker-registry": "docker-registry",
        "mmdebstrap": "mmdebstrap",
        "setpriv": "util-linux",
    }
    # The first dockerd asks for even where it is told not to use it; the second is for base images.
    commands |= {name: name for name in ("iptables", "mmdebstrap")}
    if missing := [command for command in commands if not shutil.which(command)]:
        packages = dict.fromkeys(commands[command] for command in missing)
        return f"needs {', '.join(missing)} (Debian's {', '.join(packages)})"
    return ""


class Engine:
    """An engine with a registry and a proxy. A context manager: at its end nothing of it runs or is mounted.

    Args:
        directory: For images, containers, the registry, logs: a new directory, which can be removed afterwards, or one
            that another engine has had, whose images this one has then.
    """

    docker = DOCKER
    registry = f"127.0.0.1:{_REGISTRY_PORT}"

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.socket = self.directory / "docker.sock"
        self.log = self.directory / "dockerd.log"
        self.environ: dict[str, str] = {}
        self.pid = 0
        self._dockerd: subprocess.Popen[bytes] | None = None
        # Names the cgroups of its containers, which a namespace does not take along.
        self._cgroup = f"engine-{secrets.token_hex(6)}"

    def __enter__(self) -> Engine:
        if len(str(self.socket)) > 107:
            raise RuntimeError(f"'{self.socket}' is longer than the 107 characters of a socket's path; shorten it")
        (self.directory / "client").mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # another may be about to end there
        self._keeper = _start_keeper(self.directory, self._cgroup)
        try:
            assert self._keeper.stdout is not None
            line = self._keeper.stdout.readline()
            if not line:
                raise RuntimeError("the engine's namespaces or its registry could not be made; stderr says why")
            self.pid = json.loads(line)["pid"]
            self.environ = {
                **os.environ,
                "DOCKER_HOST": f"unix://{self.socket}",
                "DOCKER_BUILDKIT": "1",
                "DOCKER_CONFIG": str(self.directory / "client"),
                **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), ADDRESS),
            }
            # This machine's file:// index is not seen from a container; PIP_CERT and the like stay as they are.
            self.environ.pop("PIP_EXTRA_INDEX_URL", None)
            self.environ["PIP_FIND_LINKS"] = f"{ADDRESS}{WHEELS}"
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.communicate(timeout=_PATIENCE_S)  # closes the pipe
        if self._dockerd is not None:
            self._dockerd.wait(_PATIENCE_S)
        self._lock.close()

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``docker`` with *arguments*; raise with what it printed if it fails, or with ``check=False`` do not."""
        is_checked = options.pop("check", True)
        command = [self.docker, *arguments]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False, **options)
        if is_checked and done.returncode != 0:
            raise RuntimeError(f"'docker {' '.join(arguments)}' ended with {done.returncode}: {done.stderr[-4000:]}")
        return done

    def inside(self, *command: str) -> list[str]:
        """Return what runs *command* in the engine's namespaces, where the registry and the containers' pids are."""
        return [str(shutil.which("nsenter")), f"--target={self.pid}", *_NAMESPACES, *command]

    def about(self) -> dict[str, Any]:
        """Return what another process needs to know to use it, which JSON can say."""
        return {"socket": str(self.socket), "pid": self.pid}

    def start(self) -> None:
        """Start the daemon, again after ``kill``, on the same data; return when it answers."""
        command = [
            _DOCKERD,
            f"--data-root={self.directory}/data",
            f"--host=unix://{self.socket}",
            f"--cgroup-parent=/{self._cgroup}",
            # It is on a network of its own, from which nothing leaves.
            *("--iptables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none"),
        ]
        with self.log.open("ab") as log:
            # Without a proxy, as without a terminal: it reaches its registry and nothing else.
            self._dockerd = subprocess.Popen(
                self.inside(*command),
                env={"PATH": _PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _wait_for(self._answers, "dockerd", lambda: self._dockerd is None or self._dockerd.poll() is None, self.log)

    @property
    def is_up(self) -> bool:
        """Whether the daemon runs."""
        return self._dockerd is not None and self._dockerd.poll() is None

    def kill(self, *, everything: bool = True) -> None:
        """Kill the daemon, with all that it has started, or alone.

        With *everything* containers, mounts and pid files go too, as in a power cut; the registry stays.
        """
        assert self._dockerd is not None
        if everything:
            # What sends it is spared, and so is the first process of the namespace.
            subprocess.run(self.inside("sh", "-c", "kill -KILL -1"), check=True, timeout=240)
            self._dockerd.wait(60)
            mounts = Path(f"/proc/{self.pid}/mounts").read_text().splitlines()
            places = [re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split()[1]) for line in mounts]
            # Below its own /run lies this machine's, in which `ip netns` may have mounted something.
            first = max(at for at, place in enumerate(places) if place == "/run")
            mine = [place for place in places[:first] if place.startswith(f"{self.directory}/")]
            mine += [place for place in places[first:] if place.startswith(("/run", f"{self.directory}/"))]
            subprocess.run(self.inside("umount", "--lazy", *reversed(mine)), check=True, timeout=240)
            subprocess.run(self.inside("mount", "-t", "tmpfs", "tmpfs", "/run"), check=True, timeout=240)
        else:
            subprocess.run(self.inside("sh", "-c", "kill -KILL $(cat /run/docker.pid)"), check=True, timeout=240)
            self._dockerd.wait(60)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(self.socket))
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in client.recv(64)
        return False


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Engine]:
    """Have an engine for tests; where it does not start, though all is there, they are not run, and say why."""
    import pytest  # noqa: PLC0415 - the keeper has no use for it

    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(Engine(directory))
        except RuntimeError as error:
            pytest.skip(f"an engine cannot be started here: {error}")
        yield engine


def debian_tar(directory: Path = _KEPT) -> Path:
    """Return the file system of a Debian 12 with Python and apt, as a file in *directory*, made where there is none."""
    tar = directory / "debian.tar"
    if not tar.exists():
        directory.mkdir(parents=True, exist_ok=True)
        new = directory / f"debian.{secrets.token_hex(4)}.tar"  # others may be making it at the same time
        without = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
        command = [
            "mmdebstrap",
            "--variant=apt",
            "--aptopt=APT::Install-Recommends false",
            # Without it Debian 12 brings usrmerge, and with that 50 MB of Perl.
            "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
            "--include=usr-is-merged,python3,python3-venv,ca-certificates",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in without),
            "bookworm",
            str(new),
            *_debian_sources(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            new.unlink(missing_ok=True)
            raise RuntimeError(f"mmdebstrap ended with {done.returncode}: {done.stderr[-4000:]}")
        new.replace(tar)
    return tar


def base_image(engine: Engine, name: str, directory: Path = _KEPT) -> None:
    """Make a Debian 12 with Python and apt the image *name*, unless there is one: 120 MB, as the slim images of Python.

    Args:
        engine: Which gets it.
        name: With a tag.
        directory: Where the file system is kept as a file, so that it is made once: 20 to 30 s, a busy machine 77.
    """
    if engine.run("image", "inspect", name, check=False).returncode == 0:
        return  # imported again it would have another id, and all that is built on it would be built again
    engine.run("import", "--platform=linux/amd64", f"--change=ENV PATH={_PATH}", str(debian_tar(directory)), name)


# --- What keeps it: a process that ends it, however who made it ends, and its way out


def _start_keeper(directory: Path, cgroup: str) -> subprocess.Popen[bytes]:
    """Start the process that holds the namespaces, the registry and the proxy until its stdin ends."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import engine; engine._keep(*sys.argv[2:])"
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-I", "-c", program, folder, str(directory), cgroup]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _keep(directory_name: str, cgroup: str) -> None:
    """Make the namespaces and what is in them beside the engine, print their pid, and end them when stdin ends."""
    directory = Path(directory_name)
    # CHLD is ignored as in hosts.py: a containerd that nobody reaps passes for one that runs.
    set_up = "mount -t tmpfs tmpfs /run; ip link set lo up; exec env --ignore-signal=CHLD cat"
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_cgroups, cgroup)
        unshare = hosts._first_process(
            *_NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", f"set -e; {set_up}"
        )
        stack.callback(unshare.communicate, timeout=_PATIENCE_S)
        pid = psutil.Process(unshare.pid).children()[0].pid
        registry, answers = _start_registry(directory, pid)
        stack.callback(registry.wait, 10)
        stack.callback(registry.kill)
        proxy = Proxy(hosts.listen_in(pid, "127.0.0.1", PORT))
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        _wait_for(answers, "docker-registry", lambda: registry.poll() is None, directory / "registry.log")
        sys.stdout.write(json.dumps({"pid": pid}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def _start_registry(directory: Path, pid: int) -> tuple[subprocess.Popen[bytes], Callable[[], bool]]:
    """Start a registry in the network of process *pid*; return it and what tells whether it answers."""
    settings = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "registry")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{_REGISTRY_PORT}"},
    }
    file = directory / "registry.yml"
    file.write_text(json.dumps(settings))  # which is YAML, too
    enter = ["nsenter", f"--target={pid}", "--net"]
    command = ["setpriv", "--pdeathsig=KILL", *enter, "docker-registry", "serve", str(file)]
    with (directory / "registry.log").open("ab") as log:
        registry = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def answers() -> bool:
        # A line for every listening port of the namespace; 0A is the state.
        port = f":{_REGISTRY_PORT:04X} "
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()
        return any(port in line and " 0A " in line for line in lines)

    return registry, answers


def _wait_for(answers: Callable[[], bool], what: str, is_alive: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not answers():
        if not is_alive() or time.monotonic() > deadline:
            raise RuntimeError(f"{what} ended, or did not answer within {_PATIENCE_S:g} s: {log.read_text()[-4000:]}")
        time.sleep(0.02)


def _remove_cgroups(name: str) -> None:
    """Remove the cgroups of containers that are gone, of both versions of cgroups."""
    for top in (*_CGROUPS.glob(name), *_CGROUPS.glob(f"*/{name}")):
        for path, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # counts what a process in there has left in memory, for a moment
                Path(path).rmdir()


def _debian_sources() -> list[str]:
    """Return the sources of Debian 12 that this machine has; none where it has others, and mmdebstrap takes its own."""
    uris = list(apt_uris())
    suites = {"bookworm": "debian", "bookworm-updates": "debian", "bookworm-security": "debian-security"}
    return [
        f"deb {uri} {suite} main"
        for suite, name in suites.items()
        for uri in uris
        if urlsplit(uri).path.rstrip("/") == f"/{name}"
    ]
