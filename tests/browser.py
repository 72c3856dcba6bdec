"""A real browser, as a test drives it: headless Chromium, over the pipe of its own debugging protocol.

No library stands between: the protocol is JSON with a NUL behind each message, on two file descriptors that nobody else
reaches, and Chromium ends when they are closed. Playwright 1.65 is 165 MB and for Chromiums of its own, Selenium 4.52
needs a driver besides, puppeteer-core 25.16 is 80 packages of npm and JavaScript.

The browser reaches loopback addresses and nothing else. Its profile is a new directory, and at its end no process of it
is left. Needs Debian's chromium.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import queue
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from harness import wait_until

# A page of JupyterLab is there after 3 s; on two busy cores that was 20.
PATIENCE_S = 120.0
_PROGRAM = "chromium"
_FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    # What is not on loopback, which Chromium never asks a proxy for, goes to a proxy that is not there.
    "--proxy-server=http://127.0.0.1:9",
    # Nobody asks the makers of browsers anything.
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--disable-breakpad", "--disable-crash-reporter"),
    # A page that nobody looks at would have its timers slowed down.
    *("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows"),
    "--disable-renderer-backgrounding",
)
# As the protocol has it: the modifier's number is Shift's.
_SHIFT_ENTER = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 8}
# Of what is there, and has a size.
_MIDDLE = """element => {
  if (!element) return null;
  element.scrollIntoView({block: "nearest"});
  const {x, y, width, height} = element.getBoundingClientRect();
  return width * height ? [x + width / 2, y + height / 2] : null;
}"""


def why_not() -> str:
    """Return what is missing to run a browser here; empty where nothing is."""
    return "" if shutil.which(_PROGRAM) else f"needs {_PROGRAM} (Debian's {_PROGRAM})"


class _NoContextError(AssertionError):
    """One page goes and the next comes: there is nothing to ask."""


class Browser:
    """A Chromium without a past. A context manager: at its end nothing of it runs, and nothing is left."""

    def __init__(self) -> None:
        self._number = 0
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {}

    def __enter__(self) -> Browser:
        # Not in a test's directory: Chromium makes a socket there, whose path has 107 characters at most.
        self._directory = tempfile.TemporaryDirectory(prefix="browser-")
        self.home = home = self._directory.name
        # Chromium's sandbox refuses root, as who the tests run where they make hosts of their own.
        flags = [*_FLAGS, *["--no-sandbox"][: os.geteuid() == 0], f"--user-data-dir={home}/profile", "about:blank"]
        theirs_in, mine_out = _pipe()
        mine_in, theirs_out = _pipe()
        self._log = Path(home, "chromium.log")
        # Chromium takes the pipes as its descriptors 3 and 4.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", _PROGRAM, *flags],
                env={"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out = os.fdopen(mine_out, "wb", buffering=0)
        self._reader = threading.Thread(target=self._read, args=(os.fdopen(mine_in, "rb"),), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        of_mine = self.processes()
        self._out.close()  # which Chromium takes for its end
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        for process in {*of_mine, *self.processes()}:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        wait_until(lambda: not self.processes(), lambda: f"the end of {self.processes()}", PATIENCE_S)
        self._directory.cleanup()

    def ask(self, method: str, page: str = "", **parameters: Any) -> dict[str, Any]:
        """Return what Chromium answers to a request, of one page or of itself."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        message = json.dumps(request | ({"sessionId": page} if page else {})).encode() + b"\0"
        try:
            self._out.write(message)
            answer = self._answers.get(timeout=PATIENCE_S)
        except (OSError, queue.Empty) as error:
            raise AssertionError(f"the browser does not answer {method}: {self._log.read_text()[-2000:]}") from error
        if re.search("context|navigated", answer.get("error", {}).get("message", "")):
            raise _NoContextError(f"{method}: {answer['error']}")
        if "result" not in answer:
            raise AssertionError(f"{method}: {answer.get('error') or self._log.read_text()[-2000:]}")
        found: dict[str, Any] = answer["result"]
        return found

    def open(self, url: str) -> Page:
        """Return a new tab that shows *url*, or will."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._handlers[session] = page._take
        for domain in ("Page", "Runtime", "Network"):
            self.ask(f"{domain}.enable", session)
        page.show(url)
        return page

    def _read(self, pipe: Any) -> None:
        """Sort what comes: answers are waited for, events are a page's."""
        with pipe:
            rest = b""
            while some := pipe.read1(2**16):
                *messages, rest = (rest + some).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers.put(message)
                    elif handler := self._handlers.get(message.get("sessionId", "")):
                        handler(message)
        self._answers.put({})

    def processes(self) -> list[psutil.Process]:
        """Return all that runs of it, also what has left its process group."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
                is_mine = os.getpgid(process.pid) == self._process.pid or self._directory.name in " ".join(
                    process.cmdline()
                )
                if is_mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


class Page:
    """One tab. What a test waits for has a deadline, and what was there instead is told."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._sockets: dict[str, str] = {}
        # Of each WebSocket, by its URL: how many messages have come from the server; and those that are open.
        self.messages: dict[str, int] = {}
        self.open_sockets: set[str] = set()
        # The exceptions of the page that nobody caught.
        self.complaints: list[str] = []

    def show(self, url: str) -> None:
        """Go to *url*; a test waits for what it wants to see there."""
        answer = self._ask("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"

    def bring_to_front(self) -> None:
        """Make it the tab that is seen: a page that is hidden paints nothing, and takes its time."""
        self._ask("Page.bringToFront")

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression of JavaScript; a promise is waited for."""
        answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    @property
    def text(self) -> str:
        """All that can be read on the page."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for(self, script: str, what: str = "", patience_s: float = PATIENCE_S) -> Any:
        """Return the value of an expression, which is JSON, as soon as it is true."""
        return wait_until(
            lambda: self._is_there(script), lambda: f"{what or script} on a page that shows:\n{self.text}", patience_s
        )

    def wait_for_element(self, selector: str, patience_s: float = PATIENCE_S) -> None:
        """Return when there is something that *selector* finds."""
        self.wait_for(f"document.querySelector({json.dumps(selector)}) !== null", selector, patience_s)

    def wait_for_text(self, text: str, patience_s: float = PATIENCE_S) -> None:
        """Return when *text* can be read on the page."""
        self.wait_for(f"document.body.innerText.includes({json.dumps(text)})", repr(text), patience_s)

    def click(self, selector: str, patience_s: float = PATIENCE_S) -> None:
        """Click with the mouse on the middle of what *selector* finds, when it is there and has a size."""
        found = f"document.querySelector({json.dumps(selector)})"
        place = self.wait_for(f"({_MIDDLE})({found})", selector, patience_s)
        where = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, **where)

    def type(self, text: str) -> None:
        """Type into what has the focus; lines end as they are, without an editor's indentation."""
        self._ask("Input.insertText", text=text)

    def press_shift_enter(self) -> None:
        """Press these keys, which have a notebook run a cell."""
        for kind, text in (("keyDown", {"text": "\r"}), ("keyUp", {})):
            self._ask("Input.dispatchKeyEvent", type=kind, **text, **_SHIFT_ENTER)

    def screenshot(self, path: Path, *, width: int, height: int) -> None:
        """Write what the page looks like in a window of that size, as a PNG."""
        self.resize(width, height)
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def resize(self, width: int, height: int) -> None:
        """Give the page a window of that size."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def _is_there(self, script: str) -> Any:
        try:
            answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        except _NoContextError:
            return None
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    def _take(self, message: dict[str, Any]) -> None:
        """Take note of an event; the browser's thread calls it."""
        method, event = message["method"], message["params"]
        if method == "Network.webSocketCreated":
            self._sockets[event["requestId"]] = event["url"].partition("?")[0]
        elif method == "Network.webSocketHandshakeResponseReceived":
            self.open_sockets.add(self._sockets[event["requestId"]])
        elif method == "Network.webSocketClosed":
            self.open_sockets.discard(self._sockets[event["requestId"]])
        elif method == "Network.webSocketFrameReceived":
            url = self._sockets[event["requestId"]]
            self.messages[url] = self.messages.get(url, 0) + 1
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(event["exceptionDetails"].get("exception", {}).get("description")))


def _pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors are none that Chromium takes for something else."""
    pair = os.pipe()
    found = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pair)
    for end in pair:
        os.close(end)
    return found[0], found[1]
