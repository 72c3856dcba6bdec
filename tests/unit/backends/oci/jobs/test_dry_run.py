"""The dry run, which gives what a launch sends into its reader's hands: a script of oci-cli, or JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jmespath  # oci-cli brings it
import pytest
from harness import wait_until
from unit.backends.oci.bodies import COMPANY, EVERYTHING, HOSTILE
from unit.backends.oci.owned_script import Owner
from unit.fake_oci import Checkout, with_environment

from oci_cluster.backends.oci.backend import OciBackend
from oci_cluster.backends.oci.jobs import requests as oci_requests
from oci_cluster.backends.oci.settings import settings_of
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import SettingsError
from oci_cluster.system.redaction import redact

pytestmark = pytest.mark.slow  # bash runs what is printed

ROOT = Path(__file__).resolve().parents[5]


def dry_run(checkout: Checkout, plan: Plan, *, as_json: bool = False) -> str:
    """Return what --dry-run prints of a launch of *plan*."""
    backend = OciBackend(checkout.root, "", no_service)
    try:
        return backend.preview(backend.place(plan), as_json=as_json)
    finally:
        backend.close()


def no_service() -> Any:
    raise AssertionError  # nobody is asked


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.close()


def alike(body: dict[str, Any]) -> str:
    """Return *body* without what differs between two launches."""
    tags = body["freeformTags"]
    text = json.dumps(
        {"jobId": "ocid1.job", **body, "freeformTags": {**tags, "oci-cluster-owner": "me"}}, sort_keys=True
    )
    text = re.sub("[0-9a-f]{64}", "<hex>", text)
    text = text.replace(tags["oci-cluster-launch"], "<id>").replace(tags["oci-cluster"], "<name>")
    return re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)


@pytest.mark.parametrize("what", ["job", "job-run"])
def test_oci_cli_has_every_option(checkout: Checkout, what: str) -> None:
    """The genuine oci-cli is asked: an option that it does not have would end every launch."""
    words = set()
    for style in ("runs", "multinode"):
        given = {**EVERYTHING, **COMPANY, "OCI_JOB_STYLE": style, "CODE_URI": "image"}
        text = dry_run(checkout, checkout.plan(PS_COUNT="1", **given))
        begins = f"create {what} create" + ("|until start|start_all" if what == "job-run" else "")
        found = re.findall(rf"(?:{begins}) (?:.*\\\n)*.*\n", text)
        words |= set(re.findall("--[a-z][a-z-]+", "".join(found)))
    program = Path(sys.executable).with_name("oci")
    command = [program, "data-science", what, "create", "--help"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert len(words) > 4
    assert words - set(re.findall("--[a-z-]+", shown)) == set()


@pytest.mark.parametrize("style", ["runs", "multinode"])
@pytest.mark.parametrize("text", HOSTILE[:-1])
def test_the_script_sends_what_a_launch_sends(checkout: Checkout, owner: Owner, text: str, style: str) -> None:
    """It asks oci-cli for exactly the bodies that a launch sends, whatever people have written."""
    settings = {"OCI_JOB_STYLE": style, "MAIN_SHAPE": "VM.GPU.A10.1", "PS_COUNT": "1", "DESCRIPTION": text}
    plan = checkout.plan(3, arguments=(text,), **settings)
    plan = replace(with_environment(plan, SOME_TEXT=text), project=text)
    found = json.loads(dry_run(checkout, plan, as_json=True))
    script = dry_run(checkout, plan)
    assert redact(script) == script
    assert owner.run(script) == 0, owner.said
    (job,) = owner.sent("job create")
    assert alike(job.body) == alike(found["job"])
    runs = [call.body for call in owner.sent("job-run create")]
    assert sorted(map(alike, runs)) == sorted(map(alike, found["job_runs"]))
    assert len(runs) == (5 if style == "runs" else 1)


def test_each_run_of_the_script_is_a_launch_of_its_own(checkout: Checkout, owner: Owner) -> None:
    """Id, key and, where nobody has chosen one, name are new; the key is in no command, and in no script."""
    script = dry_run(checkout, checkout.plan(SUBNET_CIDR=""))
    keys, ids = set(), set()
    for _ in range(2):
        assert owner.run(script) == 0, owner.said
        (job,) = owner.sent("job create")
        environment = job.body["jobConfigurationDetails"]["environmentVariables"]
        assert environment["SUBNET_CIDR"] == "10.9.0.0/24"
        assert environment["CLUSTER_NAME"] == f"plain-{environment['LAUNCH_ID'][:4]}" == job.body["displayName"]
        keys.add(environment["LAUNCH_KEY"])
        ids.add(environment["LAUNCH_ID"])
        assert not [call for call in owner.calls if environment["LAUNCH_KEY"] in " ".join(call.words)]
    assert len(keys) == len(ids) == 2
    assert {len(key) for key in keys} == {64}
    assert {len(text) for text in ids} == {8}
    assert not re.search("[0-9a-f]{64}", script)


@pytest.mark.parametrize("style", ["runs", "multinode"])
@pytest.mark.parametrize(
    ("blocks", "cidr"),
    [(None, "10.9.0.0/24"), (["10.9.0.0/24", "10.9.1.0/24"], "10.9.0.0/24,10.9.1.0/24")],
)
def test_a_subnet_of_several_blocks_gets_to_the_nodes_whole(
    checkout: Checkout, owner: Owner, style: str, blocks: list[str] | None, cidr: str
) -> None:
    """As oci-cli's own query language reads what it shows of a subnet."""
    owner.cidr = cidr
    assert owner.run(dry_run(checkout, checkout.plan(SUBNET_CIDR="", OCI_JOB_STYLE=style))) == 0, owner.said
    (asked,) = owner.sent("subnet get")
    shown = {"data": {"cidr-block": "10.9.0.0/24", "ipv4-cidr-blocks": blocks}}
    assert jmespath.search(asked.options["--query"], shown) == cidr
    (job,) = owner.sent("job create")
    assert f'"SUBNET_CIDR": "{cidr}"' in json.dumps(job.body)


def test_what_stands_above_in_the_script_may_be_changed(checkout: Checkout, owner: Owner) -> None:
    """How many workers there are, and what the cluster is called."""
    script = dry_run(checkout, checkout.plan(2, PS_COUNT="1"))
    script = script.replace("\nworkers=2\n", "\nworkers=5\n").replace("\nservers=1\n", "\nservers=2\n")
    assert owner.run(re.sub(r"(?m)^name=.*$", "name=other", script)) == 0, owner.said
    (job,) = owner.sent("job create")
    environment = job.body["jobConfigurationDetails"]["environmentVariables"]
    assert (environment["WORKER_COUNT"], environment["PS_COUNT"]) == ("5", "2")
    overrides = [call.body["jobConfigurationOverrideDetails"] for call in owner.sent("job-run create")]
    ranks = {node["environmentVariables"]["NODE_RANK"]: node["environmentVariables"]["MODE"] for node in overrides}
    assert ranks == {"0": "MAIN", **{str(rank): "WORKER" for rank in range(1, 6)}, "6": "PS", "7": "PS"}
    assert {call.body["displayName"] for call in owner.sent("job-run create")} >= {"other-MAIN", "other-PS_7"}


@pytest.mark.parametrize(
    ("state", "details", "code"),
    [
        ("SUCCEEDED", "", 0),
        ("FAILED", "Job run artifact execution failed with exit code 21.", 21),
        ("FAILED", "Out of host capacity.", 69),
        ("CANCELED", "", 143),
        ("DELETED", "", 76),
        ("FAILED", "failed with exit code 137", 76),  # and no word of main's
        ("FAILED", "failed with exit code 0", 69),
        ("FAILED", "failed with exit code 512", 69),
    ],
)
def test_it_ends_with_the_code_of_main(checkout: Checkout, owner: Owner, state: str, details: str, code: int) -> None:
    owner.state, owner.details = state, details
    assert owner.run(dry_run(checkout, checkout.plan())) == code
    assert f" ended with {code}\n" in owner.said
    assert "job delete" not in [call.command for call in owner.calls]


def test_a_main_without_a_machine_ends_it_in_time(checkout: Checkout, owner: Owner) -> None:
    """As a launch: PROVISION_TIMEOUT is what the script waits for."""
    owner.state = "ACCEPTED"
    assert owner.run(dry_run(checkout, checkout.plan(PROVISION_TIMEOUT="1"))) == 75
    assert "main has had no machine for 1 s" in owner.said
    assert "\nlongest_start=1800\n" in dry_run(checkout, checkout.plan())


@pytest.mark.parametrize("state", ["IN_PROGRESS ACCEPTED SUCCEEDED", "IN_PROGRESS - - SUCCEEDED"])
def test_an_answer_that_is_old_or_missing_ends_no_cluster_that_runs(
    checkout: Checkout, owner: Owner, state: str
) -> None:
    """Main had a machine, so no later list tells that it has none; who does not answer now does so later."""
    owner.state = state
    script = dry_run(checkout, checkout.plan(PROVISION_TIMEOUT="1"))
    assert owner.run(re.sub(r"\bsleep \d+", "sleep 1", script)) == 0, owner.said
    assert "job-run cancel" not in [call.command for call in owner.calls]


REFUSAL = 'ServiceError:\n{{\n    "code": "{}",\n    "status": {}\n}}'


@pytest.mark.parametrize(
    ("command", "said", "code"),
    [
        ("job create", REFUSAL.format("NotAuthorizedOrNotFound", 404), 77),
        ("job create", REFUSAL.format("NotAuthenticated", 401), 77),
        ("job create", REFUSAL.format("InvalidParameter", 400), 78),
        ("job create", REFUSAL.format("LimitExceeded", 400), 69),
        ("job create", "no answer", 69),
        ("subnet get", REFUSAL.format("NotAuthorizedOrNotFound", 404), 77),
        ("object put", REFUSAL.format("BucketNotFound", 404), 77),
        ("job-run create", REFUSAL.format("InvalidParameter", 400), 78),
    ],
)
def test_a_refusal_is_shown_and_ends_it_with_a_launchs_code(
    checkout: Checkout, owner: Owner, command: str, said: str, code: int
) -> None:
    """Never with the 1 of oci-cli, which would be an entry point's."""
    owner.refused = {command: said, "object head": "not there"}
    script = dry_run(checkout, checkout.plan(SUBNET_CIDR=""))
    assert owner.run(script) == code, owner.said
    assert said in owner.said
    if command == "job-run create":
        assert "job delete" in [call.command for call in owner.calls]


def test_one_run_that_cannot_be_ends_all(checkout: Checkout, owner: Owner) -> None:
    """A cluster is started whole, or not at all."""
    owner.state, owner.refused = "IN_PROGRESS", {"job-run create mine-WORKER_2": REFUSAL.format("LimitExceeded", 400)}
    assert owner.run(dry_run(checkout, checkout.plan(6, CLUSTER_NAME="mine"))) == 69
    assert len(owner.sent("job-run create")) == 5
    canceled = [call.options["--job-run-id"] for call in owner.sent("job-run cancel")]
    assert sorted(canceled) == [f"ocid1.run.mine-{name}" for name in ("MAIN", "WORKER_1", "WORKER_3", "WORKER_4")]
    assert owner.calls[-1].command == "job delete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_being_created_when_a_signal_comes_is_ended(
    checkout: Checkout, owner: Owner, number: int
) -> None:
    """Its creation is waited for, though a list does not hold it yet; the next ones are not begun."""
    owner.state, owner.slow = "IN_PROGRESS", ["mine-WORKER_2"]
    owner.unlisted = owner.slow
    owner.slow_s = 3.0 if number == signal.SIGTERM else 0.0  # longer than it takes to look a second time
    script = dry_run(checkout, checkout.plan(9, CLUSTER_NAME="mine"))
    process = owner.begin(script)

    def asked(count: int) -> bool:
        return len(owner.sent("job-run create")) >= count

    wait_until(lambda: asked(5), "main and four workers")
    # A terminal tells all processes, a person one.
    (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)
    wait_until(lambda: "ending mine" in (owner.place / "said").read_text(), "its word")
    (owner.place / "go").touch()
    assert owner.end(process) == 143, owner.said
    assert len(owner.sent("job-run create")) == 5
    canceled = [call.options["--job-run-id"] for call in owner.sent("job-run cancel")]
    assert sorted(canceled) == [f"ocid1.run.mine-{name}" for name in ("MAIN", *(f"WORKER_{n}" for n in range(1, 5)))]
    assert owner.calls[-1].command == "job delete"


# --- The code -------------------------------------------------------------------------------------------------------


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a folder of code that somebody has filled."""
    folder = tmp_path / "the code\n$(touch spoiled) `touch spoiled`\n#"
    (folder / "package").mkdir(parents=True)
    for name in ("train.py", "package/near.py", "-T odd \\n$(x) 'name'.py", "secret.pem", "left.out"):
        (folder / name).write_text(name)
    (folder / "link.py").symlink_to("train.py")
    (folder / ".gitignore").write_text("*.out\n")
    return folder


def test_the_files_that_go_stand_in_the_script(checkout: Checkout, owner: Owner, code: Path) -> None:
    """As they are when it runs; what ignore files leave out, and what looks like a key, is not in the list."""
    script = dry_run(checkout, checkout.plan(ENTRY_POINT=str(code / "train.py"), CODE_DIR=str(code)))
    kept = owner.place / "kept"
    # What would be sent is looked at before it is removed.
    script = script.replace("digest=", f"cp \"${{private}}/code.tar.gz\" '{kept}'; digest=", 1)
    (code / "train.py").write_text("changed")
    (code / "new.py").touch()
    for words in ([], [str(code)]):
        assert owner.run(script, *words) == 0, owner.said
        listed = subprocess.run(["tar", "-tzf", str(kept)], check=True, capture_output=True, text=True).stdout
        names = ["./-T odd \\\\n$(x) 'name'.py", "./link.py", "./package/near.py", "./train.py"]
        assert listed.splitlines() == names
        unpacked = subprocess.run(["tar", "-xzOf", str(kept), "./train.py"], check=True, capture_output=True, text=True)
        assert unpacked.stdout == "changed"
    assert not list(owner.place.rglob("spoiled"))
    (put,) = owner.sent("object put") or [None]
    assert put is None or put.options["--name"].startswith("work/code/")


def test_a_file_that_is_gone_ends_it_before_anything_is_sent(checkout: Checkout, owner: Owner, code: Path) -> None:
    script = dry_run(checkout, checkout.plan(ENTRY_POINT=str(code / "train.py"), CODE_DIR=str(code)))
    (code / "package" / "near.py").unlink()
    assert owner.run(script) == 78
    assert "package/near.py" in owner.said
    assert owner.calls == []


def test_a_name_that_no_list_can_have_is_refused(checkout: Checkout, code: Path) -> None:
    (code / "two\nlines.py").touch()
    plan = checkout.plan(ENTRY_POINT=str(code / "train.py"), CODE_DIR=str(code))
    with pytest.raises(SettingsError, match=r"a script cannot list the file 'two\\nlines\.py' of "):
        dry_run(checkout, plan)
    assert json.loads(dry_run(checkout, plan, as_json=True))["job"]


@pytest.mark.parametrize("uri", ["image", "git+https://example.com/x@v1"])
def test_code_of_elsewhere_is_not_sent(checkout: Checkout, owner: Owner, uri: str) -> None:
    script = dry_run(checkout, checkout.plan(CODE_URI=uri))
    assert owner.run(script) == 0, owner.said
    assert not [call for call in owner.calls if call.command.startswith("object put")]
    assert "tar -C" not in script


def test_a_work_dir_that_is_mounted_here_gets_the_code_as_a_file(checkout: Checkout, owner: Owner) -> None:
    folder = owner.place / "mnt" / "data"
    plan = checkout.plan(WORK_DIR=f"file://{folder}", STORAGE_MOUNTS="data=oci://b@n")
    assert owner.run(dry_run(checkout, plan)) == 0, owner.said
    (archive,) = (folder / "code").iterdir()
    (job,) = owner.sent("job create")
    assert job.body["freeformTags"]["oci-cluster-code"] == archive.name.removesuffix(".tar.gz")
    shutil.rmtree(folder)
    folder.write_text("no folder")
    assert owner.run(dry_run(checkout, plan)) == 69


def test_a_work_dir_that_oci_cli_does_not_reach_is_refused(checkout: Checkout) -> None:
    with pytest.raises(
        SettingsError, match=r"no script can send the code to s3://b/work: oci-cli reaches oci:// alone"
    ):
        dry_run(checkout, checkout.plan(WORK_DIR="s3://b/work"))


# --- How it is written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["runs", "multinode"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"CLUSTER_NAME": "mine", "SUBNET_CIDR": "", "PS_COUNT": "2", **COMPANY},
        {"CODE_URI": "image", "TTL": "0", **EVERYTHING},
        {"WORK_DIR": "file:///mnt/data", "STORAGE_MOUNTS": "data=oci://b@n"},
    ],
)
def test_the_script_passes_this_projects_linters(checkout: Checkout, style: str, given: dict[str, str]) -> None:
    """Its reader may keep it: shellcheck, shfmt, and bash itself find nothing."""
    (checkout.root / "config.env").write_text("OCI_CLI_PROFILE='a \"b\" $c'\n")
    script = dry_run(checkout, checkout.plan(OCI_JOB_STYLE=style, **given))
    tools = Path(sys.executable).parent
    for command in (["bash", "-n"], [tools / "shellcheck", "-"], [tools / "shfmt", "-i", "2", "-ci", "-d"]):
        done = subprocess.run(command, input=f"{script}\n", cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    # What macOS ships, bash 3.2, does not know these.
    assert not re.search(r"\b(mapfile|readarray|wait -n|declare -A|BASHPID|EPOCHSECONDS)\b|\$\{\w+(@|\^|,)", script)
    assert 'export OCI_CLI_PROFILE="${OCI_CLI_PROFILE:-a \\"b\\" \\$c}"' in script


def test_who_may_let_the_service_mount_is_told(checkout: Checkout) -> None:
    plan = checkout.plan(STORAGE_MOUNTS="a=oci://b@n b=fss:ocid1.mounttarget.oc1.iad.x:ocid1.export.oc1.iad.y")
    notes = json.loads(dry_run(checkout, plan, as_json=True))["notes"]
    for what in ("file-family", "object-family"):
        (note,) = [note for note in notes if what in note]
        assert f"# {note}\n" in dry_run(checkout, plan)


def test_json_tells_what_a_launch_adds(checkout: Checkout) -> None:
    """Where the code will be, and that the subnet's addresses are looked up: nothing has been asked or sent."""
    plan = checkout.plan(SUBNET_CIDR="")
    notes = json.loads(dry_run(checkout, plan, as_json=True))["notes"]
    assert notes[0].startswith("SUBNET_CIDR will be added to the Job's environment: the addresses of ocid1.subnet.")
    assert notes[1].startswith(f"The code in {checkout.root}/plain/example will be at oci://bucket@ns/work/code/")
    assert notes[2] == "Each node unpacks it into a directory of its own, CODE_DIR, in which the entry point runs."
    plan = checkout.plan(SUBNET_CIDR="10.0.0.0/24", CODE_URI="image")
    found = json.loads(dry_run(checkout, plan, as_json=True))
    assert found["notes"] == []
    assert found["job"]["jobConfigurationDetails"]["environmentVariables"]["SUBNET_CIDR"] == "10.0.0.0/24"


def test_an_image_that_is_not_there_is_told_of(checkout: Checkout) -> None:
    plan = checkout.plan(IMAGE="iad.ocir.io/ns/plain:not-pushed", SUBNET_CIDR="10.0.0.0/24", CODE_URI="image")
    (note,) = json.loads(dry_run(checkout, plan, as_json=True))["notes"]
    assert note.startswith("iad.ocir.io/ns/plain:not-pushed stands for an image that was not pushed from here")
    assert f"\n# {note}\n" in dry_run(checkout, plan)


def test_a_check_refuses_what_a_launch_would(checkout: Checkout) -> None:
    """Bad settings end the dry run too."""
    with pytest.raises(SettingsError, match="IMAGE is not set"):
        dry_run(checkout, checkout.plan(IMAGE=""))
    with pytest.raises(SettingsError, match="SUBNET_OCID is not set, and without a subnet the 3 nodes cannot reach"):
        dry_run(checkout, checkout.plan(SUBNET_OCID=""))


@pytest.mark.parametrize("template", ["job.json.j2", "job-run.json.j2"])
def test_a_template_that_was_spoiled_ends_a_launch_before_anybody_is_asked(
    checkout: Checkout, tmp_path: Path, template: str
) -> None:
    """Each of them is rendered when the plan is placed."""
    templates = tmp_path / "other" / "scripts" / "templates"
    templates.mkdir(parents=True)
    for path in (checkout.root / "scripts" / "templates").glob("*.j2"):
        (templates / path.name).write_text("{ no JSON" if path.name == template else path.read_text())
    with pytest.raises(SettingsError, match=f"scripts/templates/{template} (makes no JSON|cannot be used): "):
        oci_requests.resolve(checkout.plan(), settings_of(checkout.plan(), checkout.root), tmp_path / "other", tmp_path)
