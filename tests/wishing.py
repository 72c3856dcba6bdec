"""An entry point that asks for workers as it is told: what Dask's scheduler does with the work that it has."""

from __future__ import annotations

import json
from collections.abc import Sequence

_SCRIPT = """
import json, os, sys, time
from pathlib import Path

place = Path(os.environ["NODE_DIR"])

def members():
    path = place / "members"
    return path.read_text().split() if path.exists() else []

for wish, wanted in json.loads(sys.argv[1]):
    (place / "scale-request.new").write_text("".join(f"{line}\\n" for line in wish.split()))
    (place / "scale-request.new").replace(place / "scale-request")
    deadline = time.monotonic() + 200
    while members() != wanted.split():
        assert time.monotonic() < deadline, members()
        time.sleep(0.1)
    print("now", *members(), os.environ["FOLLOWED"], flush=True)
"""


def wishing(*steps: tuple[str, Sequence[int]]) -> tuple[str, str]:
    """Return a script, and its argument: it asks so, and goes on when those workers, by their ranks, are there."""
    words = [(wish, " ".join(f"WORKER_{rank}" for rank in ranks)) for wish, ranks in steps]
    return _SCRIPT, json.dumps(words)
