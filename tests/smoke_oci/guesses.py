"""Every guess of tests/oci_service/README.md by its id, and which rung of the ladder tells whether it is right."""

from __future__ import annotations

from dataclasses import dataclass

# From what costs nothing to what costs most; each begins when those before it have ended.
RUNGS = ("reads", "one", "two", "groups")
RUNG_TEXTS = {
    "reads": "reads only",
    "one": "Jobs without nodes, and runs of one node",
    "two": "two runs of one Job",
    "groups": "two runs of two node groups",
}


@dataclass(frozen=True)
class Guess:
    """One guess: the rung that tells, or why none does."""

    text: str
    rung: str = ""
    why_not: str = ""


def _on(rung: str, **texts: str) -> dict[str, Guess]:
    return {name.replace("_", "-"): Guess(text, rung) for name, text in texts.items()}


def _not(**texts: tuple[str, str]) -> dict[str, Guess]:
    return {name.replace("_", "-"): Guess(text, why_not=why) for name, (text, why) in texts.items()}


GUESSES: dict[str, Guess] = {
    **_on(
        "reads",
        answers_date="answers have a Date header, the service's clock",
        shapes_table="the shapes of the stand-in's table are there, with these OCPUs and memory",
        limits_left="what is left of a limit is told, in each availability domain where its scope is AD",
        capacity_report="Compute tells of its hosts for the root compartment, for each availability domain",
        registry_bearer="a signed request gets a token, with which the registry shows what an image runs on",
        registry_codes="a tag that is not there is 404 MANIFEST_UNKNOWN, a repository 404 NAME_UNKNOWN",
    ),
    **_on(
        "one",
        job_active="a Job is ACTIVE when its creation is answered",
        list_order="lists have the newest first",
        errors_invalid="what cannot be is refused with 400 InvalidParameter",
        storage_bounds="block storage of less than 50 GB is refused",
        flex_config="a flexible shape without jobShapeConfigDetails is refused",
        token_body="a retry token with a different body is refused with 409",  # noqa: S106 - no password
        environment_together="the limit of 20,000 characters holds for Job and run together",
        errors_cancel="a cancel of a run that has ended is refused with 409 IncorrectState",
        delete_at_once="a Job is gone when its deletion is answered",
        deleted_listed="deleted Jobs are still listed",
        image_arguments="commandLineArguments go to the image's entrypoint, split as a shell does",
        first_process="a run ends with its first process",
        principal_files="a run's resource principal is version 2.2, with files that its user can read",
        exit_no_program="an entrypoint that is no program ends the run with exit code 127",
        details_image="a run whose image is not there ends with `Error pulling image`",
        details_runtime="a run that takes too long ends with `exceeded its maximum runtime`",
        cancel_term="a cancel sends TERM, and KILL 10 s later",
        log_maker="a log that nobody has made is made by the run, as its dynamic group may, and not by who launches",
        policy_at_once="a policy counts at once",
        bastion_session="a session of a bastion for an address and a port is ACTIVE within a minute",
        bastion_key_type="a bastion takes an ssh-ed25519 key",
        bastion_command="`sshMetadata` has a `command` that ends with `<OCID>@host.bastion.<region>.oci.<domain>`",
        bastion_host_key="a session that is ACTIVE tells its host's key as OpenSSH writes it",
        bastion_late_key="a session that is ACTIVE takes its key within 75 s",
        bastion_name="a list of sessions finds them by their name",
        bastion_delete="a session that is deleted is DELETED, or not there, within a minute",
    ),
    **_on(
        "two",
        runs_reach="two runs in one subnet reach each other at their addresses",
        log_search_or="one search finds the lines of several runs, joined by `or`",
        log_id="each line in OCI Logging has an id of its own",
        log_late="a line is found within 90 s",
    ),
    **_on(
        "groups",
        groups_file="CLUSTER_NODES_METADATA_FILE grows node by node",
        groups_rank="ranks count through the groups",
        groups_run_ocid="all nodes have the same JOB_RUN_OCID",
        groups_order="the next group starts when the probes of the last have succeeded",
        groups_end="the run ends when every group has had its minimumSuccessReplicas, and its other nodes are ended",
        groups_states="all groups of a run that has ended are DELETED",
        groups_details="the sentence with the exit code names the node group",
    ),
    **_not(
        errors_other=(
            "all other status codes, codes and messages of errors",
            "most need something that is missing or broken in a way that a tenancy cannot be asked for",
        ),
        details_capacity=("`Out of host capacity.`, no free address", "nobody can have a region run out of hosts"),
        exit_signal=(
            "128 + the number for a signal",
            "a container's first process cannot be killed from inside, and tini, which the images begin with, ends so",
        ),
        image_entrypoint=(
            "without an entrypoint of its own a run takes its image's",
            "that of the images, entrypoint.sh, becomes the program that it is given, and leaves no trace",
        ),
        image_user=(
            "a container runs as its image's user",
            "the user stands in the image's manifest; compare it with the user id in the evidence of principal-files",
        ),
        image_digest=("a tag is refused when its digest has changed", "a second image would have to be pushed"),
        principal_claims=("the claims of tokens", "the token is a secret, and stays in its run"),
        principal_renewal=("the renewal of the files", "a run would have to last as long as its token"),
        list_pages=("pages of 100", "101 Jobs would have to be made"),
        token_owner=("retry tokens belong to a user and an operation", "it takes a second user"),
        late_answers=(
            "how late the service is, and with what: all that the controls `stay_accepted` to `stale_every` do",
            "it is late when it is busy, and nobody can have it so",
        ),
        attention_started=(
            "a run that needs attention and has not started has no timeStarted",
            "nobody can have a run need attention",
        ),
        unseen_list=(
            "a list of the runs of a Job that is not seen yet is 404, and not empty",
            "a Job is unseen for moments, if at all",
        ),
        groups_said=(
            "what a failed group says of itself",
            "a group would have to fail for a reason of the service's own",
        ),
        tags_required=(
            "tags that are required are required of runs, too, and missing ones are refused with 400",
            "a tenancy would have to require one",
        ),
        shape_of_run=(
            "a run may have another shape than its Job",
            "it takes a second shape, which costs",
        ),
        shape_config_extra=(
            "a shape that is not flexible refuses jobShapeConfigDetails",
            "it takes a shape that is not flexible",
        ),
        mounts_bounds=(
            "a Job has five mounts at most, and file systems in a subnet alone",
            "it takes a file system",
        ),
        mounts_policies=(
            "`allow service datascience to use file-family` and `object-family` are enough for mounts",
            "it takes a file system, and other policies",
        ),
        bastion_ends=(
            "a session's connections are cut when it ends or is deleted",
            "it takes a node that serves something, and half an hour",
        ),
        project_read=("of its project a Job Run needs no more than that people read it", "it takes other policies"),
        bastion_policies=(
            "`use bastion` and `manage bastion-session` are enough, with `use virtual-network-family`",
            "it takes other policies",
        ),
        bastion_limits=(
            "a session lives for 30 minutes to 3 hours; one too many is refused with 400 LimitExceeded",
            "it takes 20 sessions",
        ),
        room_policies=(
            "`manage compute-capacity-reports` is enough for hosts",
            "it takes other policies",
        ),
    ),
    # Of policies, and of what they are about.
    **_not(
        list_object_name=(
            (
                "a list of objects has no `target.object.name`, not even its prefix; if it has, docs/oci.md has "
                "two statements too many, and they give away the names of other teams' objects"
            ),
            "it takes other policies",
        ),
        policy_data_science=(
            (
                "which operation of Data Science needs which permission: INSPECT for lists, READ to get, UPDATE,"
                " CREATE, DELETE; CANCEL, which `manage` has, for runs; JOB_READ to run a Job, and PROJECT_READ "
                "of its project; a Job needs nothing of the project"
            ),
            "it takes other policies",
        ),
        policy_places=(
            (
                "whoever creates a Job or a Job Run needs SUBNET_READ, SUBNET_ATTACH, VNIC_ATTACH and "
                "VNIC_CREATE in the compartment of its subnet, and LOG_GROUP_READ in that of its log group"
            ),
            "it takes other policies",
        ),
        log_tag=(
            "a log which the service makes has a tag `Oracle-Tags.CreatedBy`",
            "no rung looks at the tags of a log",
        ),
        log_lost=(
            "a run without permission for its log runs all the same, and its lines are lost",
            "it takes other policies",
        ),
        fast_launch=(
            "which shapes are fast-launch configurations, and that their list needs what that of shapes does",
            "regions differ in them, and it takes other policies",
        ),
        policy_limits=(
            (
                "lists of limits need RESOURCE_AVAILABILITY_INSPECT in the tenancy, what is left of one "
                "RESOURCE_AVAILABILITY_READ in the compartment that is asked about; a capacity report needs "
                "COMPUTE_CAPACITY_REPORT_CREATE in the tenancy"
            ),
            "it takes other policies",
        ),
        policy_registry=(
            "the registry gives everybody a token, and shows an image to those who have REPOSITORY_READ",
            "it takes other policies",
        ),
        policy_search=(
            "a search needs LOG_CONTENT_READ alone (the reference names it for log groups, too)",
            "it takes other policies",
        ),
        run_not_allowed=(
            (
                "a run that cannot get its image, or its place in the subnet, fails, with an invented "
                "`lifecycleDetails`; the service reads an image as the run"
            ),
            "it takes other policies",
        ),
        errors_policies=(
            (
                "refusals: 404 NotAuthorizedOrNotFound; for a bucket BucketNotFound; for an object "
                "ObjectNotFound where its bucket may be listed and it is read or deleted, else BucketNotFound; "
                "the text for a policy that names what is not there"
            ),
            "it takes other policies",
        ),
        bastion_permissions=(
            (
                "which permissions `bastion` and `bastion-session` have; a session needs BASTION_USE and "
                "BASTION_SESSION_CREATE, in the compartment of its bastion"
            ),
            "it takes other policies",
        ),
        lifecycle_policies=(
            (
                "`manage object-family` with `target.bucket.name` is enough for Object Storage to delete what a "
                "lifecycle policy says; it is asked when the policy is put, and the refusal is 400 "
                "InsufficientServicePermissions"
            ),
            "it takes other policies",
        ),
        lifecycle_none=(
            "a bucket without a lifecycle policy answers 404 LifecyclePolicyNotFound",
            "no rung asks for one",
        ),
        domain_groups=(
            "groups of a domain are shown to those who may `read domains`",
            "it takes an identity domain, and other policies",
        ),
        policy_groups=(
            "a policy whose statement names a group that is not there is refused",
            "no rung makes a policy that is to be refused",
        ),
        policy_version=(
            "a policy whose statements are changed without a version date loses it",
            "no rung changes a policy",
        ),
        repository_list=(
            "a list of repositories of the root compartment may go through all below it",
            "a tenancy may have none, or show none",
        ),
        private_address=(
            (
                "a private address can be reserved in a subnet without a VNIC, as the SDK's model has it, and is"
                " listed there"
            ),
            "the subnet is somebody's, and nothing is made in it",
        ),
        run_no_nsg=(
            "no VNIC of a Job Run is in a network security group (no model of Data Science's jobs names one)",
            "whoever starts a run does not see its VNIC",
        ),
        subnet_change=(
            (
                "a subnet's CIDR can be changed, to one that is inside its VCN and that no other subnet has; the"
                " texts of refusals"
            ),
            "the subnet is somebody's, and nothing is changed in it",
        ),
        service_labels=(
            "the labels of a region's services have its key, `all-iad-services-in-oracle-services-network`",
            "no rung lists them",
        ),
        policy_network=(
            "which of the permissions of `virtual-network-family` VNICs, gateways, groups and private addresses have",
            "it takes other policies",
        ),
        policy_lists=(
            (
                "lists of retention rules need BUCKET_READ, the tag defaults of a compartment "
                "TAG_DEFAULT_INSPECT, and the name of a tag namespace TAG_NAMESPACE_INSPECT in the tenancy"
            ),
            "it takes other policies",
        ),
        policy_administrators=(
            "what administrators need for networks and identity",
            "one statement allows them everything, so no test depends on it",
        ),
        deny_verbs=(
            (
                "a verb that is denied denies the higher ones, too, and not the lower ones; what is denied by "
                "permissions is these alone"
            ),
            "the Console cannot switch deny policies off again",
        ),
    ),
}


@dataclass
class Finding:
    """What came of one guess."""

    verdict: str
    evidence: str
    request_id: str = ""


RIGHT, WRONG, UNKNOWN = "right", "WRONG", "could not tell"


class Findings:
    """What has been found so far."""

    def __init__(self) -> None:
        self.found: dict[str, Finding] = {}

    def note(self, guess: str, *, is_right: bool | None, evidence: str, request_id: str = "") -> None:
        """Take note of what tells whether *guess* is right; None where it does not tell."""
        assert GUESSES[guess].rung, f"{guess} is one that cannot be tested"
        verdict = UNKNOWN if is_right is None else RIGHT if is_right else WRONG
        self.found[guess] = Finding(verdict, evidence, request_id)

    def of(self, guess: str, rungs: tuple[str, ...]) -> Finding:
        """Return what came of *guess* on the *rungs* that were wanted."""
        if why_not := GUESSES[guess].why_not:
            return Finding("not tested", why_not)
        if GUESSES[guess].rung not in rungs:
            return Finding(UNKNOWN, "this rung was not wanted")
        return self.found.get(guess, Finding(UNKNOWN, "nothing was seen that tells"))

    def wrong(self) -> list[str]:
        """Return the guesses that have turned out wrong."""
        return [guess for guess in GUESSES if guess in self.found and self.found[guess].verdict == WRONG]
