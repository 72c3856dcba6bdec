"""What an engine is asked for, out of a plan."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import pytest
from unit.fake_engine import Launcher, after

from oci_cluster.backends.docker import commands
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.images import records as image_records

NODES = ["MAIN", "WORKER_1", "WORKER_2"]


def test_a_launch_makes_what_nodes_share_then_main_then_workers(launcher: Launcher) -> None:
    """All with labels; the nodes' environment is in a private file that is gone afterwards."""
    cluster = launcher.launch(env=("API_TOKEN=s3cret", "PLAIN=a b"))
    id_ = cluster.cluster_id
    nodes, *shared = launcher.fake.left()
    assert (nodes[0], sorted(nodes), shared) == (f"{id_}-MAIN", [f"{id_}-{node}" for node in NODES], [[id_], [id_]])
    made = [words[0] for words in launcher.fake.calls() if words[0] in {"network", "volume", "run"}]
    assert made == ["network", "volume", "run", "run", "run"]
    main, worker, _ = sorted(launcher.words("run"), key=lambda words: after(words, "--hostname"))
    assert after(main, "--hostname") + after(worker, "--hostname") == ["main", "worker-1"]
    assert after(worker, "--env") == ["MODE=WORKER", "NODE_RANK=1", "NODE_NAME=WORKER_1"]
    assert after(main, "--volume") == [f"{id_}:/work", "/tmp"]
    assert (after(main, "--shm-size"), main[-1]) == (["1g"], "plain:1")
    assert f"oci-cluster.launch={cluster.launch_id}" in after(main, "--label")
    assert "s3cret" not in str(launcher.fake.calls())
    assert launcher.fake.state["modes"] == [0o600] * 3
    assert not (cluster.directory / "nodes.env").exists()
    environment = dict(text.split("=", 1) for text in launcher.fake.container("WORKER_2")["Config"]["Env"])
    assert (
        environment.items()
        >= {
            "API_TOKEN": "s3cret",
            "PLAIN": "a b",
            "CODE_DIR": "/code",
            "WORK_DIR": "file:///work",
            "OUTPUT_DIR": "/work/outputs",
            "NODE_CPUS": "1",
            "NODE_MEMORY": str(4000 // 3),
            "POLL_CEILING": "0.1",
            "NODE_RANK": "2",
        }.items()
    )


def test_code_is_mounted_read_only(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder; where this machine has SELinux, without its labels."""
    odd = launcher.root / 'a,b "c": d'
    odd.mkdir()
    (odd / "e.py").touch()
    launcher.launch(1, ENTRY_POINT=str(odd / "e.py"))
    main = launcher.words("run")[0]
    quoted = str(odd).replace('"', '""')
    assert after(main, "--mount") == [f'type=bind,"source={quoted}",target=/code,readonly']
    assert after(main, "--security-opt") == ["no-new-privileges"]
    monkeypatch.setattr(commands, "_SELINUX", launcher.root)
    launcher.launch(1, CLUSTER_NAME="other")
    assert "label=disable" in after(launcher.words("run")[-1], "--security-opt")


def test_nodes_may_do_no_more_than_they_need(launcher: Launcher) -> None:
    """HARDENED=0 takes that back; a container of an older launch, which does not say, gets workers as it is."""
    options = ("--pids-limit", "--read-only", "--cap-drop", "--security-opt")
    cluster = launcher.launch(1)
    for words in launcher.words("run"):
        assert (after(words, "--network"), after(words, "--publish")) == ([cluster.cluster_id], [])
        assert [after(words, option) for option in options] == [["16384"], ["--volume"], ["ALL"], ["no-new-privileges"]]
        assert after(words, "--volume")[1:] == ["/tmp"]
    launcher.launch(1, CLUSTER_NAME="other", HARDENED="0")
    for words in launcher.words("run")[-2:]:
        assert not set(options) & set(words)
        assert "/tmp" not in after(words, "--volume")
    assert commands.settings_of({})["HARDENED"] == "0"
    with pytest.raises(SettingsError, match="HARDENED: 'some' is neither 1 nor 0"):
        launcher.launch(1, CLUSTER_NAME="third", HARDENED="some")


@pytest.mark.parametrize(
    ("code_uri", "expected"),
    [("image", {"CODE_DIR": "/code"}), ("git+https://x@main", {"CODE_URI": "git+https://x@main"})],
)
def test_code_that_nodes_have_or_fetch_is_not_mounted(
    launcher: Launcher, code_uri: str, expected: dict[str, str]
) -> None:
    """`image` is the image's own; a URL goes to the agents."""
    cluster = launcher.launch(1, CODE_URI=code_uri)
    environment = launcher.backend.load(cluster).environment
    assert {name: text for name, text in environment.items() if name in {"CODE_DIR", "CODE_URI"}} == expected
    assert after(launcher.words("run")[0], "--mount") == []


def test_settings_become_limits(launcher: Launcher) -> None:
    """Of each node; ports are main's alone."""
    launcher.launch(1, CPUS="2.5", MEMORY="1G", SHM_SIZE="2g", GPUS="all", PUBLISH="8787, 9000:80")
    main, worker = launcher.words("run")
    for words in (main, worker):
        given = [after(words, option) for option in ("--cpus", "--memory", "--shm-size", "--gpus")]
        assert given == [["2.5"], ["1g"], ["2g"], ["all"]]
    assert after(main, "--publish") == ["127.0.0.1:8787:8787", "127.0.0.1:9000:80"]
    assert after(worker, "--publish") == []
    environment = launcher.backend.load(launcher.found()).environment
    assert (environment["NODE_CPUS"], environment["NODE_MEMORY"]) == ("2", str(2**30))


def test_podman_has_another_word_for_gpus(launcher: Launcher) -> None:
    """Devices with names."""
    launcher.fake.program = launcher.fake.program.rename(launcher.fake.place / "podman")
    text = launcher.backend.preview(launcher.plan(1, GPUS="all"), as_json=False)
    assert ("--device nvidia.com/gpu=all" in text, "--gpus" in text) == (True, False)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("CPUS", "many", "CPUS: 'many' is not a number of CPUs"),
        ("CPUS", "0", "CPUS: '0' is not a number of CPUs"),
        ("MEMORY", "4 GB", "MEMORY: '4 GB' is not a size such as 512m"),
        ("SHM_SIZE", "-1", "SHM_SIZE: '-1' is not a size"),
        ("GPUS", "all; x", "GPUS: 'all; x' is not what --gpus takes"),
        ("PUBLISH", "8787:0", "PUBLISH: .*1"),
        ("IMAGE", "--privileged", "IMAGE: '--privileged' is not an image"),
        ("IMAGE", "other:1", "has no image other:1; .* pull other:1"),
    ],
)
def test_a_wrong_setting_is_named(launcher: Launcher, name: str, text: str, told: str) -> None:
    """Before anything is made."""
    with pytest.raises(SettingsError, match=told):
        launcher.launch(1, **{name: text})
    assert launcher.fake.left() == ([], [], [])


def test_what_cannot_be_given_to_a_node_is_refused(launcher: Launcher) -> None:
    """Line breaks, and another Python than the image's."""
    with pytest.raises(SettingsError, match="TWO has a line break"):
        launcher.launch(1, env=("TWO=a\nb",))
    (launcher.root / "py").symlink_to(sys.executable)
    with pytest.raises(UsageError, match="--python works with the backend local only"):
        launcher.launch(1, python="py")
    with pytest.raises(
        UsageError, match=r"list a, b>1 in a file requirements.txt, then make build-plain EXTRA_ENV=req"
    ):
        launcher.backend.place(replace(launcher.plan(1), packages=("a", "b>1")))
    assert launcher.fake.left() == ([], [], [])


def test_without_an_image_the_last_one_that_was_built_is_run(launcher: Launcher) -> None:
    """By its id; where there is none, it is said how to build it."""
    with pytest.raises(
        SettingsError, match="IMAGE is not set, and no image of plain was built from here; make build-plain"
    ):
        launcher.launch(1, IMAGE="")

    def record(image_id: str) -> None:
        found = {
            "image": "localhost/oci-cluster/plain:1",
            "id": image_id,
            "digest": "",
            "built": "2026-01-02T03:04:05Z",
        }
        image_records.write("plain", launcher.root, found)

    record("plain:1")  # a name, which may be another image by now
    with pytest.raises(
        SettingsError, match="IMAGE is not set, and no image of plain was built from here; make build-plain"
    ):
        launcher.launch(1, IMAGE="")
    record("sha256:" + "1" * 64)
    launcher.launch(1, IMAGE="")
    assert launcher.words("run")[0][-1] == "sha256:" + "1" * 64
    record("sha256:" + "2" * 64)
    with pytest.raises(SettingsError, match=r"has no image sha256:2+; make build-plain"):
        launcher.launch(1, IMAGE="", CLUSTER_NAME="other")


def test_a_preview_prints_the_commands_of_the_launch(launcher: Launcher) -> None:
    """As text and as JSON, without secrets, and changes nothing."""
    plan = launcher.plan(1, env=("API_TOKEN=s3cret",))
    text, found = (launcher.backend.preview(plan, as_json=as_json) for as_json in (False, True))
    assert launcher.fake.left() == ([], [], [])
    assert not (launcher.root / ".clusters").exists()
    assert "s3cret" not in text + found
    assert "API_TOKEN=(not shown)\n" in text
    launcher.lifecycle.launch(plan)
    made = [words for words in launcher.fake.calls() if words[:2] in (["network", "create"], ["volume", "create"])]
    made += launcher.words("run")
    assert [words[1:] for words in json.loads(found)["commands"]] == made
    assert all(words[-1] in text for words in made)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="gives a file to somebody else: needs root on Linux"
)
def test_root_without_capabilities_reads_what_others_may(launcher: Launcher) -> None:
    """An image of RUN_AS=0 could read all with them."""
    code = launcher.root / "plain" / "example"
    os.chown(code / "train.py", 4321, 4321)
    (code / "train.py").chmod(0o600)
    launcher.fake.change(user="0")
    with pytest.raises(SettingsError, match=r"the user of the image, 0, cannot read .*train.py; .* or set HARDENED=0"):
        launcher.launch()
    launcher.launch(1, HARDENED="0")


@pytest.mark.parametrize("where", ["train.py", "."])
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a mount hides whose files are")
def test_code_that_the_images_user_cannot_read_is_refused(launcher: Launcher, where: str) -> None:
    """With umask 077 all code is so; containers would tell that one after the other."""
    code = launcher.root / "plain" / "example"
    (code / where).chmod(0o700 if where == "." else 0o600)
    launcher.fake.change(user="4321")
    with pytest.raises(SettingsError) as caught:
        launcher.launch()
    assert str(caught.value) == (
        f"CODE_DIR: the user of the image, 4321, cannot read {code / where}; allow it: chmod -R a+rX {code}, "
        f"or build an image whose user can: RUN_AS={code.stat().st_uid}"
    )
    assert launcher.fake.left() == ([], [], [])


# Without capabilities, root in a container reads what root here may.
ROOTS = pytest.mark.skipif(os.geteuid() != 0, reason="a file of root's: needs root")


@pytest.mark.parametrize(
    ("user", "info"),
    [
        pytest.param("", {}, marks=ROOTS),
        pytest.param("0", {}, marks=ROOTS),
        ("node", {}),
        ("4321", {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}),
        ("4321", {"SecurityOptions": ["name=userns"]}),
    ],
)
def test_users_that_can_or_may_read_it_pass(launcher: Launcher, user: str, info: dict[str, object]) -> None:
    """Root, a name that only the image knows, and engines whose uids are others on this machine."""
    (launcher.root / "plain" / "example" / "train.py").chmod(0o600)
    launcher.fake.change(user=user, info={**launcher.fake.state["info"], **info})
    assert launcher.launch()
