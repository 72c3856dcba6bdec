from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.node.script import MAX_FACTS, NodesDir, checked_address, parse_facts

# --- Facts ----------------------------------------------------------------------------------------------------------


def test_facts_are_lines_of_name_and_value() -> None:
    """A value may hold anything but a line's end, further equals signs included."""
    text = "port=2222\nkey=ssh-ed25519 AAAA==\nempty=\n"
    assert parse_facts(text) == {"port": "2222", "key": "ssh-ed25519 AAAA==", "empty": ""}


def test_lines_without_a_name_and_a_value_are_left_out() -> None:
    """What a tool prints besides is no fact."""
    assert parse_facts("Generating key\n\na=b\n") == {"a": "b"}


def test_facts_are_fit_for_a_terminal_and_bounded() -> None:
    """No control characters, 500 characters each, 32 lines in all."""
    assert parse_facts("a\x1b[31m=\x1b]0;evil\x07") == {"a[31m": "]0;evil"}
    assert parse_facts("a=" + "x" * 10_000) == {"a": "x" * 500}
    assert len(parse_facts("\n".join(f"n{number}=x" for number in range(1000)))) == MAX_FACTS


# --- Addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["10.0.0.2", "fd00::2", "127.0.0.1"])
def test_an_address_passes(address: str) -> None:
    """IPv4 and IPv6 alike."""
    assert checked_address({"address": address}, "WORKER_1") == address


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"address": ""},
        {"address": None},
        {"address": "node.example"},
        {"address": "10.0.0.2; rm -rf /"},
        {"address": "$(touch x)"},
        {"address": "10.0.0.2\nrank=9"},
        {"address": "10.0.0.2,10.0.0.3"},
        {"address": 7},
        {"address": ["10.0.0.2"]},
        {"address": True},
    ],
)
def test_only_an_address_passes_for_one(config: dict[str, object]) -> None:
    """It goes into command lines: anything else is refused, and the file named that holds it (78)."""
    with pytest.raises(SettingsError, match=r"^WORKER_1_config\.json holds no usable address: "):
        checked_address(config, "WORKER_1")


# --- The directory --------------------------------------------------------------------------------------------------


@pytest.fixture
def nodes(tmp_path: Path) -> NodesDir:
    return NodesDir(tmp_path / "nodes")


def lines(nodes: NodesDir, node: str) -> list[str]:
    return (nodes.path / node).read_text().splitlines()


def test_a_node_is_a_file_of_rank_address_and_facts(nodes: NodesDir) -> None:
    """What common/README.md says of NODES_DIR."""
    config = {"address": "10.0.0.2", "rank": 99, "facts": {"ssh_port": "2222", "key": "a b=c"}, "LD_PRELOAD": "x"}
    nodes.put("WORKER_2", config)
    assert lines(nodes, "WORKER_2") == ["rank=2", "address=10.0.0.2", "fact_ssh_port=2222", "fact_key=a b=c"]
    assert nodes.path.stat().st_mode & 0o777 == 0o700


def test_main_has_rank_0(nodes: NodesDir) -> None:
    """A parameter server has the rank that is in its name."""
    nodes.put("MAIN", {"address": "10.0.0.1"})
    nodes.put("PS_12", {"address": "10.0.0.9"})
    assert [lines(nodes, "MAIN")[0], lines(nodes, "PS_12")[0]] == ["rank=0", "rank=12"]


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "_a", "a-b", "a b", "a\nrank=9", "a=b", "\u00e4", "a" * 65, "a;b", "$(x)"]
)
def test_a_fact_of_another_name_is_left_out(nodes: NodesDir, name: str) -> None:
    """Names are lower-case words: a start script may make variables of them."""
    nodes.put("WORKER_1", {"address": "10.0.0.2", "facts": {name: "x", "good": "y"}})
    assert lines(nodes, "WORKER_1") == ["rank=1", "address=10.0.0.2", "fact_good=y"]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("a\nrank=9", "fact_x=arank=9"),
        ("\x1b[2J", "fact_x=[2J"),
        ("a\u2028b\x85c", "fact_x=abc"),
        (7, "fact_x=7"),
        (None, "fact_x=None"),
        (["a"], "fact_x=['a']"),
        ("x" * 10_000, "fact_x=" + "x" * 500),
    ],
)
def test_a_facts_value_is_one_line(nodes: NodesDir, value: object, line: str) -> None:
    """No value can end its line and begin another, nor flood the reader."""
    nodes.put("WORKER_1", {"address": "10.0.0.2", "facts": {"x": value}})
    assert (nodes.path / "WORKER_1").read_text() == f"rank=1\naddress=10.0.0.2\n{line}\n"


@pytest.mark.parametrize("facts", [None, "a=b", ["a"], 7, True])
def test_facts_of_another_shape_are_none(nodes: NodesDir, facts: object) -> None:
    """Facts that are no object are passed over."""
    nodes.put("WORKER_1", {"address": "10.0.0.2", "facts": facts})
    assert lines(nodes, "WORKER_1") == ["rank=1", "address=10.0.0.2"]


def test_there_is_a_limit_to_facts(nodes: NodesDir) -> None:
    """A node that tells a thousand fills no disk."""
    nodes.put("WORKER_1", {"address": "10.0.0.2", "facts": {f"n{number}": "x" for number in range(1000)}})
    assert len(lines(nodes, "WORKER_1")) == 2 + MAX_FACTS


def test_a_file_is_replaced_whole(nodes: NodesDir) -> None:
    """Who has the old file open reads the old file; who looks into the directory sees no other name."""
    nodes.put("WORKER_1", {"address": "10.0.0.2", "facts": {"a": "b"}})
    with (nodes.path / "WORKER_1").open() as old:
        nodes.put("WORKER_1", {"address": "10.0.0.3"})
        assert old.read() == "rank=1\naddress=10.0.0.2\nfact_a=b\n"
    assert lines(nodes, "WORKER_1") == ["rank=1", "address=10.0.0.3"]
    assert [path.name for path in nodes.path.iterdir()] == ["WORKER_1"]


def test_a_node_without_an_address_gets_no_file(nodes: NodesDir) -> None:
    """What is refused leaves nothing, not even the directory."""
    with pytest.raises(SettingsError):
        nodes.put("WORKER_1", {"address": "nowhere"})
    assert not nodes.path.exists()


def test_a_node_that_has_gone_has_no_file(nodes: NodesDir) -> None:
    """One that never had one is as good as removed."""
    nodes.put("WORKER_1", {"address": "10.0.0.2"})
    nodes.put("WORKER_2", {"address": "10.0.0.3"})
    nodes.remove("WORKER_1")
    nodes.remove("WORKER_1")
    assert [path.name for path in nodes.path.iterdir()] == ["WORKER_2"]
    NodesDir(nodes.path / "none").remove("WORKER_1")


@pytest.mark.parametrize("scope", ["$(touch x)", ";rm -rf x", "\nrank=9", ",10.0.0.9", "eth0"])
def test_an_address_with_a_scope_is_none(scope: str) -> None:
    """What follows a % in an IPv6 address may be anything at all, and means nothing on another node."""
    with pytest.raises(SettingsError):
        checked_address({"address": f"fe80::1%{scope}"}, "WORKER_1")


def test_no_address_can_add_a_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        NodesDir(tmp_path / "nodes").put("WORKER_1", {"address": "fe80::1%\nfact_key=evil"})
