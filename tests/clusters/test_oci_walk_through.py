"""docs/oci.md, followed to the letter on an empty tenancy: its commands, its policies, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_S, Project, wait_until
from oci_cloud import UNTIL_GO, Cloud
from oci_service.handle import Service
from oci_service.policies import parse_statement
from oci_walk import Page, Person, filled, new_person

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

PAGE = Page()
NARROWER = {statement: parse_statement(statement).lowered() for statement in PAGE.statements}
HELLO = "print('hello from main')\n"
# A node that may not use the bucket looks for main this long.
SHORT_S = "6"


class Tenancy(Cloud):
    """A tenancy that was empty, and a reader of the page who has come to its end."""

    def __init__(self, project: Project, service: Service, directory: Path) -> None:
        self.project, self.service = project, service
        administrator = Person(service, directory / "administrator")
        self.user, self.reader = new_person(service, administrator, directory / "reader", "ada@example.com")
        values = {"OCID of the tenancy": service.settings["TENANCY_OCID"], "OCID of a user": self.user}
        (administrator.directory / "policy.txt").write_text("\n".join(PAGE.statements) + "\n")
        told = administrator.bash(*(filled(block, values) for block in PAGE.scripts["administrator"]))
        values |= dict(re.findall(r"(\w+)=(ocid1\.\S+)", told))
        values["namespace"] = re.search(r'"data": "([\w-]+)"', told)[1]  # type: ignore[index]
        # The frameworks of the page need packages; the toy of these tests has an image that is a table's entry.
        printed = self.reader.bash(*(filled(block, values).replace("dask", "plain") for block in PAGE.scripts["you"]))
        values["PROJECT_OCID"] = re.search(r"ocid1\.datascienceproject\.\S+", printed)[0]  # type: ignore[index]
        registry = re.search(r"^make .*REGISTRY=(\S+)$", printed, re.MULTILINE)
        assert registry, printed
        self.pushed = f"{registry[1]}/plain:1"
        self.values = values
        self.environ = {**self.reader.environ, "IMAGE": self.pushed}
        self.config = project.path / "config.env"
        self.config.write_text(filled(PAGE.config, values))
        self.push()

    def push(self) -> None:
        self.service.push(self.user, self.pushed, self.image(Path(sys.executable)))

    def launch_plain(self, workers: int, script: str, *arguments: str, **environ: str) -> Any:
        entry = self.project.write("entry.py", script)
        return self.project.launch(
            "plain", str(workers), "--entry", entry, *arguments, **{**self.environ, **environ}
        )

    def why_not(self, name: str, **environ: str) -> str:
        """Use every statement once, and return which step failed; empty where none did."""
        try:
            self.push()
        except ValueError as error:
            return f"push: {error}"
        launch = self.launch_plain(1, HELLO, "--name", name, NODE_LOGS="0", **environ)
        if code := launch.wait(PATIENCE_S):
            return f"launch: {code}: {launch.err}"
        logs = self.run("logs", name, **environ)
        if "hello from main" not in logs.stdout:
            return f"logs: {logs.returncode}: {logs.stderr}"
        stopped = self.run("stop", name, "--delete", **environ)
        return f"stop: {stopped.returncode}: {stopped.stderr}" if stopped.returncode else ""


@pytest.fixture(scope="module")
def tenancy(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenancy]:
    """Return a tenancy that was empty, after all steps of the page."""
    directory = tmp_path_factory.mktemp("walk")
    project = Project(checkout_copy, directory)
    with Service(directory / "oci", python=sys.executable, empty=True) as service:
        assert "COMPARTMENT_OCID" not in service.settings
        service.control({"cancel_grace_s": 0.5, "ingest_delay_s": 0})
        tenancy = Tenancy(project, service, directory)
        yield tenancy
        project.end_all()
    tenancy.config.unlink()
    shutil.rmtree(checkout_copy / ".clusters", ignore_errors=True)


@pytest.fixture
def changed(tenancy: Tenancy) -> Iterator[Tenancy]:
    """Return the same; a test may change its policies."""
    yield tenancy
    tenancy.service.set_statements(PAGE.statements)


def test_page_leads_to_a_cluster(tenancy: Tenancy) -> None:
    """Every verb, as somebody who is no administrator; and not one request that the page does not allow."""
    go = tenancy.project.scratch / "go"
    launch = tenancy.launch_plain(1, UNTIL_GO, "--name", "demo", "--", str(go), MIN_WORKERS="0")
    tenancy.wait_for("entry up")
    (listed,) = json.loads(tenancy.run("list", "--json").stdout)
    assert listed["name"] == "demo"
    status = json.loads(tenancy.run("status", "demo", "--json").stdout)
    assert status["directory"].startswith("oci://clusters@stand-in/team-a/work/demo-")
    tenancy.wait_for("worker works", "WORKER_1")
    assert tenancy.run("scale", "demo", "+1").stdout == "2\n"
    tenancy.wait_for("worker works", "WORKER_2")
    assert tenancy.run("scale", "demo", "1").stdout == "1\n"
    assert "MAIN     | entry up" in tenancy.run("logs", "demo").stdout
    assert tenancy.run("stop", "demo").returncode == 0
    assert launch.wait(PATIENCE_S) == 143, launch.err
    assert tenancy.run("stop", "demo", "--delete").returncode == 0
    assert not tenancy.why_not("other")
    assert tenancy.service.denials() == []
    assert [job["lifecycleState"] for job in tenancy.service.jobs()] == ["DELETED"] * 2
    assert {call["principal"].partition(":")[0] for call in tenancy.service.calls() if call["principal"]} == {
        "api-key",
        "resource",
    }


def test_network_of_the_page_is_private_and_open_inside_only(tenancy: Tenancy) -> None:
    oci = pytest.importorskip("oci")
    found = {}
    for operation in ("create_subnet", "create_security_list", "create_route_table", "create_vcn"):
        (call,) = tenancy.service.calls(operation)
        found[operation] = call["body"]
    assert oci
    subnet, rules = found["create_subnet"], found["create_security_list"]
    assert subnet["prohibitPublicIpOnVnic"] is True
    assert "availabilityDomain" not in subnet  # regional
    assert [(rule["source"], rule["protocol"]) for rule in rules["ingressSecurityRules"]] == [(subnet["cidrBlock"], "6")]
    assert [rule["destination"] for rule in rules["egressSecurityRules"]] == ["0.0.0.0/0"]
    assert [rule["networkEntityId"].split(".")[1] for rule in found["create_route_table"]["routeRules"]] == [
        "natgateway"
    ]


@pytest.mark.parametrize("statement", PAGE.statements)
def test_each_statement_is_needed(changed: Tenancy, statement: str) -> None:
    others = [other for other in PAGE.statements if other != statement]
    changed.service.set_statements(others)
    before = len(changed.service.denials())
    why = changed.why_not(f"without-{PAGE.statements.index(statement)}", TIMEOUT=SHORT_S)
    print(statement, "->", why[-600:])
    assert why
    assert changed.service.denials()[before:]


@pytest.mark.parametrize("statement", [statement for statement, lower in NARROWER.items() if lower])
def test_no_verb_could_be_lower(changed: Tenancy, statement: str) -> None:
    lower = NARROWER[statement]
    assert lower is not None
    changed.service.set_statements([lower.text if other == statement else other for other in PAGE.statements])
    before = len(changed.service.denials())
    why = changed.why_not(f"lower-{PAGE.statements.index(statement)}", TIMEOUT=SHORT_S)
    print(lower.text, "->", why[-600:])
    assert why
    assert changed.service.denials()[before:]
