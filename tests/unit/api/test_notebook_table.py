"""A cluster as HTML: what comes from nodes and services is hostile."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from unit.api.conftest import Site, until

from oci_cluster.api.notebook_table import LiveTable, is_notebook, table_html

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


class Notebook:
    """An IPython whose kernel shows what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **shell: object) -> None:
        self.shown: list[str] = []
        handle = SimpleNamespace(update=self.shown.append)
        display = SimpleNamespace(HTML=str, display=lambda html, display_id: handle)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(**shell)))
        monkeypatch.setitem(sys.modules, "IPython.display", display)


def test_a_live_table_is_for_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for programs, and not for consoles of IPython; what is shown already is not sent again."""
    words = ("mine", "plain", "local")
    assert not is_notebook()
    console = Notebook(monkeypatch)
    live = LiveTable(*words)
    live.begin()
    live.show("nobody sees it")
    live.look(None, None, "nobody is asked", is_soon=True, is_last=True)  # type: ignore[arg-type]
    assert console.shown == []
    notebook = Notebook(monkeypatch, kernel=1)
    live.begin()
    for line in ("a", "a", "b"):
        live.show(line)
    assert ["<div>a</div>" in html for html in notebook.shown] == [True, False]


def test_a_cluster_in_a_notebook_shows_its_nodes_as_they_change(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it comes up, and at its end."""
    notebook = Notebook(monkeypatch, kernel=1)
    monkeypatch.setattr("oci_cluster.api.notebook_table._SOON_S", 0.0)
    cluster = site.cluster(name="mine").up()
    until(lambda: any(">WORKER_1</td>" in html for html in notebook.shown))
    assert "mine: plain on local, ACCEPTED" in notebook.shown[0]
    assert "preparing" in notebook.shown[0]
    cluster.down()
    until(lambda: "mine: plain on local, STOPPED with 143" in notebook.shown[-1])
    assert "STOPPED" in cluster._repr_html_()
