"""What has TensorFlow's and Horovod's servers listen on one address. tests/clusters looks at real ones."""

from __future__ import annotations

import importlib.util
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "tensorflow" / "entry" / "one_address.py"
PORT = 12345
ALL_4 = struct.pack("=H", socket.AF_INET) + struct.pack("!H", PORT) + bytes(12)
ALL_6 = struct.pack("=H", socket.AF_INET6) + struct.pack("!H", PORT) + bytes(24)
NETWORK = """
class BasicService:
    _port = 99
    def _get_local_addresses(self):
        return {"all": []}

def find_port(server_factory):
    return server_factory(("", 1024))
"""


@pytest.fixture
def one_address() -> ModuleType:
    """Return the module."""
    spec = importlib.util.spec_from_file_location("one_address", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_addresses_become_the_nodes_and_nothing_else_changes(one_address: ModuleType) -> None:
    """Of both kinds of socket, for this port alone."""
    found = one_address.narrowed(ALL_4, "10.0.0.5", PORT)
    assert found == ALL_4[:4] + bytes((10, 0, 0, 5)) + bytes(8)
    found = one_address.narrowed(ALL_6, "10.0.0.5", PORT)
    assert (found[:8], found[24:]) == (ALL_6[:8], ALL_6[24:])
    assert socket.inet_ntop(socket.AF_INET6, found[8:24]) == "::ffff:10.0.0.5"
    found = one_address.narrowed(ALL_6, "fd00::5", PORT)
    assert socket.inet_ntop(socket.AF_INET6, found[8:24]) == "fd00::5"
    assert one_address.narrowed(ALL_4, "fd00::5", PORT) == ALL_4  # this kind of socket has no such address
    unix = struct.pack("=H", socket.AF_UNIX) + b"/tmp/socket"
    for other in (one_address.narrowed(ALL_4, "10.0.0.5", PORT), unix, b"", ALL_4[:4]):
        assert one_address.narrowed(other, "10.0.0.9", PORT) == other
    assert one_address.narrowed(ALL_4, "10.0.0.5", PORT + 1) == ALL_4


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's libraries")
def test_the_function_binds_as_the_systems_does(one_address: ModuleType) -> None:
    """One address in the place of all; the system's error where it has one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.7", 0))
        port = probe.getsockname()[1]
    bind = one_address.narrowing("127.0.0.7", port)
    where = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + bytes(12)
    with socket.socket() as own, socket.socket() as second:
        assert bind(own.fileno(), where, len(where)) == 0
        assert own.getsockname() == ("127.0.0.7", port)
        assert bind(second.fileno(), where, len(where)) == -1


def test_what_cannot_be_done_is_said(one_address: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody must believe that a port is closed which is open."""
    monkeypatch.setattr(one_address, "library_bases", list)
    with pytest.raises(OSError, match=r"no call of bind that could be changed|not known here"):
        one_address.narrow("127.0.0.7", PORT)


def run(code: str, folder: str, path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run *code* as the entry point of a node, with what stands for the framework in *path*."""
    places = f"{ROOT / 'common' / 'entry'}:{ROOT / folder / 'entry'}:{path}"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        cwd=path,
        capture_output=True,
        text=True,
        check=True,
    )


def test_tensorflow_that_cannot_be_changed_is_told_of_and_works(tmp_path: Path) -> None:
    """What stands for it has no library; the script may have taken TF_CONFIG away."""
    (tmp_path / "tensorflow.py").write_text("version = 3\n")
    code = "import os; del os.environ['TF_CONFIG']; import tensorflow, sys; print(tensorflow.version, sys.path)"
    config = '{"cluster": {"worker": ["127.0.0.7:12345"]}, "task": {"type": "worker", "index": 0}}'
    done = run(code, "tensorflow", tmp_path, TF_CONFIG=config, NODE_ADDRESS="127.0.0.7")
    assert done.stdout.startswith("3 ")
    assert "/entry" not in done.stdout
    assert done.stderr.startswith("TensorFlow listens on port 12345 of all addresses of this machine: ")
    done = run("import sys; print('tensorflow' in sys.modules, 'ctypes' in sys.modules)", "tensorflow", tmp_path)
    assert (done.stdout, done.stderr) == ("False False\n", "")


def test_horovods_services_listen_on_the_nodes_address_and_say_so(tmp_path: Path) -> None:
    """A script of its own `sitecustomize` has that too."""
    folder = tmp_path / "horovod" / "runner" / "common" / "util"
    folder.mkdir(parents=True)
    (folder / "network.py").write_text(NETWORK)
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    code = (
        "from horovod.runner.common.util.network import BasicService, find_port\n"
        "print(find_port(lambda where: where), BasicService()._get_local_addresses())"
    )
    done = run(code, "horovod", tmp_path, NODE_ADDRESS="127.0.0.7", NODE_INTERFACE="lo")
    assert done.stdout == "mine\n('127.0.0.7', 1024) {'lo': [('127.0.0.7', 99)]}\n"
    assert run(code, "horovod", tmp_path).stdout == "mine\n('', 1024) {'all': []}\n"
