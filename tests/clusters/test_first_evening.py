"""README.md and pages for newcomers, followed word by word on an empty Debian 12: commands, and what they print."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import clean_root
import pytest
from clean_root import CleanRoot
from doc_pages import ROOT

pytestmark = [pytest.mark.skipif(bool(clean_root.why_not()), reason=clean_root.why_not() or "runs"), pytest.mark.slow]

README, SCRIPTS, CLUSTERS = (
    (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/scripts.md", "docs/clusters.md")
)
MARK = "<!-- run by tests/clusters/test_first_evening.py -->\n```sh\n"
# Somebody's own script, as the page says that it may be.
TRAIN = """
import sys
from dask.distributed import Client
print("arguments:", sys.argv[1:])
print("sum:", Client().submit(sum, [1, 2, 3]).result())
"""
UNTIL_ENDED = "import time\nprint('entry up', flush=True)\ntime.sleep(1000)\n"


def commands(page: str) -> list[str]:
    """Return the commands of the one block of *page* that is marked as run here."""
    (block,) = page.split(MARK)[1:]
    return [line for line in block.partition("```\n")[0].splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    """Return a Debian of somebody who has read what README says that they need, and nothing more."""
    directory = tmp_path_factory.mktemp("debian")
    with CleanRoot(directory) as debian:
        (needed,) = re.findall(r"`(apt-get install [^`]+)`", README)
        debian.root(f"apt-get update && {needed} --yes")
        yield debian
    shutil.rmtree(directory)


def said_by_main(text: str) -> list[str]:
    """Return main's lines in *text* that are the same each time: not those of progress, nor the agent's own."""
    lines = [line for line in text.splitlines() if line.startswith("MAIN     | ")]
    return [line for line in lines if not re.search(r" fits, the last by |\| [\d:]{8} agent: ", line)]


def test_the_three_commands_do_what_the_readme_shows(reader: CleanRoot) -> None:
    """The first evening: an environment is made, the example is computed, and then the reader's own script."""
    (shown,) = re.findall(r"You see something like this.*?```text\n(.*?)```", README, re.DOTALL)
    example, with_arguments, dry_run = commands(README)
    printed = reader.run(example)
    assert said_by_main(shown)
    assert [line for line in said_by_main(shown) if line not in said_by_main(printed)] == []
    for words in ("; dashboard http://", "ended with 0 after "):
        assert words in shown
        assert words in printed
    assert "3 of 3 workers arrived" in printed
    assert "MAIN     | mean score of 2 folds: " in reader.run(with_arguments)
    assert "kind: Job" in reader.run(dry_run)

    reader.write("train.py", TRAIN)
    (own,) = commands(SCRIPTS)
    printed = reader.run(own)
    assert "MAIN     | arguments: ['--epochs', '10', '--name', 'run 1']" in printed
    assert "MAIN     | sum: 6" in printed


def test_a_cluster_that_runs_is_looked_after_as_its_page_says(reader: CleanRoot) -> None:
    """Listed, shown, followed, scaled, stopped, and removed; of what it left nothing is anywhere."""
    reader.write("entry.py", UNTIL_ENDED)
    name = reader.run("./scripts/launch.sh dask 1 --entry entry.py --detach --wait 2>/dev/null").strip()
    listed, status, follow, scale, stop = (line.replace("NAME", name) for line in commands(CLUSTERS))
    assert name in reader.run(listed)
    shown = reader.run(status)
    assert "MAIN" in shown
    assert "http://127.0.0." in shown
    with reader.start(f"exec {follow}") as logs:
        assert logs.stdout is not None
        assert any("entry up" in line for line in logs.stdout)
        logs.terminate()
    assert "2" in reader.run(scale).splitlines()
    assert name in reader.run(stop)
    assert "STOPPED" in reader.run("./scripts/list.sh --all")

    for line in re.findall(r"`(\./scripts/stop\.sh --delete [^`]+)`", CLUSTERS.partition("\n## Clean up\n")[2]):
        reader.run(line.replace("7d", "0s").replace("NAME", name))  # whose random end may be 7d
    left = Path(f"{reader.path}{reader.checkout}/.clusters").iterdir()
    assert [path.name for path in left if path.name != ".lock"] == []


def test_all_that_was_made_is_in_the_checkout(reader: CleanRoot) -> None:
    """As "Clean up" says: who deletes the checkout has deleted all, but for the cache of pip, which is pip's."""
    made = reader.root(f"find / -xdev -user ada -not -path '{reader.checkout}*' -not -path '/home/ada/.cache/*'")
    beside = set(made.splitlines()) - {"/home/ada", "/home/ada/.cache"}
    assert {path for path in beside if not re.fullmatch(r"/home/ada/\.(bashrc|profile|bash_logout)", path)} == set()
