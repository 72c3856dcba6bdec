"""The verb session: what it plans, what it refuses, and whose limits count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.fake_backend import FakeBackend
from unit.launcher.door import Door

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.session import TOKEN_FILE, session_token, verifier_of
from oci_cluster.errors import ClusterError, UsageError
from oci_cluster.launcher.args.command_line import read
from oci_cluster.launcher.session import session
from oci_cluster.launcher.session.kinds import read_kind

BOOK = "SESSION_PORT=8888\nSESSION_URL='http://{host}:{port}/?t={token}'\nSESSION_IN=dask\nMINE=1\n"
SHELL = "SESSION_PORT=2222\nSESSION_COMMAND='ssh -F {ssh_config} {name}'\n"
KEY = "ssh-ed25519 " + "A" * 68


@pytest.fixture
def desk(door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Door:
    """Return a checkout with two kinds, and a user with an empty home who is in a folder."""
    for name, text in (("book", BOOK), ("shell", SHELL)):
        folder = door.root / "scripts" / "sessions" / name
        folder.mkdir(parents=True)
        (folder / "session.env").write_text(text)
    monkeypatch.setattr(session, "PROJECT_ROOT", door.root)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("TTL", "IDLE_LIMIT", "MIN_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    return door


def planned(desk: Door, *words: str, shows_key: bool = False) -> Plan:
    """Return the plan of a command line; the kind is its first word."""
    line = read("session", words)
    asked = session._Session(line, read_kind(desk.root, line.words[0]))
    asked.check()
    backend = FakeBackend(desk.root)
    backend.shows_key = shows_key
    return asked.plan(line, backend)


def refused(desk: Door, *words: str) -> str:
    with pytest.raises(ClusterError) as caught:
        planned(desk, *words)
    assert isinstance(caught.value, UsageError)
    return str(caught.value)


def test_a_session_is_a_cluster_of_main_alone_with_limits(desk: Door, tmp_path: Path) -> None:
    """In the folder that the user is in; with the settings of its kind, and no entry point."""
    plan = planned(desk, "book")
    assert (plan.framework, plan.node_names, plan.name.partition("-")[0]) == ("dask", ["MAIN"], "book")
    given = {
        "SESSION": "book",
        "SESSION_PORT": "8888",
        "MINE": "1",
        "TTL": "8h",
        "IDLE_LIMIT": "1h",
        "MIN_WORKERS": "0",
    }
    assert plan.environment.items() >= {**given, "EPHEMERAL": "1", "CODE_DIR": str(tmp_path / "work")}.items()
    assert not {"ENTRY_POINT", "SESSION_URL", "SESSION_IN", "SSH_AUTHORIZED"} & set(plan.environment)
    assert plan.limits.ports["SESSION_PORT"] == 8888


def test_where_others_see_the_key_the_token_is_no_child_of_it(desk: Door) -> None:
    """It stays with who has launched the session: nodes are told its hash. Elsewhere nobody is told anything."""
    plan = planned(desk, "book", shows_key=True)
    token = plan.kept[TOKEN_FILE]
    assert plan.environment["SESSION_VERIFIER"] == verifier_of(token)
    assert token not in {plan.launch_key, session_token(plan.launch_key, plan.launch_id)}
    assert token not in json.dumps([dict(plan.environment), [dict(node.environment) for node in plan.nodes]])
    assert planned(desk, "book", shows_key=True).kept != plan.kept
    plan = planned(desk, "book")
    assert (plan.kept, "SESSION_VERIFIER" in plan.environment) == ({}, False)


def test_in_the_checkout_itself_it_works_in_the_example(desk: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout is nobody's code."""
    monkeypatch.chdir(desk.root)
    assert planned(desk, "book").code_dir == str(desk.root / "dask" / "example")


def test_options_and_the_environment_win_over_what_a_session_has(desk: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options over --env, --env over variables."""
    monkeypatch.setenv("TTL", "2h")
    monkeypatch.setenv("IDLE_LIMIT", "2m")
    plan = planned(
        desk, "book", "mine", "--idle", "30m", "--env", "MINE=2", "--env", "SESSION_PORT=9000", "--workers", "2"
    )
    assert (plan.name, plan.node_names) == ("mine", ["MAIN", "WORKER_1", "WORKER_2"])
    given = {"TTL": "2h", "IDLE_LIMIT": "30m", "MINE": "2", "SESSION_PORT": "9000", "SESSION": "book"}
    assert plan.environment.items() >= given.items()
    assert planned(desk, "book", "--env", "LIFE_SPAN=3h").environment["TTL"] == "3h"


def test_what_a_kind_has_no_use_for_is_refused(desk: Door) -> None:
    """Before anything is looked up."""
    assert refused(desk, "nothing").startswith("unknown kind of session 'nothing'; this checkout has: book, shell")
    assert refused(desk, "shell", "--in", "x").startswith("--in: a session of shell is not beside a cluster")
    assert refused(desk, "book", "--key", "x.pub").startswith("--key is for sessions of ssh")
    assert refused(desk, "shell", "--open") == "--open: shell: no browser opens it"
    assert "connect.sh NAME --open" in refused(desk, "book", "--open", "--detach")
    assert refused(desk).startswith("expected KIND [NAME], got 0 of them")
    assert refused(desk, "book", "a", "b").startswith("expected KIND [NAME], got 3 of them")
    assert refused(desk, "book", "a", "--name", "b").startswith("the name is given twice: 'a' and --name b")
    assert "SESSION is decided by the launch itself" in refused(desk, "book", "--env", "SESSION=x")


def test_where_all_nodes_train_a_session_is_main_alone(desk: Door) -> None:
    (desk.root / "dask" / "settings.env").write_text("GANG=1\n")
    assert planned(desk, "book").node_names == ["MAIN"]
    assert refused(desk, "book", "--workers", "1").startswith("--workers: a session of dask has only main")


def test_the_users_own_public_keys_may_log_in(desk: Door, tmp_path: Path) -> None:
    """Those in ~/.ssh, or those that are named, without comments; a private key stays where it is."""
    said = refused(desk, "shell")
    assert said.startswith("there is no ~/.ssh/id_*.pub; make a key with ssh-keygen -t ed25519, or name one: --key")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_a.pub").write_text(f"{KEY} me@here, or there\n")
    (tmp_path / ".ssh" / "id_b.pub").write_text(f"ecdsa-sha2-nistp256 {'B' * 100}=\n")
    keys = planned(desk, "shell").environment["SSH_AUTHORIZED"]
    assert keys == f"{KEY},ecdsa-sha2-nistp256 {'B' * 100}="
    named = tmp_path / "other.pub"
    named.write_text(KEY)
    assert planned(desk, "shell", "--key", str(named)).environment["SSH_AUTHORIZED"] == KEY


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "is a private key, which stays with you; name the public one"),
        (f"command=evil {KEY}", "holds no single public key"),
        (f"{KEY}\n{KEY}\n", "holds no single public key"),
        ("", "holds no single public key"),
    ],
)
def test_what_is_no_public_key_is_refused(desk: Door, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    assert said in refused(desk, "shell", "--key", str(path))
    assert "cannot be read" in refused(desk, "shell", "--key", str(tmp_path / "gone"))
    assert "cannot be read" in refused(desk, "shell", "--key", "~no user/id.pub")
