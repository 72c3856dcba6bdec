"""The pages about OCI, followed to the letter on an empty tenancy: their commands, their policies, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from harness import PATIENCE_S, Project
from oci_cloud import UNTIL_GO, Cloud
from oci_service.handle import Service
from oci_service.policies import parse_statement
from oci_walk import TEXT, Page, Person, filled, new_person
from way_desk import Node, stop_looking, why_not

from oci_cluster.backends.oci.connect import tunnels
from oci_cluster.errors import ClusterError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

# The frameworks of the page need packages; the toy of these tests has an image that is a table's entry.
PAGE = Page(TEXT.replace("training/dask", "training/plain"))
# Each with the next lower verb; empty where there is none.
LOWER = [lower.text if (lower := parse_statement(text).lowered()) else "" for text in PAGE.statements]
# Nodes that cannot use the bucket try for as long as TIMEOUT, and to say so for as long as HEARTBEAT_TIMEOUT. What
# main lists are its workers: it waits for them.
SHORT = {"WAIT_FOR_ADDRESSES": "1", "TIMEOUT": "4", "HEARTBEAT_INTERVAL": "0.5", "HEARTBEAT_TIMEOUT": "4"}


class Tenancy(Cloud):
    """A tenancy that was empty, and a reader of the page who has come to its end."""

    def __init__(self, project: Project, service: Service, directory: Path) -> None:
        self.project, self.service = project, service
        self.administrator = administrator = Person(service, directory / "administrator")
        self.user, self.reader = new_person(service, administrator, directory / "reader", "ada@example.com")
        values = {"OCID of the tenancy": service.settings["TENANCY_OCID"], "OCID of a user": self.user}
        (administrator.directory / "policy.txt").write_text("\n".join(PAGE.statements) + "\n")
        told = administrator.bash(*(filled(block, values) for block in PAGE.scripts["administrator"]))
        values |= dict(re.findall(r"(\w+)=(ocid1\.\S+)", told))
        values["namespace"] = re.search(r'"data": "([\w-]+)"', told)[1]  # type: ignore[index]
        printed = self.reader.bash(*(filled(block, values).replace("dask", "plain") for block in PAGE.scripts["you"]))
        values["PROJECT_OCID"] = re.search(r"ocid1\.datascienceproject\.\S+", printed)[0]  # type: ignore[index]
        registry = re.search(r"^make .*REGISTRY=(\S+)$", printed, re.MULTILINE)
        assert registry, printed
        self.pushed = f"{registry[1]}/plain:1"
        self.values = values
        (self.administrator_id,) = {call["principal"].partition(":")[2] for call in service.calls("create_compartment")}
        self.environ = {**self.reader.environ, "IMAGE": self.pushed}
        (project.path / "config.env").write_text(filled(PAGE.config, values))
        self.push()

    def push(self) -> None:
        self.service.push(self.user, self.pushed, self.image(Path(sys.executable)))

    def launch_plain(self, workers: int, script: str, *arguments: str, **environ: str) -> Any:
        entry = self.project.write("entry.py", script)
        return self.project.launch("plain", str(workers), "--entry", entry, *arguments, **{**self.environ, **environ})

    def why_not(self, name: str, **environ: str) -> str:
        """Use every statement once; return which step failed, empty where none did."""
        try:
            self.push()
        except ValueError as error:
            return f"push: {error}"
        word = f"hello from {name}"  # so that no launch before it has sent the same code
        launch = self.launch_plain(1, f"print('{word}')", "--name", name, "--detach", **{"NODE_LOGS": "0", **environ})
        if code := launch.wait(PATIENCE_S):
            return f"launch: {code}: {launch.err}"
        runs = [run["id"] for run in self.service.job_runs() if run["freeformTags"]["oci-cluster"] == name]
        ended = [self.service.wait(run) for run in runs]
        if {run["lifecycleState"] for run in ended} != {"SUCCEEDED"}:
            return f"nodes: {[run['lifecycleDetails'] for run in ended]}"
        logs = self.run("logs", name, **environ)
        if word not in logs.stdout:
            return f"logs: {logs.returncode}: {logs.stderr}"
        stopped = self.run("stop", name, "--delete", **environ)
        if stopped.returncode or self.service.objects(f"team-a/work/{name}-"):
            return f"stop: {stopped.returncode}: {stopped.stderr}"
        return ""


@pytest.fixture(scope="module")
def tenancy(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenancy]:
    """Return a tenancy that was empty, after all steps of the page."""
    directory = tmp_path_factory.mktemp("walk")
    project = Project(checkout_copy, directory)
    with Service(directory / "oci", empty=True, start=warm.command("oci_service")) as service:
        assert "COMPARTMENT_OCID" not in service.settings
        service.control({"cancel_grace_s": 0.5, "ingest_delay_s": 0})
        try:
            tenancy = Tenancy(project, service, directory)
            assert service.denials() == []
            yield tenancy
        finally:
            project.end_all()
            (checkout_copy / "config.env").unlink(missing_ok=True)
            shutil.rmtree(checkout_copy / ".clusters", ignore_errors=True)


@pytest.fixture
def changed(tenancy: Tenancy) -> Iterator[Tenancy]:
    """Return the same; a test may change its policies."""
    yield tenancy
    tenancy.service.set_statements(PAGE.statements)


def test_page_leads_to_a_cluster(tenancy: Tenancy) -> None:
    """Every verb, as somebody who is no administrator; and not one request that the page does not allow."""
    before = len(tenancy.service.denials())
    assert not tenancy.why_not("other")
    assert not tenancy.why_not("groups", OCI_JOB_STYLE="multinode")
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
    assert tenancy.service.denials()[before:] == []
    ended = {
        job["lifecycleState"] for job in tenancy.service.jobs() if job["displayName"] in {"demo", "other", "groups"}
    }
    assert ended == {"DELETED"}


def test_network_of_the_page_is_private_and_open_inside_only(tenancy: Tenancy) -> None:
    (subnet,), (rules,), (routes,) = (
        [call["body"] for call in tenancy.service.calls(f"create_{name}")]
        for name in ("subnet", "security_list", "route_table")
    )
    assert subnet["prohibitPublicIpOnVnic"] is True
    assert "availabilityDomain" not in subnet  # regional
    assert subnet["routeTableId"].startswith("ocid1.routetable.")
    assert [rules_id.split(".")[1] for rules_id in subnet["securityListIds"]] == ["securitylist"]
    assert [(r["source"], r["protocol"]) for r in rules["ingressSecurityRules"]] == [(subnet["cidrBlock"], "6")]
    assert [rule["destination"] for rule in rules["egressSecurityRules"]] == ["0.0.0.0/0"]
    assert [rule["networkEntityId"].split(".")[1] for rule in routes["routeRules"]] == ["natgateway"]


def assert_fails(tenancy: Tenancy, name: str, statements: list[str], changed: str) -> None:
    """With these statements the page leads to no cluster, because something is not allowed."""
    tenancy.service.set_statements(statements)
    before = len(tenancy.service.denials())
    is_about_nodes_files = "dynamic-group cluster-runs" in changed and " objects " in changed
    why = tenancy.why_not(name, **(SHORT if is_about_nodes_files else {}))
    assert why, f"nothing failed with {changed}"
    assert tenancy.service.denials()[before:], f"nothing was refused with {changed}, but: {why}"


# Where a verb that is one lower is not enough, its statement is needed: the other test proves that.
@pytest.mark.parametrize("number", [number for number, lower in enumerate(LOWER) if not lower])
def test_each_statement_is_needed(changed: Tenancy, number: int) -> None:
    removed = PAGE.statements[number]
    others = [statement for statement in PAGE.statements if statement != removed]
    assert_fails(changed, f"without-{number}", others, removed)


@pytest.mark.parametrize("number", [number for number, lower in enumerate(LOWER) if lower])
def test_no_verb_could_be_lower(changed: Tenancy, number: int) -> None:
    statements = list(PAGE.statements)
    statements[number] = LOWER[number]
    assert_fails(changed, f"lower-{number}", statements, LOWER[number])


def test_without_oci_logging_its_statements_are_not_needed(changed: Tenancy) -> None:
    """As the page says: the logs are in the bucket."""
    others = [statement for statement in PAGE.statements if not re.search(" log-(groups|content) ", statement)]
    assert len(others) == len(PAGE.statements) - 3
    changed.service.set_statements(others)
    before = len(changed.service.denials())
    config = changed.project.path / "config.env"
    whole = config.read_text()
    config.write_text(re.sub("^LOG_(GROUP_)?OCID=.*\n", "", whole, flags=re.MULTILINE))
    try:
        assert not changed.why_not("bucket", NODE_LOGS="1")
    finally:
        config.write_text(whole)
    assert not changed.service.denials()[before:]


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_the_pages_bastion_leads_to_a_node(changed: Tenancy, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the two statements for it, and without either not."""
    from oci_cluster.backends.oci.service import Service as Client  # noqa: PLC0415 - the SDK, where there is one

    for name, value in changed.reader.environ.items():
        monkeypatch.setenv(name, value)
    own = PAGE.bastion_statements
    assert len(own) == 2
    node = Node()
    asker = tunnels.Asker({}, lambda: Client(os.environ), lambda _: None)
    to_node = (changed.values["BASTION_ID"], "127.0.0.1", node.port, "demo-00000000", asker)
    changed.service.set_statements([*PAGE.statements, *own])
    before = len(changed.service.denials())
    tunnel = tunnels.tunnel_to(*to_node)
    assert stop_looking(tunnel)
    tunnel.close()
    assert changed.service.denials()[before:] == []
    for left in own:
        changed.service.set_statements([*PAGE.statements, left])
        with pytest.raises(ClusterError, match="policy: allow group <yours> to use bastion"):
            tunnels.tunnel_to(*to_node)
    node.close()


def test_a_notebook_session_launches_with_a_dynamic_group_of_its_own(changed: Tenancy) -> None:
    """With the statements of the people, and without them not at all."""
    notebook = changed.service.resource_principal("datasciencenotebooksession", changed.values["COMPARTMENT_OCID"])
    own = [
        statement.replace("group data-scientists", "dynamic-group launchers")
        for statement in PAGE.statements
        if statement.startswith("allow group data-scientists ")
    ]
    others = [statement for statement in PAGE.statements if "data-scientists" not in statement or "repos" in statement]
    changed.service.set_statements([*others, *own])
    before = len(changed.service.denials())
    usual, changed.environ = changed.environ, {**notebook, "IMAGE": changed.pushed}
    try:
        assert not changed.why_not("notebook")
        assert not changed.service.denials()[before:]
        changed.service.set_statements(others)
        assert "cannot list the Jobs" in changed.why_not("nobody")
    finally:
        changed.environ = usual


def test_other_teams_objects_are_out_of_reach(tenancy: Tenancy) -> None:
    """Their names are not: that is what lists cost."""
    where = "--namespace stand-in --bucket-name clusters"
    tenancy.administrator.bash(f"echo secret >it; oci os object put {where} --name team-b/it --file it")
    listed = tenancy.reader.bash(f"oci os object list {where} --prefix team-b/ --query 'data[].name'")
    assert json.loads(listed) == ["team-b/it"]
    refused = tenancy.reader.bash(f"oci os object get {where} --name team-b/it --file - 2>&1 || true")
    assert '"status": 404' in refused
    assert "secret" not in refused


def test_runs_of_another_compartment_are_in_no_dynamic_group(tenancy: Tenancy, tmp_path: Path) -> None:
    """They could read and delete a team's objects, if its rule named no compartment."""
    put = "echo x >it; oci os object put --namespace stand-in --bucket-name clusters --name team-a/it --file it --force"
    for compartment, is_allowed in (("COMPARTMENT_OCID", True), ("images", False)):
        run = Person(tenancy.service, tmp_path / compartment)
        run.environ = tenancy.service.resource_principal("datasciencejobrun", tenancy.values[compartment])
        assert ('"status": 404' not in run.bash(f"{put} 2>&1 || true")) is is_allowed


def test_a_push_makes_a_repository_in_the_root_compartment_alone(tenancy: Tenancy) -> None:
    """Which only an administrator may."""
    image = tenancy.pushed.replace("/plain:", "/other:")
    with pytest.raises(ValueError, match="denied: requested access to"):
        tenancy.service.push(tenancy.user, image, {})
    listing = "oci artifacts container repository list --query 'data.items[].\"display-name\"' --compartment-id "
    root = tenancy.service.settings["TENANCY_OCID"]
    assert tenancy.administrator.bash(f"{listing}{root}").strip() in {"", "[]"}
    tenancy.service.push(tenancy.administrator_id, image, {})
    assert json.loads(tenancy.administrator.bash(f"{listing}{root}")) == ["training/other"]
