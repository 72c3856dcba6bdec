"""Python imports this as the entry point begins: a module of the framework's is changed when the script imports it.

And it notes for the agent which error ends the script, where nothing has caught it: what was printed may be of another.
And every Python of the script writes where its threads are when the agent asks, as of one that hangs.

The framework's own folder `entry` stands behind this one on the path. Its `on_import.py` names the MODULE, or none
where nothing is to be changed, and has the function that does it, `change(module)`. Nothing of the framework is
imported before the script does that, and neither folder stays on the path.
"""

from __future__ import annotations

import atexit
import os
import sys

import on_import

# Modules of the script's own may have these names. Python imports one `sitecustomize`: where there is another, it has
# been hidden by this one.
del sys.modules["on_import"]
_ours = {os.path.dirname(path) for path in (__file__, on_import.__file__)}  # noqa: PTH120 - pathlib is slow to import
_kept = sys.modules.pop("sitecustomize", None)
sys.path[:] = [entry for entry in sys.path if entry not in _ours]
try:
    import sitecustomize  # noqa: F401 - it does what it does by being imported
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
    if _kept is not None:
        sys.modules["sitecustomize"] = _kept


class _ChangeModule:
    """Changes the module when it has been loaded.

    It is a finder without the base class of `importlib.abc`, which imports a third of the standard library.
    """

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - Python's signature
        if name != on_import.MODULE:
            return None
        import importlib.util  # noqa: PLC0415 - each Python of the script reads this file

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            on_import.change(module)

        spec.loader.exec_module = load_and_change
        return spec


if on_import.MODULE:
    sys.meta_path.insert(0, _ChangeModule())


def _note_uncaught(path):
    """Write the error that ends this script to *path*: what it is, its message, each frame's file and line.

    And whether it is the first, and not one that was raised while another was handled.
    """
    error, hook = getattr(sys, "last_value", None), sys.excepthook
    # Who shows errors in a way of their own has chosen the words; torch only puts the rank before each line.
    is_usual = hook is sys.__excepthook__ or getattr(hook, "__module__", "").startswith("torch.")
    if error is None or not is_usual or not path.endswith(f"-{os.getpid()}"):
        return
    kind, trace, frames = type(error), error.__traceback__, []
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno or 0))
    name = (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )
    import json  # noqa: PLC0415 - where something has failed

    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
            is_first = error.__cause__ is None and error.__context__ is None
            note = {"error": name, "message": str(message)[:4000], "frames": frames[-100:], "is_first": is_first}
            json.dump(note, file)
    except Exception:  # noqa: BLE001, S110 - of a message that cannot be made, or a full disk: the reason has fewer words
        pass


def _write_stacks_when_asked(path):
    """Make the file *path*, and have what all threads are at written to it at each signal of the agent's."""
    import faulthandler  # noqa: PLC0415 - where it is used

    rank = os.environ.get("ENTRY_RANK") or os.environ.get("RANK") or ""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, f"{rank}\n".encode())
        faulthandler.register(_STACK_SIGNAL, file=file, all_threads=True)
    except (OSError, RuntimeError):  # a full disk, or a signal that is not there
        return
    pid = os.getpid()  # a copy of this process leaves the file to it
    atexit.register(lambda: os.getpid() == pid and os.path.exists(path) and os.unlink(path))  # noqa: PTH108, PTH110


# Of real time; see node/hang_detector.py.
_STACK_SIGNAL = 59
if os.environ.get("NODE_DIR") and os.environ.get("ENTRY_PID") and sys.platform == "linux":
    _write_stacks_when_asked(os.path.join(os.environ["NODE_DIR"], f"stack-{os.getpid()}"))  # noqa: PTH118

# `run_entry_point` has become this process. Another one that the script starts ends for itself.
if os.environ.get("NODE_DIR") and os.environ.get("ENTRY_PID") == str(os.getpid()):
    atexit.register(_note_uncaught, os.path.join(os.environ["NODE_DIR"], f"uncaught-{os.getpid()}"))  # noqa: PTH118
