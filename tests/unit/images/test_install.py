"""The environment of an image: what is installed, refused, removed and compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from unit.images.image import Image, wheel

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.images import install as image_environment
from oci_cluster.images.install import main, read_env_file
from oci_cluster.system.envs import installer

HOOK = """#!/bin/sh
printf '%s\\n' "$*" >>"$2/called"
shift 2
exec "$@" hooked==1
"""
# Keeps the environment file that it is given, and makes of a venv what it was asked for.
CONDA = """#!/bin/sh
printf '%s\\n' "$*" >"$KEPT/call"
while [ $# -gt 0 ]; do
  case "$1" in --prefix) prefix="$2" ;; --file) cp "$2" "$KEPT/file" ;; esac
  shift
done
"$PYTHON" -m venv --without-pip "$prefix"
mkdir "$prefix/conda-meta" && touch "$prefix/conda-meta/gdal-3.8-h1.json"
"""


# --- Files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "just text", "name: x", "dependencies: 3", "a: [", "dependencies: ["])
def test_what_is_no_environment_file_is_named(tmp_path: Path, text: str) -> None:
    """So is one that is not there."""
    path = tmp_path / "env.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"env.yaml is not a conda environment file"):
        read_env_file(path)
    path.unlink()
    with pytest.raises(SettingsError, match="FileNotFoundError"):
        read_env_file(path)


# --- Without conda --------------------------------------------------------------------------------------------------


def test_all_files_are_installed_into_one_environment(image: Image) -> None:
    """What they ask for is there, compiled, and listed exactly; the launcher's environment does not show."""
    image.install(image.file("one==1", conda=("python>=3.10", "pip")), image.file("two==1", name="extra"))
    assert image.run("import one, two; print(one.version, two.version)") == "1 1"
    assert image.packages == ["one==1", "two==1"]
    compiled = next(image.site_packages.glob("__pycache__/one.*.pyc")).read_bytes()
    # PEP 552: bit 0 is a hash in the place of a time, bit 1 that it is looked at.
    assert int.from_bytes(compiled[4:8], "little") == 0b01


def test_options_in_a_list_are_options(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a requirements file: a place that only this file names."""
    monkeypatch.delenv("PIP_FIND_LINKS")
    image.install(image.file(f"--find-links {image.wheels}", "one==2"))
    assert image.packages == ["one==2"]


def test_an_index_with_a_password_is_in_no_arguments(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody on the machine of a build sees these."""
    url, asked = "https://me:hunter2@index.example/simple", []

    def note(command: Sequence[object], _: object, environ: Mapping[str, str]) -> None:
        asked.append(([str(word) for word in command], environ.get("UV_DEFAULT_INDEX")))
        if "install" in command:
            raise BackendError("it was asked")

    monkeypatch.setattr(installer, "run_installer", note)
    monkeypatch.setenv("PIP_INDEX_URL", url)
    with pytest.raises(BackendError, match="it was asked"):
        image.install(image.file("one==2"))
    assert asked[-1][1] == url
    assert "hunter2" not in str([words for words, _ in asked])


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("needy==1", "one>=2", ("needy==1", "one<2", "one>=2")),
        ("one==1", "one==2", ("one==1 and one==2",)),
    ],
)
def test_a_conflict_is_named_by_the_installer(image: Image, one: str, other: str, words: tuple[str, ...]) -> None:
    """Both requirements are in its words, and the files; it is a wrong setting (78)."""
    with pytest.raises(SettingsError) as caught:
        image.install(image.file(one), image.file(other, name="extra"))
    for word in (*words, "dask/env.yaml, ", "dask/extra.yaml;"):
        assert word in str(caught.value)


def test_an_installer_that_fails_is_no_setting(image: Image) -> None:
    """It is told in its own words (69), and there is no list of what is not there."""
    file = image.file("one==1")
    hook = image.place / "dask" / "post-install.sh"
    hook.write_text("#!/bin/sh\necho 'no compiler' >&2\nexit 3\n")
    hook.chmod(0o755)
    with pytest.raises(BackendError, match="no compiler"):
        image.install(file)
    assert not (image.directory / "packages.txt").exists()


def test_packages_of_conda_need_conda(image: Image) -> None:
    """Each is named with its file, and so is a Python that the base does not have; before anything is made."""
    files = [
        image.file("one==1", conda=("gdal=3.8", "pip")),
        image.file(conda=("python>=3.99", "r-base"), name="extra"),
    ]
    with pytest.raises(SettingsError) as caught:
        image.install(*files)
    for part in (
        "dask/env.yaml asks for the conda package 'gdal=3.8'",
        "extra.yaml asks for 'python>=3.99'",
        "'r-base'",
    ):
        assert part in str(caught.value)
    assert not image.directory.exists()


@pytest.mark.parametrize(
    ("entry", "fits"),
    [
        ("python", True),
        ("python>=3.10", True),
        ("python=3", True),
        (f"python={sys.version_info[0]}.{sys.version_info[1]}", True),
        (f"python=={sys.version_info[0]}.{sys.version_info[1]}.*", True),
        ("python=3.1", False),
        ("python<3.10", False),
        ("python=spam", False),
    ],
)
def test_the_bases_python_has_to_be_what_is_asked_for(image: Image, entry: str, *, fits: bool) -> None:
    """In conda's words, where = is a beginning."""
    files = [read_env_file(image.file("one==1", conda=(entry,)))]
    if fits:
        image_environment._check_without_conda(files)
    else:
        with pytest.raises(SettingsError, match="python"):
            image_environment._check_without_conda(files)


def test_a_post_install_script_is_run_once_for_its_folder(image: Image) -> None:
    """With interpreter, cache, and the command that installs; what it installs is listed and compiled."""
    files = [image.file("one==1"), image.file("two==1", name="extra")]
    hook = image.place / "dask" / "post-install.sh"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    image.install(*files)
    called = (image.place / "cache" / "called").read_text()
    assert called.startswith(f"{image.directory}/bin/python {image.place}/cache ")
    assert called.count("\n") == 1
    assert "hooked==1" in image.packages
    assert [*image.site_packages.glob("__pycache__/hooked.*.pyc")]


SDK = {"oci/__init__.py": "", "oci/config.py": "", "oci/auth/signers.py": ""} | {
    f"oci/{service}/models/x.py": "" for service in ("object_storage", "secrets", "database", "data_safe")
}


def test_of_the_sdk_stays_what_nodes_and_scripts_use(image: Image) -> None:
    """Services that nobody here knows of go, with their compiled files; all that is no service stays."""
    wheel(image.wheels, "oci", "1", SDK)
    image.install(image.file("oci==1", folder="common"))
    assert sorted(path.name for path in (image.site_packages / "oci").iterdir() if path.is_dir()) == [
        "__pycache__",
        "auth",
        "object_storage",
        "secrets",
    ]


def test_the_whole_sdk_stays_for_who_asks_for_it(image: Image) -> None:
    """A second file that names it is the user's own."""
    wheel(image.wheels, "oci", "1", SDK)
    image.install(image.file("oci==1", folder="common"), image.file("oci", name="mine"))
    assert (image.site_packages / "oci" / "database").is_dir()


def test_what_no_node_loads_is_removed(image: Image) -> None:
    """Tests of packages that are known to have many; another package's are nobody's business."""
    gone = [
        "numpy/tests/test_a.py",
        "scipy/io/tests/test_b.py",
        "scipy/io/tests/data/c.mat",
        "torch/test/c",
        "torch/bin/test_jit",
        "torch/bin/protoc-3",
    ]
    gone += ["torch/bin/HashStoreTest", "bokeh/server/static/js/lib/d.ts", "bokeh/server/static/js/bokeh.js"]
    kept = [
        "numpy/testing/test_a.py",
        "numpy/tests/_natype.py",
        "numpy/tests/__init__.py",
        "torch/bin/torch_shm_manager",
        "torch/testing/x.py",
        "mine/tests/test_a.py",
    ]
    gone += ["pandas/tests/frame/test_a.py", "pyarrow/tests/util.py", "pyarrow/include/arrow/api.h"]
    kept += ["pandas/_testing/x.py", "pandas/testing.py"]
    kept += ["bokeh/server/static/js/bokeh.min.js", "bokeh/server/static/js/other.js"]
    wheel(image.wheels, "big", "1", dict.fromkeys([*gone, *kept], ""))
    image.install(image.file("big==1"))
    assert [name for name in gone if (image.site_packages / name).exists()] == []
    assert [name for name in kept if not (image.site_packages / name).exists()] == []


def test_what_cannot_be_compiled_is_no_failure(image: Image) -> None:
    """Some packages bring templates that are no Python."""
    wheel(image.wheels, "odd", "1", {"odd.py": "{% name %}", "odd_two.py": ""})
    image.install(image.file("odd==1"))
    assert [path.name.partition(".")[0] for path in image.site_packages.glob("__pycache__/odd*")] == ["odd_two"]


# --- With conda -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conda", ["conda", "mamba", "micromamba"])
def test_conda_is_given_all_files_as_one(image: Image, conda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It solves them together; what it installed is listed with its build."""
    (image.place / "bin").mkdir()
    (image.place / "bin" / conda).write_text(CONDA)
    (image.place / "bin" / conda).chmod(0o755)
    monkeypatch.setenv("PATH", f"{image.place}/bin:/usr/bin:/bin")
    monkeypatch.setenv("KEPT", str(image.place))
    monkeypatch.setenv("PYTHON", sys.executable)
    image.install(
        image.file("one==1", conda=("python>=3.10", "pip")), image.file("two", conda=("gdal=3.8",), name="mine")
    )
    assert json.loads((image.place / "file").read_text()) == {
        "channels": ["conda-forge"],
        "dependencies": ["python>=3.10", "pip", "gdal=3.8", {"pip": ["one==1", "two"]}],
    }
    words = (image.place / "call").read_text().split()
    assert words[: 2 if conda != "micromamba" else 3] == (
        ["env", "create"] if conda != "micromamba" else ["create", "--yes", "--prefix"]
    )
    assert image.packages == ["conda gdal-3.8-h1"]


# --- The program ----------------------------------------------------------------------------------------------------


def test_the_program_says_what_is_wrong_and_how_it_ends(
    image: Image, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0, or the code of what is wrong."""
    monkeypatch.setenv("INSTALL_CACHE", str(image.place / "cache"))
    assert main([str(image.directory), str(image.file("one==1"))]) == 0
    assert main([str(image.place / "other"), str(image.file("one==1", conda=("gdal",)))]) == 78
    assert "install-env.sh: error: " in capsys.readouterr().err


def test_the_build_is_given_what_the_program_imports_and_no_more() -> None:
    """Dockerfiles copy single files, so that a change of another does not install everything again.

    One is run by the environment's own Python, and not imported.
    """
    root = Path(__file__).parents[3]
    code = "import sys; from oci_cluster.images import install; print(*(m for m in sys.modules if 'oci_cluster' in m))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root / "common", capture_output=True, text=True, check=True)
    paths = [f"common/{name.replace('.', '/')}" for name in done.stdout.split()]
    loaded = {f"{path}/__init__.py" if (root / path).is_dir() else f"{path}.py" for path in paths}
    dockerfiles = list(root.glob("*/Dockerfile"))
    assert len(dockerfiles) == 5
    for dockerfile in dockerfiles:
        words = dockerfile.read_text().split()
        copied = [word for word in words if word.startswith("common/oci_cluster/") and word.endswith(".py")]
        assert sorted(copied) == sorted({*loaded, "common/oci_cluster/system/envs/bytecode.py"})


def test_an_image_has_all_that_its_start_scripts_call() -> None:
    """The example is the code, live/ is sent as code, and the others are of no use on a node."""
    root = Path(__file__).parents[3]
    folders = [
        path
        for dockerfile in root.glob("*/Dockerfile")
        for path in dockerfile.parent.iterdir()
        if path.is_dir() and path.name not in {"example", "live", "client", "post-install", "__pycache__"}
    ]
    assert len(folders) >= 8
    for path in folders:
        name = f"{path.parent.name}/{path.name}"
        assert f"COPY {name} ./{name}\n" in (path.parent / "Dockerfile").read_text()
