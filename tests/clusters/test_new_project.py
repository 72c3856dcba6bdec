"""A project of the user's own, as new.sh makes it: launched there, edited, and brought to a newer version.

Its images, and launches of them, are in test_images.py, whose engine they share.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Project

CHECKOUT = Path(__file__).resolve().parents[2]
FRAMEWORKS = ("dask", "pytorch")

TRAIN = """
import os
from distributed import Client
from mine import double

with Client() as client:
    print("doubled", client.submit(double, 21).result(), "by", os.environ["NOTE"], flush=True)
"""
OWN = {
    "src/train.py": TRAIN,
    "src/mine.py": "def double(number):\n    return 2 * number\n",
    "tests/test_mine.py": "def test_mine():\n    pass\n",
    "README.md": "Mine\n",
    "Makefile": "build:\n\t@echo my own build\n",
}


class Own:
    """A user's project, the checkout that its templates come from, and newer versions of that."""

    def __init__(self, place: Path, path: str) -> None:
        self.place = place
        self.root = place / "work" / "my project"
        (place / "work").mkdir()
        self.environ = {"PATH": path, "HOME": str(place), "LANG": "C.UTF-8"}
        # git as it comes, with a name: nobody's configuration.
        (place / ".gitconfig").write_text(
            "[user]\n\tname = t\n\temail = t@example.com\n[init]\n\tdefaultBranch = main\n"
        )

    def run(self, *words: str | Path, cwd: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd or self.root,
            env={**self.environ, "GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    def new(self, *options: str) -> str:
        words = (*FRAMEWORKS, self.root.name, "--code", "src", "--entry", "train.py", *options)
        return self.run(CHECKOUT / "scripts" / "new.sh", *words, cwd=self.root.parent).stdout

    def newer(self, name: str) -> Path:
        """Return a copy of the checkout, which a test makes a newer version of."""
        newer = self.place / name
        ignored = shutil.ignore_patterns("__pycache__")
        for folder in ("common", "docs", "scripts", *FRAMEWORKS):
            shutil.copytree(CHECKOUT / folder, newer / folder, ignore=ignored)
        for file in ("LICENSE", "config.env.example", ".dockerignore"):
            shutil.copy(CHECKOUT / file, newer / file)
        return newer

    def lend_environment(self) -> None:
        """Have the checkout's Python environments there: making them takes minutes."""
        (self.root / ".venv").symlink_to(CHECKOUT / ".venv")


def insert(path: Path, line: str, *, behind: str = "set -Eeuo pipefail") -> None:
    text = path.read_text()
    assert behind in text, path
    path.write_text(text.replace(behind, f"{behind}\n{line}", 1))


@pytest.fixture
def own(tmp_path: Path) -> Own:
    return Own(tmp_path, os.environ["PATH"])


@pytest.fixture
def launched(own: Own, tmp_path: Path) -> Iterator[Project]:
    """Return what launches in the project's root, as its user does."""
    (tmp_path / "launches").mkdir()
    project = Project(own.root, tmp_path / "launches")
    project.code = own.root
    yield project
    project.end_all()


def test_a_project_with_a_history_of_its_own(own: Own, launched: Project) -> None:
    """Launched on its own code, edited, brought to two newer versions: git shows what should differ, and no more."""
    for name, text in OWN.items():
        (own.root / name).parent.mkdir(parents=True, exist_ok=True)
        (own.root / name).write_text(text)
    own.run("git", "init", "--quiet")
    own.run("git", "add", ".")
    own.run("git", "commit", "--quiet", "-m", "mine")
    own.lend_environment()
    assert "         + include scripts/clusters.mk\n" in own.new()
    own.new()
    # Of what was there, git sees one line, in the Makefile.
    assert own.run("git", "diff", "--stat").stdout.count("|") == 1
    assert own.run("make", "build").stdout == "my own build\n"
    own.run("git", "add", ".")
    own.run("git", "commit", "--quiet", "-m", "templates")
    assert own.run("git", "status", "--short", "--ignored").stdout == "!! .venv\n!! config.env\n"

    insert(own.root / "dask" / "start-worker.sh", 'echo "my own start script"')
    insert(own.root / "dask" / "example" / "train.py", "# my own remark", behind='"""')
    assert own.root.joinpath("dask/example/train.py").read_text().count("# my own remark") == 1
    for settings in ("dask/settings.env", "config.env"):
        with (own.root / settings).open("a") as file:
            file.write("# my own setting\n")
    launch = launched.launch("dask", "1", "--env", "NOTE", NOTE="version 1")
    assert launch.wait() == 0, launch.err
    assert "doubled 42 by version 1" in launch.out
    assert "WORKER_1 | my own start script" in launch.out
    own.run("git", "commit", "--quiet", "-am", "my edits")

    newer = takes_a_newer_version(own, launched)
    names_a_conflict(own, newer)


def takes_a_newer_version(own: Own, launched: Project) -> Path:
    """The user's edits and those of the newer version are both there, and run; returns that version."""
    newer = own.newer("newer version")
    with (newer / "dask" / "start-worker.sh").open("a") as script:
        script.write("# a line of the newer version\n")
    insert(newer / "dask" / "start-master.sh", 'echo "the newer start script"')
    (newer / "scripts" / "more.sh").write_text("# more\n")
    insert(newer / "common" / "start-lib.sh", "# newer", behind="# shellcheck shell=bash")
    (newer / "dask" / "client" / "address.env").unlink()
    was = next((own.root / "vendor").iterdir()).name
    before = own.run("git", "status", "--short").stdout
    shown = own.run("./scripts/update.sh", newer, "--dry-run").stdout
    assert "merged    dask/start-worker.sh" in shown
    assert own.run("git", "status", "--short").stdout == before == ""
    own.run("./scripts/update.sh", newer)
    assert own.run("git", "status", "--short").stdout.splitlines() == [
        " D dask/client/address.env",
        " M dask/start-master.sh",
        " M dask/start-worker.sh",
        f" D vendor/{was}",
        "?? scripts/more.sh",
        f"?? vendor/{next((own.root / 'vendor').iterdir()).name}",
    ]
    assert "my own remark" in (own.root / "dask/example/train.py").read_text()
    for settings in ("dask/settings.env", "config.env"):
        assert (own.root / settings).read_text().endswith("# my own setting\n")
    launch = launched.launch("dask", "1", "--env", "NOTE", NOTE="version 2")
    assert launch.wait() == 0, launch.err
    for line in ("doubled 42 by version 2", "WORKER_1 | my own start script", "MAIN     | the newer start script"):
        assert line in launch.out
    assert "# newer" in (own.root / "common" / "start-lib.sh").read_text()
    own.run("git", "add", ".")
    own.run("git", "commit", "--quiet", "-m", "newer")
    assert "nothing to change" in own.run("./scripts/update.sh", newer).stderr
    assert own.run("git", "status", "--short").stdout == ""
    return newer


def names_a_conflict(own: Own, newer: Path) -> None:
    """Where the user and the newest version have changed the same line."""
    newest = shutil.copytree(newer, own.place / "newest version")
    insert(newest / "dask" / "start-worker.sh", 'echo "their start script"')
    done = own.run("./scripts/update.sh", newest, code=1)
    assert "CONFLICT  dask/start-worker.sh" in done.stdout
    assert "these need you: dask/start-worker.sh" in done.stderr
    text = (own.root / "dask" / "start-worker.sh").read_text()
    assert '<<<<<<< your project\necho "my own start script"\n=======\necho "their start script"\n>>>>>>>' in text
    assert [line for line in own.run("git", "status", "--short").stdout.splitlines() if "vendor/" not in line] == [
        " M dask/start-worker.sh",
    ]


def test_an_empty_folder_on_a_machine_without_git(tmp_path: Path) -> None:
    """In a path with blanks, offline: made, tried, brought to a newer version."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for path in Path(folder).iterdir():
            if path.name != "git" and not (bin_dir / path.name).exists():
                (bin_dir / path.name).symlink_to(path)
    own = Own(tmp_path, str(bin_dir))
    own.environ |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    own.root.mkdir()
    own.new("--backend", "local")
    own.lend_environment()
    assert (own.root / "config.env").read_text().endswith("CODE_DIR=src\nENTRY_POINT=train.py\nBACKEND=local\n")
    done = own.run("./scripts/smoke.sh", "dask")
    assert done.stdout.startswith("dask: clusters run here; ")
    newer = own.newer("newer version")
    (newer / "scripts" / "more.sh").write_text("# more\n")
    assert own.run("./scripts/update.sh", newer).stdout == "added     scripts/more.sh\n"
    assert "nothing to change" in own.run("./scripts/update.sh", newer).stderr


def test_a_clone_launches_as_its_user_has_edited_it(own: Own) -> None:
    """Of what git has, a template of the user's among it; two launches at once unpack the rest."""
    own.root.mkdir()
    own.new()
    own.run("git", "init", "--quiet")
    own.lend_environment()
    own.run("./scripts/list.sh")
    smoke = own.root / "scripts" / "templates" / "smoke" / "with_dask.py"
    smoke.write_text(smoke.read_text() + 'print("my own smoke", flush=True)\n')
    own.run("git", "add", ".")
    own.run("git", "add", "--force", smoke)
    own.run("git", "commit", "--quiet", "-m", "mine")
    clone = own.place / "work" / "clone"
    own.run("git", "clone", "--quiet", own.root, clone)
    assert not (clone / "common" / "oci_cluster").exists()
    (clone / ".venv").symlink_to(CHECKOUT / ".venv")
    words = ["./scripts/launch.sh", "dask", "1", "--code", "scripts/templates/smoke", "--entry", "with_dask.py"]
    running = [
        subprocess.Popen([*words, "--name", f"c{n}"], cwd=clone, env=own.environ, stdout=subprocess.PIPE, text=True)
        for n in range(2)
    ]
    ended = [(one.communicate(timeout=300)[0], one.returncode) for one in running]
    assert [("my own smoke" in out, code) for out, code in ended] == [(True, 0), (True, 0)], ended
    assert own.run("git", "status", "--short", cwd=clone).stdout == ""
    own.run("./scripts/update.sh", own.newer("newer version"), cwd=clone)
    own.run("./scripts/list.sh", cwd=clone)
    assert "my own smoke" in (clone / "scripts/templates/smoke/with_dask.py").read_text()


def test_a_copy_that_was_made_by_hand(own: Own) -> None:
    """`cp -r dask common scripts Makefile`, as docs/projects.md has it, runs; with new.sh it takes newer versions."""
    own.root.mkdir()
    folders = [CHECKOUT / name for name in ("dask", "common", "scripts", "Makefile")]
    own.run("cp", "-r", *folders, own.root)
    own.lend_environment()
    assert own.run("./scripts/smoke.sh").stdout.startswith("dask: clusters run here; ")
    assert "./scripts/images.sh build dask" in own.run("make", "-n", "build").stdout
    insert(own.root / "dask" / "start-worker.sh", 'echo "my own start script"')
    said = own.run(CHECKOUT / "scripts" / "new.sh", "dask", own.root).stderr
    # The guide, too: its links lead to docs/, which a project has elsewhere.
    assert "these are yours, and stay as they are: dask/README.md, dask/start-worker.sh\n" in said
    newer = own.newer("newer version")
    with (newer / "dask" / "start-worker.sh").open("a") as script:
        script.write("# a line of the newer version\n")
    done = own.run("./scripts/update.sh", newer)
    assert "merged    dask/start-worker.sh\n" in done.stdout
    text = (own.root / "dask" / "start-worker.sh").read_text()
    assert "my own start script" in text
    assert text.endswith("# a line of the newer version\n")
    assert "nothing to change" in own.run("./scripts/update.sh", newer).stderr


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # environments that are not there yet are made; Horovod is compiled
@pytest.mark.parametrize("framework", ["dask", "horovod", "pytorch", "ray", "tensorflow"])
def test_each_framework_runs_in_a_project(own: Own, launched: Project, framework: str) -> None:
    """Its example, in a project that has it alone."""
    own.run(CHECKOUT / "scripts" / "new.sh", framework, own.root, cwd=own.place)
    own.lend_environment()
    launch = launched.launch(framework, "1", "--code", f"{framework}/example", "--entry", "train.py")
    assert launch.wait(1500) == 0, launch.err
    launch.assert_nothing_left()
