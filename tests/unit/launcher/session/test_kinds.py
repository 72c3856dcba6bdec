# Kinds of sessions, as their folders tell them.

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.launcher.session.kinds import known_kinds, read_kind


def write(root: Path, name: str, text: str) -> None:
    folder = root / "scripts" / "sessions" / name
    folder.mkdir(parents=True)
    (folder / "session.env").write_text(text)


def test_a_kind_is_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "shiny", "SESSION_PORT=3838\nSESSION_URL='http://127.0.0.1:{port}/?t={token}'\nSESSION_PROBE=/up\n")
    write(tmp_path, "console", "SESSION_PORT=22\nSESSION_COMMAND='ssh -p {port} 127.0.0.1'\n")
    assert known_kinds(tmp_path) == ["console", "shiny"]
    shiny = read_kind(tmp_path, "shiny")
    assert (shiny.port, shiny.url, shiny.command, shiny.probe) == (
        3838,
        "http://127.0.0.1:{port}/?t={token}",
        "",
        "/up",
    )
    assert read_kind(tmp_path, "console").command == "ssh -p {port} 127.0.0.1"


def test_one_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    write(tmp_path, "shiny", "SESSION_PORT=1\nSESSION_URL=x\n")
    with pytest.raises(UsageError, match="unknown kind of session 'shine'; this checkout has: shiny"):
        read_kind(tmp_path, "shine")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SESSION_URL=x\n", "SESSION_PORT: "),
        ("SESSION_PORT=70000\nSESSION_URL=x\n", "SESSION_PORT: "),
        ("SESSION_PORT=1\n", "expected one of SESSION_URL and SESSION_COMMAND"),
        ("SESSION_PORT=1\nSESSION_URL=x\nSESSION_COMMAND=y\n", "expected one of SESSION_URL and SESSION_COMMAND"),
    ],
)
def test_one_that_says_too_little_is_refused(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path, "bad", text)
    with pytest.raises(SettingsError, match=f"sessions/bad/session.env: {why}"):
        read_kind(tmp_path, "bad")
