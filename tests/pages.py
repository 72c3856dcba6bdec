"""Pages that clusters serve, as a browser of tests/browser.py sees them: JupyterLab, and Dask's dashboard."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin

import pytest
from browser import PATIENCE_S, Browser, Page
from harness import Launch, Project, wait_until

# Keeps what it computes, so that the number of tasks grows for as long as nobody has said go.
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
# Dialogs come, and may go before anybody looks.
_WATCH_DIALOGS = """\
window.seenDialogs = [];
new MutationObserver(changes => {
  for (const node of changes.flatMap(change => [...change.addedNodes]))
    if (node.classList && node.classList.contains("jp-Dialog")) window.seenDialogs.push(node.innerText);
}).observe(document.body, {childList: true});"""
_CELLS = "[...document.querySelectorAll('.jp-Notebook .jp-CodeCell')]"


def tasks_shown(page: Page) -> int:
    """Return how many tasks the plot of progress counts; 0 where there is no such plot yet."""
    found = re.search(r"Progress -- total: (\d+)", " ".join(page.evaluate(_TITLES)))
    return int(found[1]) if found else 0


def dashboard_moves(page: Page) -> None:
    """Return when the page has shown some tasks, and then more, all over one WebSocket."""

    def shown() -> str:
        return f"{page.evaluate(_TITLES)} on a page that shows:\n{page.text}"

    first = wait_until(lambda: tasks_shown(page), lambda: f"tasks: {shown()}", PATIENCE_S)
    sockets = set(page.open_sockets)
    wait_until(lambda: tasks_shown(page) > first + 8, lambda: f"more than {first} tasks: {shown()}", PATIENCE_S)
    assert page.open_sockets == sockets
    assert [url for url in sockets if re.fullmatch(r"ws://127\.0\.0\.\d+:\d+/(.+/)?status/ws", url)], sockets


class Lab:
    """A JupyterLab in a tab."""

    def __init__(
        self, browser: Browser, url: str, shown: str = ".jp-Launcher", *, width: int = 1200, height: int = 800
    ) -> None:
        self.page = browser.open(url)
        self.page.resize(width, height)
        self.page.wait_for_element(shown)
        self.page.evaluate(_WATCH_DIALOGS)

    @property
    def dialogs(self) -> list[str]:
        """The texts of all dialogs that were ever there."""
        found: list[str] = self.page.evaluate("window.seenDialogs")
        return found

    def new_notebook(self) -> None:
        """Make a notebook by the launcher, and return when its kernel is there."""
        self.page.click('.jp-LauncherCard[data-category="Notebook"]')
        self.wait_for_kernel()

    def wait_for_kernel(self) -> None:
        """Return when the notebook's kernel is there, and has nothing to do."""
        # The notebook's own mark is idle before there is a kernel, and what is run then is forgotten.
        self.page.wait_for("document.querySelector('#jp-main-statusbar').innerText.includes('| Idle')")

    def start(self, code: str) -> int:
        """Type *code* into the last cell and run it; return the cell's number."""
        self.page.bring_to_front()
        number = int(self.page.evaluate(f"{_CELLS}.length")) - 1
        self.page.evaluate(f"{_CELLS}[{number}].dataset.test = '{number}'")
        self.page.click(f'.jp-CodeCell[data-test="{number}"] .cm-content')
        self.page.wait_for(f"{_CELLS}[{number}].contains(document.activeElement)", "the cell to have the focus")
        self.page.type(code)
        self.page.press_shift_enter()
        self.page.wait_for(f"{_CELLS}.length > {number + 1}", "the next cell")
        return number

    def output(self, number: int) -> str:
        """Return what a cell shows so far."""
        return str(self.page.evaluate(f"{_CELLS}[{number}].querySelector('.jp-OutputArea')?.innerText || ''"))

    def run(self, code: str, patience_s: float = PATIENCE_S) -> str:
        """Run *code* in a cell to its end, and return what it shows."""
        number = self.start(code)
        prompt = f"({_CELLS}[{number}].querySelector('.jp-InputPrompt')?.innerText || '')"
        self.page.wait_for(f"/^\\[\\d+\\]:$/.test({prompt}.trim())", f"the end of {json.dumps(code)}", patience_s)
        return self.output(number)


# What a cell of a notebook runs that has the workers busy until another cell says `stop.set()`.
_COMPUTE_BESIDE = """\
import threading, time
futures, stop = [], threading.Event()
def work(number):
    time.sleep(0.05)
    return number
def compute():
    while not stop.is_set():
        futures.extend(client.map(work, range(len(futures), len(futures) + 8)))
        client.gather(futures)
threading.Thread(target=compute).start()"""
_42 = "from dask.distributed import Client\nclient = Client()\nprint(client.submit(lambda: 6 * 7).result())"


def told_url(process: subprocess.Popen[bytes], said: Callable[[], str]) -> str:
    """Return the URL that a ``session.sh`` tells, which only its owner's file has; *said* returns what is on stderr."""

    def look() -> re.Match[str] | None:
        has_ended = process.poll() is not None  # before the words: they may have come in between
        found = re.search(r"how to reach it is in (/.+/session-url)$", said(), re.MULTILINE)
        assert found or not has_ended, said()
        return found

    file = Path(wait_until(look, lambda: f"the session: {said()}")[1])
    assert file.stat().st_mode & 0o77 == 0
    return file.read_text().strip()


def url_of(session: Launch) -> str:
    """Return the URL of a session, whose token is nowhere else."""
    url = told_url(session.process, lambda: session.err)
    assert url.partition("token=")[2] not in session.err + session.out
    return url


def work_in_a_session(browser: Browser, url: str) -> Lab:
    """Do what people do: compute in a notebook, on the cluster, and look at the dashboard through the same port."""
    lab = Lab(browser, url)
    lab.new_notebook()
    assert lab.run(_42).strip() == "42"
    link = lab.run("print(client.dashboard_link)").strip()
    lab.run(_COMPUTE_BESIDE)
    dashboard = browser.open(urljoin(url, link))
    dashboard_moves(dashboard)
    assert lab.run("stop.set(); print(len(futures) > 0)").strip() == "True"
    assert [lab.dialogs, lab.page.complaints, dashboard.complaints] == [[], [], []]
    return lab


def ends_when_idle(session: Launch) -> None:
    """See that a *session* ends by itself where a tab of it is open and nobody does anything."""
    assert session.process.poll() is None, session.err  # not while it was used
    assert session.wait(600) == 0, session.err
    assert "the session ends" in session.out, session.out


def connected_way_ends_with_it(browser: Browser, project: Project, name: str) -> None:
    """See by *browser* that ``connect.sh`` leads to a session, by a URL of its own, for as long as it runs."""
    with project.connected(name) as url:
        lab = Lab(browser, f"{url}&reset")
        lab.new_notebook()
        assert lab.run("print(6 * 7)").strip() == "42"
    with pytest.raises(AssertionError, match="ERR_CONNECTION_REFUSED"):
        browser.open(url)


def nobody_gets_in(browser: Browser, url: str) -> None:
    """See that a *browser* without a past gets nothing without the token, nor with a wrong one."""
    place = url.partition("?")[0]
    token = url.partition("token=")[2]
    for words in ("", f"?token={token[:-1]}{'0' if token[-1] != '0' else '1'}"):
        page = browser.open(place + words)
        page.wait_for_text("Token authentication is enabled")
        for path in ("api/contents", "api/kernels", "api/terminals"):
            answer = page.evaluate(f"fetch('/{path}{words}').then(answer => answer.status)")
            assert answer == 403, path
        shown = page.evaluate(f"fetch('/proxy/8787/status{words}').then(answer => answer.text())")
        assert "bokeh" not in shown.lower()
        assert not page.open_sockets
