"""Checks that compartment, project, bucket, log group and bastion are there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import oci

from oci_cluster.backends.findings import Checked, Finding, Verdict, advice, fails, fine, unknown
from oci_cluster.backends.oci.connect.tunnels import lacking_host_key
from oci_cluster.backends.oci.tenancy.client import ALIVE, Answer, Tenancy, cli, for_shell
from oci_cluster.backends.oci.tenancy.policy_judge import Access
from oci_cluster.backends.oci.tenancy.requirements import Needed, lacking_tags, needed_of, statements, with_tags
from oci_cluster.errors import ClusterError, SettingsError
from oci_cluster.images.records import pushed_image

CREDENTIALS, NAMESPACE, COMPARTMENT, PROJECT = "credentials", "namespace", "compartment", "project"
BUCKET, LOG_GROUP, BASTION, MEMBER, TAGS = "bucket", "log group", "bastion", "your group", "required tags"
# What the probe has in it: read back, it tells that nothing stands in between.
_PROBE = b"made by check.sh; it may be deleted\n"
_PATIENCE_S = 20.0  # as for other questions
# Where nothing lacks. Source: Oracle's page about access to objects: a policy may need several minutes.
_NEW_POLICY = "# policies allow this: one that was made a moment ago may count in some minutes"


def credentials(tenancy: Tenancy) -> Finding:
    """Return whether OCI knows who asks."""
    try:
        answer = tenancy.namespace
    except SettingsError as error:
        return fails(CREDENTIALS, error.reason, error.next_step)
    if answer.is_given:
        return fine(CREDENTIALS, f"OCI in {tenancy.service.region} knows who asks")
    if answer.is_refused and answer.refusal:
        return fails(CREDENTIALS, answer.why, answer.refusal.next_step)
    return unknown(CREDENTIALS, answer.why)


def needed_by(checked: Checked, tenancy: Tenancy) -> Needed:
    """Return what this launch needs of the tenancy, where things were found."""
    given, places = dict(checked.given), tenancy.places
    # As the launch does: without REGISTRY, the image that was pushed says where images are.
    given["IMAGE"] = pushed_image(
        given.get("IMAGE", "").replace("{framework}", checked.framework), checked.framework, checked.root
    )
    if not places.log_group:
        given["LOG_GROUP_NAME"] = "none"  # setup.sh would make one, and the launch does not use it
    if checked.plan is not None:  # --env counts, too
        given["VAULT_SECRETS"] = checked.plan.environment.get("VAULT_SECRETS", "")
    needed = needed_of(given, [checked.framework], given.get("OCI_CLI_REGION") or tenancy.service.region)
    return tenancy.placed(needed)


def right(tenancy: Tenancy, needed: Needed, what: str) -> str:
    """Return statements, or the group, that give a refused caller people's rights about *what*.

    Empty: policies give them to the caller already, so what was refused is not there.
    """
    own = [one for one in statements(needed) if one.of == "people" and f" {what} in " in one.text]
    access = Access(tenancy, needed)
    if all(access.may_caller(one.text.partition(" to ")[2]) for one in own):
        return ""
    if access.is_caller_outside and all(access.allows(one).is_allowed for one in own):
        return _join(tenancy, needed)
    return "\n".join(one.text for one in own)


def findings(checked: Checked, tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield what is found of the places that this launch uses, besides its subnet."""
    places = _Places(tenancy, needed)
    yield from places.namespace()
    if tenancy.places.jobs:
        yield places.compartment()
    if project := checked.given.get("PROJECT_OCID"):
        yield places.project(project)
    yield from places.bucket()
    if tenancy.places.log_group:
        yield places.log_group(checked.given.get("LOG_OCID", ""), checked.framework)
    if bastion := checked.given.get("BASTION_ID"):
        yield places.bastion(bastion)
    if lacking := lacking_host_key(checked.given, tenancy.service):
        yield advice(BASTION, *lacking)
    if tenancy.places.jobs:
        yield places.required_tags()


#: Items that only members of the group which launches may see.
OF_GROUP = {COMPARTMENT, PROJECT, BUCKET, LOG_GROUP}


def outside_group(found: Sequence[Finding], tenancy: Tenancy, needed: Needed) -> Finding | None:
    """Return that the caller is in no group, if all its rights are missing."""
    of_group = [one for one in found if one.item in OF_GROUP]
    if len(of_group) < 2 or any(one.verdict is not Verdict.FAILS for one in of_group):
        return None
    text = f"you may do nothing of what {needed.people} is to be allowed: are you in it?"
    fix = f"{_join(tenancy, needed)}\n# or, where you are: an administrator runs ./scripts/setup.sh"
    return fails(MEMBER, text, fix)


def _join(tenancy: Tenancy, needed: Needed) -> str:
    """Return how somebody puts the caller into the group of those who launch."""
    domain, _, name = needed.people.rpartition("/")
    if domain:
        return f"# Console: Identity > Domains > {domain} > Groups > {name}: add the user"
    find = cli("iam group list", "--raw-output", name=name, query="data[0].id")
    user = tenancy.user or "<OCID of your user>"
    return f'group=$({for_shell(find)}) && oci iam group add-user --group-id "$group" --user-id {user}'


@dataclass(frozen=True)
class _Places:
    """The places of one launch."""

    tenancy: Tenancy
    needed: Needed

    @property
    def _science(self) -> Any:
        return self.tenancy.client(oci.data_science.DataScienceClient)

    @property
    def _logging(self) -> Any:
        return self.tenancy.client(oci.logging.LoggingManagementClient)

    def _others(self, what: str, request: Any, **kwargs: Any) -> list[Any]:
        """Return others of a kind that are seen in the Jobs' compartment."""
        answer = self.tenancy.ask_all(f"list {what}", request, self.tenancy.places.jobs, **kwargs)
        return list(answer.value) if answer.is_given else []

    def namespace(self) -> Iterator[Finding]:
        given, own = self.tenancy.places.namespace, str(self.tenancy.namespace.value)
        if given == own:
            yield fine(NAMESPACE, own)
        else:
            text = f"WORK_DIR is in the namespace {given}, and this tenancy has {own}"
            yield fails(NAMESPACE, text, f"WORK_DIR={self._work_dir(self.needed.bucket)}")

    def _work_dir(self, bucket: str) -> str:
        return f"oci://{bucket}@{self.tenancy.namespace.value}/{self.needed.prefix}".rstrip("/")

    def bucket(self) -> Iterator[Finding]:
        """Yield whether an object can be written, read, listed and deleted; none is left."""
        if self.tenancy.places.namespace != str(self.tenancy.namespace.value):
            yield unknown(BUCKET, "not looked at, as WORK_DIR is in another namespace")
            return
        if why := self._unusable():
            yield fails(BUCKET, f"bucket {self.needed.bucket}: {why}", self._other_bucket())
            return
        service, storage = self.tenancy.service, self.tenancy.storage
        name = "/".join(filter(None, (self.needed.prefix, f".check-{secrets.token_hex(8)}")))
        where = (self.tenancy.places.namespace, self.needed.bucket)

        def ask(what: str, request: Any, *args: Any, **kwargs: Any) -> Answer:
            try:
                return Answer(service.call(what, request, *where, *args, patience_s=_PATIENCE_S, **kwargs))
            except ClusterError as error:
                return Answer(refusal=error)

        steps: tuple[tuple[str, Callable[[], Answer]], ...] = (
            ("written", lambda: ask("write an object", storage.put_object, name, _PROBE)),
            ("read", lambda: ask("read an object", storage.get_object, name)),
            ("listed", lambda: ask("list objects", storage.list_objects, prefix=name)),
        )
        problem: Finding | None = None
        may_be_there = True
        try:
            for step, take in steps:
                answer = take()
                may_be_there = may_be_there and not (step == "written" and answer.is_refused)
                problem = self._probe_problem(step, name, answer)
                if problem:
                    break
        finally:  # a Ctrl-C leaves nothing either
            if may_be_there:
                answer = ask("delete an object", storage.delete_object, name)
                problem = problem or self._probe_problem("deleted", name, answer)
        yield problem or fine(
            BUCKET, f"an object below {self._work_dir(where[1])} was written, read, listed and deleted"
        )

    def _probe_problem(self, step: str, name: str, answer: Answer) -> Finding | None:
        if not answer.is_given:
            return self._bucket_problem(step, name, answer)
        where, data = f"{name} in bucket {self.needed.bucket} was written", answer.value.data
        if step == "read" and data.content != _PROBE:
            return unknown(BUCKET, f"{where}, and is read as something else")
        if step == "listed" and name not in {one.name for one in data.objects}:
            return unknown(BUCKET, f"{where}, and is not in the list of objects")
        return None

    def _bucket_problem(self, step: str, name: str, answer: Answer) -> Finding:
        bucket, text = self.needed.bucket, f"{name} in bucket {self.needed.bucket} cannot be {step}: {answer.why}"
        if not answer.is_refused:
            return unknown(BUCKET, text)
        if answer.status != 404:
            key = getattr(self.tenancy.bucket(bucket).value, "kms_key_id", None)
            about = f"; the bucket's key {key} may be disabled" if key else ""
            return fails(BUCKET, f"{text}{about}", self._other_bucket())
        own, make = right(self.tenancy, self.needed, "objects"), self._make_bucket(bucket)
        at = (self.tenancy.places.namespace, bucket)
        listed = self.tenancy.ask("list objects", self.tenancy.storage.list_objects, *at, limit=1)
        if step != "written" or listed.is_given:
            return fails(BUCKET, text, own or _NEW_POLICY)
        others = self._buckets()
        if not others.is_given:
            ways = "\n# or: ".join(filter(None, (own, make)))
            return fails(BUCKET, f"{text}; it is not there, or you may not write to it", ways)
        names = [item.name for item in others.value]
        if bucket in names:
            return fails(BUCKET, text, own or _NEW_POLICY)
        text = f"there is no bucket {bucket} in the compartment of the Jobs, and none of another one that you may use"
        fix = [f"WORK_DIR={self._work_dir(names[0])}", f"# or: {make}"] if names else [make]
        return fails(BUCKET, text, "\n".join(fix))

    def _make_bucket(self, name: str) -> str:
        where = {"namespace": str(self.tenancy.namespace.value), "compartment_id": self.tenancy.places.jobs}
        return for_shell(cli("os bucket create", **where, name=name))

    def _other_bucket(self) -> str:
        other = f"{self.needed.bucket}-clusters"
        is_there = other in {one.name for one in self._buckets().value or []}
        return f"{'' if is_there else self._make_bucket(other)}\nWORK_DIR={self._work_dir(other)}".strip()

    def _buckets(self) -> Answer:
        storage, places = self.tenancy.storage, self.tenancy.places
        return self.tenancy.ask_all(
            "list buckets", storage.list_buckets, str(self.tenancy.namespace.value), places.jobs
        )

    def _unusable(self) -> str:
        """Return why no cluster can use the bucket, whatever is allowed; empty if unknown."""
        found = self.tenancy.bucket(self.needed.bucket)
        if not found.is_given:
            return ""
        if found.value.storage_tier == "Archive":
            return "what is written goes to the tier Archive, and can be read hours later"
        if found.value.is_read_only:
            return "it is read-only, as another bucket is replicated to it"
        where = (self.tenancy.places.namespace, self.needed.bucket)
        rules = self.tenancy.ask_all("list retention rules", self.tenancy.storage.list_retention_rules, *where)
        names = ", ".join(str(one.display_name) for one in rules.value or [])
        return f"objects can be neither changed nor deleted, by its retention rules: {names}" if names else ""

    def required_tags(self) -> Finding:
        """Return whether the tags are given that the compartment demands of a Job."""
        answer = self.tenancy.required_tags(self.tenancy.places.jobs)
        if not answer.is_given:
            return unknown(TAGS, answer.why)
        if lacking := lacking_tags(self.needed.tags, answer.value):
            text = f"the compartment demands {', '.join(lacking)} of each Job"
            return fails(TAGS, text, with_tags(self.needed.tags, lacking))
        return fine(TAGS, ", ".join(answer.value) or "none")

    def compartment(self) -> Finding:
        ocid = self.tenancy.places.jobs
        home = self.tenancy.compartment(ocid)
        if home.is_given and (state := getattr(home.value, "lifecycle_state", "ACTIVE")) not in ALIVE:
            text = f"{home.value.name} {ocid} is {state}: nothing can be made there"
            return fails(COMPARTMENT, text, "# COMPARTMENT_OCID=<OCID of a compartment that stays>")
        jobs = self.tenancy.ask("list the Jobs", self._science.list_jobs, ocid, limit=1)
        if jobs.is_given:
            name = f" {home.value.name}" if home.is_given else ""
            return fine(COMPARTMENT, f"the Jobs of compartment{name} {ocid} are seen")
        if not jobs.is_refused:
            return unknown(COMPARTMENT, jobs.why)
        own = right(self.tenancy, self.needed, "data-science-family")
        if home.is_given:
            return fails(
                COMPARTMENT,
                f"{home.value.name} {ocid} is there, and its Jobs are not seen: {jobs.why}",
                own or _NEW_POLICY,
            )
        text = f"COMPARTMENT_OCID {ocid} is not there, or you may not see its Jobs: {jobs.why}"
        project = self.tenancy.project if self.tenancy.given.get("PROJECT_OCID") else Answer()
        if project.value:
            ways = (f"COMPARTMENT_OCID={project.value.compartment_id}", own)
            fix = "\n# or, where it is right: ".join(filter(None, ways))
            return fails(COMPARTMENT, f"{text}; PROJECT_OCID is in another one", fix)
        other = "COMPARTMENT_OCID=<OCID of a compartment that is there>"
        return fails(COMPARTMENT, text, f"{own}\n# or: {other}" if own else f"# {other}")

    def project(self, ocid: str) -> Finding:
        answer = self.tenancy.project
        if answer.is_given and answer.value.lifecycle_state in ALIVE:
            return fine(PROJECT, f"{answer.value.display_name} {ocid}")
        if not answer.is_given and not answer.is_refused:
            return unknown(PROJECT, answer.why)
        is_over = answer.is_given and f"it is {answer.value.lifecycle_state}"
        text = f"PROJECT_OCID {ocid} cannot be used: {is_over or answer.why}"
        if others := self._others("projects", self._science.list_projects):
            named = ", ".join(str(one.display_name) for one in others)
            return fails(PROJECT, f"{text}; there is {named}", f"PROJECT_OCID={others[0].id}")
        make = f"oci data-science project create --compartment-id {self.tenancy.places.jobs} --display-name clusters"
        return fails(PROJECT, text, into_settings("PROJECT_OCID", make))

    def log_group(self, log: str, framework: str) -> Finding:
        """Return whether the log group is there, with one log for all nodes."""
        ocid = self.tenancy.places.log_group
        answer = self.tenancy.log_group
        if answer.is_given and log:
            answer = self.tenancy.ask(f"look up LOG_OCID {log}", self._logging.get_log, ocid, log)
        if answer.is_given:
            return self._log(answer.value, log, framework)
        if not answer.is_refused:
            return unknown(LOG_GROUP, answer.why)
        others = self._others("log groups", self._logging.list_log_groups)
        own, without = right(self.tenancy, self.needed, "log-groups"), "# or, as logs are in the bucket, too:"
        fix = [own, f"{without} LOG_GROUP_OCID="] if own else [_NEW_POLICY, without, "LOG_GROUP_OCID=", "LOG_OCID="]
        if ocid in {one.id for one in others}:
            fix = [self._another_log(log, framework)] if log else fix
        elif others:
            fix = [f"LOG_GROUP_OCID={others[0].id}", f"{without} LOG_GROUP_OCID="]
        return fails(LOG_GROUP, answer.why, "\n".join(fix))

    def _log(self, found: Any, log: str, framework: str) -> Finding:
        """Return whether *found*, the log or else its group, takes lines of nodes."""
        named, group = f"{found.display_name} {log or self.tenancy.places.log_group}", self.tenancy.places.log_group
        if not log:
            text = f"{named}: without LOG_OCID each launch makes a log for each node, which you or nodes may have to be"
            return advice(LOG_GROUP, f"{text} allowed to (manage log-groups)", self._another_log(log, framework))
        if getattr(found, "log_type", "CUSTOM") != "CUSTOM":
            text = f"{named} takes no lines of nodes: it is a service's"
            return fails(LOG_GROUP, text, self._another_log(log, framework))
        if not getattr(found, "is_enabled", True):
            where = {"log_group_id": group, "log_id": log}
            fix = for_shell(cli("logging log update", **where, is_enabled="true", wait_for_state="SUCCEEDED"))
            return fails(LOG_GROUP, f"{named} takes no lines of nodes: it is switched off", fix)
        return fine(LOG_GROUP, named)

    def _another_log(self, log: str, framework: str) -> str:
        """Return what names a log that takes lines of nodes, or has it made."""
        asked = {"log_type": "CUSTOM"}
        logs = self.tenancy.ask_all("list logs", self._logging.list_logs, self.tenancy.places.log_group, **asked)
        if usable := [one.id for one in logs.value or [] if one.is_enabled]:
            return f"LOG_OCID={usable[0]}"
        make = f"# it makes one log for all nodes, and prints LOG_OCID:\n./scripts/setup.sh {framework} --apply"
        return f"LOG_OCID=\n{make}" if log else make

    def bastion(self, ocid: str) -> Finding:
        answer = self.tenancy.bastion
        subnet = self.tenancy.subnet if self.tenancy.places.subnet else Answer()
        if answer.is_given:
            bastion, vcn = answer.value, subnet.value.vcn_id if subnet.value else ""
            if bastion.lifecycle_state in ALIVE and vcn in {"", bastion.target_vcn_id}:
                return self._clients(bastion)
            is_elsewhere = f"it is of the VCN {bastion.target_vcn_id}, and the subnet is of {vcn}"
            text = f"it is {bastion.lifecycle_state}" if bastion.lifecycle_state not in ALIVE else is_elsewhere
        elif answer.is_refused:
            text = answer.why
        else:
            return unknown(BASTION, answer.why)
        where = {"compartment_id": self.tenancy.places.jobs, "target_subnet_id": self.tenancy.places.subnet}
        make = cli("bastion bastion create", bastion_type="STANDARD", name="clusters", **where)
        fix = f"BASTION_ID=\n# or: {for_shell(make)} --client-cidr-list '[\"<your address>/32\"]'"
        return fails(BASTION, f"BASTION_ID {ocid} does not lead to the nodes: {text}", fix)

    def _clients(self, bastion: Any) -> Finding:
        """Return whether *bastion*, which leads to the nodes, lets this machine in."""
        named, allowed = f"{bastion.name} {bastion.id}", bastion.client_cidr_block_allow_list or []
        if any(block.endswith("/0") for block in allowed):
            return fine(BASTION, named)
        every = json.dumps([*allowed, "<your address>/32"])
        fix = for_shell(cli("bastion bastion update", "--force", bastion_id=bastion.id, client_cidr_list=every))
        if not allowed:
            return fails(BASTION, f"{named} lets nobody in: its list of clients is empty", fix)
        text = f"{named} lets in {', '.join(allowed)}, and by which address it sees this machine is not known here"
        return unknown(BASTION, text, fix)


def into_settings(name: str, command: str) -> str:
    """Return a shell's line that makes something, and adds its OCID to ``config.env``."""
    return f'made=$({command} --query data.id --raw-output) && echo "{name}=$made" >>config.env'
