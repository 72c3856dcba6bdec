"""A cluster that adapts on a real Kubernetes: its Job grows and shrinks from its end, by lines of main's log alone."""

from __future__ import annotations

import re

from kube.launches import SOON_S, Site, lines_of
from wishing import wishing


def test_a_job_grows_and_shrinks_as_main_wishes(site: Site) -> None:
    """Without storage; a place that was given back is taken again, and the launch ends with 0."""
    script, steps = wishing(
        ("workers=2", (1, 2)),
        ("workers=1 idle=WORKER_2", (1,)),
        ("workers=2", (1, 2)),
    )
    launch = site.launch("plain", 1, script, "--", steps, ADAPT="1:3")
    assert launch.wait(2 * SOON_S) == 0, launch.out + launch.err
    assert [line for line in lines_of(launch.out, "MAIN") if line.startswith("now ")] == [
        "now WORKER_1 WORKER_2 last",
        "now WORKER_1 last",
        "now WORKER_1 WORKER_2 last",
    ]
    changes = re.findall(r"adapting: (\d -> \d) workers", launch.err)
    assert changes == ["1 -> 2", "2 -> 1", "1 -> 2"]
    assert "told MAIN" not in launch.out
    site.assert_nothing_left()
