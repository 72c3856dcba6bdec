"""Compiles an environment's packages, but for what hardly anybody imports. Its own Python runs this file.

uv would compile all: 18 s of a first launch of Dask where this takes 9 s, and 24 s more for OCI's SDK, on 2 cores.
"""

import importlib.util
import re
import sys
import sysconfig
from compileall import compile_file
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from py_compile import PycInvalidationMode

# Services of OCI's SDK that a launch asks, or that oci-cli imports for it. Models of the others are 15,000 files.
_SERVICES = (
    *("artifacts", "bastion", "core", "data_science", "identity", "identity_domains", "limits", "logging"),
    *("loggingsearch", "object_storage", "secrets", "vault", "work_requests"),
)
# What is left out is compiled when it is imported. Tests are a third of the files of pandas and of scikit-learn.
_LEFT_OUT = re.compile(rf"(.*/)?tests?/|oci/(?!({'|'.join(_SERVICES)})/)\w+/models/")


def main(mode: str) -> None:
    """Compile what is not compiled yet; *mode* is a name of `PycInvalidationMode`."""
    place = Path(sysconfig.get_path("purelib"))
    files = [
        path
        for path in place.rglob("*.py")
        if not _LEFT_OUT.match(str(path.relative_to(place)))
        and not Path(importlib.util.cache_from_source(path)).exists()
    ]
    # Some packages bring templates that are no Python: what cannot be compiled is not used.
    compiled = partial(compile_file, quiet=2, invalidation_mode=PycInvalidationMode[mode])
    try:
        with ProcessPoolExecutor() as pool:
            list(pool.map(compiled, files, chunksize=64))
    except (ImportError, NotImplementedError, OSError):  # a machine without semaphores, as some sandboxes are
        list(map(compiled, files))


if __name__ == "__main__":
    main(sys.argv[1])
