"""What of the user's code goes to the nodes on OCI, and what is said of it."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_data_science import Response
from unit.fake_oci import Checkout, Launcher

from oci_cluster.backends.code import Code, code_of
from oci_cluster.backends.oci.jobs import requests as oci_requests
from oci_cluster.backends.oci.settings import settings_of
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import SettingsError

KEY = "gh" + "p_" + "a1" * 18
PRIVATE_KEY = "-----BEGIN " + f"PRIVATE KEY-----\n{'MIIE' * 10}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my code"
    path.mkdir()
    (path / "train.py").write_text("print(1)")
    return path


def plan_of(checkout: Checkout, folder: Path, files: Mapping[str, str], **settings: str) -> Plan:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    entry = {} if "ENTRY_MODULE" in settings else {"ENTRY_POINT": "train.py"}
    return checkout.plan(CODE_DIR=str(folder), **{**entry, **settings})


def test_code_is_named_by_what_is_in_it(checkout: Checkout, tmp_path: Path) -> None:
    """The archive's address holds its digest, which the nodes check."""
    code = code_of(checkout.plan(WORK_DIR="oci://bucket@ns/work/"), tmp_path)
    assert code.archive == tmp_path / "code.tar.gz"
    digest = code.uri.partition("#sha256=")[2]
    assert code.uri == f"oci://bucket@ns/work/code/{digest}.tar.gz#sha256={digest}"


@pytest.mark.parametrize(
    ("given", "uri"), [("image", ""), ("git+https://example.org/r@main", "git+https://example.org/r@main")]
)
def test_code_from_elsewhere_is_not_packed(checkout: Checkout, tmp_path: Path, given: str, uri: str) -> None:
    """CODE_URI is passed on; `image` means that the code is in the image."""
    assert code_of(checkout.plan(CODE_URI=given), tmp_path) == Code(uri)


def test_a_kept_cluster_without_code_sends_none(checkout: Checkout, tmp_path: Path) -> None:
    """Where nothing was named there is nothing to pack."""
    assert code_of(checkout.plan(EPHEMERAL="0"), tmp_path) == Code("")


def test_what_ignore_files_leave_out_does_not_go(checkout: Checkout, folder: Path, tmp_path: Path) -> None:
    """Nor do keys; what goes is counted, and what stays is named."""
    ignored = {".gitignore": "data/\n*.csv\n", ".dockerignore": "notes\n", "data/a": "1", "x.csv": "2", "notes/b": "3"}
    ignored |= {"venv/pyvenv.cfg": "", "venv/lib/a.py": "x"}
    plan = plan_of(checkout, folder, {**ignored, "lib/a.py": "12345", "certs/ca.pem": KEY, "config.env": "A=1"})
    code = code_of(plan, tmp_path)
    assert code.archive is not None
    with tarfile.open(code.archive) as tar:
        assert tar.getnames() == ["lib/a.py", "train.py"]
    (line,) = code.said
    assert line == (
        f"code in {folder}: 2 files with 13 bytes, {code.archive.stat().st_size} bytes compressed; "
        "left out: 3 names by its ignore files; "
        "config.env, certs/ca.pem; venv, a Python environment; 2 hidden or made by tools"
    )


@pytest.mark.parametrize(
    ("files", "entry", "message"),
    [
        (
            {".gitignore": "/*.py\n"},
            "train.py",
            "ENTRY_POINT train.py would not be sent to the nodes: '/*.py' in {}/.git",
        ),
        ({"lib/.gitignore": "*\n", "lib/t.py": ""}, "lib/t.py", "lib/t.py would .*'[*]' in {}/lib/.gitignore leaves"),
        (
            {".dockerignore": "lib", "lib/t.py": ""},
            "lib/t.py",
            "lib/t.py .* 'lib' in {}/.dockerignore leaves it out; ch",
        ),
        ({"lib/id_rsa.py": ""}, "lib/id_rsa.py", "lib/id_rsa.py would .*: 'id_rsa[*]' is never sent; change that"),
        ({".gitignore": "m.py\n", "p/m.py": ""}, "-m p.m", "ENTRY_MODULE p.m would .*: 'm.py' in {}/.gitignore "),
        ({".gitignore": "p\n", "p/__main__.py": ""}, "-m p", "ENTRY_MODULE p would .*: 'p' in {}/.gitignore "),
    ],
)
def test_an_entry_point_that_stays_ends_the_launch(
    checkout: Checkout, folder: Path, files: Mapping[str, str], entry: str, message: str
) -> None:
    """The pattern is named, and its file; nothing is packed."""
    name = "ENTRY_MODULE" if entry.startswith("-m ") else "ENTRY_POINT"
    plan = plan_of(checkout, folder, files, **{name: entry.removeprefix("-m ")})
    with pytest.raises(SettingsError, match=message.format(folder).replace("/*", "/[*]")):
        code_of(plan, folder.parent)
    assert not (folder.parent / "code.tar.gz").exists()


def test_files_with_keys_are_named(checkout: Checkout, folder: Path, tmp_path: Path) -> None:
    """Five lines at most, then a number; what does not go is no matter."""
    keys = {f"lib/key{number}.py": KEY for number in range(7)}
    plan = plan_of(checkout, folder, {**keys, ".gitignore": "out.py\n", "out.py": KEY, "no.py": "x"})
    _, *warnings = code_of(plan, tmp_path).said
    assert warnings == [
        *(
            f"warning: lib/key{number}.py has what looks like a token of GitHub, and goes to the nodes; "
            ".gitignore can keep it here"
            for number in range(5)
        ),
        "warning: 2 more files have what looks like a key",
    ]


def test_a_private_key_is_sent_by_who_says_so_alone(checkout: Checkout, folder: Path, tmp_path: Path) -> None:
    """Under whatever name; who may look at the work dir, or at Jobs, would have it."""
    plan = plan_of(checkout, folder, {"train.py": "", "deploy": PRIVATE_KEY, "lib/server.txt": PRIVATE_KEY})
    with pytest.raises(SettingsError, match=r"would go to the nodes: deploy, lib/server.txt; .*CODE_KEYS=deploy,lib/s"):
        code_of(plan, tmp_path)
    with pytest.raises(SettingsError, match="would go to the nodes: deploy;"):
        code_of(replace(plan, code_keys=frozenset({"lib/server.txt"})), tmp_path)
    said = code_of(replace(plan, code_keys=frozenset({"lib/server.txt", "deploy"})), tmp_path).said
    assert "warning: deploy has what looks like a private key, and goes to the nodes" in said[1]


def test_it_is_said_when_the_launch_is_placed(checkout: Checkout, folder: Path) -> None:
    """A dry run comes so far, too. What names files say cannot control a terminal."""
    said: list[str] = []
    plan = plan_of(checkout, folder, {"a\033[2J.py": KEY})
    oci_requests.resolve(plan, settings_of(plan, checkout.root), checkout.root, folder.parent, said.append)
    assert len(said) == 2
    assert said[0].startswith(f"code in {folder}: 2 files with 48 bytes, ")
    assert said[1].startswith("warning: a[2J.py has what looks like a token of GitHub")


# --- The archive in the work dir --------------------------------------------------------------------------------------


def archives(launcher: Launcher, cluster: Cluster) -> list[str]:
    return sorted(ClusterDir(launcher.backend.load(cluster).work_dir, "", "").sizes("code"))


def test_the_last_cluster_takes_its_code_with_it(launcher: Launcher) -> None:
    """As long as another Job names it, it stays, and that is said: also where that has ended."""
    first, second = launcher.launch(), launcher.launch(CLUSTER_NAME="other")
    (name,) = archives(launcher, first)
    launcher.stop(second)
    launcher.stop(first, delete=True)
    assert launcher.said[-1] == "the code of mine stays in memory://work/code: other may use it"
    assert archives(launcher, second) == [name]
    work = ClusterDir(launcher.backend.load(second).work_dir, "", "")
    launcher.stop(second, delete=True)
    assert work.sizes("code") == {}


def test_a_job_that_does_not_say_what_it_names_keeps_the_code(launcher: Launcher) -> None:
    """An older launcher has made it; one with other code, or with none, does not count."""
    cluster = launcher.launch()
    (launcher.checkout.root / "plain" / "example" / "more.py").touch()
    launcher.launch(CLUSTER_NAME="other")
    launcher.launch(CLUSTER_NAME="image", CODE_URI="image")
    work = ClusterDir(launcher.backend.load(cluster).work_dir, "", "")
    old = next(job for job in launcher.science.jobs.values() if job.display_name == "image")
    tag = old.freeform_tags.pop("oci-cluster-code")
    assert len(work.sizes("code")) == 2
    launcher.stop(cluster, delete=True)
    assert (tag, launcher.said[-1]) == ("none", "the code of mine stays in memory://work/code: image may use it")
    (launcher.checkout.root / "plain" / "example" / "more.py").unlink()
    again = launcher.launch()
    old.freeform_tags["oci-cluster-code"] = tag
    launcher.stop(again, delete=True)
    assert len(work.sizes("code")) == 1


def test_code_that_is_removed_during_a_launch_is_sent_again(launcher: Launcher) -> None:
    """Until there is a Job that names it, a stop.sh elsewhere may think that nobody does."""
    launcher.stop(launcher.launch(), delete=False)
    (cluster,) = launcher.backend.find()
    (name,) = archives(launcher, cluster)
    work = ClusterDir(launcher.backend.load(cluster).work_dir, "", "")

    def remove(request: str) -> None:
        if request == "create_job":
            work.remove(f"code/{name}")

    launcher.science.on_request = remove
    launcher.launch(CLUSTER_NAME="other")
    assert list(work.sizes("code")) == [name]


def test_a_list_that_is_late_keeps_nothing(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still hold the Job that has just been deleted."""
    cluster = launcher.launch()
    work = ClusterDir(launcher.backend.load(cluster).work_dir, "", "")
    monkeypatch.setattr(launcher.science, "_delete_job", lambda _: Response(None))
    launcher.stop(cluster, delete=True)
    assert (len(launcher.backend.find()), work.sizes("code")) == (1, {})
