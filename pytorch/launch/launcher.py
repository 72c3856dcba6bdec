"""Runs torchrun, accelerate or DeepSpeed here, and ends with the failed rank's exit code.

`launcher.py torchrun OPTION... SCRIPT`; likewise accelerate and deepspeed. Their own code runs in this process. Options
that depend on the number of ranks are added here: counting GPUs takes torch.
"""

from __future__ import annotations

import base64
import gc
import importlib.metadata
import json
import os
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

BAD_SETTINGS = 78
TIMED_OUT = 75
# The end of ranks that torchrun itself has ended.
ENDED_BY_LAUNCHER = 143


def main() -> int:
    launcher, *options, script = sys.argv[1:]
    check_package({"torchrun": "torch"}.get(launcher, launcher))
    # Taken before torch is imported, which takes a second: others that come sooner wait in its queue.
    listener = listen() if os.environ["MODE"] == "MAIN" and launcher != "deepspeed" else None
    gc.disable()  # imports make no garbage; looking for it takes an eighth of their time
    # For this process alone, not for its ranks: when main is gone, each of its calls would show a page of C++ stack.
    is_set = "TORCH_CPP_LOG_LEVEL" in os.environ
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch.cuda  # noqa: PLC0415 - see above

    if not is_set:
        del os.environ["TORCH_CPP_LOG_LEVEL"]
    gpus = torch.cuda.device_count()
    if gpus == 0:
        # Told nothing, an Accelerator without a GPU trains by itself on every rank, as if it were alone.
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    ranks = ranks_on_node(gpus)
    share_cpus(ranks)
    command = [*options_for(launcher, ranks), *shlex.split(os.environ.get("LAUNCHER_ARGS", "")), *options, script]
    if launcher == "deepspeed":
        return run_deepspeed(command)
    return run_torchrun(launcher, command, listener)


def check_package(name: str) -> None:
    """End with 78 where the distribution *name* is not installed."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        fix = f"--with {name} adds it at the launch, into one of your own, {sys.executable} -m pip install {name} does"
        if name == "deepspeed":  # its installation asks the torch that is there
            fix = f"name your own environment by --python; there: pip install --no-build-isolation {name}, after torch"
        die(BAD_SETTINGS, f"{sys.executable} has no {name}; {fix}")


def listen() -> socket.socket:
    """Return a socket that listens on main's address alone."""
    address, port = os.environ["MAIN_ADDRESS"], os.environ["RENDEZVOUS_PORT"]
    try:
        return socket.create_server((address, int(port)), backlog=1024)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        die(BAD_SETTINGS, f"main cannot listen on {address}:{port} ({why}); choose another RENDEZVOUS_PORT")


def ranks_on_node(gpus: int) -> int:
    wanted = os.environ["NPROC_PER_NODE"]
    return max(1, gpus) if wanted == "auto" else int(wanted)


def share_cpus(ranks: int) -> None:
    """Give each rank its part of NODE_CPUS, set where nodes share a machine."""
    if cpus := os.environ.get("NODE_CPUS"):
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, int(cpus) // ranks)))


def options_for(launcher: str, ranks: int) -> list[str]:
    """Return the options that depend on the number of *ranks* on each node."""
    nodes = int(os.environ["WORKER_COUNT"]) + 1
    if launcher == "deepspeed":
        # Nodes by name, of which it finds its own by its node rank, and the GPUs that each shall see.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        # One that sees none must not see one again: -1 names none.
        gpus = visible.split(",")[:ranks] if visible else ["-1"] * ranks if visible == "" else list(range(ranks))
        slots = {str(node): gpus for node in range(nodes)}
        return [f"--world_info={base64.urlsafe_b64encode(json.dumps(slots).encode()).decode()}"]
    # Several ranks: each line says whose it is.
    tee = ["--tee", "3"] if ranks > 1 else []
    if launcher == "accelerate":
        return ["--num_processes", str(nodes * ranks), *tee]
    return ["--nproc-per-node", str(ranks), *tee]


def run_torchrun(launcher: str, command: Sequence[str], listener: socket.socket | None) -> int:
    sys.path.insert(0, str(Path(__file__).parent))  # where PYTHONSAFEPATH has left it out
    import rendezvous  # noqa: PLC0415 - the module beside this one, and what torch is needed for
    import torch.distributed.run as torchrun  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous import (  # noqa: PLC0415
        RendezvousClosedError,
        RendezvousError,
        RendezvousStateError,
        RendezvousTimeoutError,
    )

    handlers = rendezvous.register(listener, leave)
    if launcher == "accelerate":
        from accelerate.commands import launch  # noqa: PLC0415

        args, run = launch.launch_command_parser().parse_args(command), run_accelerate
    else:
        args, run = torchrun.parse_args(command), torchrun.run
    gc.enable()
    gc.freeze()
    try:
        run(args)
        for handler in handlers:
            handler.part()
    except ChildFailedError as error:
        return failed(error)
    except SignalException as error:
        return 128 + error.sigval
    except RendezvousTimeoutError as error:
        die(TIMED_OUT, str(error))
    except RendezvousClosedError as error:
        for handler in handlers:
            if handler.failures:
                return failed(ChildFailedError(os.environ["ENTRY_POINT"], handler.failures))
        die(1, str(error))
    except RendezvousError as error:
        # As a rank that has lost a peer: what happened to that one is the cause.
        is_told = isinstance(error, RendezvousStateError)
        die(1, str(error) if is_told else f"the rendezvous on main is closed or gone ({type(error).__name__})")
    return 0


def run_accelerate(args: Any) -> None:
    """Run accelerate with torchrun.

    Its own command takes torchrun for several GPUs alone (``--multi_gpu``): not for one rank, and not beside
    ``--use_fsdp``. Without torchrun a rank would have no variables, and a failure the code 1.
    """
    from accelerate.commands import launch  # noqa: PLC0415

    if args.use_deepspeed:
        launch.launch_command(args)
    else:
        checked, *_ = launch._validate_launch_command(args)  # noqa: SLF001 - sets what the options leave open
        launch.multi_gpu_launcher(checked)


def failed(error: ChildFailedError) -> int:
    """Show torch's report of failures; return the exit code of the first cause."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "common"))
    from oci_cluster.contract.first_cause import first_cause  # noqa: PLC0415 - where something has failed

    error.name = os.environ["ENTRY_POINT"]
    sys.stderr.write(f"{error.format_msg()}\n")
    first = first_cause([RankFailure(rank, failure) for rank, failure in error.failures.items()])
    failure = first.failure
    signal = f" ({failure.signal_name()})" if failure.exitcode < 0 else ""
    # entry/on_import.py has noted it. What a script ends with itself is its own, and no news.
    is_late = failure.exitcode < 0 and Path(os.environ["NODE_DIR"], f"script-ended-{failure.pid}").exists()
    after = " after the script's last line" if is_late else ""
    note_reason(f"rank {first.rank} ended with {first.exit_code}{signal}{after}", "entry-point-ended")
    note_reason(str(failure.pid), "entry-pid")
    return first.exit_code


class RankFailure:
    """torch's failure of a rank as first_cause compares it, with a shell's exit code."""

    def __init__(self, rank: int, failure: ProcessFailure) -> None:
        self.rank, self.failure, self.time = rank, failure, float(failure.timestamp)
        self.exit_code = failure.exitcode if failure.exitcode >= 0 else 128 - failure.exitcode
        self.is_consequence = True if self.exit_code == ENDED_BY_LAUNCHER else None


def run_deepspeed(command: Sequence[str]) -> int:
    from deepspeed.launcher import launch  # noqa: PLC0415

    sys.argv = [launch.__file__, *command]
    gc.enable()
    gc.freeze()
    try:
        launch.main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        return code if code >= 0 else 128 - code
    return 0


def die(code: int, text: str) -> NoReturn:
    """Say what is wrong, to the log and to the agent, and end."""
    sys.stderr.write(f"{Path(__file__).name}: error: {text}\n")
    note_reason(text)
    leave(code)


def note_reason(text: str, file: str = "reason") -> None:
    """Tell the agent why this node ends: common/README.md has the files."""
    Path(os.environ["NODE_DIR"], file).write_text(f"{text}\n")


def leave(code: int) -> NoReturn:
    """End at once: taking torch apart takes the interpreter a third of a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
