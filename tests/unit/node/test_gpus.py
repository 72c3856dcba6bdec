"""What a node tells of its GPUs; a fake stands for the process of nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stub_gpus import listing
from unit.fake_cluster import FakeChildren, MakeNode, World

from oci_cluster.node import gpus
from oci_cluster.node.gpus import OwnGpus
from oci_cluster.system.gpus import PATIENCE_S

H100 = "NVIDIA H100 80GB HBM3"


class Asked(FakeChildren):
    """Processes, of which one prints what the test wants."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = text

    def start(self, command: list[str], *, output: int, **words: object) -> int:  # type: ignore[override]
        """Print at once, and run until the test says otherwise."""
        os.write(output, self._text.encode())
        return super().start(command, output=output, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code", "devices", "told"),
    [
        (listing(2), 0, None, {"gpus": [H100, H100]}),
        (listing(2), 0, "1", {"gpus": [H100]}),
        (listing(2), 9, None, {}),
        (listing(2000), 0, "1999", {}),  # beyond what is read
        ("\0rubbish", 0, None, {}),
    ],
)
def test_a_node_tells_what_it_sees(
    tmp_path: Path, text: str, code: int, devices: str | None, told: dict[str, list[str]]
) -> None:
    """When it is known, and not before: nothing waits for it."""
    children, world = Asked(text), World()
    environ = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    own = OwnGpus("/bin/nvidia-smi", environ, tmp_path / "gpus", children=children, clock=world.clock)  # type: ignore[arg-type]
    assert own.told() == {}
    children.codes[1] = code
    assert own.told() == told
    (tmp_path / "gpus").unlink()
    assert own.told() == told


def test_one_that_cannot_be_started_tells_nothing(tmp_path: Path) -> None:
    """Nor one for which the disk has no room."""
    own = OwnGpus("/bin/nvidia-smi", {}, tmp_path / "no" / "gpus", children=Asked(), clock=World().clock)  # type: ignore[arg-type]
    assert (own.told(), own.told()) == ({}, {})


def test_one_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(gpus, "kill_group", killed.append)
    children, world = Asked(), World()
    own = OwnGpus("/bin/nvidia-smi", {}, tmp_path / "gpus", children=children, clock=world.clock)  # type: ignore[arg-type]
    assert own.told() == {}
    world.now = PATIENCE_S
    assert (own.told(), killed) == ({}, [])
    world.now += 1
    assert (own.told(), own.told(), killed) == ({}, {}, [1])


@pytest.mark.parametrize(("devices", "told"), [("0", [H100]), ("", None)])
@pytest.mark.usefixtures("empty_memory")
def test_heartbeats_of_a_node_tell_it(make: MakeNode, tmp_path: Path, devices: str, told: list[str] | None) -> None:
    """A node that is to see none does not ask."""
    (tmp_path / "nvidia-smi").touch(mode=0o755)
    node = make(PATH=str(tmp_path), CUDA_VISIBLE_DEVICES=devices)

    def answer(command: list[str]) -> None:
        if command == [f"{tmp_path}/nvidia-smi", "-L"]:
            (node.node_dir / "gpus").write_text(listing(1))
            node.children.codes[len(node.children.started)] = 0

    node.children.on_start = answer
    node.world.at(30, lambda: node.children.codes.update(dict.fromkeys(node.children.scripts, 0)))
    heartbeats = node.seen_at(20, lambda: node.read("MAIN_heartbeat.json"))
    assert node.run() == 0
    assert heartbeats[0].get("gpus") == told
    asked = [command for command, _, _ in node.children.started if command[-1] == "-L"]
    assert len(asked) == (told is not None)
