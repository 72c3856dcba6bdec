"""Who can write to the work dir and has no key: nothing that they put there is taken for a node's word."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from unit.contract.fake_storage import KEY, LAUNCH, document, leave, own
from unit.signed_files import signed

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.signing import OLDER, UNSIGNED, Signer, derived_key

NAME = "MAIN_config.json"
FIELDS: dict[str, Any] = {"address": "10.0.0.1", "nodes": {"WORKER_2": "b", "WORKER_1": "a"}, "tls": True, "x": 0.1}


def taken(cluster_dir: ClusterDir, name: str, body: bytes) -> tuple[bool, dict[str, str]]:
    """Return whether what somebody leaves is used, and what is said of it."""
    leave(cluster_dir, name, body)
    return cluster_dir.read(name) is not None, cluster_dir.refused


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(address="10.6.6.6"),
        lambda fields: fields["nodes"].update(WORKER_1="evil"),
        lambda fields: fields.update(more=1),
        lambda fields: fields.pop("tls"),
        lambda fields: fields.update(counter=fields["counter"] + 1),
        lambda fields: fields.update(schema=99),
        lambda fields: fields.pop("mac"),
        lambda fields: fields.update(mac=None),
        lambda fields: fields.update(mac=""),
        lambda fields: fields.update(mac=[fields["mac"]]),
        lambda fields: fields.update(mac="\udcff"),
        lambda fields: fields.update(mac=fields["mac"].upper()),
    ],
)
def test_a_file_that_somebody_has_changed_is_not_used(
    cluster_dir: ClusterDir, change: Callable[[dict[str, Any]], object]
) -> None:
    """Each field counts, and the file's signature, whatever stands in its place; a changed schema ends no node."""
    fields = json.loads(own(NAME, **FIELDS))
    assert taken(cluster_dir, NAME, json.dumps(fields).encode()) == (True, {})
    change(fields)
    assert taken(cluster_dir, NAME, json.dumps(fields).encode()) == (False, {NAME: UNSIGNED})


def test_the_order_of_fields_counts_for_nothing(cluster_dir: ClusterDir) -> None:
    """Nor do blanks: storage, or another writer of JSON, may have others."""
    fields = json.loads(own(NAME, **FIELDS))
    turned = dict(reversed(fields.items())) | {"nodes": dict(reversed(fields["nodes"].items()))}
    assert taken(cluster_dir, NAME, json.dumps(turned, indent=4).encode()) == (True, {})


def test_a_file_is_not_taken_for_another_one(cluster_dir: ClusterDir) -> None:
    """A node's own configuration under main's name is as good as none."""
    assert taken(cluster_dir, NAME, own("WORKER_1_config.json", **FIELDS)) == (False, {NAME: UNSIGNED})


def test_what_all_can_know_of_a_launch_is_no_key(cluster_dir: ClusterDir) -> None:
    """Its id, which names the cluster dir; another launch's key; the key's other uses."""
    for url, key in ((cluster_dir.url, ""), (cluster_dir.url, LAUNCH), (cluster_dir.url, "5eed" * 15)):
        ClusterDir(url, LAUNCH, key).publish(NAME, **FIELDS)
        assert (cluster_dir.read(NAME), cluster_dir.refused) == (None, {NAME: UNSIGNED})
    other = Signer(cluster_dir.key_for("logs")).sign(NAME, json.loads(document(**FIELDS)))[0]
    assert taken(cluster_dir, NAME, other) == (False, {NAME: UNSIGNED})


def test_a_launch_with_the_same_key_is_another_one(cluster_dir: ClusterDir) -> None:
    """Who starts nodes by hand may use a key twice: the launch's id is signed too."""
    body = json.loads(signed(NAME, "older", KEY, **FIELDS))
    assert taken(cluster_dir, NAME, json.dumps({**body, "launch_id": LAUNCH}).encode()) == (False, {NAME: UNSIGNED})


def test_without_a_key_the_launchs_id_is_the_key(cluster_dir: ClusterDir) -> None:
    """Nodes that were started so understand each other, and fall over nothing that others write."""
    keyless = ClusterDir(cluster_dir.url, LAUNCH, "")
    ClusterDir(cluster_dir.url, LAUNCH, LAUNCH).publish(NAME, **FIELDS)
    assert (keyless.read(NAME) or {})["address"] == "10.0.0.1"
    signer = Signer(derived_key("", LAUNCH, "exchange"))
    fields = {**json.loads(document()), "counter": "x"}
    body = json.dumps({**fields, "mac": signer._mac(NAME, fields)}).encode()
    assert taken(keyless, NAME, body) == (False, {NAME: UNSIGNED})


def test_an_older_file_is_not_taken_for_a_newer_one(cluster_dir: ClusterDir) -> None:
    """Somebody has kept one, and puts it back; the one that was read last may be read again."""
    old, new = own("stop", reason="old"), own("stop", reason="new")
    assert [taken(cluster_dir, "stop", body) for body in (old, new, new)] == [(True, {})] * 3
    assert taken(cluster_dir, "READY", own("READY")) == (True, {})
    assert taken(cluster_dir, "stop", old) == (False, {"stop": OLDER})
    assert taken(cluster_dir, "stop", new) == (True, {})


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_counters_grow_whatever_the_clock_shows() -> None:
    """One that stands, or is set back, makes no file older than the one before."""
    clock = Clock(1_000)
    signer = Signer(b"k", wall_clock_ns=clock)
    counters = [signer.sign("a", {})[1], signer.sign("b", {})[1]]
    clock.now = 10
    counters.append(signer.sign("a", {})[1])
    clock.now = 5_000
    counters.append(signer.sign("a", {})[1])
    assert counters == [1_000, 1_001, 1_002, 5_000]


def test_who_has_read_a_file_writes_a_later_one() -> None:
    """A replacement whose clock is behind its predecessor's is heard where that one was."""
    ahead, behind = (Signer(b"k", wall_clock_ns=Clock(now)) for now in (9_000, 1_000))
    main = Signer(b"k", wall_clock_ns=Clock(5_000))
    first = json.loads(ahead.sign("a", {})[0])
    assert (main.refusal("a", dict(first)), behind.refusal("a", dict(first))) == ("", "")
    body, counter = behind.sign("a", {})
    assert (counter, main.refusal("a", json.loads(body))) == (9_001, "")


def test_each_purpose_has_a_key_of_its_own() -> None:
    """HMAC-SHA256 of the purpose, with the launch's key; PyTorch's launcher makes its own so."""
    keys = {derived_key(KEY, LAUNCH, purpose) for purpose in ("exchange", "logs", "certificate", "rendezvous")}
    assert len(keys) == 4
    # printf exchange | openssl dgst -sha256 -hmac key
    expected = "e650ac17caa101b4e6ded23b3b5f6e7bbf4d4b357dc6f207f66e40d489c19e3c"
    assert derived_key("key", "any", "exchange").hex() == expected
