"""What check.sh finds where nodes are containers: an engine that a test plays, and a real disk and real ports."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.fake_engine import Launcher

from oci_cluster.backends import check_of
from oci_cluster.backends.docker import check
from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import SettingsError, UsageError

Look = Callable[..., dict[str, list[Finding]]]
ITEMS = ["engine", "image", "code", "CPUs and memory", "free ports"]
INFO: dict[str, Any] = {"NCPU": 4, "MemTotal": 4000}


@pytest.fixture
def look(launcher: Launcher) -> Look:
    """Return what is found of a launch with settings, by item."""
    launcher.fake.change(info={**INFO, "DockerRootDir": str(launcher.root)})

    def found(**settings: str) -> dict[str, list[Finding]]:
        plan = launcher.checkout.plan(2, **{"DOCKER": str(launcher.fake.program), **settings})
        return by_item(launcher, plan)

    return found


def by_item(launcher: Launcher, plan: Plan | None) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in check_of("docker")(Checked("plain", 2, launcher.root, {}, plan), launcher.said.append):
        found.setdefault(one.item, []).append(one)
    return found


def only(found: list[Finding]) -> tuple[str, str, str]:
    (one,) = found
    return str(one.verdict), one.text, one.fix


def test_an_engine_that_can_run_it_is_fine(launcher: Launcher, look: Look) -> None:
    """In all items; and nothing is made."""
    found = look()
    assert [(item, only(ones)[0]) for item, ones in found.items()] == [(item, "fine") for item in ITEMS], found
    assert found["image"][0].text == "plain:1 is there; its user is 1000"
    assert found["code"][0].text == f"{launcher.root / 'plain' / 'example'} is mounted, and can be read"
    assert {call[0] for call in launcher.fake.calls()} <= {"info", "image"}


def test_without_a_launch_or_an_engine_nothing_is_known(launcher: Launcher, look: Look) -> None:
    """That the engine does not answer is known, and how to fix it."""
    assert {only(ones)[0] for ones in by_item(launcher, None).values()} == {"unknown"}
    found = look(DOCKER="/nowhere/docker")
    assert [only(ones)[0] for ones in found.values()] == ["fails", *["unknown"] * 4]
    assert "cannot be run" in found["engine"][0].text
    assert found["engine"][0].fix.startswith("install Docker or Podman")


def test_an_image_that_is_not_there_can_be_had(look: Look, launcher: Launcher) -> None:
    """Built, or pulled; who would read the code is not known then."""
    found = look(IMAGE="plain:2")
    assert only(found["image"])[0] == "fails"
    assert found["image"][0].fix == f"{launcher.fake.program} pull plain:2"
    assert only(found["code"])[0] == "unknown"
    verdict, text, fix = only(look(IMAGE="")["image"])
    assert (verdict, text) == ("fails", "IMAGE is not set, and no image of plain was built from here")
    assert fix == "make build-plain"


def test_code_that_the_user_of_the_image_cannot_read_fails(look: Look, launcher: Launcher) -> None:
    """In the words of the launch, with what allows it."""
    (launcher.root / "plain" / "example" / "train.py").chmod(0o000)
    verdict, text, fix = only(look(HARDENED="1")["code"])
    assert (verdict, fix[:19], "cannot read" in text) == ("fails", "allow it: chmod -R ", True)


def test_an_image_may_bring_the_code(look: Look) -> None:
    assert only(look(CODE_URI="image")["code"])[1] == "that of the image"


@pytest.mark.parametrize(
    ("settings", "verdict", "fix"),
    [
        ({"CPUS": "4", "MEMORY": "1333"}, "fine", ""),
        ({"CPUS": "4.5"}, "fails", "CPUS=4"),
        ({"MEMORY": "1334"}, "unknown", "MEMORY=1333"),
        ({"MEMORY": "1k"}, "fine", ""),
    ],
)
def test_limits_fit_the_engines_machine(look: Look, settings: dict[str, str], verdict: str, fix: str) -> None:
    """It refuses more CPUs than there are; memory is only used up when it is used."""
    found = only(look(**settings)["CPUs and memory"])
    assert (found[0], found[2]) == (verdict, fix)


def test_each_port_that_is_taken_is_named(look: Look) -> None:
    """By the setting that publishes it."""
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))
            taken.listen(1)
        first, second = (taken.getsockname()[1] for taken in (one, other))
        found = look(PUBLISH=f"{first}:8787", EXPOSE=str(second))["free ports"]
    assert [(one.verdict, one.text) for one in found] == [
        (Verdict.FAILS, f"PUBLISH: port {first} of 127.0.0.1 is taken by another program"),
        (Verdict.FAILS, f"EXPOSE: port {second} of 127.0.0.1 is taken by another program"),
    ]
    assert only(look(PUBLISH=f"{first}:8787")["free ports"])[:2] == ("fine", f"{first} of 127.0.0.1 can be main's")


@pytest.fixture
def no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have this machine have no GPU, and nothing of NVIDIA's for engines; return where GPUs would be."""
    monkeypatch.setattr(check, "_CDI", (str(tmp_path / "cdi"),))
    monkeypatch.setattr(check, "_GPUS_HERE", tmp_path / "gpus")
    monkeypatch.setattr(check.shutil, "which", lambda _: None)
    return tmp_path


def test_gpus_need_an_engine_that_knows_them(look: Look, launcher: Launcher, no_gpus: Path) -> None:
    """Told by the engine, or by what is installed beside it."""
    verdict, text, fix = only(look(GPUS="all")["GPUs"])
    assert (verdict, "tells of no runtime and no devices" in text) == ("fails", True)
    assert fix.splitlines()[1] == "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker"
    (no_gpus / "cdi").mkdir()
    (no_gpus / "cdi" / "nvidia.yaml").touch()
    assert only(look(GPUS="all")["GPUs"])[0] == "fine"
    (no_gpus / "cdi" / "nvidia.yaml").unlink()
    here = {**INFO, "DockerRootDir": str(launcher.root)}
    for told in ({"Runtimes": {"nvidia": {}}}, {"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}):
        launcher.fake.change(info={**here, **told})
        assert only(look(GPUS="all")["GPUs"])[0] == "fine"
    launcher.fake.change(info=INFO)
    assert only(look(GPUS="all")["GPUs"])[0] == "unknown", "the engine's machine is not this one"


def test_more_gpus_than_there_are_fail(look: Look, no_gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each node; where they cannot be counted, the engine decides."""
    monkeypatch.setattr(check.shutil, "which", lambda _: "/usr/bin/hook")
    assert only(look(GPUS="2")["GPUs"])[0] == "fine"
    for name in ("0000:01", "0000:02"):
        (no_gpus / "gpus" / name).mkdir(parents=True)
    assert only(look(GPUS="2")["GPUs"])[0] == "fine"
    assert only(look(GPUS="3")["GPUs"]) == ("fails", "GPUS=3 is more than the 2 of this machine", "GPUS=2")


def test_an_engine_that_goes_away_meanwhile_leaves_the_rest_unknown(
    look: Look, no_gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oci_cluster.system.engine import Engine, EngineError  # noqa: PLC0415 - of this test alone

    def gone(_self: Engine) -> None:
        msg = "gone"
        raise EngineError(msg)

    monkeypatch.setattr(Engine, "place", gone)
    assert only(look(GPUS="1")["GPUs"])[:2] == ("unknown", "gone")


def test_what_containers_cannot_be_given_is_refused_before_the_engine_is_asked(launcher: Launcher) -> None:
    """Settings, and options of the command line."""
    launcher.backend.check()
    launcher.backend.check(launcher.checkout.plan())
    with pytest.raises(SettingsError, match="CPUS"):
        launcher.backend.check(launcher.checkout.plan(CPUS="many"))
    with pytest.raises(UsageError, match="--python"):
        launcher.backend.check(launcher.checkout.plan(python="/usr/bin/python3"))
    assert launcher.fake.calls() == []
