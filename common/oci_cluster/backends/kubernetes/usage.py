"""What teams have, use, borrow and lend, out of the status of Kueue's ClusterQueues. Nothing is asked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from oci_cluster.backends.kubernetes.quantities import amount, is_amount, shown
from oci_cluster.system.text import printable

Object = Mapping[str, Any]
_ZERO = Decimal(0)


@dataclass
class Use:
    """One resource of one flavor of one team.

    Attributes:
        nominal: Its own.
        used: What its clusters hold, borrowed amounts included. Quota that is reserved for a cluster counts.
        borrowed: What of that is others'.
        free: What others may have of its own.
        lent_least: What others surely have of its own,
        lent_most: and what they may have: Kueue does not say who lends where several could.
    """

    team: str
    cohort: str
    flavor: str
    resource: str
    nominal: Decimal
    used: Decimal
    borrowed: Decimal
    free: Decimal
    lent_least: Decimal = _ZERO
    lent_most: Decimal = _ZERO


def uses(queues: Sequence[Object]) -> list[Use]:
    """Return what the teams of ClusterQueues have and use, team by team, in the order of their quotas."""
    found = [use for queue in queues for use in _own(queue)]
    for use in found:
        here = (use.cohort, use.flavor, use.resource)
        cohort = [one for one in found if (one.cohort, one.flavor, one.resource) == here]
        borrowed = sum((one.borrowed for one in cohort), _ZERO)
        others = sum((one.free for one in cohort if one is not use), _ZERO)
        use.lent_most = min(borrowed, use.free)
        use.lent_least = min(use.lent_most, max(_ZERO, borrowed - others))
    return found


def _own(queue: Object) -> list[Use]:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    totals = {
        (flavor.get("name"), one.get("name")): one
        for flavor in status.get("flavorsReservation") or []
        for one in flavor.get("resources") or []
    }
    name, cohort = queue["metadata"]["name"], spec.get("cohortName") or ""
    found = []
    for group in spec.get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for one in flavor.get("resources") or []:
                total = totals.get((flavor["name"], one["name"]), {})
                nominal, used = _amount(one.get("nominalQuota")), _amount(total.get("total"))
                lendable = _amount(one["lendingLimit"]) if one.get("lendingLimit") is not None else nominal
                free = max(_ZERO, min(nominal - used, lendable))
                borrowed = _amount(total.get("borrowed"))
                found.append(Use(name, cohort, flavor["name"], one["name"], nominal, used, borrowed, free))
    return found


def _amount(value: object) -> Decimal:
    return amount(value) if is_amount(value) else _ZERO


def state_of(queue: Object) -> str:
    """Return what a team's queue does: ``open``, ``held``, ``held, drained``, or why it admits nothing."""
    policy = (queue.get("spec") or {}).get("stopPolicy") or "None"
    if policy != "None":
        return {"Hold": "held", "HoldAndDrain": "held, drained"}.get(policy, printable(policy))
    conditions = (queue.get("status") or {}).get("conditions") or []
    active: Object = next((one for one in conditions if one.get("type") == "Active"), {})
    if active.get("status") == "False":
        return printable(f"admits nothing: {active.get('message', '')}")
    return "open" if active else "unknown"


def described(queues: Sequence[Object], counts: Mapping[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """Return what ``quota.sh show --json`` prints: amounts as Kubernetes writes them.

    Args:
        queues: ClusterQueues.
        counts: How many clusters of each team run, and wait.
    """
    teams = {}
    for queue in queues:
        name = queue["metadata"]["name"]
        cohort, (running, waiting) = (queue.get("spec") or {}).get("cohortName") or "", counts.get(name, (0, 0))
        team = {"team": name, "cohort": cohort, "state": state_of(queue), "running": running, "waiting": waiting}
        teams[name] = {**team, "flavors": {}}
    for use in uses(queues):
        amounts = {key: shown(getattr(use, key)) for key in ("nominal", "used", "borrowed", "lent_least", "lent_most")}
        teams[use.team]["flavors"].setdefault(use.flavor, {})[use.resource] = amounts
    return list(teams.values())


HEAD = ("TEAM", "STATE", "RUNNING", "WAITING", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED", "LENT")
BELOW = frozenset({"STATE", "RUNNING", "WAITING"})
"""What stands under a row where a terminal is too narrow: it is each team's once."""


def rows(teams: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table that ``quota.sh show`` prints of what :func:`described` returns, under :data:`HEAD`.

    A team's own words stand in its first row only.
    """
    found = []
    for team in teams:
        own = [printable(team["team"]), team["state"], str(team["running"]), str(team["waiting"])]
        for flavor, resources in team["flavors"].items() or [("", {"": {}})]:
            for resource, one in resources.items():
                least, most = one.get("lent_least", ""), one.get("lent_most", "")
                amounts = [one.get(key, "") for key in ("nominal", "used", "borrowed")]
                lent = most if least == most else f"{least} to {most}"
                found.append([*own, printable(flavor), printable(resource), *amounts, lent])
                own = [""] * len(own)
    return found


def plain_rows(quotas: Sequence[Object]) -> list[dict[str, str]]:
    """Return what ResourceQuotas bound and what is used of it, where Kueue is not installed."""
    found = []
    for quota in sorted(quotas, key=lambda one: str(one["metadata"]["name"])):
        status, about = quota.get("status") or {}, quota["metadata"]
        for resource, hard in (status.get("hard") or {}).items():
            used = (status.get("used") or {}).get(resource, "0")
            row = {"team": about["name"], "namespace": about.get("namespace", ""), "resource": resource}
            found.append({**row, "nominal": str(hard), "used": str(used)})
    return found
