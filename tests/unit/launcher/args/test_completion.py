"""What is offered at TAB; the shells themselves are in tests/clusters/test_terminals.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oci_cluster.launcher.args.completion import complete

COMMON = Path(__file__).resolve().parents[4] / "common"
LAUNCH = """#!
# Usage: launch.sh <framework> <workers> [option...] [-- argument...]
#
#   --entry FILE     run your script. It is yours
#   --code DIR       its folder
#   --backend NAME   where
#   --name NAME      a new one
#   --keep           keep it
"""
STOP = (
    "#!\n# Usage: stop.sh [--delete] [NAME...]\n#        stop.sh [--ended]\n#\n#   --delete  too\n#   --ended   all\n"
)
LOGS = "#!\n# Usage: logs.sh [NAME]\n#\n#   --node NODE     this one\n#   --backend NAME  where\n"
SESSION = "#!\n# Usage: session.sh KIND [NAME]\n#\n#   --name NAME   its own\n#   --in CLUSTER  beside it\n"
NEW = "#!\n# Usage: new.sh <framework...> <dir>\n"
LIST = "#!\n# Usage: list.sh [--all]\n#\n#   --all   more\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout with two frameworks, some scripts and a kind of session."""
    files = {
        **{f"{name}/start-master.sh": "" for name in ("dask", "ray")},
        "scripts/launch.sh": LAUNCH,
        "scripts/stop.sh": STOP,
        "scripts/logs.sh": LOGS,
        "scripts/new.sh": NEW,
        "scripts/session.sh": SESSION,
        "scripts/sessions/ssh/session.env": "",
        "scripts/list.sh": LIST,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def keep(root: Path, cluster_id: str, **changes: Any) -> None:
    """Keep a cluster, as a launch does."""
    nodes = [{"node": "MAIN"}, {"node": "WORKER_1"}]
    plan = {"framework": "dask", "backend": "local", "created": "2026-01-01T00:00:00Z", "nodes": nodes, **changes}
    (root / ".clusters" / cluster_id).mkdir(parents=True)
    (root / ".clusters" / cluster_id / "cluster.json").write_text(json.dumps(plan))


def offered(root: Path, line: str, part: str | None = None, **environ: str) -> list[str]:
    """Return what is offered behind *line*, whose last word, perhaps an empty one, is at the cursor."""
    script, *words = line.split(" ")
    kind, *lines = complete([script, words[-1] if part is None else part, *words], root, environ).split("\n")
    return [*([] if kind == "words" else [kind]), *(one.partition("\t")[0] for one in lines)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("launch.sh ", ["dask", "ray"]),
        ("launch.sh dask ", ["--entry", "--code", "--backend", "--name", "--keep"]),
        ("launch.sh dask 3 ", ["--entry", "--code", "--backend", "--name", "--keep"]),
        ("launch.sh -", ["--entry", "--code", "--backend", "--name", "--keep"]),
        ("launch.sh --entry ", ["files"]),
        ("launch.sh --entry=", ["files"]),
        ("launch.sh dask 3 --code x", ["folders"]),
        ("launch.sh --code x ", ["dask", "ray"]),
        ("launch.sh --code=x --keep ", ["dask", "ray"]),
        ("launch.sh --backend ", ["docker", "kubernetes", "local", "oci"]),
        ("launch.sh --name ", []),
        ("launch.sh --unknown=", []),
        ("launch.sh --unknown ", ["dask", "ray"]),
        ("launch.sh dask 3 -- --entry ", ["files"]),
        ("session.sh ", ["ssh"]),
        ("session.sh ssh ", ["--name", "--in"]),
        ("new.sh ", ["dask", "ray"]),
        ("new.sh dask ", ["folders", "ray"]),
        ("list.sh ", ["--all"]),
        ("stop.sh ", ["--delete", "--ended"]),
        ("stop.sh mine -", ["--delete", "--ended"]),
        ("none.sh ", []),
        ("../launch.sh ", ["dask", "ray"]),
    ],
)
def test_what_the_header_says_is_offered(root: Path, line: str, found: list[str]) -> None:
    """Operands first; options where these begin, or where nothing else is known."""
    assert offered(root, line) == found


def test_a_header_that_changes_changes_what_is_offered(root: Path) -> None:
    (root / "scripts" / "list.sh").write_text(LIST.replace("--all", "--every"))
    assert offered(root, "list.sh -") == ["--every"]


@pytest.mark.parametrize(
    ("line", "part", "found"),
    [
        ("launch.sh --backend=k", "--backend=k", "--backend=kubernetes"),
        ("launch.sh --backend=k", "k", "kubernetes"),
        ("launch.sh --backend = k", "k", "kubernetes"),
        ("launch.sh --backend =", "", "kubernetes"),
        ("launch.sh dask 3 --entry = a : b --backend = k", "k", "kubernetes"),
    ],
)
def test_a_value_behind_its_options_equals_sign_is_what_the_shell_replaces(
    root: Path, line: str, part: str, found: str
) -> None:
    """bash makes words of the sign, or does not; zsh and an old bash do not."""
    assert found in offered(root, line, part)
    assert len(offered(root, line, part)) == 4


def test_words_have_the_first_sentence_that_the_help_says_of_them(root: Path) -> None:
    assert complete(["launch.sh", "--e", "--e"], root, {}).split("\n")[1] == "--entry\trun your script"
    keep(root, "mine-1234abcd")
    assert complete(["stop.sh", "", ""], root, {}) == "words\nmine\tdask, 2026-01-01T00:00:00Z"


def test_clusters_are_those_of_the_backend_that_is_meant(root: Path) -> None:
    """An option wins over the environment, that over config.env; what is typed already is not offered again."""
    keep(root, "one-1234abcd")
    keep(root, "two-more-1234abce")
    keep(root, "far-1234abcf", backend="oci")
    assert offered(root, "stop.sh ") == ["one", "two-more"]
    assert offered(root, "stop.sh one ") == ["two-more"]
    assert offered(root, "session.sh ssh --in ") == ["one", "two-more"]
    assert offered(root, "logs.sh --backend oci ") == ["far"]
    assert offered(root, "stop.sh ", BACKEND="oci") == ["far"]
    (root / "config.env").write_text("BACKEND=local\n# BACKEND=local\nBACKEND='oci' # mine\n")
    assert offered(root, "stop.sh ") == ["far"]
    assert offered(root, "stop.sh ", BACKEND="local") == ["one", "two-more"]
    (root / "config.env").write_bytes(b"\xff")
    assert offered(root, "stop.sh ") == ["one", "two-more"]


def test_nodes_are_those_of_the_cluster_that_is_named(root: Path) -> None:
    """Of all, where none is."""
    keep(root, "one-1234abcd")
    keep(root, "two-1234abce", nodes=[{"node": "MAIN"}, {"node": "WORKER_7"}])
    assert offered(root, "logs.sh two --node ") == ["MAIN", "WORKER_7"]
    assert offered(root, "logs.sh --node ") == ["MAIN", "WORKER_1", "WORKER_7"]


@pytest.mark.parametrize(
    ("cluster_id", "text"),
    [
        ("half-1234abcd", '{"framework'),
        ("list-1234abcd", "[]"),
        ("less-1234abcd", "{}"),
        ("node-1234abcd", '{"framework": "a", "created": "b", "backend": "local", "nodes": ["MAIN"]}'),
        ("no-id", '{"framework": "a", "created": "b", "backend": "local", "nodes": []}'),
        ("$(touch x)-1234abcd", '{"framework": "a", "created": "b", "backend": "local", "nodes": []}'),
    ],
)
def test_what_is_damaged_or_no_cluster_is_left_out(root: Path, cluster_id: str, text: str) -> None:
    """And hides no other."""
    keep(root, "mine-1234abce")
    (root / ".clusters" / cluster_id).mkdir()
    (root / ".clusters" / cluster_id / "cluster.json").write_text(text)
    assert offered(root, "stop.sh ") == ["mine"]


@pytest.mark.timeout(60)
def test_no_tab_waits_for_who_writes_into_a_pipe(root: Path) -> None:
    """A script could have put it there."""
    keep(root, "mine-1234abce")
    (root / ".clusters" / "pipe-1234abcd").mkdir()
    os.mkfifo(root / ".clusters" / "pipe-1234abcd" / "cluster.json")
    assert offered(root, "stop.sh ") == ["mine"]


def test_nothing_of_a_cluster_controls_a_terminal(root: Path) -> None:
    """What was launched may have come back out of a bucket."""
    keep(root, "mine-1234abcd", framework="a\033[2J\n--evil\tb", nodes=[{"node": "MAIN\nx"}, {"node": "WORKER_1"}])
    assert complete(["stop.sh", "", ""], root, {}) == "words\nmine\t2026-01-01T00:00:00Z"
    assert offered(root, "logs.sh --node ") == ["WORKER_1"]


def test_a_tab_imports_no_more_than_it_needs() -> None:
    """The quick parts of the standard library; no network, no backend."""
    code = (
        "import sys; sys.argv[1:] = ['stop.sh', '', '']; from oci_cluster.launcher.args.completion import main; main();"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-E", "-S", "-c", code]
    done = subprocess.run(command, cwd=COMMON, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("words\n")
    loaded = set(done.stderr.split())
    ours = {name for name in loaded if name.startswith("oci_cluster.")}
    assert ours == {
        f"oci_cluster.{name}"
        for name in ("backends", "launcher", "launcher.args", "launcher.args.completion", "launcher.args.help")
    }
    assert not loaded & {"asyncio", "dataclasses", "inspect", "logging", "runpy", "socket", "subprocess"}
