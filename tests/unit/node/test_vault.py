"""Secrets of OCI Vault become variables of start scripts, and are told nobody else."""

from __future__ import annotations

import base64
import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest
from oci.exceptions import ServiceError
from unit.fake_cluster import MakeNode

from oci_cluster.contract.names import exit_file
from oci_cluster.errors import ExitCode, NotPermittedError, SettingsError, StorageError
from oci_cluster.node import vault
from oci_cluster.node.vault import Vault

OCID = "ocid1.vaultsecret.oc1.iad.aaaa"
VALUE = "hunter2 is the word"
# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


def bundle(content: object) -> Any:
    return SimpleNamespace(data=SimpleNamespace(secret_bundle_content=SimpleNamespace(content=content)))


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def refused(status: int, message: str = VALUE) -> ServiceError:
    return ServiceError(status=status, code="Refused", headers={}, message=message)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what OCI Vault answers, in this order; the last answer again and again."""
    found: list[object] = [bundle(encoded(VALUE.encode()))]

    def get_secret_bundle(_ocid: str) -> object:
        answer = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(vault, "_client", lambda: SimpleNamespace(get_secret_bundle=get_secret_bundle))
    return found


def test_scripts_alone_get_a_secret(make: MakeNode, answers: list[object], caplog: Any) -> None:
    """After storage that did not answer at first; no log line, no file and no other process has it."""
    answers[:0] = [refused(503), OSError("cut off")]
    caplog.set_level(logging.DEBUG)
    main = make(VAULT_SECRETS=f"TOKEN={OCID}", EPHEMERAL="1")
    main.child_ends(0, at=30)
    assert main.run() == ExitCode.OK
    commands = {command[0].rpartition("/")[2]: environ for command, environ, _ in main.children.started}
    assert commands["start-master.sh"]["TOKEN"] == VALUE
    assert [name for name, environ in commands.items() if VALUE in environ.values()] == ["start-master.sh"]
    assert f"VAULT_SECRETS: OCI Vault answered HTTP 503 Refused to TOKEN={OCID}; trying again" in caplog.messages
    assert VALUE not in caplog.text


@pytest.mark.parametrize("file", ["reason", "entry-point-printed", "uncaught-7"])
def test_a_reason_does_not_tell_it(make: MakeNode, answers: list[object], file: str) -> None:
    """Others read reasons in the work dir and in status.sh; a word of three letters is not looked for."""
    answers[:] = [bundle(encoded(b"hunter2\n")), bundle(encoded(b"bad"))]
    main = make(VAULT_SECRETS=f"TOKEN={OCID} WORD={OCID}")
    note = '{"error": "E", "message": "bad token hunter2", "frames": []}'
    texts = {"reason": "bad token hunter2", "entry-point-printed": "MAIN\nbad token hunter2\n", "uncaught-7": note}

    def fail() -> None:
        (main.node_dir / "entry-pid").write_text("7")
        (main.node_dir / file).write_text(texts[file])
        main.children.codes[main.children.scripts[0]] = 1

    main.world.at(30, fail)
    assert main.run() == 1
    assert "bad token ***" in main.read(exit_file("MAIN"))["reason"]


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        (refused(404), ExitCode.NOT_PERMITTED, f"HTTP 404 Refused to TOKEN={OCID}; .*read secret-bundles"),
        (refused(500), ExitCode.UNAVAILABLE, "VAULT_SECRETS: OCI Vault answered HTTP 500 Refused"),
        (bundle(encoded(b"hunter2\0")), ExitCode.SETTINGS, f"the secret of TOKEN, {OCID}, cannot be a variable"),
    ],
)
def test_a_node_without_its_secrets_says_why(
    make: MakeNode, answers: list[object], answer: object, code: int, told: str
) -> None:
    """No start script runs, and the node's last word has no value."""
    answers[:] = [answer]
    main = make(VAULT_SECRETS=f"TOKEN={OCID}", EPHEMERAL="1")
    assert main.run() == code
    assert not main.children.scripts
    reason = main.read(exit_file("MAIN"))["reason"]
    assert re.search(told, reason)
    assert "hunter2" not in reason


@pytest.mark.parametrize(
    "content",
    ["***", None, encoded(b""), encoded(b"\xff\xfehunter2"), encoded(b"hunter2\0"), encoded(b"hunter2" * 10_000)],
)
def test_what_no_variable_can_hold_is_refused(answers: list[object], content: object) -> None:
    """Hostile or binary content ends the node in words that do not hold it, nor does what led to them."""
    answers[:] = [bundle(content)]
    with pytest.raises(SettingsError, match="cannot be a variable") as caught:
        Vault({"TOKEN": OCID}).read()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused(401), NotPermittedError),
        (refused(429), StorageError),
        (TimeoutError(), StorageError),
        (KeyError(), KeyError),
    ],
)
def test_each_failure_is_what_it_is(answers: list[object], error: Exception, kind: type[Exception]) -> None:
    """A refusal is final, an outage passes, and a bug of ours is neither."""
    answers[:] = [error]
    with pytest.raises(kind):
        Vault({"TOKEN": OCID}).read()


def test_each_secret_is_asked_for_once(answers: list[object]) -> None:
    """Those that have been answered stay, where another one has not."""
    answers[:] = [bundle(encoded(b"a")), refused(503), bundle(encoded(b"b"))]
    asked = Vault({"A": OCID, "B": OCID})
    with pytest.raises(StorageError):
        asked.read()
    assert asked.read() == {"A": "a", "B": "b"}


def test_elsewhere_nobody_is_a_resource_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where it goes, and what does instead."""
    monkeypatch.delenv("OCI_RESOURCE_PRINCIPAL_VERSION", raising=False)
    with pytest.raises(SettingsError, match=r"not the resource principal of a Job Run.*--env NAME"):
        Vault({"TOKEN": OCID})
