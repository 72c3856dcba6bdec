"""Amounts as Kubernetes writes them, and what teams use, borrow and lend.

The latter is out of the status of Kueue's ClusterQueues. Nothing is asked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from oci_cluster.system.text import printable

Object = Mapping[str, Any]
_ZERO = Decimal(0)
_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,18}(?:\.\d{0,9})?|\.\d{1,9}))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2}|)", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def amount(text: object) -> Decimal:
    """Returns *text* as a number; raises ValueError where it is no amount."""
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"'{text}' is not an amount such as 8, 500m or 64Gi")
    number, unit = Decimal(found[1]), found[2]
    if unit in _BINARY:
        return number * (1 << 10 * _BINARY[unit])
    return number.scaleb(_DECIMAL[unit] if unit in _DECIMAL else int(unit[1:]))


def is_amount(text: object) -> bool:
    """Returns whether *text* is an amount."""
    return isinstance(text, (int, str)) and not isinstance(text, bool) and bool(_QUANTITY.fullmatch(str(text).strip()))


def shown(number: Decimal) -> str:
    """Returns *number* in the largest unit that keeps it whole: ``64Gi``, ``500m``, ``8``."""
    if number == 0:
        return "0"
    if number != number.to_integral_value():
        return f"{(number * 1000).to_integral_value():f}m"
    whole = int(number)
    for unit, power in reversed(_BINARY.items()):  # no decimal units above one: 1k of CPUs reads badly
        if power >= 2 and whole % 1024**power == 0:  # Ki of GPUs or CPUs would be a riddle
            return f"{whole // 1024**power}{unit}"
    return str(whole)


# --- Teams ------------------------------------------------------------------------------------------------------------


@dataclass
class Use:
    """One resource of one flavor of one team."""

    team: str
    cohort: str
    flavor: str
    resource: str
    nominal: Decimal
    used: Decimal
    """With what is borrowed, and with quota that is reserved for a cluster."""
    borrowed: Decimal
    free: Decimal
    """Of its own, for others."""
    lent_least: Decimal = _ZERO
    lent_most: Decimal = _ZERO
    """Kueue does not say who lends where several could."""


def uses(queues: Sequence[Object]) -> list[Use]:
    """Returns each team's use of each resource, in the order of its quotas."""
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
    found = []
    flavors = [flavor for group in spec.get("resourceGroups") or [] for flavor in group.get("flavors") or []]
    for name, one in [(flavor["name"], one) for flavor in flavors for one in flavor.get("resources") or []]:
        total = totals.get((name, one["name"]), {})
        nominal, used, borrowed = map(_amount, (one.get("nominalQuota"), total.get("total"), total.get("borrowed")))
        limit = one.get("lendingLimit")
        free = max(_ZERO, min(nominal - used, nominal if limit is None else _amount(limit)))
        names = queue["metadata"]["name"], spec.get("cohortName") or "", name, one["name"]
        found.append(Use(*names, nominal, used, borrowed, free))
    return found


def _amount(value: object) -> Decimal:
    return amount(value) if is_amount(value) else _ZERO


def state_of(queue: Object) -> str:
    """Returns a queue's state: ``open``, ``held``, ``held, drained``, or why it admits nothing."""
    policy = (queue.get("spec") or {}).get("stopPolicy") or "None"
    if policy != "None":
        return {"Hold": "held", "HoldAndDrain": "held, drained"}.get(policy, printable(policy))
    conditions = (queue.get("status") or {}).get("conditions") or []
    active: Object = next((one for one in conditions if one.get("type") == "Active"), {})
    if active.get("status") == "False":
        return printable(f"admits nothing: {active.get('message', '')}")
    return "open" if active else "unknown"


def described(queues: Sequence[Object], counts: Mapping[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """Returns what ``quota.sh show --json`` prints; *counts*: clusters that run, and wait."""
    teams: dict[str, dict[str, Any]] = {}
    for queue in queues:
        name, (running, waiting) = queue["metadata"]["name"], counts.get(queue["metadata"]["name"], (0, 0))
        cohort, state = (queue.get("spec") or {}).get("cohortName") or "", state_of(queue)
        own = {"team": name, "cohort": cohort, "state": state, "running": running, "waiting": waiting}
        teams[name] = {**own, "flavors": {}}
    for use in uses(queues):
        amounts = {key: shown(getattr(use, key)) for key in ("nominal", "used", "borrowed", "lent_least", "lent_most")}
        teams[use.team]["flavors"].setdefault(use.flavor, {})[use.resource] = amounts
    return list(teams.values())


HEAD = ("TEAM", "STATE", "RUNNING", "WAITING", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED", "LENT")
BELOW = frozenset({"STATE", "RUNNING", "WAITING"})
"""Columns that stand under a row where a terminal is too narrow: each team has them once."""


def rows(teams: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns the table of *teams*; a team's own words stand in its first row."""
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
    """Returns the bounds and the use of ResourceQuotas, where Kueue is not installed."""
    found = []
    for quota in sorted(quotas, key=lambda one: str(one["metadata"]["name"])):
        status, about = quota.get("status") or {}, quota["metadata"]
        for resource, hard in (status.get("hard") or {}).items():
            used = (status.get("used") or {}).get(resource, "0")
            row = {"team": about["name"], "namespace": about.get("namespace", ""), "resource": resource}
            found.append({**row, "nominal": str(hard), "used": str(used)})
    return found
