"""A cluster that adapts on a real Kubernetes: its Job grows and shrinks from its end, by lines of main's log alone."""

from __future__ import annotations

import re

import pytest
from kube.launches import SOON_S, Site, lines_of

pytestmark = pytest.mark.timeout(180)

# What Dask's scheduler does with the work that it has, this does as it is told.
WISHES = """
import os, time
from pathlib import Path

place = Path(os.environ["NODE_DIR"])

def wish(*lines):
    (place / "wish.new").write_text("".join(f"{line}\\n" for line in lines))
    (place / "wish.new").replace(place / "wish")

def until(*nodes):
    deadline = time.monotonic() + 100
    while not (place / "members").exists() or (place / "members").read_text().split() != [*nodes]:
        assert time.monotonic() < deadline, "they are others"
        time.sleep(0.1)
    print("now", *nodes, os.environ["FOLLOWED"], flush=True)

until("WORKER_1")
wish("workers=3")
until("WORKER_1", "WORKER_2", "WORKER_3")
wish("workers=1", "idle=WORKER_3", "idle=WORKER_2")
until("WORKER_1")
wish("workers=2")
until("WORKER_1", "WORKER_2")
"""


def test_a_job_grows_and_shrinks_as_main_wishes(site: Site) -> None:
    """Without storage; a place that was given back is taken again, and the launch ends with 0."""
    launch = site.launch("plain", 1, WISHES, ADAPT="1:3")
    assert launch.wait(2 * SOON_S) == 0, launch.out + launch.err
    assert [line for line in lines_of(launch.out, "MAIN") if line.startswith("now ")] == [
        "now WORKER_1 last",
        "now WORKER_1 WORKER_2 WORKER_3 last",
        "now WORKER_1 last",
        "now WORKER_1 WORKER_2 last",
    ]
    changes = re.findall(r"adapting: (\d -> \d) workers", launch.err)
    assert changes == ["1 -> 3", "3 -> 1", "1 -> 2"]
    assert "told MAIN" not in launch.out
    site.assert_nothing_left()
