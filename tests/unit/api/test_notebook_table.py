"""A cluster as HTML: what comes from nodes and services is hostile."""

from __future__ import annotations

from typing import Any

import pytest

from oci_cluster.api.notebook_table import table_html

EVIL = "<script>alert(1)</script>"


def found(**changes: Any) -> dict[str, Any]:
    node = {"node": "MAIN", "address": "127.0.0.1", "state": "IN_PROGRESS", "exit_code": None, "phase": "working"}
    cluster = {"name": "mine", "framework": "dask", "backend": "local", "state": "IN_PROGRESS", "exit_code": None}
    return {**cluster, "nodes": [node], **changes}


def test_a_table_has_every_node_and_how_many_run() -> None:
    html = table_html(found(), "2 of 3 workers arrived")
    for part in ("<b>mine: dask on local, IN_PROGRESS</b>", ">MAIN</td>", ">127.0.0.1</td>", ">working</td>"):
        assert part in html
    assert '<progress value="1" max="1"></progress> 1 of 1 nodes run' in html
    assert "<div>2 of 3 workers arrived</div>" in html


def test_one_that_has_ended_has_its_code_and_its_reason() -> None:
    html = table_html(found(state="FAILED", exit_code=7, reason="bad row"))
    assert "mine: dask on local, FAILED with 7" in html
    assert "<div>bad row</div>" in html
    assert "<progress" not in html


@pytest.mark.parametrize("name", ["name", "framework", "backend", "state", "reason", "queue"])
def test_nothing_that_comes_from_outside_is_markup(name: str) -> None:
    """Neither of the cluster nor of a node, nor what was said; and no control characters."""
    assert "<script" not in table_html(found(**{name: EVIL, "exit_code": None}), EVIL)
    node = dict.fromkeys(("node", "address", "state", "exit_code", "phase", "cause", "details"), EVIL + "\x1b[31m\n")
    html = table_html(found(nodes=[node]))
    assert "<script" not in html
    assert "\x1b" not in html


def test_a_thousand_nodes_are_counted() -> None:
    html = table_html(found(nodes=[{"node": f"WORKER_{rank}", "state": "ACCEPTED"} for rank in range(1000)]))
    assert html.count("<tr>") == 51
    assert "<div>and 950 more nodes</div>" in html
