"""Compiles an environment's packages, but for what hardly anybody imports. Its own Python runs this file.

uv would compile all: 18 s of a first launch of Dask where this takes 9 s, and 24 s more for OCI's SDK, on 2 cores.
"""

import importlib.util
import re
import sys
import sysconfig
from compileall import compile_file
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from py_compile import PycInvalidationMode

# Services of OCI's SDK that a launch asks, or that oci-cli imports for it. Models of the others are 15,000 files. An
# image has kept what scripts use, and its user cannot write there: nothing of the SDK is left out.
_SERVICES = (
    *("artifacts", "bastion", "core", "data_science", "identity", "identity_domains", "limits", "logging"),
    *("loggingsearch", "object_storage", "secrets", "vault", "work_requests"),
)
# What is left out is compiled when it is imported. Tests are a third of the files of pandas and of scikit-learn.
_TESTS = r"(.*/)?tests?/"
# oci-cli has a folder of commands for each service, too, in a package of its own.
_NOT_ASKED = rf"(?!({'|'.join(_SERVICES)})/)\w+/"
_LEFT_OUT = {"image": _TESTS, "checkout": rf"{_TESTS}|oci/{_NOT_ASKED}models/|services/{_NOT_ASKED}"}
# Nothing in an image changes, and times of files do not survive every builder.
_MODES = {"image": PycInvalidationMode.UNCHECKED_HASH, "checkout": PycInvalidationMode.TIMESTAMP}


def main(kind: str) -> None:
    """Compile what is not yet compiled of an `image` or a `checkout`."""
    place = Path(sysconfig.get_path("purelib"))
    files = [
        path
        for path in place.rglob("*.py")
        if not re.match(_LEFT_OUT[kind], str(path.relative_to(place)))
        and not Path(importlib.util.cache_from_source(path)).exists()
    ]
    beside = Path(sys.prefix).parent
    if kind == "checkout" and beside.name == "envs":  # beside another environment may stand anybody's
        twins = [twin for twin in beside.glob(f"*/{place.relative_to(sys.prefix)}") if twin != place]
        files = [
            path for path in files if not any(_link_compiled(twin / path.relative_to(place), path) for twin in twins)
        ]
    # Some packages bring templates that are no Python: what cannot be compiled is not used.
    compiled = partial(compile_file, quiet=2, invalidation_mode=_MODES[kind])
    try:
        with ProcessPoolExecutor() as pool:
            list(pool.map(compiled, files, chunksize=64))
    except (ImportError, NotImplementedError, OSError, BrokenExecutor):
        # No semaphores, as in some sandboxes, or no room for several processes: one does it, slower.
        list(map(compiled, files))


def _link_compiled(twin: Path, file: Path) -> bool:
    """Return whether *twin* is the same file, as uv links one, and what was compiled of it is now *file*'s, too."""
    compiled = Path(importlib.util.cache_from_source(file))
    try:
        if not twin.samefile(file):
            return False
        compiled.parent.mkdir(exist_ok=True)
        compiled.hardlink_to(importlib.util.cache_from_source(twin))
    except OSError:  # most often: it is not there
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])
