"""Draws docs/images/cluster-life.svg: the life of a cluster, in the words of the contract.

Run ``PYTHONPATH=tests:common .venv/bin/python tests/cluster_life.py`` after a change here, or of one of these words:
they come from the package, so the picture cannot say others. ``tests/unit/test_doc_pages.py`` compares the file with
this.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from oci_cluster.contract.cluster import State
from oci_cluster.contract.names import READY, STOP, config_file, exit_file, heartbeat_file
from oci_cluster.errors import ExitCode

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "cluster-life.svg"
MAIN, WORKER = "MAIN", "WORKER_1"
WIDTH, HEIGHT = 960, 760
# Where the lanes are, from left to right.
LANES = {"launch.sh": 120, MAIN: 370, "cluster dir": 610, WORKER: 850}
STYLE = """
text { font: 13px sans-serif; fill: #1f2933 }
.head { font-weight: bold; font-size: 15px; text-anchor: middle }
.small { font-size: 12px; fill: #52606d }
.word { font: 12px monospace; text-anchor: middle }
.middle { text-anchor: middle }
.state { font: bold 11px monospace; text-anchor: middle; fill: #ffffff }
.lane { stroke: #cbd2d9; stroke-width: 2 }
.box { fill: #f5f7fa; stroke: #7b8794 }
.arrow { stroke: #3e4c59; stroke-width: 1.5; marker-end: url(#tip) }
.page { fill: #ffffff }
.tip { fill: #3e4c59 }
@media (prefers-color-scheme: dark) {
  text { fill: #d8dee9 }
  .small { fill: #a3adba }
  .lane { stroke: #4c566a }
  .box { fill: #2e3440; stroke: #7b8794 }
  .arrow { stroke: #a3adba }
  .page { fill: #1b1f27 }
  .tip { fill: #a3adba }
}
"""
COLOURS = {State.ACCEPTED: "#7b8794", State.IN_PROGRESS: "#2b6cb0", State.SUCCEEDED: "#2f855a"}
TIP = (
    '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" class="tip"/></marker></defs>'
)


def text(x: float, y: float, said: str, kind: str = "") -> str:
    """Return a line of text at *x* and *y*."""
    return (
        f'<text x="{x:g}" y="{y:g}"{f" class={kind!r}".replace(chr(39), chr(34)) if kind else ""}>{escape(said)}</text>'
    )


def box(lane: str, y: float, *lines: str, kind: str = "middle") -> list[str]:
    """Return what is done in a *lane* at *y*: a box with *lines*."""
    x, height = LANES[lane], 8 + 17 * len(lines)
    frame = f'<rect class="box" x="{x - 105}" y="{y:g}" width="210" height="{height}" rx="5"/>'
    return [frame, *(text(x, y + 17 + 17 * number, line, kind) for number, line in enumerate(lines))]


def arrow(start: str, end: str, y: float, said: str, kind: str = "word", *, middle: float = 0.0) -> list[str]:
    """Return an arrow from lane to lane at *y*, with what it is above its middle, or above *middle*."""
    first, last = LANES[start], LANES[end]
    away = 6 if last > first else -6
    middle = middle or (first + last) / 2
    line = f'<line class="arrow" x1="{first + away}" y1="{y:g}" x2="{last - away}" y2="{y:g}"/>'
    return [line, text(middle, y - 5, said, kind)]


def state(lane: str, y: float, which: State) -> list[str]:
    """Return a badge: what the backend says of the node from *y* on."""
    x = LANES[lane]
    badge = f'<rect x="{x - 50}" y="{y:g}" width="100" height="18" rx="9" fill="{COLOURS[which]}"/>'
    return [badge, text(x, y + 13, which, "state")]


def both(y: float, *lines: str) -> list[str]:
    """Return what both nodes do at the same time."""
    return [*box(MAIN, y, *lines), *box(WORKER, y, *lines)]


def states(y: float, which: State) -> list[str]:
    """Return the badges of both nodes."""
    return [*state(MAIN, y, which), *state(WORKER, y, which)]


def drawing() -> str:
    """Return the picture's text."""
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" class="page"/>', TIP]
    for name, x in LANES.items():
        parts += [f'<line class="lane" x1="{x}" y1="42" x2="{x}" y2="{HEIGHT - 70}"/>', text(x, 28, name, "head")]
    parts += box("launch.sh", 52, "checks everything, plans,", "sends the code")
    parts += [*arrow("launch.sh", MAIN, 122, "starts the agents", "middle"), *arrow(MAIN, WORKER, 122, "")[:1]]
    parts += states(132, State.ACCEPTED)
    parts += states(160, State.IN_PROGRESS)
    parts += both(186, "reads its settings,", "finds its address and its code")
    parts += arrow(MAIN, "cluster dir", 256, config_file(MAIN))
    parts += arrow(WORKER, "cluster dir", 256, config_file(WORKER))
    parts += arrow("cluster dir", WORKER, 286, "waits for main's", "middle")
    parts += [*box(MAIN, 300, "start-master.sh", kind="word"), *box(WORKER, 300, "start-worker.sh", kind="word")]
    parts += arrow(MAIN, "cluster dir", 352, READY)
    parts += arrow("cluster dir", "launch.sh", 382, "is ready", "middle", middle=245)
    parts += box(MAIN, 404, "runs the entry point")
    parts += box(WORKER, 396, "computes for it,", "or runs it, too")
    parts += arrow(MAIN, "cluster dir", 464, heartbeat_file(MAIN))
    parts += arrow(WORKER, "cluster dir", 464, heartbeat_file(WORKER))
    parts += box("launch.sh", 408, "shows the logs")
    parts += box(MAIN, 478, "the entry point has ended")
    parts += arrow(MAIN, "cluster dir", 530, STOP)
    parts += arrow("cluster dir", WORKER, 530, "sees it", "middle")
    parts += both(542, "TERM, after a while KILL;", "brings the outputs to safety")
    parts += [*arrow(MAIN, "cluster dir", 612, exit_file(MAIN)), *arrow(WORKER, "cluster dir", 612, exit_file(WORKER))]
    parts += states(624, State.SUCCEEDED)
    parts += box("launch.sh", 640, "exits with the code", "of the entry point")
    why = f"{int(ExitCode.STOPPED)} after stop.sh or Ctrl-C, {int(ExitCode.TIMED_OUT)} when a time is over, "
    why += f"{int(ExitCode.LOST)} when main or a needed worker is lost."
    parts += [
        text(
            20, HEIGHT - 38, f"Whatever ends a cluster, it ends this way: {STOP} has the code and the reason.", "small"
        ),
        text(20, HEIGHT - 18, f"The code is that of the entry point, or {why}", "small"),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        "<title>A cluster's life: from launch.sh to its exit code</title>\n"
        f"<style>{STYLE}</style>\n"
    )
    return head + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
