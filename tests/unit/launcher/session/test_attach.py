"""What a session beside a cluster is given, and what is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_backend import LAUNCH
from unit.launcher.door import Door

from oci_cluster.errors import UsageError
from oci_cluster.launcher.args.command_line import parse
from oci_cluster.launcher.session import session
from oci_cluster.launcher.session.kinds import Kind
from oci_cluster.launcher.session.session import cluster_variables


def kind(gives: str) -> Kind:
    return Kind("book", Path(), 1, "x", "", "", gives, {})


@pytest.fixture
def desk(door: Door, monkeypatch: pytest.MonkeyPatch) -> Door:
    monkeypatch.setattr(session, "PROJECT_ROOT", door.root)
    door.run()
    return door


def refused(gives: str) -> str:
    with pytest.raises(UsageError) as caught:
        cluster_variables(parse("session", ["book", "--in", "mine"]), kind(gives))
    return str(caught.value)


def test_outputs_are_shown_on_this_machine_wherever_the_cluster_is(desk: Door) -> None:
    """Living, when nothing is there yet, and ended."""
    line = parse("session", ["board", "--in", "mine", "--backend", "cloud"])
    outputs = desk.backend.clusters[0].directory / "outputs"
    assert cluster_variables(line, kind("outputs")) == {"IN_OUTPUTS": str(outputs)}
    assert line.value("--backend") == "local"
    outputs.mkdir()
    (outputs / "events").touch()
    desk.backend.end_nodes(desk.backend.clusters[0], code=0)
    assert cluster_variables(line, kind("outputs")) == {"IN_OUTPUTS": str(outputs)}


def test_a_place_that_others_have_named_moves_no_terminal(desk: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever may write a Job writes its OUTPUT_DIR."""
    plan = desk.backend.plans[LAUNCH]
    desk.backend.plans[LAUNCH] = replace(plan, environment={**plan.environment, "OUTPUT_DIR": "/data/\x1b[2Jevil"})
    cluster_variables(parse("session", ["board", "--in", "mine"]), kind("outputs"))
    assert "showing /data/[2Jevil\n" in capsys.readouterr().err


def test_what_this_machine_cannot_read_is_refused(desk: Door) -> None:
    """What will come, and what never does."""
    plan = desk.backend.plans[LAUNCH]
    desk.backend.plans[LAUNCH] = replace(plan, work_dir="file:///gone/on/another/machine")
    assert refused("outputs") == "--in mine: there are no outputs to show: they come here when it has ended"
    desk.backend.end_nodes(desk.backend.clusters[0], code=0)
    assert refused("outputs") == "--in mine: there are no outputs to show: it has left none"


def test_a_client_needs_a_living_cluster_of_dask_on_this_machine(desk: Door) -> None:
    """Each reason is its own."""
    plan = desk.backend.plans[LAUNCH]
    assert refused("dask") == (
        "--in mine: nodes of another cluster do not reach a scheduler on local; run the notebook on main instead: "
        "session.sh jupyter --workers N, or on your machine: connect.sh mine --python"
    )
    here = tuple(replace(node, address="127.0.0.1") for node in plan.nodes)
    desk.backend.plans[LAUNCH] = replace(plan, nodes=here, framework="pytorch")
    assert refused("dask") == "--in mine: Client() connects to clusters of Dask, and this one is of pytorch"
    ports = replace(plan.limits, ports={"DASHBOARD_PORT": 8787})
    desk.backend.plans[LAUNCH] = replace(plan, nodes=here, limits=ports)
    desk.backend.end_nodes(desk.backend.clusters[0], code=0)
    assert refused("dask") == "--in mine: it has ended; list.sh shows the clusters that run"
