"""Security rules for nodes of one subnet: which are needed, and whether those that are there do."""

from __future__ import annotations

from typing import Any

import pytest

from oci_cluster.backends.oci.tenancy.security_rules import (
    ALL_TCP,
    allows,
    missing_rules,
    ports_of,
    rule,
    security_rules,
)
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT

CIDR = "10.0.0.0/20"
WANTED = rule("ingress", CIDR, 8786, 8787, "")


def ports(framework: str, **given: str) -> list[tuple[int, int]]:
    return ports_of(PROJECT_ROOT, framework, given)


def test_frameworks_say_which_ports_their_nodes_need() -> None:
    assert ports("dask") == [(8786, 8786), (8787, 8787), (8700, 8800), (3000, 3100)]
    assert ports("tensorflow", TASK_PORT="999") == [(999, 999)]
    assert [ports(name) for name in ("pytorch", "horovod", "ray")] == [[ALL_TCP]] * 3


def test_rules_are_of_the_subnet_alone_and_none_is_said_twice() -> None:
    ingress, egress = security_rules([CIDR], {"dask": ports("dask"), "tensorflow": ports("tensorflow")})
    spans = [one["tcpOptions"]["destinationPortRange"] for one in ingress]
    assert [(span["min"], span["max"]) for span in spans] == [(8700, 8800), (3000, 3100), (12345, 12345)]
    assert {one["source"] for one in ingress} == {CIDR}
    assert [one["destination"] for one in egress] == [CIDR] * 3 + ["0.0.0.0/0"]


def test_a_framework_without_fixed_ports_needs_all() -> None:
    ingress, _ = security_rules([CIDR], {"dask": ports("dask"), "pytorch": ports("pytorch")})
    assert [one["tcpOptions"]["destinationPortRange"] for one in ingress] == [{"min": 1, "max": 65535}]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"protocol": "all", "tcpOptions": None}, True),
        ({"protocol": "17"}, False),
        ({"source": "10.0.0.0/16"}, True),
        ({"source": "10.0.0.0/24"}, False),
        ({"source": "::/0"}, False),
        ({"source": "all-iad-services-in-oracle-services-network", "sourceType": "SERVICE_CIDR_BLOCK"}, False),
        ({"isStateless": True}, False),
        ({"tcpOptions": {"destinationPortRange": {"min": 8786, "max": 8786}}}, False),
        ({"tcpOptions": {"destinationPortRange": {"min": 1, "max": 9000}}}, True),
        ({"tcpOptions": {"sourcePortRange": {"min": 1, "max": 2}}}, False),
    ],
)
def test_a_rule_allows_what_is_inside_it(changes: dict[str, Any], *, expected: bool) -> None:
    assert allows([{**WANTED, **changes}], WANTED) is expected
    assert missing_rules(([{**WANTED, **changes}], []), ([WANTED], [])) == ([] if expected else [WANTED], [])


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([(CIDR, 8786, 8786), (CIDR, 8787, 8787)], True),
        ([(CIDR, 1, 8786), (CIDR, 8786, 65535)], True),
        ([(CIDR, 8786, 8786), (CIDR, 8788, 8788)], False),
        ([("10.0.0.0/21", 1, 9000), ("10.0.8.0/21", 1, 9000)], True),
        ([("10.0.0.0/21", 1, 9000), ("10.0.8.0/22", 1, 9000)], False),
        ([("10.0.0.0/21", 1, 9000), ("10.0.8.0/21", 1, 8786), ("10.0.8.0/21", 8787, 8787)], True),
        ([("10.0.0.0/21", 1, 9000), ("10.0.8.0/21", 1, 8786)], False),
    ],
)
def test_rules_in_pieces_allow_together(pieces: list[tuple[str, int, int]], *, expected: bool) -> None:
    assert allows([rule("ingress", *piece, "") for piece in pieces], WANTED) is expected


def stateless(direction: str, cidr: str, **options: Any) -> dict[str, Any]:
    return {**rule(direction, cidr, *ALL_TCP, ""), "isStateless": True, "tcpOptions": options}


@pytest.mark.parametrize(
    ("back", "expected"),
    [
        (stateless("egress", CIDR), True),
        (rule("egress", "0.0.0.0/0", *ALL_TCP, ""), True),
        (stateless("egress", CIDR, sourcePortRange={"min": 8786, "max": 8787}), True),
        (stateless("egress", CIDR, sourcePortRange={"min": 8786, "max": 8786}), False),
        (stateless("egress", "10.0.0.0/24"), False),  # the answers of the others are lost
        (stateless("egress", CIDR, destinationPortRange={"min": 8786, "max": 8787}), False),
    ],
)
def test_a_stateless_rule_needs_one_for_its_answers(back: dict[str, Any], *, expected: bool) -> None:
    assert allows([stateless("ingress", CIDR)], WANTED, [back]) is expected


def test_a_subnet_of_two_blocks_needs_rules_between_both() -> None:
    ingress, _ = security_rules([CIDR, "10.1.0.0/20"], {"x": [(5, 6)]})
    assert [one["source"] for one in ingress] == [CIDR, "10.1.0.0/20"]


def test_egress_is_no_ingress() -> None:
    assert not allows([rule("egress", CIDR, *ALL_TCP, "")], WANTED)
