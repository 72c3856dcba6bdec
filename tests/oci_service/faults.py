"""What a test can change about the service while it runs, and the faults that it can ask for."""

from __future__ import annotations

import fnmatch
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from oci_service.resources import Refusal

_ERRORS = {
    "404": (404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found."),
    "409": (409, "IncorrectState", "The resource is being changed by another request."),
    "429": (429, "TooManyRequests", "User-rate limit exceeded."),
    "500": (500, "InternalServerError", "Internal server error."),
    "503": (503, "ServiceUnavailable", "The service is unavailable."),
}
# What becomes of the answer to a request that is done: it is lost, or stops in its middle.
_SPOILT = {"drop-after", "torn", "stall"}
KINDS = {*_ERRORS, *_SPOILT, "drop-before", "latency"}


# What the control "flipped" can turn around; other controls do it for more: see README.md.
FLIPS = {
    *("job-active", "list-order", "errors-invalid", "storage-bounds", "flex-config", "token-body", "errors-cancel"),
    *("environment-together", "delete-at-once", "deleted-listed", "image-arguments", "principal-files"),
    *("exit-no-program", "details-image", "details-runtime", "groups-file", "groups-order", "groups-end"),
    *("groups-states", "groups-details", "shapes-table", "log-search-or", "log-id", "log-maker"),
}


@dataclass
class Fault:
    """A rule: the *nth* call of an operation (a glob; all without one), or each by chance, *times* times at most.

    With *who* only calls of users (``user``), or of job runs (``run``); with *object* only those about objects of such
    a name (a glob; of a list, its prefix).
    """

    operation: str
    kind: str
    who: str = ""
    object: str = ""
    nth: int | None = None
    probability: float = 1.0
    seed: int = 0
    times: int | None = None
    retry_after: float | None = None
    seconds: float = 0.0
    seen: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault's kind is one of {', '.join(sorted(KINDS))}, not '{self.kind}'")
        if self.who not in {"", "user", "run"}:
            raise ValueError(f"a fault's who is 'user' or 'run', not '{self.who}'")
        self._random = random.Random(self.seed)  # noqa: S311 - the same faults each time

    def strikes(self, operation: str, who: str, name: str) -> bool:
        """Return whether it is this call's turn: of *who*, about the object, or the prefix, *name*."""
        if not any(fnmatch.fnmatchcase(named, self.operation) for named in (operation, operation.partition(".")[2])):
            return False
        if self.who not in {"", who} or (self.object and not fnmatch.fnmatchcase(name, self.object)):
            return False
        self.seen += 1
        is_turn = self.seen == self.nth if self.nth else self._random.random() < self.probability
        if not is_turn or (self.times is not None and self.done >= self.times):
            return False
        self.done += 1
        return True


class Dropped(Exception):  # noqa: N818 - what is to happen
    """The connection is closed without an answer."""


@dataclass
class Controls:
    """Every control with the value that it has at first."""

    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    provisioning_s: float = 0.0
    stay_accepted: list[str | int] = field(default_factory=list)  # nodes, or numbers: the k-th run of each job
    # By node or number: {"for_s": ...} with "details"; without "for_s" the run recovers when this names it no more.
    needs_attention: dict[str, dict[str, Any]] = field(default_factory=dict)
    unseen_s: float = 0.0
    list_lag_s: float = 0.0
    state_lag_s: float = 0.0
    stale_every: int = 0
    stale_s: float = 10.0
    minute_s: float = 60.0
    cancel_grace_s: float = 10.0
    ingest_delay_s: float | list[float] = 0.2  # or the least and the most
    ingest_duplicates: float = 0.0  # the probability that a line is delivered twice
    search_shuffled: bool = False  # what a search finds is in no order
    search_most: int = 0  # more lines than that are too many for one search; 0: none are
    page_size: int = 100
    token_lifetime_s: float = 3600.0
    out_of_capacity: list[int] = field(default_factory=list)  # the k-th run of each job
    limit: dict[str, int] = field(default_factory=dict)  # runs at the same time, by shape
    left: dict[str, int | list[int]] = field(default_factory=dict)  # of service limits, as is told; [2, 8]: 2 of 8
    capacity: dict[str, int] = field(default_factory=dict)  # hosts by shape, as Compute tells
    expire_tokens: str = ""  # session, resource, api-key or all
    revoke_bucket: list[str] = field(default_factory=list)
    free_addresses: int | None = None
    metadata_delay_s: float = 0.0
    metadata_torn_s: float = 0.0  # for so long the nodes' metadata file is half written
    # Multi-node: how NODE_RANK and the metadata file count: through, reversed (the last group first), restart (in each
    # group), from-1, missing (the file then numbers through).
    rank_counting: str = "through"
    metadata_lists: str = "all"  # or group: a node's file has its own group's nodes alone
    own_run_ocids: bool = False  # each node has a JOB_RUN_OCID of its own
    flipped: list[str] = field(default_factory=list)  # guesses, by their ids, that are not so here
    allow: list[str] = field(default_factory=list)  # operations (globs) that resource principals may use besides
    required_tags: list[str] = field(default_factory=list)  # defined tags, namespace.key, of all that is made
    default_tags: list[str] = field(default_factory=list)  # defined tags that have a default, and need no value
    disabled_keys: list[str] = field(default_factory=list)  # of OCI Vault: nothing changes in a bucket of theirs
    policy_late_s: float = 0.0  # how long a policy that was made or changed does not count yet
    bastion_creating_s: float = 0.2  # how long a session is CREATING
    bastion_fails: str = ""  # sessions become FAILED instead, with these details
    bastion_ttl_s: int = 0  # how long a session lives, as it also tells, whatever was asked
    bastion_life_s: float = 0.0  # how long a session lives, whatever it tells; 0: as it tells
    bastion_key_late_s: float = 0.0  # how long after its making a session's key is refused
    bastion_host_key: str = ""  # "other": another key is told than the host has; "untold": none is
    bastion_ssh_metadata: dict[str, str] = field(default_factory=dict)  # instead of what a session says
    bastion_sessions: int = 20  # at a time
    clock_s: float = 0.0  # how far the service's clock is ahead of this machine's
    told: dict[str, dict[str, Any]] = field(default_factory=dict)  # by operation: fields that its answers have instead
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def set(self, values: dict[str, Any]) -> None:
        """Set the named controls; lists and tables are replaced, but images are added."""
        for name, value in values.items():
            if name not in self.__dataclass_fields__:
                raise ValueError(f"no such control: {name}")
            if name == "flipped" and (unknown := set(value) - FLIPS):
                raise ValueError(f"no guess that can be flipped: {', '.join(sorted(unknown))}")
            if name == "images":
                self.images = {**self.images, **value}
            elif name == "faults":
                self.faults = [Fault(**rule) for rule in value]
            else:
                setattr(self, name, value)

    def fault(self, operation: str, who: str = "user", name: str = "") -> Fault | None:
        """Do what the rules say before a call is served; return the one that says what becomes of its answer.

        Args:
            operation: The operation's name with its service.
            who: ``user`` or ``run``.
            name: The object that it is about, or the prefix of a list.
        """
        with self._lock:
            struck = [rule for rule in self.faults if rule.strikes(operation, who, name)]
        spoilt = None
        for rule in struck:
            if rule.kind == "latency":
                time.sleep(rule.seconds)
            elif rule.kind == "drop-before":
                raise Dropped
            elif rule.kind in _SPOILT:
                spoilt = rule
            else:
                refusal = Refusal(*_ERRORS[rule.kind])
                if rule.retry_after is not None:
                    refusal.answer.headers["retry-after"] = f"{rule.retry_after:g}"
                raise refusal
        return spoilt
