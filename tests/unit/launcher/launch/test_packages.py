"""What --with adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.launcher.launch.entry_point import packages_of


@pytest.mark.parametrize(
    ("texts", "packages"),
    [
        ([], []),
        (["pandas"], ["pandas"]),
        (["pandas,torchvision", "lightgbm==4.6.0"], ["pandas", "torchvision", "lightgbm==4.6.0"]),
        (["pandas>=2,<3,xarray"], ["pandas>=2,<3", "xarray"]),
        (["dask[array, dataframe]>=1, !=2 , a"], ["dask[array, dataframe]>=1, !=2", "a"]),
        (["pandas; python_version < '3.12',a~=1"], ["pandas; python_version < '3.12'", "a~=1"]),
        (["mine @ git+https://example.org/r@v1"], ["mine @ git+https://example.org/r@v1"]),
        (["a,a", "a"], ["a"]),
    ],
)
def test_requirements_are_taken_apart_at_their_commas(texts: list[str], packages: list[str]) -> None:
    """But for those that are a requirement's own."""
    assert packages_of(texts, "") == tuple(packages)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("./mine", "./mine"),
        ("a,/abs", "/abs"),
        ("a,,b", ""),
        ("x-1.0-py3-none-any.whl", "x-1.0-py3-none-any.whl"),
        ("git+https://example.org/r", "git+https://example.org/r"),
        ("folder/x", "folder/x"),
    ],
)
def test_what_is_no_requirement_is_refused(text: str, word: str) -> None:
    """A path would be installed once, and never again when its content changes."""
    with pytest.raises(UsageError) as caught:
        packages_of([text], "")
    assert str(caught.value) == (
        f"--with '{word}' is not a package as pip names it, such as pandas or 'pandas>=2,<3'; "
        "a folder of yours is given with --code"
    )


def test_an_environment_of_ones_own_has_its_own_packages() -> None:
    """Nothing of ours is put there."""
    with pytest.raises(UsageError) as caught:
        packages_of(["pandas>=2", "a"], "env")
    assert str(caught.value) == (
        "--with adds to the framework's own environment, not to --python env; "
        "install them there: python -m pip install 'pandas>=2' a"
    )


@pytest.mark.parametrize(
    "text", ["requirements.txt", "-r requirements.txt", "--requirement=requirements.txt", "-rrequirements.txt"]
)
def test_a_list_of_requirements_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Which every repository has; also beside others, and by its path."""
    (tmp_path / "requirements.txt").write_text("humanize>=4.0  # numbers\npandas\n")
    monkeypatch.chdir(tmp_path)
    assert packages_of([f"rich,{text}", "pandas"], "") == ("rich", "humanize>=4.0", "pandas")
    assert packages_of([f"{tmp_path}/requirements.txt"], "") == ("humanize>=4.0", "pandas")


def test_a_list_that_cannot_be_added_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip alone understands goes with the file: there it is read by pip."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"requirements.txt cannot be read: .*No such file"):
        packages_of(["requirements.txt"], "")
    with pytest.raises(SettingsError, match=r"~nobody-of-this-name/r.txt cannot be read: .*No such file"):
        packages_of(["~nobody-of-this-name/r.txt"], "")
    (tmp_path / "requirements.txt").write_text("--pre\npandas\n")
    with pytest.raises(
        UsageError, match=r"'--pre' is an option of pip's, and no package; set EXTRA_ENV=requirements.txt"
    ):
        packages_of(["requirements.txt"], "")
