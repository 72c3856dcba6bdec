"""Which files of a folder of code go: compared with git itself, and with what images leave out."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.system.code_files import NEVER_SENT_AS_CODE, code_files, docker_lines

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my code"
    path.mkdir()
    return path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def going(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in code_files(folder).paths]


def as_git_says(folder: Path, scratch: Path) -> list[str]:
    """Return the files that git would add, by their .gitignore files alone; hidden ones are none of ours."""
    git = ["git", f"--git-dir={scratch}", f"--work-tree={folder}"]
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "--quiet", "--bare", str(scratch)], check=True, env=environ)
    listed = subprocess.run(
        [*git, "ls-files", "--others", "-z", "--exclude-per-directory=.gitignore"],
        check=True, capture_output=True, text=True, cwd=folder, env=environ,
    ).stdout  # fmt: skip
    return sorted(name for name in listed.split("\0") if name and ".gitignore" not in name)


# --- Keys and settings ------------------------------------------------------------------------------------------------


def test_images_and_archives_leave_out_the_same_names() -> None:
    """`.dockerignore` is for engines, which read no Python."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns == docker_lines()


NAMES = [
    *(".env", ".netrc", ".oci/config", ".ssh/id_rsa", ".git/config", "config.env", "lib/config.env", "a.pem"),
    *("certs/a.key", "id_rsa", "id_rsa.old", "keys/id_ed25519", "id_ecdsa_sk", "id_dsa", "x.p12", "x.pfx", "x.ppk"),
    *("A.PEM", "certs/B.Key", "x.jks", "x.keystore", "lib/__pycache__/a.pyc", "node_modules/a.js", "config.mk"),
    *("prod.env", "kubeconfig", "my.kubeconfig", "wallet/cwallet.sso", "wallet/ewallet.p12", "ewallet.sso", "_netrc"),
    *("terraform.tfstate", "terraform.tfstate.backup", "prod.tfvars", "Credentials.json", "client_secret_1.json"),
]


@pytest.mark.parametrize("pattern", sorted({*NEVER_SENT_AS_CODE} - {"config.env"}))
def test_each_pattern_is_needed_for_a_name(pattern: str) -> None:
    """Settings of a launch end with `.env`: an image has others."""
    fits = [
        {one for one in NEVER_SENT_AS_CODE for part in Path(name).parts if fnmatchcase(part.lower(), one)}
        for name in NAMES
    ]
    assert {pattern} in fits


@pytest.mark.parametrize("name", NAMES)
def test_no_ignore_file_brings_a_key_back(folder: Path, name: str) -> None:
    """Neither of the two kinds, wherever it stands."""
    write(folder, {"train.py": "", name: "secret", ".gitignore": f"!{name}\n!*\n", ".dockerignore": f"!{name}\n!**\n"})
    assert going(folder) == ["train.py"]


def test_keys_are_named_and_what_tools_make_is_not(folder: Path) -> None:
    """Somebody may wonder where a certificate is, and nobody where .git is."""
    write(folder, {"train.py": "", "certs/ca.pem": "", ".git/x": "", "node_modules/x": "", "config.env": ""})
    found = code_files(folder)
    assert sorted(found.keys) == ["certs/ca.pem", "config.env"]
    assert found.why_left_out("certs/ca.pem") == "'*.pem' is never sent"
    assert found.why_left_out("node_modules/x") == "'node_modules' is never sent"
    assert found.why_left_out("train.py") == ""


@pytest.mark.parametrize("sign", ["pyvenv.cfg", "conda-meta/history"])
def test_python_environments_stay_under_any_name(folder: Path, tmp_path: Path, sign: str) -> None:
    """Also where a link leads to one, and no ignore file brings one back."""
    write(folder, {"train.py": "", f"lib/my env/{sign}": "", "lib/my env/lib/x.py": "", "lib/a.py": ""})
    write(tmp_path / "elsewhere", {sign: ""})
    (folder / "env").symlink_to(tmp_path / "elsewhere")
    (folder / ".gitignore").write_text("!lib/my env/\n")
    found = code_files(folder)
    assert going(folder) == ["lib/a.py", "train.py"]
    assert found.environments == ["env", "lib/my env"]
    assert found.why_left_out("lib/my env/lib/x.py") == "'my env' is a Python environment, which is never sent"


# --- .gitignore -------------------------------------------------------------------------------------------------------

RULES = [
    "*.txt\n!keep.txt\n",
    "*\n!*/\n!*.py\n",  # the usual way to name what stays
    "data/\n!data/keep.txt\n",  # git does not look into a folder that is left out
    "data/*\n!data/keep.txt\n",
    "/a.py\nlib/b.py\n",
    "**/b.py\n",
    "lib/**\n!lib/deep/\n",
    "deep/\n!**/deep/**\n",
    "lib/**/c.txt\n",
    "# a.py\n\\#a.py\n  \na.py  \n",
    "\ufeffa.py\r\nb.py\r\n",
    "[ab].py\n",
    "a?py\n",
    "deep\n!lib/deep\n",
]
TREE = ("a.py", "b.txt", "keep.txt", "#a.py", "data/keep.txt", "data/x.bin", "data/deep/keep.txt", "lib/b.py",
        "lib/c.txt", "lib/deep/c.txt", "lib/deep/d.py", "lib/data/a.py")  # fmt: skip


@pytest.mark.parametrize("rules", RULES)
def test_gitignore_means_what_git_means_by_it(folder: Path, tmp_path: Path, rules: str) -> None:
    """Order, `!`, folders, `**`, comments: asked of git."""
    write(folder, dict.fromkeys(TREE, ""))
    (folder / ".gitignore").write_text(rules)
    assert going(folder) == as_git_says(folder, tmp_path / "git")


def test_any_mixture_means_what_git_means_by_it(folder: Path, tmp_path: Path) -> None:
    """Several files in several folders, lines in any order; the same ones in each run of this test."""
    chance = random.Random(7)  # noqa: S311 - no secret
    lines = ["*", "!*/", "*.py", "!*.py", "*.txt", "!keep.txt", "data", "data/", "!data/", "lib/*", "!lib/deep",
             "deep/", "/a.py", "!/a.py", "**/c.txt", "lib/**", "!lib/**/d.py", "**", "!**/deep/**"]  # fmt: skip
    write(folder, dict.fromkeys(TREE, ""))
    for number in range(40):
        for place in ("", "lib", "lib/deep", "data"):
            rules = folder / place / ".gitignore"
            rules.unlink(missing_ok=True)
            if not place or chance.random() < 0.4:
                rules.write_text("".join(f"{line}\n" for line in chance.sample(lines, chance.randint(1, 4))))
        said = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob(".gitignore")}
        assert (said, going(folder)) == (said, as_git_says(folder, tmp_path / f"git {number}"))


def test_a_link_to_a_folder_is_no_folder(folder: Path, tmp_path: Path) -> None:
    """As git has it: `data/` leaves out folders alone."""
    write(folder, {"lib/b.py": "", ".gitignore": "data/\n"})
    (folder / "data").symlink_to("lib")
    assert going(folder) == as_git_says(folder, tmp_path / "git") == ["data", "lib/b.py"]


# --- .dockerignore ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "gone"),
    [
        ("a.py\n", ["a.py"]),
        ("b.py\n", []),  # every line begins at the folder itself
        ("**/b.py\n", ["lib/b.py"]),
        ("*.txt\n", ["b.txt", "keep.txt"]),
        ("/lib/\n!lib/deep/d.py\n", ["lib/b.py", "lib/c.txt", "lib/data/a.py", "lib/deep/c.txt"]),
        ("lib\n!lib/deep\n", ["lib/b.py", "lib/c.txt", "lib/data/a.py"]),
        ("!lib/deep\nlib\n", ["lib/b.py", "lib/c.txt", "lib/data/a.py", "lib/deep/c.txt", "lib/deep/d.py"]),
        ("# a.py\n./data/../a.py\n", ["a.py"]),
        (".\n/\n\n", []),
    ],
)
def test_dockerignore_means_what_docker_means_by_it(folder: Path, rules: str, gone: list[str]) -> None:
    """Source: docker's reference of .dockerignore files."""
    write(folder, dict.fromkeys(TREE, ""))
    (folder / ".dockerignore").write_text(rules)
    assert sorted({*TREE} - {*going(folder)}) == gone


def test_both_files_count(folder: Path) -> None:
    """What one of them leaves out, the other does not bring back."""
    write(folder, {"a.py": "", "b.py": "", "c.py": "", ".gitignore": "a.py\n!b.py\n", ".dockerignore": "b.py\n!a.py\n"})
    assert going(folder) == ["c.py"]


# --- What cannot be understood ----------------------------------------------------------------------------------------


def test_a_line_that_is_no_pattern_is_named(folder: Path) -> None:
    """What it was meant to keep out would go."""
    write(folder, {"a.py": "", ".gitignore": "*.txt\nends\\\n"})
    with pytest.raises(SettingsError, match=r"my code/\.gitignore: 'ends\\' is no pattern: .*; correct it, or take it"):
        code_files(folder)


def test_an_ignore_file_that_cannot_be_read_ends_the_launch(folder: Path) -> None:
    """Not as if there were none."""
    (folder / ".gitignore").mkdir()
    write(folder, {"a.py": ""})
    with pytest.raises(SettingsError, match=r"/\.gitignore cannot be read: Is a directory; .*: allow reading it"):
        code_files(folder)
