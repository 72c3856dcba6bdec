"""A process that has imported oci-cli and the stand-in for OCI, and forks: a start takes a tenth of the CPU.

What runs is the program itself, with the arguments, folder, environment and files of whoever has asked for it.
"""

from __future__ import annotations

import array
import atexit
import functools
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

CLIENT = Path(__file__).with_name("warm_client.py")
# Of oci-cli: those whose commands tests and pages have.
_SERVICES = ("artifacts", "bastion", "core", "data_science", "identity", "limits", "logging", "object_storage")


def command(program: str) -> list[str]:
    """Return what runs ``oci`` or ``oci_service``; beside Linux the program as it is."""
    if sys.platform != "linux":
        cold = {
            "oci": [str(Path(sys.executable).with_name("oci"))],
            "oci_service": [sys.executable, "-I", str(CLIENT.with_name("oci_service"))],
        }
        return cold[program]
    return [sys.executable, "-I", "-S", str(CLIENT), _socket(), program]


@functools.cache
def _socket() -> str:
    """Start the process, which ends with this one; return where it listens."""
    directory = tempfile.mkdtemp(prefix="warm-")  # of this user alone
    path = f"{directory}/s"
    process = subprocess.Popen(
        [sys.executable, "-I", __file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        if stdout.readline() != b"ready\n":
            raise RuntimeError(f"'{__file__}' ended with {process.wait()}; stderr says why")
    # The end of its stdin ends it: that comes with the end of this process, however that is.
    atexit.register(process.communicate)
    return path


def _serve(path: str) -> None:
    """Fork for whoever connects, until stdin ends."""
    from oci_cli import dynamic_loader  # noqa: PLC0415 - takes most of the time that is saved
    from oci_cli.cli import cli  # noqa: F401, PLC0415

    sys.path[0] = str(CLIENT.parent)
    for name in _SERVICES:
        dynamic_loader.load_service_dir(name)
    for name in ("containers", "places", "server"):
        importlib.import_module(f"oci_service.{name}")
    gc.freeze()  # no child writes to what all have
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as selector:
        server.bind(path)
        server.listen(64)
        os.write(1, b"ready\n")
        selector.register(server, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while all(key.fileobj is server for key, _ in selector.select()):
            client = server.accept()[0]
            if os.fork() == 0:
                server.close()
                selector.close()
                _answer(client)
                os._exit(0)
            client.close()
    shutil.rmtree(Path(path).parent)


def _answer(client: socket.socket) -> None:
    """Run what *client* asks for, and tell it the exit code; it is killed where the client ends before it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, files = b"", array.array("i")
    while not data.endswith(b"\n"):
        more, found, _, _ = socket.recv_fds(client, 1 << 20, 3)
        if not more:
            return
        data += more
        files.extend(found)
    asked = json.loads(data)
    child = os.fork()
    if child == 0:
        client.close()
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        os._exit(_run(asked))
    for number in range(3):
        os.close(number)
    for file in files:
        os.close(file)
    with selectors.DefaultSelector() as selector:
        ended = os.pidfd_open(child)
        selector.register(ended, selectors.EVENT_READ)
        selector.register(client, selectors.EVENT_READ)
        if all(key.fileobj is client for key, _ in selector.select()):
            os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    client.sendall(bytes([code % 256 if code >= 0 else 128 - code]))


def _run(asked: dict[str, object]) -> int:
    """Be the program; return its exit code."""
    os.chdir(str(asked["directory"]))
    os.environ.clear()
    os.environ.update(asked["environ"])  # type: ignore[call-overload]
    program, *words = asked["words"]  # type: ignore[misc]
    sys.argv = [program, *words]
    code: object = 0
    try:
        if program == "oci":
            from oci_cli import dynamic_loader  # noqa: PLC0415 - has been imported
            from oci_cli.cli import cli  # noqa: PLC0415

            dynamic_loader.load_required_services_for_invocation()  # as the import does, for its own words
            cli()
        else:
            from oci_service.__main__ import main  # noqa: PLC0415 - has been imported

            main()
    except SystemExit as end:
        code = end.code
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else bool(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
