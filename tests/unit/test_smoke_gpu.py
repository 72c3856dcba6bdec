"""The ladder of `make smoke-gpu`: what it reports, when its time is over, and what it makes of a machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from smoke_gpu import __main__ as ladder
from smoke_gpu import launching, machine
from smoke_gpu.ground import Ground
from smoke_gpu.launching import Launched, Launcher, NotHereError, RedError, TimeIsOverError
from smoke_gpu.machine import Driver, Environment
from smoke_gpu.report import NOT_HERE, NOT_RUN, OK, RED, Result, exit_code, page
from smoke_gpu.rungs import RUNGS, STEPS, Rung

ROOT = Path(__file__).resolve().parents[2]
TWO = Driver(("A100", "A100"), "535.1", "12.2")
CPU_BUILD = {"torch": "2.13.0+cpu", "cuda": None, "gpus": []}


def ground(driver: Driver = TWO, torch: dict[str, object] | None = None, error: str = "") -> Ground:
    found = Environment(Path("python"), "3.12.1", {"accelerate": "1.0"}, True, torch or {}, error)
    return Ground(driver, found, Launcher(100, None), is_given=True, steps=STEPS)


def climbed(name: str, on: Ground) -> Result:
    (rung,) = (rung for rung in RUNGS if rung.name == name)
    return ladder.climbed(rung, on)


def test_each_rung_tries_a_sentence_of_the_page() -> None:
    text = " ".join((ROOT / "docs" / "gpu.md").read_text(encoding="utf-8").split())
    assert [rung.name for rung in RUNGS if f"- {rung.says} (`{rung.name}`)" not in text] == []
    assert {rung.name for rung in RUNGS} >= set(STEPS)


def test_the_report_can_be_pasted() -> None:
    """What programs print spoils no table; what is wrong in the page is named."""
    results = [
        Result("a", OK, 1.25, "x | y\nz", "It is so."),
        Result("b", RED, 0, "no", "It is not."),
        Result("c", NOT_HERE, 0, "no GPU", ""),
        Result("d", NOT_RUN, 0, "time is over", "Nobody knows."),
    ]
    text = page(results, {"GPUs": "A100"})
    assert "| GPUs | A100 |" in text
    assert "| a | ok | 1.2 | x \\| y z |" in text
    assert "1 ok, 1 RED, 1 not here, 1 not run." in text
    assert text.partition("is right here in:")[2].split("\n")[2] == "- It is so."
    assert text.partition("is wrong here in:")[2].strip() == "- It is not."
    assert exit_code(results) == 1
    assert exit_code([result for result in results if result.result != RED]) == 0


@pytest.mark.parametrize(
    ("raised", "result", "seen"),
    [
        (NotHereError("no GPU"), NOT_HERE, "no GPU"),
        (RedError("it hangs"), RED, "it hangs"),
        (TimeIsOverError(), NOT_RUN, "time is over"),
        (KeyError("x"), RED, "the ladder itself failed: KeyError: 'x'"),
    ],
)
def test_what_a_rung_raises_is_its_result(raised: Exception, result: str, seen: str) -> None:
    """Also a fault of the ladder's own: the others are climbed all the same."""

    def climb(_: Ground) -> str:
        raise raised

    found = ladder.climbed(Rung("x", "It is so.", climb), ground())
    assert (found.result, found.seen) == (result, seen)


def ending(monkeypatch: pytest.MonkeyPatch, code: int, text: str = "") -> list[list[str]]:
    """Have launches end with *code* at once; return their command lines."""
    commands: list[list[str]] = []

    def run(command: list[str], out: object, patience_s: float) -> int:
        commands.append(command)
        out.write(text)  # type: ignore[attr-defined]
        return code

    monkeypatch.setattr(launching, "run", run)
    return commands


def launch(launcher: Launcher) -> Launched:
    return launcher.launch("pytorch", 0, "steps.py", "ddp", env={"A": "b c"}, limit_s=60)


def test_launches_get_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder's end is not the launch's fault; a launch's own limit is."""
    commands = ending(monkeypatch, 75)
    now = [0.0]
    launcher = Launcher(100, Path("/py"), clock=lambda: now[0])
    assert launch(launcher).code == 75
    assert re.search(r"--ttl 60s --python /py --env A=b c -- ddp$", " ".join(commands[0]))
    now[0] = 50.0
    with pytest.raises(TimeIsOverError):
        launch(launcher)
    assert "--ttl 50s" in " ".join(commands[1])
    now[0] = 90.0
    with pytest.raises(TimeIsOverError):
        launch(launcher)
    assert len(commands) == 2  # it would not even have begun


@pytest.mark.parametrize(
    ("code", "lines", "why"),
    [
        (0, ['[rank 0] RESULT {"name": "ddp", "right": true}', 'RESULT {"name": "ddp", "right": true}'], ""),
        (0, ['RESULT {"name": "ddp", "right": true}', 'RESULT {"name": "ddp", "ri'], "1 of 2 ranks told something"),
        (0, ['RESULT {"name": "ddp", "right": true}', 'RESULT {"name": "ddp", "right": false}'], "'right': False"),
        (0, ['RESULT {"name": "ddp", "error": "boom"}'] * 2, "boom"),
        (9, ['RESULT {"name": "ddp", "right": true}'] * 2, "ended with 9"),
    ],
)
def test_a_step_is_right_when_all_ranks_say_so(
    monkeypatch: pytest.MonkeyPatch, code: int, lines: list[str], why: str
) -> None:
    """And the launch has ended with 0. A line that two ranks have spoiled is none."""
    ending(monkeypatch, code, "".join(f"MAIN | {line}\n" for line in lines) + f"launch.sh: ended with {code}\n")
    on = ground(torch={"torch": "2.13.0", "gpus": ["A100", "A100"]})
    launched = launch(on.launcher)
    if not why:
        assert len(on.told(launched, "ddp", 2)) == 2
        return
    with pytest.raises(RedError, match=why):
        on.told(launched, "ddp", 2)


@pytest.mark.parametrize(
    ("program", "gpus", "why_not"),
    [
        (None, (), "no GPU: nvidia-smi is not on PATH"),
        ("exit 0", (), "no GPU: nvidia-smi names none"),
        ("echo 'no driver is loaded' >&2; exit 9", (), "nvidia-smi ended with 9: no driver is loaded"),
        (
            "echo 'GPU 0: NVIDIA A10 (UUID: GPU-1)'; echo '| Driver Version: 550.1  CUDA Version: 12.4 |'",
            ("NVIDIA A10",),
            "",
        ),
    ],
)
def test_the_driver_names_gpus_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None, gpus: tuple[str, ...], why_not: str
) -> None:
    if program is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.driver()
    assert (found.gpus, found.why_not) == (gpus, why_not)
    assert (found.version, found.cuda) == (("550.1", "12.4") if gpus else ("", ""))


@pytest.mark.parametrize(
    ("driver", "torch", "error", "result", "seen"),
    [
        (Driver(why_not="no GPU"), CPU_BUILD, "", NOT_HERE, "no GPU"),
        (TWO, CPU_BUILD, "", RED, "names 2 GPUs, and torch 2.13.0+cpu sees none: it is the build without CUDA"),
        (TWO, {**CPU_BUILD, "cuda": "13.0"}, "", RED, "sees none: its CUDA 13.0 cannot use driver 535.1"),
        (TWO, {}, "libcudart.so.13: cannot open", RED, "cannot be imported: libcudart.so.13: cannot open"),
        (TWO, {}, "", NOT_HERE, "torch is not installed"),
    ],
)
def test_gpus_that_torch_cannot_use_are_red(
    driver: Driver, torch: dict[str, object], error: str, result: str, seen: str
) -> None:
    """Once: rungs that need a GPU say why they cannot run."""
    on = ground(driver, torch, error)
    found = climbed("torch", on)
    assert found.result == result
    assert seen in found.seen
    assert climbed("memory", on).result == NOT_HERE
    assert climbed("lightning", on).result == NOT_HERE


@pytest.mark.parametrize(
    ("code", "said", "result"),
    [
        (78, "launch with workers 0, where NPROC_PER_NODE=auto, GPUS_PER_NODE=0, GPUS_PER_NODE=all", OK),
        (78, "launch with workers 0", RED),
        (0, "workers 0, NPROC_PER_NODE, GPUS_PER_NODE=0, GPUS_PER_NODE=all", RED),
        (78, "cluster x started: 3 nodes; workers 0, NPROC_PER_NODE, GPUS_PER_NODE=0, GPUS_PER_NODE=all", RED),
    ],
)
def test_refusals_have_the_code_and_name_the_next_step(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str, result: str
) -> None:
    """Before anything is started."""
    commands = ending(monkeypatch, code, f"launch.sh: error: {said}\n")
    assert climbed("refusals", ground(torch=CPU_BUILD)).result == result
    assert commands[0][1:3] == ["pytorch", "2"]
    assert len(commands) == 1 or "NPROC_PER_NODE=3" in commands[1]


def test_a_failed_launch_is_kept_and_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = Launcher(100, None)
    told: Callable[[str], str] = "cluster {} started\nTraceback\n".format
    monkeypatch.setattr(launching.secrets, "token_hex", lambda _: "ab")
    ending(monkeypatch, 0, told("gpu-steps-ab"))
    launched = launch(launcher)
    assert launcher.ended == ["gpu-steps-ab"]
    launcher.keep(launched)
    assert launcher.ended == []
    assert "    Traceback\n" in capsys.readouterr().err
