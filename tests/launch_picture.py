"""Draws docs/images/launch.svg: a launch of PyTorch in a terminal, line after line.

Run ``PYTHONPATH=tests .venv/bin/python tests/launch_picture.py`` after a change here. ``tests/unit/test_doc_pages.py``
compares the file with this. The lines are those of a launch on two cores; the agents' own lines are left out.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "launch.svg"
COMMAND = "./scripts/launch.sh pytorch 2 -- --epochs 3"
# When each line came, in seconds after Enter, faster than it was; and the line.
LINES = (
    (0.6, "launch.sh: cluster pytorch-b8c1 started: 3 nodes; files in .../.clusters/pytorch-b8c1-b8c196fb"),
    (1.0, "launch.sh: 2 of 2 workers arrived"),
    (2.2, "launch.sh: ready after 8.7 s; rendezvous 127.0.0.7:29400; nodes 3; world_size 3"),
    (2.6, "MAIN     | 1347 images to learn from, 450 to test with; world size 3, gloo; first epoch: 1"),
    (3.4, "MAIN     | epoch  1 of 3  loss 2.2190  accuracy 0.5578  world size 3"),
    (4.2, "MAIN     | epoch  2 of 3  loss 1.1664  accuracy 0.8000  world size 3"),
    (5.0, "MAIN     | epoch  3 of 3  loss 0.3473  accuracy 0.9356  world size 3"),
    (5.6, "launch.sh: cluster pytorch-b8c1 ended with 0 after 35.2 s; outputs in .../pytorch-b8c1-b8c196fb/outputs"),
)
LINE_HEIGHT, LEFT, TOP = 20, 16, 34
WIDTH, HEIGHT = 860, TOP + LINE_HEIGHT * (len(LINES) + 1) + 6
# Who wants no motion sees all lines at once, as does a viewer that runs no animation.
STYLE = """
text { font: 13px ui-monospace, monospace; fill: #d8dee9; white-space: pre }
.command { fill: #a3d9a5 }
.launcher { fill: #8fbcdb }
@media (prefers-reduced-motion: no-preference) {
  .late { animation: come 0.2s both }
  @keyframes come { from { opacity: 0 } to { opacity: 1 } }
}
"""


def drawing() -> str:
    """Return the picture, as the text of an SVG."""
    shown = [f'<text class="command" x="{LEFT}" y="{TOP}">$ {escape(COMMAND)}</text>']
    for number, (at, line) in enumerate(LINES, start=1):
        kind = "late launcher" if line.startswith("launch.sh:") else "late"
        y = TOP + number * LINE_HEIGHT
        shown.append(f'<text class="{kind}" style="animation-delay: {at}s" x="{LEFT}" y="{y}">{escape(line)}</text>')
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    label = f'role="img" aria-label="A terminal: {escape(COMMAND)}, and what it prints"'
    frame = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#2e3440"/>'
    first = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>'
    return "\n".join((first, f"<style>{STYLE}</style>", frame, *shown, "</svg>\n"))


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
