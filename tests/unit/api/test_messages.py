"""Where lines of progress go."""

from __future__ import annotations

import logging
import sys

import pytest

from oci_cluster.api.background import LOGGER, Messages


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody listen: pytest does."""
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda _: False)


def test_a_callable_gets_every_line_without_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    Messages(said.append)("see https://me:s3cret@host/")
    assert said == ["see https://***@host/"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("alone")
def test_a_callable_that_fails_is_told_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is lost."""
    messages = Messages({}.__getitem__)
    for line in ("one", "two"):
        messages(line)
    failed, *lines = capsys.readouterr().err.splitlines()
    assert failed.startswith("oci_cluster: error: the function that was given with say= has failed (KeyError('one'))")
    assert lines == ["oci_cluster: one", "oci_cluster: two"]


def test_a_logger_gets_them_where_somebody_listens(caplog: pytest.LogCaptureFixture) -> None:
    """What may still cost money as a warning."""
    with caplog.at_level(logging.INFO, LOGGER.name):
        Messages(None)("100% ready")
        Messages(None)("NOT ENDED: mine")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "100% ready"),
        ("WARNING", "NOT ENDED: mine"),
    ]


@pytest.mark.usefixtures("alone")
def test_else_they_are_on_stderr_as_those_of_the_scripts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Messages(None)("ready")
    assert capsys.readouterr().err == "oci_cluster: ready\n"
    monkeypatch.setattr(sys.stderr, "write", lambda _: (_ for _ in ()).throw(BrokenPipeError()))
    Messages(None)("to nobody")
