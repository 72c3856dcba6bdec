"""``setup.sh``: what it shows, what it has oci-cli do, and how it fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.stub_program import write_program

from oci_cluster.backends.oci import setup
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.setup import Found, Step, difference
from oci_cluster.backends.oci.tenancy.client import NEVER_SEEN
from oci_cluster.backends.oci.tenancy.requirements import Needed, lifecycle_rules, matching_rule, needed_of, statements
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import BackendError, NotPermittedError, SettingsError, TimedOutError, UsageError

JOBS, TENANCY = "ocid1.compartment.oc1..jobs", "ocid1.tenancy.oc1..t"
GIVEN = {"COMPARTMENT_OCID": JOBS, "WORK_DIR": "oci://b@ns/a/w", "REGISTRY": "iad.ocir.io/ns/t"}
NEEDED = replace(needed_of(GIVEN, ("dask",), "us-ashburn-1"), log="nodes", makes_logs=False)
WHOLE = Found(
    tenancy=TENANCY,
    jobs=JOBS,
    images=JOBS,
    namespace="ns",
    home_region="home",
    has_people=True,
    nodes_rule=matching_rule(JOBS),
    has_runs=True,
    bucket=JOBS,
    lifecycle=lifecycle_rules(NEEDED),
    repositories={"t/dask": JOBS},
    log_group="ocid1.loggroup.oc1..g",
    log="ocid1.log.oc1..l",
)
REFUSAL = {"message": "Not yet", "status": 400, "code": "InsufficientServicePermissions", "opc-request-id": "r1"}


class FakeService:
    """What setup asks of the service: who it is, and where."""

    def __init__(self) -> None:
        self.environ = {"PATH": "/usr/bin:/bin"}
        self.region, self.domain = "us-ashburn-1", "oraclecloud.com"
        self.identity = ({"tenancy": TENANCY}, None)
        self.client_of = lambda *_: None


class Tool:
    """An oci-cli that notes its words, and answers what it is told to."""

    def __init__(self, directory: Path) -> None:
        self.words, self.answers = directory / "words", directory / "answers"
        self.answers.mkdir()
        write_program(
            directory / "oci",
            "import json, pathlib, sys\n"
            f"words = pathlib.Path({str(self.words)!r})\n"
            "seen = words.read_text().splitlines() if words.exists() else []\n"
            "words.write_text('\\n'.join([*seen, json.dumps(sys.argv[1:])]) + '\\n')\n"
            f"answer = pathlib.Path({str(self.answers)!r}, str(len(seen)))\n"
            "code, text = answer.read_text().split(' ', 1) if answer.exists() else ('0', '{}')\n"
            "(sys.stderr if int(code) else sys.stdout).write(text)\nsys.exit(int(code))\n",
        )
        self.python = str(directory / "python")

    def answer(self, number: int, code: int, text: str) -> None:
        (self.answers / str(number)).write_text(f"{code} {text}")

    def seen(self) -> list[list[str]]:
        lines = self.words.read_text().splitlines() if self.words.exists() else []
        return [json.loads(line)[6:] for line in lines]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    found = Tool(tmp_path)
    monkeypatch.setattr(sys, "executable", found.python)
    return found


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def made(
    found: Sequence[Found], monkeypatch: pytest.MonkeyPatch, clock: Clock | None = None, **given: str
) -> setup.Setup:
    """Return a setup that finds these, one after the other, and the last one from then on."""
    left = list(found)

    def look(_: Any, needed: Needed) -> tuple[Needed, Found]:
        return needed, left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(setup, "look", look)
    service: Any = FakeService()
    clock = clock or Clock()
    return setup.Setup(service, {**GIVEN, **given}, PROJECT_ROOT, ["dask"], clock=clock, sleep=clock.sleep)


def test_what_lacks_is_made_in_order_and_looked_at_again(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made([replace(WHOLE, bucket="", lifecycle=None), replace(WHOLE, lifecycle=None), WHOLE], monkeypatch)
    said: list[str] = []
    _, _, steps = one.look()
    one.apply(steps, said.append)
    assert [words[:3] for words in tool.seen()] == [
        ["os", "bucket", "create"],
        ["os", "object-lifecycle-policy", "put"],
    ]
    assert said == ["made: bucket b", "made: lifecycle rules of bucket b"]


def test_what_needs_the_ocid_of_another_thing_waits_until_that_is_seen(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    none, clock = replace(WHOLE, log_group="", log=""), Clock()
    one = made([none, none, replace(WHOLE, log=""), WHOLE], monkeypatch, clock)
    one.apply(one.look()[2], print)
    group, log = tool.seen()
    assert (group[:3], log[:5]) == (
        ["logging", "log-group", "create"],
        ["logging", "log", "create", "--log-group-id", WHOLE.log_group],
    )
    assert clock.time == 5


def test_nothing_is_made_where_a_person_is_needed(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [Step("a", command=("x",)), Step("b", problem="b is theirs"), Step("c", problem="c too")]
    with pytest.raises(SettingsError, match=r"^b is theirs; c too$"):
        made([WHOLE], monkeypatch).apply(steps, print)
    assert tool.seen() == []


def test_a_policy_that_does_not_count_yet_is_waited_for(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    tool.answer(0, 1, f"ServiceError:\n{json.dumps(REFUSAL)}\n")
    made([WHOLE], monkeypatch, clock).apply([Step("rules", command=("os",))], print)
    assert (len(tool.seen()), clock.time) == (2, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"ServiceError:\n{json.dumps({**REFUSAL, 'code': 'X'})}\n", "Not yet (400 X, request r1)"),
        ("Usage: oci\n\nError: no such option\n", "Error: no such option"),
        ("{broken}\n", "{broken}"),
        ("", "it has said nothing"),
    ],
)
def test_a_refusal_is_told_in_the_services_words(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    tool.answer(0, 1, text)
    one = made([replace(WHOLE, bucket="")], monkeypatch)
    steps = one.look()[2]
    with pytest.raises(BackendError) as error:
        one.apply(steps, print)
    assert str(error.value) == (
        f"cannot make bucket b: oci os bucket create ended with 1: {said};"
        " what was made stays: fix it, and run setup.sh again"
    )


def test_what_is_there_after_a_refusal_is_made(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer was lost, or another administrator was faster: all else is made."""
    one = made([replace(WHOLE, bucket="", lifecycle=None), replace(WHOLE, lifecycle=None), WHOLE], monkeypatch)
    tool.answer(0, 1, "BucketAlreadyExists")
    _, _, steps = one.look()
    one.apply(steps, print)
    assert [words[1:3] for words in tool.seen()] == [["bucket", "create"], ["object-lifecycle-policy", "put"]]


def test_what_somebody_else_has_made_and_is_not_seen_yet_is_waited_for(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is told once, so that nobody wonders for what."""
    none, clock, said = replace(WHOLE, bucket=""), Clock(), list[str]()
    for number in range(2):
        refusal = {**REFUSAL, "status": 409, "code": "Conflict", "opc-request-id": f"r{number}"}
        tool.answer(number, 1, f"ServiceError:\n{json.dumps(refusal)}\n")
    one = made([none, none, WHOLE], monkeypatch, clock)
    one.apply(one.look()[2], said.append)
    assert (len(tool.seen()), clock.time) == (2, 5)
    (waiting,) = said
    assert waiting.startswith("cannot make bucket b: ")
    assert "(409 Conflict, request r0)" in waiting
    assert waiting.endswith("looking for up to 300 s")


def test_what_is_never_seen_is_no_success(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    one = made([replace(WHOLE, bucket="")], monkeypatch, clock)
    with pytest.raises(TimedOutError, match="does not show bucket b 300 s after it was made"):
        one.apply(one.look()[2], print)
    assert clock.time == 300
    assert len(tool.seen()) == 1


def test_who_may_not_look_is_told_who_may(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made([WHOLE], monkeypatch)

    def refuse(*_: Any) -> Any:
        raise ServiceError("cannot list policies: no (404 NotAuthorizedOrNotFound, request r); ask", exit_code=77)

    monkeypatch.setattr(setup, "look", refuse)
    with pytest.raises(NotPermittedError, match=r"cannot list policies: .*give them what setup.sh --print prints"):
        one.look()


def test_other_failures_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made([WHOLE], monkeypatch)

    def fail(*_: Any) -> Any:
        raise ServiceError("no answer")

    monkeypatch.setattr(setup, "look", fail)
    with pytest.raises(ServiceError, match=r"^no answer$"):
        one.look()


def test_a_port_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"dask: SCHEDULER_PORT=x, .* ports are a number or first:last"):
        made([WHOLE], monkeypatch, SCHEDULER_PORT="x")


# --- The whole verb -------------------------------------------------------------------------------------------------


@pytest.fixture
def verb(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str], list[str]]]:
    """Return what runs the verb on what it finds, and returns its exit code, what is shown and what is said."""
    monkeypatch.setattr(setup, "Service", lambda _: FakeService())

    def run(
        found: Sequence[Found], *options: str, words: Sequence[str] = ("dask",), **more: str
    ) -> tuple[int, list[str], list[str]]:
        made(found, monkeypatch)
        shown: list[str] = []
        said: list[str] = []
        given = {key: [""] for key in options}
        code = setup.run(words, given, {**GIVEN, **more}, PROJECT_ROOT, show=shown.append, say=said.append)
        assert tool is not None
        return code, shown, said

    return run


def test_a_difference_is_shown_and_nothing_is_made(verb: Callable[..., Any], tool: Tool) -> None:
    code, shown, said = verb([replace(WHOLE, bucket="")])
    assert (code, shown[0].splitlines()[0]) == (0, "+ bucket b")
    assert said == ["1 missing; with --apply, setup.sh makes this", NEVER_SEEN]
    assert tool.seen() == []


def test_a_whole_tenancy_lacks_nothing(verb: Callable[..., Any]) -> None:
    code, shown, said = verb([WHOLE])
    assert (code, said) == (0, [NEVER_SEEN])
    assert shown[0].splitlines()[-1] == "= nothing is missing"
    assert shown[1:] == ["LOG_GROUP_OCID=ocid1.loggroup.oc1..g", "LOG_OCID=ocid1.log.oc1..l"]
    given = {"LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.g", "LOG_OCID": "ocid1.log.oc1.iad.l"}
    assert len(verb([WHOLE], **given)[1]) == 1  # config.env has them


def test_a_bastion_whose_key_nobody_has_told_is_named_with_the_setting(verb: Callable[..., Any]) -> None:
    bastion = {"BASTION_ID": "ocid1.bastion.oc1.iad.b"}
    first, *fix = verb([WHOLE], **bastion)[1][1].splitlines()
    assert first.startswith("? bastion: OCI may not tell the key of host.bastion.us-ashburn-1.oci.oraclecloud.com")
    assert fix[-1].endswith("""cut -d' ' -f2-)'" >>config.env""")
    assert not [text for text in verb([WHOLE], **bastion, BASTION_HOST_KEY="ssh-ed25519 A")[1] if "bastion" in text]


def test_what_was_made_is_told(verb: Callable[..., Any]) -> None:
    code, shown, said = verb([replace(WHOLE, bucket=""), WHOLE], "--apply")
    assert (code, said) == (0, ["made: bucket b", NEVER_SEEN])
    assert shown[-1] == "LOG_OCID=ocid1.log.oc1..l"


def test_what_is_needed_is_printed(verb: Callable[..., Any]) -> None:
    _, (text,), said = verb([WHOLE], "--print")
    assert said == [NEVER_SEEN]
    assert [line for line in text.splitlines() if line.startswith("allow ")] == [one.text for one in statements(NEEDED)]
    _, (variables,), said = verb([WHOLE], "--tfvars")
    assert said == [NEVER_SEEN]
    assert json.loads(variables)["tenancy_ocid"] == TENANCY


def test_a_subnets_blocks_are_read_as_a_launch_reads_them(verb: Callable[..., Any]) -> None:
    _, (variables,), _ = verb([WHOLE], "--tfvars", SUBNET_CIDR="10.0.1.7/24, 10.0.9.0/24")
    assert json.loads(variables)["subnet_cidr"] == "10.0.1.0/24,10.0.9.0/24"
    with pytest.raises(SettingsError, match=r"SUBNET_CIDR=fd00::/64: .*; write the subnet's addresses, as 10\.0"):
        verb([WHOLE], "--print", SUBNET_CIDR="fd00::/64")


def test_print_needs_a_region_alone(tmp_path: Path) -> None:
    def printed(**region: str) -> list[str]:
        shown: list[str] = []
        given = {**GIVEN, "OCI_CLI_CONFIG_FILE": str(tmp_path / "none"), **region}
        setup.run(("dask",), {"--print": [""]}, given, PROJECT_ROOT, show=shown.append, say=lambda _: None)
        return shown

    with pytest.raises(SettingsError, match=r"no identity for OCI: .*; or set OCI_CLI_REGION, which"):
        printed()
    assert printed(OCI_CLI_REGION="eu-frankfurt-1")


def test_without_words_all_frameworks_count(verb: Callable[..., Any]) -> None:
    _, (text,), _ = verb([WHOLE], "--print", words=())
    assert "# Repositories in" in text
    assert "t/dask, t/horovod, t/pytorch, t/ray, t/tensorflow" in text


def test_an_unknown_framework_is_refused(verb: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="unknown framework 'spark'"):
        verb([WHOLE], words=("spark",))


def test_what_nobody_can_see_is_said() -> None:
    found = replace(WHOLE, has_people=None, nodes_rule=None)
    needed = replace(NEEDED, people="d/p", nodes="d/n")
    step = Step("it", ("more",), problem="why")
    assert difference(needed, found, [step]).splitlines() == [
        "! it",
        "    more",
        "    why",
        "? group d/p: groups of that identity domain are not shown here",
        "? dynamic group d/n: likewise; its matching rule is to be:",
        f"    {matching_rule(JOBS)}",
        "? security rules: SUBNET_OCID is not set; OCI_JOB_STYLE=multinode alone needs none",
    ]
