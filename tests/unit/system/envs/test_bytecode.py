"""What an environment has is compiled, but for what hardly anybody imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from oci_cluster.system.envs import bytecode

COMPILED = ("one.py", "big/_testing/x.py", "oci/core/models/x.py", "oci/database/client.py", "testing/x.py")
COMPILED += ("services/__init__.py", "services/core/x.py")
# Of OCI's SDK and of oci-cli: an image keeps and compiles what scripts use.
NOT_ASKED = ("oci/database/models/x.py", "services/database/x.py")
LEFT_OUT = ("big/tests/test_x.py", "big/deep/test/x.py", "services/core/tests/x.py")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Return the packages of an environment whose path looks like one that is left out."""
    environment = tmp_path / "tests" / "envs" / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    place = next(environment.glob("lib/python*/site-packages"))
    for name in (*COMPILED, *NOT_ASKED, *LEFT_OUT):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    (place / "template.py").write_text("{% name %}")
    return place


def compile_packages(packages: Path, kind: str = "checkout", before: str = "") -> str:
    program = ["-c", f"{before}\nimport runpy, sys\nrunpy.run_path(sys.argv.pop(1), run_name='__main__')"]
    command = [packages.parents[2] / "bin" / "python", "-I", *program, bytecode.__file__, kind]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def compiled(packages: Path) -> set[str]:
    found = packages.rglob("__pycache__/*.pyc")
    return {f"{path.parents[1].relative_to(packages)}/{path.name.partition('.')[0]}.py".lstrip("./") for path in found}


NO_SEMAPHORES = "import multiprocessing.synchronize\nmultiprocessing.synchronize.Lock = lambda **_: open('/none')"
# As where memory runs out: the first of several that compile is killed.
KILLED = """
import compileall, functools, multiprocessing, os
compile_here = compileall.compile_file

@functools.wraps(compile_here)
def compile_file(*words, **named):
    return os._exit(9) if multiprocessing.parent_process() else compile_here(*words, **named)

compileall.compile_file = compile_file
"""


@pytest.mark.parametrize("before", ["", NO_SEMAPHORES, KILLED], ids=["usual", "no semaphores", "killed"])
def test_what_is_imported_is_compiled(packages: Path, before: str) -> None:
    """Also by one process, where there cannot be several; what is no Python is passed over without a word."""
    assert compile_packages(packages, before=before) == ""
    assert compiled(packages) == set(COMPILED)


def test_an_image_has_all_of_the_sdk_that_it_has_kept(packages: Path) -> None:
    """Its user cannot write there: what is not compiled would be at each start."""
    compile_packages(packages, "image")
    assert compiled(packages) == {*COMPILED, *NOT_ASKED}


def test_what_is_compiled_is_not_again(packages: Path) -> None:
    """Packages that are added are: an environment may get them later."""
    compile_packages(packages)
    (kept,) = packages.glob("__pycache__/one.*.pyc")
    kept.write_bytes(b"kept")
    (packages / "added.py").touch()
    compile_packages(packages)
    assert kept.read_bytes() == b"kept"
    assert compiled(packages) == {*COMPILED, "added.py"}


@pytest.mark.parametrize("folder", ["envs", "anybody's"])
def test_what_another_environment_has_compiled_of_the_same_file_is_its_own_too(packages: Path, folder: str) -> None:
    """The same file: uv links it into both. One of the same name, size and time may be another; beside, anybody's."""
    if folder != "envs":
        packages = packages.parents[3].rename(packages.parents[4] / folder) / packages.relative_to(packages.parents[3])
    environment = packages.parents[2]
    other = environment.with_name("other") / packages.relative_to(environment)
    for name in ("same.py", "alike.py", "uncompiled.py"):
        (packages / name).write_text("x = 1")
    shutil.copytree(packages, other, copy_function=os.link)
    (other / "alike.py").unlink()
    shutil.copy2(packages / "alike.py", other)
    (other / "__pycache__").mkdir()
    for name in ("same.py", "alike.py"):
        Path(cache_from_source(str(other / name))).write_bytes(b"compiled there")
    compile_packages(packages)
    found = {name: Path(cache_from_source(str(packages / name))).read_bytes() for name in ("same.py", "alike.py")}
    assert (found["same.py"] == b"compiled there") is (folder == "envs")
    assert found["alike.py"] != b"compiled there"
    assert compiled(packages) == {*COMPILED, "same.py", "alike.py", "uncompiled.py"}


def test_services_that_are_asked_are_services_of_the_sdk() -> None:
    """A name that is none would leave its models uncompiled: each start would be slower."""
    import oci  # noqa: PLC0415 - takes a second

    place = Path(oci.__file__).parents[1]
    parts = [part for name in bytecode._SERVICES for part in (f"oci/{name}/models", f"services/{name}")]
    assert [name for name in parts if not (place / name).is_dir()] == []
