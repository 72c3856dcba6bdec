"""Setup of a tenancy: looks, shows what is missing, and has oci-cli make it."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import oci

from oci_cluster.backends.oci.connect.tunnels import lacking_host_key
from oci_cluster.backends.oci.service import PATIENCE_S, Service, service_environ
from oci_cluster.backends.oci.tenancy.client import NEVER_SEEN, Answer, Tenancy, as_sent, cli
from oci_cluster.backends.oci.tenancy.policy_judge import Access
from oci_cluster.backends.oci.tenancy.requirements import (
    Needed,
    Places,
    at,
    flat_tags,
    lacking_tags,
    lifecycle_rules,
    matching_rule,
    needed_of,
    places_of,
    same_statement,
    statements,
    with_tags,
)
from oci_cluster.backends.oci.tenancy.security_rules import (
    JSON,
    SECURITY_LIST,
    Rules,
    SecurityList,
    Subnet,
    blocks_in,
    missing_rules,
    ports_of,
    rule_line,
    security_rules,
)
from oci_cluster.contract.settings.settings_files import framework_dir
from oci_cluster.errors import (
    BackendError,
    ClusterError,
    ExitCode,
    NotPermittedError,
    SettingsError,
    TimedOutError,
    UsageError,
)
from oci_cluster.system.console import Say

#: In the words of a command: OCIDs of what the step before makes.
_NEW = "<OCID of the new "
NEW_LIST, _NEW_GROUP = f"{_NEW}security list>", f"{_NEW}log group>"
# The log of all nodes in the log group: so nobody makes logs at a launch, and nobody needs to manage log groups.
_LOG = "nodes"
# Source: OCI's documentation of security lists: "up to five security lists with a given subnet".
_MOST_LISTS = 5
# In what is printed without asking, whose reader knows the addresses: any network, which is replaced by words.
_SOME_CIDR, _CIDR = "192.0.2.0/24", "<CIDR of the subnet>"
# Until what was made is seen: a policy about objects may need several minutes, as Oracle's documentation has it.
_PATIENCE_S = 300.0
_PAUSE_S = 5.0
# Of a thousand objects each, when those of today are counted.
_MOST_PAGES = 10
# What passes by itself: the policy that allows it was made a moment ago.
_PASSING = "InsufficientServicePermissions"
# Somebody else, or an answer that was lost, was faster: a look tells. Source: OCI's documentation of API errors.
_FASTER = re.compile(r" \((409|412) ")
_ADMINISTRATOR = "this is for an administrator of the tenancy: give them what setup.sh --print prints"
# oci-cli: seconds to connect, between two bytes, and tries of what the service throttles or fails.
_CLI_WORDS = ("--connection-timeout", "10", "--read-timeout", "60", "--max-retries", "4")


@dataclass(frozen=True)
class Policy:
    """Our policy, which is there."""

    id: str
    statements: tuple[str, ...]
    etag: str = ""
    version_date: str = ""


@dataclass(frozen=True)
class Found:
    """Contents of a tenancy: empty is nothing, None is not seen.

    Identity can be changed in *home_region* alone. *has_runs*: the Job Runs match *nodes_rule*. No policy allows what
    is *lacking*; *unsure* is there, and another statement may deny it. *lifecycle* is None without such a policy.
    *expiring* says which objects of today our rule, which lacks, would delete. *elsewhere*: by kind, a group of an
    identity domain that policies name, if one of that name is not in the domain Default. *required_tags* are those of
    all compartments in which something may be made.
    """

    tenancy: str
    jobs: str
    images: str
    namespace: str
    home_region: str
    has_people: bool | None = False
    nodes_rule: str | None = ""
    has_runs: bool | None = False
    lacking: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    policy: Policy | None = None
    bucket: str = ""
    lifecycle: Sequence[JSON] | None = None
    lifecycle_etag: str = ""
    expiring: str = ""
    repositories: Mapping[str, str] = field(default_factory=dict)
    log_group: str = ""
    log: str = ""
    subnet: Subnet | None = None
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    required_tags: Answer = field(default_factory=lambda: Answer([]))


@dataclass(frozen=True)
class Step:
    """A missing thing: oci-cli's words that make it, or why a person must.

    Its maker *needs* a right, as statements say it.
    """

    item: str
    lines: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    problem: str = ""
    needs: str = ""


# --- What is there ---------------------------------------------------------------------------------------------------


def look(tenancy: Tenancy, needed: Needed) -> tuple[Needed, Found]:
    """Return what is *needed* at the places where things were found, and those things."""
    places = tenancy.places
    for one in [] if tenancy.id else tenancy.chain(places.jobs):
        tenancy.compartment(one.id).or_raise()  # which of them is not seen
    namespace = str(tenancy.namespace.or_raise())
    if places.namespace not in {"", namespace}:
        msg = f"WORK_DIR is in the namespace {places.namespace}, and this tenancy has {namespace}"
        raise SettingsError(f"{msg}; set oci://{needed.bucket}@{namespace}/...")
    subnet = tenancy.security_lists() if places.subnet else None
    if places.log_group:
        tenancy.log_group.or_raise()  # which compartment it is in must be known
    bucket, lifecycle, etag = _found_bucket(tenancy, needed.bucket)
    needed = tenancy.placed(needed)
    access = Access(tenancy, needed, makes_groups=True)
    rule, has_runs = _found_nodes(access)
    lacking, unsure = _found_statements(access)
    regions = tenancy.ask("look up the home region", tenancy.identity.list_region_subscriptions, tenancy.id).or_raise()
    log_group, log = _found_log(tenancy, needed)
    return needed, Found(
        tenancy=tenancy.id,
        jobs=places.jobs,
        images=places.images,
        namespace=namespace,
        home_region=next(str(item.region_name) for item in regions if item.is_home_region),
        has_people=_has_people(access),
        nodes_rule=rule,
        has_runs=has_runs,
        lacking=lacking,
        unsure=unsure,
        policy=_found_policy(access),
        bucket=bucket,
        lifecycle=lifecycle,
        lifecycle_etag=etag,
        expiring=_expiring(tenancy, needed) if bucket and _deletes_more(needed, lifecycle) else "",
        repositories=_found_repositories(tenancy, needed),
        log_group=log_group,
        log=log,
        subnet=subnet,
        elsewhere={
            "group": access.elsewhere("group", needed.people),
            "dynamic-group": access.elsewhere("dynamic-group", needed.nodes),
        },
        required_tags=_required_tags(
            tenancy, [tenancy.id, places.jobs, places.images, subnet.compartment if subnet else ""]
        ),
    )


def _required_tags(tenancy: Tenancy, compartments: Iterable[str]) -> Answer:
    """Return the tags required in these *compartments*; also why some are not seen."""
    answers = [tenancy.required_tags(one) for one in dict.fromkeys(compartments) if one]
    refusal = next((answer.refusal for answer in answers if not answer.is_given), None)
    return Answer([name for answer in answers for name in answer.value or []], refusal)


def _found_log(tenancy: Tenancy, needed: Needed) -> tuple[str, str]:
    """Return the log group, and the log of all nodes in it."""
    logging, group = tenancy.client(oci.logging.LoggingManagementClient), tenancy.places.log_group
    if name := needed.log_group:
        asked = {"display_name": name}
        groups = tenancy.ask_all("list log groups", logging.list_log_groups, tenancy.places.jobs, **asked).or_raise()
        group = str(groups[0].id) if groups else ""
    if not (group and needed.log):
        return group, ""
    asked = {"display_name": needed.log, "log_type": "CUSTOM"}
    logs = tenancy.ask_all("list logs", logging.list_logs, group, **asked).or_raise()
    return group, str(logs[0].id) if logs else ""


def _has_people(access: Access) -> bool | None:
    answer = access.people
    return None if _is_hidden(access.needed.people, answer) else bool(answer.or_raise())


def _is_hidden(group: str, answer: Answer) -> bool:
    """Return whether *group* is of an identity domain that shows no groups."""
    return "/" in group and not answer.is_given and not isinstance(answer.refusal, SettingsError)


def _found_nodes(access: Access) -> tuple[str | None, bool | None]:
    """Return the rule of the dynamic group, and whether it has the Job Runs."""
    answer = access.nodes
    if _is_hidden(access.needed.nodes, answer):
        return None, None
    own = answer.or_raise()  # a group that is not seen is none that is not there
    return ("", False) if own is None else (str(own.matching_rule), access.has_runs(own))


def _found_statements(access: Access) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the statements that are missing, and those that others may deny."""
    for _, answer in access.policies:
        answer.or_raise()  # a statement that is not seen may be there
    there = {same_statement(given.text) for given in access.there}
    judged = {one.text: access.allows(one) for one in statements(access.needed)}
    unsure = [text for text, said in judged.items() if not said.is_allowed]
    lacking = tuple(text for text in unsure if same_statement(text) not in there and not judged[text].denial)
    return lacking, tuple(
        " by ".join(filter(None, (text, judged[text].denial))) for text in unsure if text not in lacking
    )


def _found_policy(access: Access) -> Policy | None:
    tenancy = access.tenancy
    for home, answer in access.policies:
        for item in answer.or_raise() if home == tenancy.id else ():
            if item.name == access.needed.policy:
                own = tenancy.ask("read the policy", tenancy.identity.get_policy, item.id)
                version = getattr(own.or_raise(), "version_date", None)
                dated = f"{version:%Y-%m-%d}" if version else ""
                return Policy(own.value.id, tuple(own.value.statements), own.etag, dated)
    return None


def _found_bucket(tenancy: Tenancy, name: str) -> tuple[str, list[dict[str, Any]] | None, str]:
    """Return the bucket's compartment, and the rules of its lifecycle policy with their etag."""
    bucket, storage = tenancy.bucket(name), tenancy.storage
    if bucket.code == "BucketNotFound":
        return "", None, ""
    home, where = str(bucket.or_raise().compartment_id), (tenancy.namespace.value, name)
    rules = tenancy.ask("read the bucket's lifecycle policy", storage.get_object_lifecycle_policy, *where)
    if rules.code == "LifecyclePolicyNotFound":
        return home, None, ""
    return home, [as_sent(storage, item) for item in rules.or_raise().items], rules.etag


def _found_repositories(tenancy: Tenancy, needed: Needed) -> dict[str, str]:
    every = {name: tenancy.repository(name).or_raise() for name in needed.repositories}
    return {name: str(one.compartment_id) for name, one in every.items() if one}


# --- What is missing -------------------------------------------------------------------------------------------------


def steps_of(needed: Needed, found: Found, rules: Rules) -> list[Step]:
    """Return what is missing, in an order that works."""
    root, jobs = at(found.tenancy), at(found.jobs)
    steps = [*_people(needed, found), *_nodes(needed, found)]
    for name in needed.repositories:
        if name not in found.repositories:
            make = cli("artifacts container repository create", compartment_id=found.images, display_name=name)
            steps.append(Step(f"repository {name}", (), make, needs=f"manage repos in {at(found.images)}"))
    logs = f"manage log-groups in {needed.logs or jobs}"
    if needed.log_group and not found.log_group:
        where = {"compartment_id": found.jobs, "display_name": needed.log_group, "wait_for_state": "SUCCEEDED"}
        steps.append(Step(f"log group {needed.log_group}", (), cli("logging log-group create", **where), needs=logs))
    if needed.log and not found.log:
        where = {"log_group_id": found.log_group or _NEW_GROUP, "display_name": needed.log, "log_type": "CUSTOM"}
        make = cli("logging log create", **where, wait_for_state="SUCCEEDED")
        steps.append(Step(f"log {needed.log}", (), make, needs=logs))
    if not found.bucket:
        where = {"namespace": found.namespace, "compartment_id": found.jobs, "name": needed.bucket}
        make = cli("os bucket create", **where)
        steps.append(Step(f"bucket {needed.bucket}", (), make, needs=f"manage buckets in {jobs}"))
    policy = [replace(step, needs=f"manage policies in {root}") for step in _policy(needed, found)]
    lifecycle = [
        replace(step, needs=f"manage object-family in {needed.bucket_in}") for step in _lifecycle(needed, found)
    ]
    network = network_steps(found.subnet, rules) if found.subnet else ()
    lists = f"manage security-lists in {needed.network}"
    every = [*steps, *policy, *lifecycle, *(replace(step, needs=lists) for step in network)]
    return _tagged(every, needed, found)


def _tagged(steps: Sequence[Step], needed: Needed, found: Found) -> list[Step]:
    """Return *steps* with the tags of what they make, and what is required besides."""
    options = ("--defined-tags", json.dumps(needed.tags)) if needed.tags else ()
    tagged = [replace(step, command=(*step.command, *options)) if _makes(step) else step for step in steps]
    lacking = lacking_tags(needed.tags, found.required_tags.value)
    if lacking and any(map(_makes, steps)):
        told = f"{', '.join(lacking)}: all that is made there must have them; set {with_tags(needed.tags, lacking)}"
        tagged.append(Step("required tags", problem=told))
    return tagged


def _makes(step: Step) -> bool:
    """Return whether *step* makes something; its name may be ``create`` as well."""
    return "create" in itertools.takewhile(lambda word: not word.startswith("--"), step.command)


def _people(needed: Needed, found: Found) -> Iterator[Step]:
    item = f"group {needed.people}"
    if found.has_people is False and "/" in needed.people:
        yield Step(item, problem=f"{item} is not in that identity domain: make it there, in the Console")
    elif found.has_people is False and (other := found.elsewhere.get("group")):
        yield Step(item, problem=_elsewhere(item, other, "PEOPLE_GROUP"))
    elif found.has_people is False:
        lines = ("nobody is in it yet: oci iam group add-user",)
        make = cli("iam group create", name=needed.people, description="Launch clusters", region=found.home_region)
        yield Step(item, lines, make, needs=f"manage groups in {at(found.tenancy)}")


def _elsewhere(item: str, other: str, setting: str) -> str:
    found = f"{item}: there is none in the domain Default, and policies name {other}"
    return f"{found}: set {setting} to that, or to a name that is free"


def _nodes(needed: Needed, found: Found) -> Iterator[Step]:
    rule, item = matching_rule(found.jobs), f"dynamic group {needed.nodes}"
    if found.nodes_rule == "" and "/" in needed.nodes:
        problem = f"{item} is not in that identity domain: make it there, in the Console, with the rule {rule}"
        yield Step(item, (rule,), problem=problem)
    elif found.nodes_rule == "" and (other := found.elsewhere.get("dynamic-group")):
        yield Step(item, (rule,), problem=_elsewhere(item, other, "NODES_GROUP"))
    elif found.nodes_rule == "":
        what = {"name": needed.nodes, "description": "Job Runs of clusters", "matching_rule": rule}
        make = cli("iam dynamic-group create", **what, region=found.home_region)
        yield Step(item, (rule,), make, needs=f"manage dynamic-groups in {at(found.tenancy)}")
    elif found.nodes_rule and found.has_runs is False:
        problem = (
            f"{item} has another matching rule, {found.nodes_rule}, and other things may rely on it: set NODES_GROUP to"
            f" a name that is free, or have its rule say {rule}, too"
        )
        yield Step(item, (rule,), problem=problem)


def _policy(needed: Needed, found: Found) -> Iterator[Step]:
    lacking, own = found.lacking, found.policy
    if not lacking:
        return
    item = f"policy {needed.policy}"
    if own is None:
        what = {"compartment_id": found.tenancy, "name": needed.policy, "description": "Data Science clusters"}
        command = cli("iam policy create", **what, statements=json.dumps(lacking), region=found.home_region)
    else:
        # oci-cli wants a version together with statements: the policy's own; empty is the current one.
        every = json.dumps([*own.statements, *lacking])
        what = {"statements": every, "version_date": own.version_date, "if_match": own.etag}
        command = cli("iam policy update", "--force", policy_id=own.id, **what, region=found.home_region)
    yield Step(item, tuple(lacking), command)


def _expiring(tenancy: Tenancy, needed: Needed) -> str:
    """Return how many objects of today our rule would delete; empty for none."""
    storage, where, count, old = tenancy.storage, (tenancy.namespace.value, needed.bucket), 0, 0
    below, days = (f"{needed.prefix}/" if needed.prefix else "", needed.keep_days)
    since = datetime.now(timezone.utc) - timedelta(days=days)
    asked: JSON = {"prefix": below, "fields": "name,timeModified", "limit": 1000}
    for _ in range(_MOST_PAGES):
        answer = tenancy.ask("list the objects of today", storage.list_objects, *where, **asked)
        if not answer.is_given:
            return f"how many objects of today that deletes is not known: {answer.why}"
        count += len(answer.value.objects)
        old += sum(one.time_modified is not None and one.time_modified < since for one in answer.value.objects)
        asked["start"] = answer.value.next_start_with
        if not asked["start"]:
            break
    if not count:
        return ""
    told = f"that deletes {'more than ' if asked['start'] else ''}{count} objects of today below {below or 'its root'}"
    return f"{told}: {old} are older than {days} days, the others will be; KEEP_CLUSTERS_DAYS=0 deletes none"


def _deletes_more(needed: Needed, given: Sequence[JSON] | None) -> bool:
    return any(rule["action"] == "DELETE" for rule in _lacking_rules(needed, given))


def _lacking_rules(needed: Needed, given: Sequence[JSON] | None) -> list[JSON]:
    there = [_as_ours(rule) for rule in given or []]
    return [rule for rule in _wanted_rules(needed, there) if rule not in there]


def _wanted_rules(needed: Needed, there: Sequence[JSON]) -> Iterator[JSON]:
    """Yield our rules. One gets another name where the usual one has another work dir's: two teams, one bucket."""
    taken = {rule["name"]: rule.get("objectNameFilter") for rule in there}
    for rule in lifecycle_rules(needed):
        below = rule.get("objectNameFilter")
        if below and taken.get(rule["name"], below) != below:
            own = hashlib.sha256(json.dumps(below).encode()).hexdigest()[:8]
            yield {**rule, "name": f"{rule['name']}-{own}"}
        else:
            yield rule


def _lifecycle(needed: Needed, found: Found) -> Iterator[Step]:
    given = list(found.lifecycle or [])
    lacking = _lacking_rules(needed, given)
    if not lacking:
        return
    names = {rule["name"] for rule in lacking}
    every = [*(rule for rule in given if rule["name"] not in names), *lacking]
    where = {"namespace": found.namespace, "bucket_name": needed.bucket, "items": json.dumps(every)}
    # Whoever changes it meanwhile must not lose a rule.
    guard = {"if_match": found.lifecycle_etag} if found.lifecycle is not None else {"if_none_match": "*"}
    words = cli("os object-lifecycle-policy put", "--force", **where, **guard)
    yield Step(
        f"lifecycle rules of bucket {needed.bucket}",
        (*map(_lifecycle_line, lacking), *filter(None, [found.expiring])),
        words,
    )


def _as_ours(rule: Mapping[str, Any]) -> JSON:
    names = {name: value for name, value in (rule.get("objectNameFilter") or {}).items() if value}
    return {name: value for name, value in {**rule, "objectNameFilter": names}.items() if value not in (None, {})}


def _lifecycle_line(rule: JSON) -> str:
    below = f" below {rule['objectNameFilter']['inclusionPrefixes'][0]}" if "objectNameFilter" in rule else ""
    return f"{rule['name']}: {rule['action']} {rule['target']}{below} after {rule['timeAmount']} days"


def network_steps(subnet: Subnet, rules: Rules) -> Iterator[Step]:
    """Yield what gives the security lists of *subnet* the *rules* that they lack."""
    ingress, egress = missing_rules(subnet.rules, rules)
    if not ingress and not egress:
        return
    item = f"security list {SECURITY_LIST}"
    lines = tuple(map(rule_line, [*ingress, *egress]))
    own = next((one for one in subnet.lists if one.name == SECURITY_LIST), None)
    if own is None and len(subnet.lists) >= _MOST_LISTS:
        names = ", ".join(one.name for one in subnet.lists)
        problem = (
            f"the subnet has {len(subnet.lists)} security lists, {names}, and may have {_MOST_LISTS}: add the rules to"
            " one of them, or take one away"
        )
        yield Step(item, lines, problem=problem)
    elif own is not None:
        yield _with_rules(item, lines, own, ingress, egress)
    elif subnet.unused is not None:
        left = missing_rules((subnet.unused.ingress, subnet.unused.egress), rules)
        if any(left):
            yield _with_rules(item, lines, subnet.unused, *left)
        yield _attached(subnet, subnet.unused.id)
    else:
        where = {"compartment_id": subnet.compartment, "vcn_id": subnet.vcn, "display_name": SECURITY_LIST}
        yield Step(item, lines, cli("network security-list create", **where, **_as_options(*rules)))
        yield _attached(subnet, NEW_LIST)


def _with_rules(
    item: str, lines: tuple[str, ...], own: SecurityList, ingress: Sequence[JSON], egress: Sequence[JSON]
) -> Step:
    every = _as_options([*own.ingress, *ingress], [*own.egress, *egress])
    where = {"security_list_id": own.id, **every, "if_match": own.etag}
    return Step(item, lines, cli("network security-list update", "--force", **where))


def _as_options(ingress: Sequence[JSON], egress: Sequence[JSON]) -> dict[str, str]:
    return {"ingress_security_rules": json.dumps(ingress), "egress_security_rules": json.dumps(egress)}


def _attached(subnet: Subnet, new: str) -> Step:
    every = json.dumps([*(one.id for one in subnet.lists), new])
    words = {"subnet_id": subnet.id, "security_list_ids": every, "if_match": subnet.etag}
    return Step("security lists of the subnet", (SECURITY_LIST,), cli("network subnet update", "--force", **words))


# --- What is made ----------------------------------------------------------------------------------------------------


class Setup:
    """A setup of the tenancy for *frameworks*, by the settings *given*."""

    def __init__(
        self,
        service: Service,
        given: Mapping[str, str],
        root: Path,
        frameworks: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.service = service
        self._given = given
        self._clock = clock
        self._sleep = sleep
        self._tenancy = Tenancy(service, given, patience_s=PATIENCE_S)
        needed = needed_of(given, frameworks, given.get("OCI_CLI_REGION") or service.region)
        self.needed = replace(needed, log=_LOG if needed.logs and needed.makes_logs else "", makes_logs=False)
        self._placed = self.needed  # where the last look has found things
        self.ports = {name: ports_of(root, name, given) for name in frameworks}

    @property
    def tenancy(self) -> str:
        """The OCID of the caller's tenancy; empty for who has none in a profile."""
        return str(self.service.identity[0].get("tenancy", ""))

    def rules(self, cidr: str) -> Rules:
        """Return the security rules for nodes in *cidr*, one block or several."""
        return security_rules(list(filter(None, cidr.split(","))), self.ports)

    def look(self) -> tuple[Needed, Found, list[Step]]:
        """Return what is needed, what there is, and what is missing."""
        self._tenancy = Tenancy(self.service, self._given, patience_s=PATIENCE_S)
        try:
            self._placed, found = look(self._tenancy, self.needed)
        except ClusterError as error:
            if error.exit_code != ExitCode.NOT_PERMITTED:
                raise
            raise NotPermittedError(f"{error.reason}; {_ADMINISTRATOR}") from error
        rules = self.rules(",".join(found.subnet.blocks)) if found.subnet else ([], [])
        return self._placed, found, steps_of(self._placed, found, rules)

    def apply(self, steps: Sequence[Step], say: Say) -> None:
        """Have oci-cli make *steps*, if it can make all; wait until they are seen."""
        self._check(steps)
        deadline, made, told = self._clock() + _PATIENCE_S, set[str](), set[Sequence[str]]()
        while steps:
            before = len(made)
            refused = self._make(steps, made, say)
            if len(made) > before:
                deadline = self._clock() + _PATIENCE_S
            steps, is_late = self.look()[2], self._clock() >= deadline
            if refused and any(step.command == refused[0] for step in steps):
                if is_late or not _FASTER.search(str(refused[1])):
                    raise refused[1]
                if refused[0] not in told:
                    told.add(refused[0])
                    said = str(refused[1]).partition("; ")[0]
                    say(f"{said}; it may be there, and not be seen yet: looking for up to {_PATIENCE_S:g} s")
            elif steps and is_late:
                items = ", ".join(step.item for step in steps)
                raise TimedOutError(
                    f"OCI does not show {items} {_PATIENCE_S:g} s after it was made; run setup.sh again"
                )
            elif refused or len(made) > before:
                continue
            if steps:
                self._sleep(_PAUSE_S)

    def _make(self, steps: Sequence[Step], made: set[str], say: Say) -> tuple[Sequence[str], BackendError] | None:
        """Make what is not *made*, up to a command that fails."""
        for step in steps:
            if step.item in made or any(_NEW in word for word in step.command):
                continue  # what needs the OCID of another thing waits until that is seen
            try:
                self._cli(step.item, step.command)
            except BackendError as error:
                return step.command, error
            made.add(step.item)
            say(f"made: {step.item}")
        return None

    def _check(self, steps: Sequence[Step]) -> None:
        """Refuse what cannot all be made, before anything is."""
        if problems := [step.problem for step in steps if step.problem]:
            raise SettingsError("; ".join(problems))
        access = Access(self._tenancy, self._placed)
        if lacking := {step.needs: None for step in steps if access.may_caller(step.needs) is False}:
            groups = ", ".join(sorted(access.groups_of_caller))
            msg = f"no policy allows your groups, {groups}, to {' or to '.join(lacking)}; nothing was made"
            raise NotPermittedError(f"{msg}; {_ADMINISTRATOR}")

    def _cli(self, item: str, words: Sequence[str]) -> str:
        command = [str(Path(sys.executable).with_name("oci")), *_CLI_WORDS, *words]
        deadline = self._clock() + _PATIENCE_S
        while True:
            done = subprocess.run(  # noqa: S603 - oci-cli of our own environment
                command,
                env={**self.service.environ, "OCI_CLI_SUPPRESS_FILE_PERMISSIONS_WARNING": "True"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            if _PASSING not in done.stderr or self._clock() >= deadline:
                break
            self._sleep(_PAUSE_S)
        msg = f"cannot make {item}: oci {shlex.join(words[:3])} ended with {done.returncode}: {_said(done.stderr)}"
        raise BackendError(f"{msg}; what was made stays: fix it, and run setup.sh again")


def run(
    words: Sequence[str],
    options: Mapping[str, Sequence[str]],
    given: Mapping[str, str],
    root: Path,
    *,
    show: Say,
    say: Say,
) -> int:
    """Run ``setup`` for the frameworks *words*, or for all; return the exit code."""
    frameworks = list(dict.fromkeys(words)) or sorted(path.parent.name for path in root.glob("*/start-master.sh"))
    for name in frameworks:
        try:
            framework_dir(name, root)
        except ValueError as error:
            raise UsageError(str(error)) from error
    service = Service(service_environ(given))
    if "--print" in options:
        given = _with_region(given, service)
    setup = Setup(service, given, root, frameworks)
    if text := _of_needed(options, setup, given):
        show(text)
    else:
        _show_and_apply(setup, given, is_applied="--apply" in options, show=show, say=say)
    say(NEVER_SEEN)
    return 0


def _show_and_apply(setup: Setup, given: Mapping[str, str], *, is_applied: bool, show: Say, say: Say) -> None:
    needed, found, steps = setup.look()
    show(difference(needed, found, steps))
    if lacking := lacking_host_key(given, setup.service):
        show("\n    ".join([f"? bastion: {lacking[0]}", *lacking[1].splitlines()]))
    if steps and not is_applied:
        say(f"{len(steps)} missing; with --apply, setup.sh makes this")
        return
    if steps:
        setup.apply(steps, say)
        _, found, _ = setup.look()
    for name, ocid in (("LOG_GROUP_OCID", found.log_group), ("LOG_OCID", found.log)):
        if ocid and not given.get(name):  # what config.env still lacks
            show(f"{name}={ocid}")


def _of_needed(options: Mapping[str, Sequence[str]], setup: Setup, given: Mapping[str, str]) -> str:
    """Return what is needed, as *options* want it printed; empty without such an option."""
    places, cidr = places_of(given), _cidr(given.get("SUBNET_CIDR", ""))
    if "--print" in options:
        return for_administrator(setup.needed, places, cidr, setup.rules)
    if "--tfvars" in options:
        return variables(setup.needed, places, setup.tenancy, cidr, setup.rules)
    return ""


def _with_region(given: Mapping[str, str], service: Service) -> Mapping[str, str]:
    """Return *given* with the region: all that ``--print`` has to know of the caller."""
    try:
        return {**given, "OCI_CLI_REGION": given.get("OCI_CLI_REGION") or service.region}
    except SettingsError as error:
        raise SettingsError(f"{error.reason}; or set OCI_CLI_REGION, which is enough for --print") from error


def _cidr(text: str) -> str:
    """Return the blocks of ``SUBNET_CIDR`` in one form."""
    try:
        return ",".join(map(str, blocks_in(text))) if text else ""
    except ValueError as error:
        raise SettingsError(f"SUBNET_CIDR={text}: {error}; write the subnet's addresses, as 10.0.1.0/24") from error


def _said(text: str) -> str:
    """Return oci-cli's words of a refusal: message and code, else the last line."""
    start = text.find("{")
    try:
        about = json.loads(text[start : text.rindex("}") + 1])
        return f"{about['message']} ({about['status']} {about['code']}, request {about['opc-request-id']})"
    except (ValueError, KeyError, TypeError):
        return next(reversed([line.strip() for line in text.splitlines() if line.strip()]), "it has said nothing")


# --- What is printed -------------------------------------------------------------------------------------------------


def difference(needed: Needed, found: Found, steps: Sequence[Step]) -> str:
    """Return what is missing, line by line, and what nobody could look at."""
    lines = []
    for step in steps:
        lines.append(f"{'!' if step.problem else '+'} {step.item}")
        lines += [f"    {line}" for line in step.lines]
        lines += [f"    {step.problem}"] if step.problem else []
    if found.has_people is None:
        lines.append(f"? group {needed.people}: groups of that identity domain are not shown here")
    if found.nodes_rule is None:
        lines.append(f"? dynamic group {needed.nodes}: likewise; its matching rule is to be:")
        lines.append(f"    {matching_rule(found.jobs)}")
    elif found.nodes_rule and found.has_runs is None:
        lines.append(
            f"? dynamic group {needed.nodes}: whether it has the Job Runs, its rule does not tell; it is to be:"
        )
        lines.append(f"    {matching_rule(found.jobs)}")
    if not found.required_tags.is_given:
        lines.append(f"? required tags: {found.required_tags.why}")
    lines += [f"? policies: a statement denies this, or may: {text}" for text in found.unsure]
    if found.subnet is None:
        lines.append("? security rules: SUBNET_OCID is not set; OCI_JOB_STYLE=multinode alone needs none")
    if not steps:
        lines.append("= nothing is missing")
    return "\n".join(lines)


def for_administrator(needed: Needed, places: Places, cidr: str, rules: Callable[[str], Rules]) -> str:
    """Return all that an administrator needs; OCI takes lines without # as they are."""
    ingress, egress = rules(cidr or _SOME_CIDR)
    lines = [f"# Group of those who launch: {needed.people}"]
    lines += [f"# Dynamic group {needed.nodes}, its matching rule:", matching_rule(places.jobs)]
    lines += [f"# Policy {needed.policy}, in the root compartment:"]
    for statement in statements(needed):
        lines += [f"#   {statement.why}:", statement.text]
    lines += ["# Rules of the subnet's security list, all stateful:"]
    lines += [f"#   {rule_line(rule).replace(_SOME_CIDR, _CIDR)}" for rule in (*ingress, *egress)]
    lines += [f"# Bucket {needed.bucket} in {places.jobs}"]
    if kept := lifecycle_rules(needed):
        lines += ["# Its lifecycle policy:", *(f"#   {json.dumps(rule)}" for rule in kept)]
    lines += [f"# Repositories in {places.images}: {', '.join(needed.repositories)}"]
    lines += [f"# Log group {needed.log_group} in {places.jobs}"] if needed.log_group else []
    lines += [f"# Custom log {needed.log} in the log group"] if needed.log else []
    return "\n".join(lines)


def variables(needed: Needed, places: Places, tenancy: str, cidr: str, rules: Callable[[str], Rules]) -> str:
    """Return ``terraform.tfvars.json``, without what is not known."""
    if domains := [group for group in (needed.people, needed.nodes) if "/" in group]:
        msg = f"{', '.join(domains)}: the templates for Terraform make groups of the identity domain Default alone"
        raise SettingsError(f"{msg}; make these yourself, and use --print")
    ingress, _ = rules(cidr or _SOME_CIDR)
    spans = [rule["tcpOptions"]["destinationPortRange"] for rule in ingress if rule["source"] == ingress[0]["source"]]
    found = {
        "tenancy_ocid": tenancy,
        "compartment_ocid": places.jobs,
        "images_compartment_ocid": places.images,
        "network_compartment_ocid": places.network,
        "region": needed.region,
        "namespace": places.namespace,
        "people_group": needed.people,
        "nodes_group": needed.nodes,
        "policy_name": needed.policy,
        "bucket": needed.bucket,
        "prefix": needed.prefix,
        "keep_clusters_days": needed.keep_days,
        "repositories": list(needed.repositories),
        "secrets_compartment_ocid": needed.secrets_in.partition("compartment id ")[2],
        "secrets": list(needed.secrets),
        "uses_logging": bool(needed.logs),
        "log_group_name": needed.log_group,
        "log_group_ocid": places.log_group,
        "log_name": needed.log,
        "subnet_cidr": cidr,
        "node_ports": spans,
        "defined_tags": flat_tags(needed.tags),
    }
    return json.dumps(
        {name: value for name, value in found.items() if value != "" or name in {"log_group_name", "log_name"}},
        indent=2,
    )
