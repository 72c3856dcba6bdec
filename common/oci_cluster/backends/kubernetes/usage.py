"""What teams have, use, borrow and lend, out of the status of Kueue's ClusterQueues. Nothing is asked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from oci_cluster.backends.kubernetes.quantities import amount, is_amount, shown
from oci_cluster.system.text import printable

Object = Mapping[str, Any]
_ZERO = Decimal(0)


@dataclass(frozen=True)
class Use:
    """One resource of one flavor of one team.

    Attributes:
        nominal: Its own.
        used: What its clusters hold, borrowed amounts included. Quota that is reserved for a cluster counts.
        borrowed: What of that is others'.
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
    lendable: Decimal
    lent_least: Decimal = _ZERO
    lent_most: Decimal = _ZERO


def uses(queues: Sequence[Object]) -> list[Use]:
    """Return what the teams of ClusterQueues have and use, team by team, in the order of their quotas."""
    found = [use for queue in queues for use in _own(queue)]
    return [_with_lent(use, found) for use in found]


def _own(queue: Object) -> list[Use]:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    totals: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}
    for flavor in status.get("flavorsReservation") or []:
        for one in flavor.get("resources") or []:
            totals[flavor.get("name", ""), one.get("name", "")] = (
                _amount(one.get("total")),
                _amount(one.get("borrowed")),
            )
    found = []
    for group in spec.get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for one in flavor.get("resources") or []:
                used, borrowed = totals.get((flavor["name"], one["name"]), (_ZERO, _ZERO))
                nominal = _amount(one.get("nominalQuota"))
                lendable = _amount(one["lendingLimit"]) if one.get("lendingLimit") is not None else nominal
                name, cohort = queue["metadata"]["name"], spec.get("cohortName") or ""
                found.append(Use(name, cohort, flavor["name"], one["name"], nominal, used, borrowed, lendable))
    return found


def _with_lent(use: Use, all_uses: Sequence[Use]) -> Use:
    """Return *use* with what it lends: what its cohort has borrowed, less what the others can have lent."""
    if not use.cohort:
        return use
    here = (use.cohort, use.flavor, use.resource)
    cohort = [one for one in all_uses if (one.cohort, one.flavor, one.resource) == here]
    borrowed = sum((one.borrowed for one in cohort), _ZERO)
    others = sum((_free(one) for one in cohort if one is not use), _ZERO)
    most = min(borrowed, _free(use))
    return replace(use, lent_least=min(most, max(_ZERO, borrowed - others)), lent_most=most)


def _free(use: Use) -> Decimal:
    return max(_ZERO, min(use.nominal - use.used, use.lendable))


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
    found = uses(queues)
    teams = []
    for queue in queues:
        name = queue["metadata"]["name"]
        running, waiting = counts.get(name, (0, 0))
        flavors: dict[str, dict[str, Any]] = {}
        for use in (one for one in found if one.team == name):
            fields = {
                key: value for key, value in asdict(use).items() if isinstance(value, Decimal) and key != "lendable"
            }
            flavors.setdefault(use.flavor, {})[use.resource] = {key: shown(value) for key, value in fields.items()}
        teams.append(
            {
                "team": name,
                "cohort": (queue.get("spec") or {}).get("cohortName") or "",
                "state": state_of(queue),
                "running": running,
                "waiting": waiting,
                "flavors": flavors,
            }
        )
    return teams


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
        for flavor, resources in team["flavors"].items():
            for resource, one in resources.items():
                lent = one["lent_most"]
                if one["lent_least"] != lent:
                    lent = f"{one['lent_least']} to {lent}"
                amounts = [one["nominal"], one["used"], one["borrowed"], lent]
                found.append([*own, printable(flavor), printable(resource), *amounts])
                own = [""] * len(own)
        if not team["flavors"]:
            found.append([*own, *[""] * (len(HEAD) - len(own))])
    return found


def plain_rows(quotas: Sequence[Object]) -> list[dict[str, str]]:
    """Return what ResourceQuotas bound and what is used of it, where Kueue is not installed."""
    found = []
    for quota in quotas:
        status, about = quota.get("status") or {}, quota["metadata"]
        for resource, hard in (status.get("hard") or {}).items():
            used = (status.get("used") or {}).get(resource, "0")
            row = {"team": about["name"], "namespace": about.get("namespace", ""), "resource": resource}
            found.append({**row, "nominal": str(hard), "used": str(used)})
    return found
