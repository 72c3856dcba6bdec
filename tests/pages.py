"""Pages that clusters serve, as a browser of tests/browser.py sees them: Dask's dashboard."""

from __future__ import annotations

import re

from browser import Page
from harness import wait_until

# Keeps what it computes, so that the number of tasks grows for as long as the test has not said go.
COMPUTE = """\
import os
import time
from distributed import Client

def work(number):
    time.sleep(0.05)
    return number

with Client() as client:
    futures = []
    while not os.path.exists("go"):
        futures += client.map(work, range(len(futures), len(futures) + 8))
        client.gather(futures)
        print("computing", flush=True)
"""
# The plots are canvases: what they draw is read from Bokeh's models.
_TITLES = """\
(window.Bokeh ? Bokeh.documents : [])
  .flatMap(document => [...(document._all_models || new Map()).values()])
  .filter(model => model.type === "Title")
  .map(title => title.text)"""


def tasks_shown(page: Page) -> int:
    """Return how many tasks the plot of progress counts; 0 where there is no such plot yet."""
    found = re.search(r"Progress -- total: (\d+)", " ".join(page.evaluate(_TITLES)))
    return int(found[1]) if found else 0


def dashboard_moves(page: Page) -> None:
    """Return when the page has shown some tasks, and then more, with one WebSocket open all the time."""
    first = wait_until(lambda: tasks_shown(page), lambda: f"tasks on a page that shows {page.evaluate(_TITLES)}")
    wait_until(lambda: tasks_shown(page) > first + 8, lambda: f"more than {first} tasks: {page.evaluate(_TITLES)}")
    (url,) = page.open_sockets
    assert re.fullmatch(r"ws://127\.0\.0\.\d+:\d+/status/ws", url)
