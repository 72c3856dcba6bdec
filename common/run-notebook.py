"""Run a notebook as an entry point: python run-notebook.py NOTEBOOK

What the cells print is printed as it comes. The notebook with its outputs is written to OUTPUT_DIR, also after a cell
that fails; where several processes of a job run it, the names of all but the first carry the rank. What programs print
that a cell starts, and libraries of C, is in the node's log alone.

Exit: 0 all cells ran; 1 a cell failed, its traceback is on stderr; 78 the environment lacks the packages for notebooks.
sys.exit(N) in a cell ends the notebook with N, and so does what ends the kernel itself, such as a signal.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

# sun_path of Linux has 108 bytes, that of macOS 104; a number is added to the name.
_LONGEST_SOCKET = 98
# What is not printed by Python goes where this process prints, at once: the kernel would send it as output of a cell,
# and lose what comes after the cell's end, and all of it where the kernel dies.
_KERNEL = ["--IPKernelApp.capture_fd_output=False"]
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def run(path: Path) -> int:
    """Run the notebook *path* in the working directory; return the exit code."""
    # Nothing of a run belongs into the user's home, and the kernel's key must not lie in a shared folder.
    private = Path(os.environ["NODE_DIR"])
    os.environ.update(JUPYTER_PLATFORM_DIRS="1", JUPYTER_RUNTIME_DIR=str(private / "jupyter"))
    os.environ.setdefault("IPYTHONDIR", str(private / "ipython"))
    try:
        import ipykernel  # noqa: F401, PLC0415 - the kernel's own; told here if it is not there
        import nbformat  # noqa: PLC0415
        from nbclient.exceptions import DeadKernelError  # noqa: PLC0415
        from nbconvert.preprocessors import CellExecutionError, ExecutePreprocessor  # noqa: PLC0415
        from traitlets.config import Config  # noqa: PLC0415
    except ModuleNotFoundError as error:
        why = f"{path.name} is a notebook, and needs what common/env-notebook.yaml lists: {error}"
        (private / "reason").write_text(f"{why}\n")  # as die of start-lib.sh does
        sys.stderr.write(f"{why}; build the image with EXTRA_ENV=common/env-notebook.yaml\n")
        return 78

    class Printing(ExecutePreprocessor):  # type: ignore[misc, valid-type] - untyped
        def output(self, outs: Any, msg: Any, *words: Any) -> Any:
            show(msg["msg_type"], msg["content"])
            return super().output(outs, msg, *words)

        def preprocess_cell(self, *words: Any) -> Any:
            """Run a cell; note how the kernel has ended in it, before it is taken apart."""
            try:
                return super().preprocess_cell(*words)
            except DeadKernelError:
                self.kernel_code = self.km.provisioner.process.poll()
                raise

    notebook = nbformat.read(path, as_version=4)
    # Whatever kernel it was written with: this environment's own.
    config = Config({"KernelManager": kernel_manager(private)})
    runner = Printing(timeout=None, kernel_name="python3", config=config, extra_arguments=_KERNEL)
    signal.signal(signal.SIGTERM, lambda *_: stop(runner))
    try:
        runner.preprocess(notebook, {"metadata": {"path": str(Path.cwd())}})
    except CellExecutionError as error:
        return exit_code(error.ename, error.evalue)  # its traceback has been printed
    except DeadKernelError:
        return kernel_ended(runner.kernel_code, runner.code_cells_executed, private)
    finally:
        nbformat.write(whole(notebook), copy_of(path))
    return 0


def whole(notebook: Any) -> Any:
    """Return *notebook* with each line as one: the kernel sends what is printed in pieces, cut by time."""
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor  # noqa: PLC0415 - as in run

    return CoalesceStreamsPreprocessor().preprocess(notebook, {})[0]


def copy_of(path: Path) -> Path:
    """Return where the notebook with its outputs goes; on one machine, nodes share OUTPUT_DIR."""
    # TensorFlow's nodes have no rank of a launcher's.
    rank = next(filter(None, map(os.environ.get, ("RANK", "HOROVOD_RANK", "NODE_RANK"))), "0")
    return Path(os.environ["OUTPUT_DIR"]) / (path.name if rank == "0" else f"{path.stem}-rank-{rank}.ipynb")


def kernel_manager(private: Path) -> dict[str, str]:
    """Return how the kernel is reached: through files in *private*, where the system takes so long names of sockets."""
    path = str(private / f"kernel-{os.getpid()}")  # ranks of one node share the folder
    return {"transport": "ipc", "ip": path} if len(os.fsencode(path)) <= _LONGEST_SOCKET else {}


def show(kind: str, content: dict[str, Any]) -> None:
    """Print an output of a cell as a script would have."""
    if kind == "error":
        text, stream = _COLOURS.sub("", "\n".join(content["traceback"])) + "\n", sys.stderr
    elif kind == "stream":
        text, stream = content["text"], sys.stderr if content["name"] == "stderr" else sys.stdout
    else:
        text, stream = f"{content.get('data', {}).get('text/plain', '')}\n", sys.stdout
    stream.write(text)
    stream.flush()


def exit_code(name: str, words: str) -> int:
    """Return the exit code that a script would have had which ended with the error *name*."""
    if name != "SystemExit":
        return 1
    return int(words) & 0xFF if re.fullmatch(r"-?[0-9]{1,9}", words) else int(words not in {"", "None"})


def kernel_ended(code: int | None, cell: int, private: Path) -> int:
    """Tell how the kernel has ended in a *cell*; return the exit code. 0 is none, as cells have not run."""
    names = [f" ({number.name})" for number in signal.Signals if code == -number]  # those of real time have none
    code = 128 - code if code and code < 0 else code or 1
    how = f"the notebook's kernel ended with {code}{''.join(names)} in cell {cell}"
    (private / "entry-point-ended").write_text(f"{how}\n")  # told by the agent
    sys.stderr.write(f"{how}\n")
    return code


def stop(runner: Any) -> None:
    """End the kernel, which is in a session of its own, and this process."""
    process = getattr(getattr(runner.km, "provisioner", None), "process", None)
    if process is not None:
        process.terminate()
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
