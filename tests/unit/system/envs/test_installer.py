"""An installer gets pip's settings, and ends with the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from unit.system.fake_checkout import LOCKED, Checkout

from oci_cluster.errors import BackendError
from oci_cluster.system.envs import installer as environment
from oci_cluster.system.envs.installer import run_installer


def test_an_installer_ends_with_what_waits_for_it(tmp_path: Path) -> None:
    """A stop of the launcher alone leaves neither the installer nor what that has started."""
    installer = tmp_path / "install"
    # With -m, what is started gets a process group of its own, as ninja gives each compiler.
    installer.write_text('#!/bin/bash\nset -m\nsleep 300 &\necho "Building $! $$"\nwait\n')
    installer.chmod(0o755)
    pids: list[int] = []

    def stop(line: str) -> None:
        pids.extend(int(word) for word in line.split()[1:])
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_installer([installer], stop)
    assert len(pids) == 2
    psutil.wait_procs([process for process in psutil.process_iter() if process.pid in pids], timeout=60)
    assert [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"] == []


def test_an_installer_ends_that_is_just_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes when the program runs already, and before anybody here knows of it."""
    started: list[subprocess.Popen[str]] = []

    class SlowPopen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(environment.subprocess, "Popen", SlowPopen)
    with pytest.raises(KeyboardInterrupt):
        run_installer([sys.executable, "-c", "import time; time.sleep(300)"], lambda _: None)
    (process,) = started
    assert process.wait(60) == -signal.SIGKILL


def test_a_post_install_script_that_cannot_be_run_is_no_bug_of_ours(tmp_path: Path) -> None:
    """Without its executable bit: as a start script, a matter of set-up (69 or 78), not 70 with a traceback."""
    hook = tmp_path / "post-install.sh"
    hook.touch(mode=0o644)
    with pytest.raises(BackendError, match="cannot be run: Permission denied"):
        environment.run_installer([hook], lambda _: None)


# --- pip's settings ---------------------------------------------------------------------------------------------------


def test_the_installer_is_given_pips_configuration(checkout: Checkout) -> None:
    """A user's index and certificate hold for uv's installation too."""
    checkout.set(PIP_INDEX_URL="https://a/simple", PIP_CERT="/ca.pem")
    checkout.tools()
    assert checkout.calls()[-1] == (
        f"BIN/uv pip install --python ROOT/.venv/bin/python {LOCKED}"
        " UV_DEFAULT_INDEX=https://a/simple SSL_CERT_FILE=/ca.pem"
    )


def test_a_folder_of_packages_that_is_gone_is_told_and_left_out(checkout: Checkout) -> None:
    """pip warns of it; uv would fail."""
    checkout.set(PIP_FIND_LINKS="/no/such/wheels")
    checkout.tools()
    assert checkout.calls()[-1] == f"BIN/uv pip install --python ROOT/.venv/bin/python {LOCKED}"
    assert "pip's find-links names '/no/such/wheels', which is not there: left out" in checkout.said


def test_nothing_of_this_changes_the_environment(checkout: Checkout) -> None:
    """What is set for the installer is set for it alone."""
    checkout.set(PIP_CERT="/ca.pem")
    before = dict(os.environ)
    checkout.tools()
    assert dict(os.environ) == before


def test_an_installer_runs_in_any_thread() -> None:
    """Handlers of signals are the main thread's; there nothing has to be held back."""
    said: list[object] = []

    def install() -> None:
        try:
            run_installer(["/bin/sh", "-c", "echo Building it"], said.append)
        except ValueError as error:
            said.append(error)

    thread = threading.Thread(target=install)
    thread.start()
    thread.join()
    assert said == ["  Building it"]
