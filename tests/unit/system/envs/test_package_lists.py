"""What env.yaml asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.system.fake_checkout import ENV_YAML

from oci_cluster.errors import SettingsError
from oci_cluster.system.envs.package_lists import requirements


def needs(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "env.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return requirements(path)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        needs(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path / 'env.yaml'} ")


def test_the_pip_list_is_what_is_needed(tmp_path: Path) -> None:
    """Python and pip themselves are there; everything in the pip list is needed, in its order."""
    assert needs(tmp_path, "name: x\n" + ENV_YAML) == ["dask==1.0", "bokeh==2.0"]


@pytest.mark.parametrize("python", ["python", "python=3.11", "python >=3.10", "pip", "pip==24"])
def test_python_and_pip_are_there_already(tmp_path: Path, python: str) -> None:
    """Any way of asking for python or pip is met by the venv."""
    assert needs(tmp_path, f"dependencies: ['{python}', {{pip: [a]}}]") == ["a"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "dependencies: [python, numpy, cudatoolkit=11, {pip: [a]}]",
            "asks for conda packages (numpy, cudatoolkit=11)",
        ),
        ("dependencies: [pythonnet, {pip: [a]}]", "asks for conda packages (pythonnet)"),
        ("dependencies: [python]", "has no 'pip:' list"),
        ("dependencies: [{pip: }]", "has no 'pip:' list"),
        ("dependencies: []", "has no 'pip:' list"),
    ],
)
def test_what_a_venv_cannot_have_is_named(tmp_path: Path, text: str, why: str) -> None:
    """Conda packages, and a file without pip packages, are refused with the two ways out."""
    assert refusal(tmp_path, text) == (
        f"{why}; a local cluster has pip packages only: list them under 'pip:', or use --python"
    )


@pytest.mark.parametrize("package", ["python-dateutil", "pip-tools=7", "python.app"])
def test_a_package_whose_name_begins_with_python_is_a_package(tmp_path: Path, package: str) -> None:
    """python-dateutil is not python: a conda package of such a name is refused, not left out silently."""
    assert refusal(tmp_path, f"dependencies: [{package}, {{pip: [a]}}]").startswith("asks for conda packages")


@pytest.mark.parametrize("text", ["", "[]", "dependencies:", "dependencies: 7", "name: x", "a: b: c", "\t"])
def test_what_is_no_conda_environment_is_named(tmp_path: Path, text: str) -> None:
    """A file of another shape, or no YAML at all, is refused by name."""
    assert refusal(tmp_path, text).startswith("is not a conda environment file with a 'dependencies' list: ")


def test_an_env_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file is refused by name."""
    with pytest.raises(SettingsError, match="is not a conda environment file"):
        requirements(tmp_path / "none.yaml")


def test_an_env_file_is_never_run(tmp_path: Path) -> None:
    """YAML can name Python objects: they are refused, not made."""
    witness = tmp_path / "witness"
    text = f"dependencies: !!python/object/apply:os.mkdir ['{witness}']"
    assert refusal(tmp_path, text).startswith("is not a conda environment file")
    assert not witness.exists()


def test_an_env_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    """A file that is no UTF-8 is a wrong setting, not a crash."""
    with pytest.raises(SettingsError):
        needs(tmp_path, b"dependencies: [{pip: [a]}] # caf\xe9\n")


def test_a_pip_entry_that_is_no_list_is_refused(tmp_path: Path) -> None:
    """`pip: numpy` is a slip for a list of one, and no list of letters."""
    with pytest.raises(SettingsError):
        needs(tmp_path, "dependencies: [{pip: numpy}]")
