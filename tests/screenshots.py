"""`make screenshots`: the pictures of docs/images, of a session with Dask on this machine. Needs Debian's chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

from browser import Browser, why_not
from harness import wait_until
from pages import Lab, told_url

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
NOTEBOOK = "explore.ipynb"
SIZE = {"width": 1100, "height": 700}
CELLS = (
    "from dask.distributed import Client\nclient = Client()\nclient.submit(lambda: 6 * 7).result()",
    "import dask.array as da\nx = da.random.random((10_000, 10_000), chunks=1_000)",
    "(x + x.T).mean(axis=0).std().compute()",
    "sorted(client.nthreads())",
)
BUSY = "for _ in range(60): (x + x.T).mean(axis=0).std().compute()"
# The task stream has some seconds in it then.
MESSAGES = 400


@contextmanager
def session(place: Path) -> Iterator[str]:
    """Have a session with three workers in *place*; its URL."""
    said = place.parent / "said"
    command = [ROOT / "scripts" / "session.sh", "jupyter", "--workers", "3", "--env", "NTHREAD=1"]
    with said.open("wb") as err:
        process = subprocess.Popen(
            command, cwd=place, stdin=subprocess.DEVNULL, stdout=err, stderr=err, start_new_session=True
        )
    try:
        yield told_url(process, said.read_text)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


def main() -> int:
    """Make them anew."""
    if reason := why_not():
        sys.stderr.write(f"screenshots: error: {reason}\n")
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory, "code")
        place.mkdir()
        shutil.copy(ROOT / "dask" / "example" / "train.py", place)
        cell = {
            "cell_type": "code",
            "execution_count": None,
            "id": "first",
            "metadata": {},
            "outputs": [],
            "source": "",
        }
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (place / NOTEBOOK).write_text(json.dumps(notebook))
        with session(place) as url, Browser() as browser:
            lab = Lab(browser, url.replace("/lab?", f"/lab/tree/{NOTEBOOK}?"), ".jp-Notebook", **SIZE)
            lab.wait_for_kernel()
            for code in CELLS:
                lab.run(code)
            lab.page.screenshot(IMAGES / "session.png", **SIZE)
            link = lab.run("print(client.dashboard_link)").strip()
            lab.start(BUSY)
            dashboard = browser.open(urljoin(url, link))
            dashboard.resize(**SIZE)
            wait_until(lambda: sum(dashboard.messages.values()) > MESSAGES, "the task stream", 120)
            dashboard.screenshot(IMAGES / "dashboard.png", **SIZE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
