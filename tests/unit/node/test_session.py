"""What a node hands to the server of a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_cluster import LAUNCH, Node

from oci_cluster.contract.session import client_token, session_token, verifier_of

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")
KEY = "5f" * 32


def session_on(root: Path, **environ: str) -> Node:
    """Return a node of a session of the kind `book`."""
    script = root / "scripts" / "sessions" / "book" / "start.sh"
    script.parent.mkdir(parents=True)
    script.touch()
    return Node(root, SESSION="book", LAUNCH_KEY=KEY, **environ)


@pytest.mark.parametrize("interruptible", ["0", "1"])
def test_the_hash_of_the_token_is_in_a_private_file_and_the_token_nowhere(root: Path, interruptible: str) -> None:
    """It is that of the launch, whatever key a life has: who is connected stays."""
    main = session_on(root, IDLE_LIMIT="1.5h", INTERRUPTIBLE=interruptible)
    found: list[tuple[str, int]] = []

    def note(_: object) -> None:
        path = root / f"{LAUNCH}-MAIN" / "session-verifier"
        found.append((path.read_text(), path.stat().st_mode & 0o777))

    main.children.on_start = note
    main.child_ends(0, at=1)
    assert main.run() == 0
    assert found == [(verifier_of(session_token(KEY, LAUNCH)), 0o600)]
    environ = main.children.environ()
    assert session_token(KEY, LAUNCH) not in str(environ)
    assert environ["IDLE_LIMIT"] == "5400"


def test_a_token_that_is_not_the_keys_is_known_by_its_hash_alone(root: Path) -> None:
    """Where others may read the key; what would follow from it opens nothing."""
    main = session_on(root, SESSION_VERIFIER="ab" * 32)
    found: list[str] = []
    main.children.on_start = lambda _: found.append((root / f"{LAUNCH}-MAIN" / "session-verifier").read_text())
    main.child_ends(0, at=1)
    assert main.run() == 0
    assert found == ["ab" * 32]


@pytest.mark.parametrize(("asked", "count"), [("1", 1), ("0", 0)])
def test_the_token_of_clients_is_given_where_a_framework_asks_for_it(root: Path, asked: str, count: int) -> None:
    """To every node, sessions or not: in a private file, without an end of a line, and in no environment."""
    worker = Node(root, MODE="WORKER", NODE_RANK="1", LAUNCH_KEY=KEY, CLIENT_TOKEN=asked)
    worker.publish("MAIN_config.json", at=0.0, rank=0, address="10.0.0.1", facts={}, attempt=0, tls=False)
    found: list[tuple[str, int]] = []

    def note(_: object) -> None:
        path = root / f"{LAUNCH}-WORKER_1" / "client-token"
        if path.exists():
            found.append((path.read_text(), path.stat().st_mode & 0o777))

    worker.children.on_start = note
    worker.child_ends(0, at=1)
    worker.run()
    assert found == [(client_token(KEY, LAUNCH), 0o600)] * count
    assert client_token(KEY, LAUNCH) not in str(worker.children.environ())


def test_main_runs_the_kinds_start_script_with_the_users_imports(root: Path) -> None:
    """What lies beside it is no module of the user's."""
    main = session_on(root, ENTRY_MODULE="package.train")
    main.child_ends(0, at=1)
    assert main.run() == 0
    environ = main.children.environ()
    script = root / "scripts" / "sessions" / "book" / "start.sh"
    assert (environ["ENTRY_POINT"], environ["ENTRY_MODULE"]) == (str(script), "")
    assert environ["PYTHONPATH"] == str(root / "code")


def test_why_it_has_ended_well_is_told(root: Path) -> None:
    """A server that nobody uses ends with 0, and says why."""
    main = session_on(root)
    main.children.on_start = lambda _: (root / f"{LAUNCH}-MAIN" / "reason").write_text("idle for 1h\n")
    main.child_ends(0, at=1)
    assert main.run() == 0
    assert main.read("stop")["reason"] == "idle for 1h"
