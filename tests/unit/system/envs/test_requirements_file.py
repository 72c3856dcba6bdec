"""Lists of requirements as people's repositories have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.system.envs.package_lists import entries_of, read_env_file, requirements


def listed(path: Path, text: str, name: str = "requirements.txt") -> Path:
    file = path / name
    file.write_text(text)
    return file


def test_a_list_as_it_is_found(tmp_path: Path) -> None:
    """Comments, blank lines, markers, lines that go on, hashes, options, other lists, an editor's mark."""
    listed(tmp_path, "pandas\n-r requirements.txt\n", "more.txt")
    text = (
        "\ufeff# what train.py needs\n\nhumanize>=4.0  # numbers\nnumpy ; python_version < '4'\n"
        "torch[extra]==2.0 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\n"
        "--extra-index-url https://index.example/simple\n-r more.txt\nrich @ https://example.com/rich#egg=rich\n"
    )
    assert entries_of(listed(tmp_path, text)) == [
        "humanize>=4.0",
        "numpy ; python_version < '4'",
        "torch[extra]==2.0",
        "--extra-index-url https://index.example/simple",
        "pandas",
        "rich @ https://example.com/rich#egg=rich",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-e .", "'-e .' is on this machine only; your own code goes by itself"),
        (".", "'.' is on this machine only"),
        ("./lib", "is on this machine only"),
        ("wheels/mine-1.0-py3-none-any.whl", "is on this machine only"),
        ("file:///home/me/lib", "is on this machine only"),
        ("-c constraints.txt", "names constraints, which are not taken"),
        ("-r nowhere.txt", "nowhere.txt cannot be read"),
    ],
)
def test_what_no_other_machine_has_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        entries_of(listed(tmp_path, f"pandas\n{line}\n"))


def test_it_is_as_good_as_an_environment_file(tmp_path: Path) -> None:
    """Options are lines, as of a `pip:` list."""
    file = listed(tmp_path, "pandas\n--find-links https://example.com\n")
    assert read_env_file(file).pip == ["pandas", "--find-links https://example.com"]
    assert requirements(file) == ["pandas", "--find-links https://example.com"]
    assert requirements(listed(tmp_path, "# nothing\n")) == []
