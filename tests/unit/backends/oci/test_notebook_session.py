"""On a notebook session of Data Science, compartment and project are the session's own by default."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from unit.backends.oci.test_verbs import Desk, desk  # noqa: F401 - a fixture
from unit.fake_data_science import COMPARTMENT, PROJECT
from unit.fake_oci import LEAST, Checkout

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.settings.settings_files import session_defaults
from oci_cluster.launcher.launch.plan import Request, make_plan

OTHER = "ocid1.datascienceproject.oc1.iad.aaaaother"
SESSION = {
    "NB_SESSION_OCID": "ocid1.datasciencenotebooksession.oc1.iad.aaaa",
    "NB_SESSION_COMPARTMENT_OCID": COMPARTMENT,
    "PROJECT_OCID": PROJECT,
}
REST = {name: text for name, text in LEAST.items() if name not in {"COMPARTMENT_OCID", "PROJECT_OCID"}}


def planned(
    checkout: Checkout, environ: Mapping[str, str], *config: str, backend: str = "oci"
) -> tuple[Plan, list[str]]:
    """Return the plan of a launch with this environment and ``config.env``, and what is said."""
    (checkout.root / "config.env").write_text("\n".join(config))
    said: list[str] = []
    given = {**REST, **environ}
    request = Request("plain", "2", backend)
    return make_plan(request, given, root=checkout.root, cwd=checkout.root, max_workers=9, say=said.append), said


def test_what_nobody_has_set_is_the_sessions_and_that_is_said(checkout: Checkout) -> None:
    plan, said = planned(checkout, SESSION)
    assert (plan.settings["COMPARTMENT_OCID"], plan.settings["PROJECT_OCID"]) == (COMPARTMENT, PROJECT)
    assert said == [
        f"COMPARTMENT_OCID is not set: that of this notebook session is used, {COMPARTMENT}",
        f"PROJECT_OCID is not set: that of this notebook session is used, {PROJECT}",
    ]


def test_config_env_wins_over_what_the_session_has_put_into_the_environment(checkout: Checkout) -> None:
    """Nobody has chosen PROJECT_OCID there, though it stands in the environment, which wins otherwise."""
    plan, said = planned(checkout, SESSION, f"PROJECT_OCID={OTHER}", "COMPARTMENT_OCID=ocid1.compartment.oc1..other")
    assert plan.settings["PROJECT_OCID"] == OTHER
    assert plan.settings["COMPARTMENT_OCID"] == "ocid1.compartment.oc1..other"
    assert said == [f"PROJECT_OCID is {OTHER}, and not that of this notebook session"]
    plan, said = planned(checkout, SESSION, f"PROJECT_OCID={PROJECT}", f"COMPARTMENT_OCID={COMPARTMENT}")
    assert (plan.settings["PROJECT_OCID"], said) == (PROJECT, [])


def test_a_compartment_of_the_environment_wins(checkout: Checkout) -> None:
    plan, _ = planned(checkout, {**SESSION, "COMPARTMENT_OCID": "ocid1.compartment.oc1..mine"})
    assert plan.settings["COMPARTMENT_OCID"] == "ocid1.compartment.oc1..mine"


def test_elsewhere_the_environment_wins_as_always(checkout: Checkout) -> None:
    """A Job Run has a PROJECT_OCID, too; a session's variables without a session are nobody's."""
    environ = {name: text for name, text in SESSION.items() if name != "NB_SESSION_OCID"}
    plan, said = planned(checkout, environ, f"PROJECT_OCID={OTHER}")
    assert (plan.settings["PROJECT_OCID"], plan.settings["COMPARTMENT_OCID"], said) == (PROJECT, "", [])
    assert session_defaults(environ) == {}


def test_other_backends_have_nothing_of_a_session(checkout: Checkout) -> None:
    _, said = planned(checkout, SESSION, backend="docker")
    assert said == []


@pytest.mark.usefixtures("empty_memory")
def test_other_verbs_look_into_the_sessions_compartment(
    desk: Desk,  # noqa: F811 - a fixture
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As the launch did."""
    for name, text in {**SESSION, "COMPARTMENT_OCID": ""}.items():
        desk.setenv(name, text)
    assert desk.launch("--detach") == 0
    assert capsys.readouterr().out == "mine\n"
    assert desk.run("list") == 0
    assert "mine" in capsys.readouterr().out
