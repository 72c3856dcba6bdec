"""An sshd of a benchmark's own, through which SSHCluster starts its workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dask_inside import DASK
from dask_measures import measure_inside
from processes import (
    ADDRESSES,
    LIMIT_S,
    MARK,
    MeasureError,
    Scratch,
    children,
    free_port,
    listens,
    started,
    tail,
    wait_for,
)

ASYNCSSH = ("asyncssh==2.24.1", "typing_extensions==4.15.0")


@dataclass
class SshServer:
    """An sshd of the benchmark's own; what runs in its sessions bears the mark of *sessions*."""

    process: subprocess.Popen[bytes]
    sessions: Scratch
    port: int
    key: Path
    packages: Path

    def measure(self, scratch: Scratch) -> dict[str, float]:
        """Measure SSHCluster, and end what it leaves behind."""
        try:
            found = measure_inside("ssh", scratch, str(self.port), str(self.key), PYTHONPATH=str(self.packages))
            time.sleep(1)  # what is on its way out is not left behind
        finally:
            left = self.sessions.end_all()
            wait_for(lambda: not children(self.process.pid), "end of the ssh sessions", step_s=0.02)
        return {**found, "left": left}


@contextlib.contextmanager
def ssh_server(directory: Path) -> Iterator[SshServer]:
    """Run an sshd on loopback that takes one new key.

    Raises:
        MeasureError: there is no sshd, no asyncssh, or they do not work together here.
    """
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    keygen = shutil.which("ssh-keygen")
    if not sshd or not keygen:
        msg = "there is no sshd on this machine; on Debian: apt-get install openssh-server"
        raise MeasureError(msg)
    packages = install_asyncssh(directory / "packages")
    for name in ("host", "key"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    privileges = Path("/run/sshd")  # sshd run by root wants this folder; a service manager would make it
    made = os.geteuid() == 0 and not privileges.exists()
    if made:
        privileges.mkdir(mode=0o755)
    sessions, port, log = Scratch(directory), free_port(ADDRESSES[0]), directory / "log"
    config = directory / "sshd_config"
    config.write_text(
        "".join(f"ListenAddress {address}:{port}\n" for address in ADDRESSES)
        + f"HostKey {directory}/host\nAuthorizedKeysFile {directory}/key.pub\nSetEnv {MARK}={sessions.mark}\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    try:
        with started([sshd, "-D", "-e", "-f", config], environ, log) as process:
            wait_for(lambda: listens(ADDRESSES[0], port) or process.poll() is not None, "sshd")
            if process.poll() is not None:
                msg = f"{sshd} does not run here: {tail(log)}"
                raise MeasureError(msg)
            try:
                yield SshServer(process, sessions, port, directory / "key", packages)
            finally:
                sessions.end_all()
    finally:
        if made:
            privileges.rmdir()


def install_asyncssh(directory: Path) -> Path:
    """Install what SSHCluster needs beside Dask's environment, never into it; return the folder."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    uv = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", str(DASK / "python")]
    errors = []
    for install in (pip, uv):
        try:
            done = subprocess.run(
                [*install, "--no-deps", "--target", str(directory), *ASYNCSSH],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=2 * LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            errors.append(str(error))
            continue
        if done.returncode == 0:
            return directory
        errors.append(done.stderr.strip().rpartition("\n")[2])
    msg = f"{ASYNCSSH[0]} could not be installed: {'; '.join(errors)}"
    raise MeasureError(msg)
