"""Amounts as Kubernetes writes them, and what teams use and borrow.

The latter is out of the status of Kueue's ClusterQueues. Nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from lightkube.utils.quantity import parse_quantity

from oci_cluster.system.text import printable

Object = Mapping[str, Any]
_ZERO = Decimal(0)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def amount(text: object) -> Decimal:
    """Returns *text* as a number; raises ValueError where it is no amount."""
    try:
        return parse_quantity(str(text)) or _ZERO
    except ValueError as error:
        raise ValueError(f"'{text}' is not an amount such as 8, 500m or 64Gi") from error


def is_amount(text: object) -> bool:
    """Returns whether *text* is an amount."""
    try:
        amount(text)
    except ValueError:
        return False
    return True


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


def described(queue: Object, running: int, waiting: int) -> dict[str, Any]:
    """Returns what ``quota.sh show --json`` prints of a team."""
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    totals = {
        (flavor.get("name"), one.get("name")): one
        for flavor in status.get("flavorsReservation") or []
        for one in flavor.get("resources") or []
    }
    flavors: dict[str, dict[str, Any]] = {}
    for flavor in [flavor for group in spec.get("resourceGroups") or [] for flavor in group.get("flavors") or []]:
        for one in flavor.get("resources") or []:
            # With what is borrowed, and with quota that is reserved for a cluster.
            total = totals.get((flavor["name"], one["name"]), {})
            amounts = {
                "nominal": one.get("nominalQuota"),
                "used": total.get("total"),
                "borrowed": total.get("borrowed"),
            }
            found = {name: shown(_amount(value)) for name, value in amounts.items()}
            flavors.setdefault(flavor["name"], {})[one["name"]] = found
    return {
        "team": queue["metadata"]["name"],
        "cohort": spec.get("cohortName") or "",
        "state": state_of(queue),
        "running": running,
        "waiting": waiting,
        "flavors": flavors,
    }


HEAD = ("TEAM", "STATE", "RUNNING", "WAITING", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED")
BELOW = frozenset({"STATE", "RUNNING", "WAITING"})
"""Columns that stand under a row where a terminal is too narrow: each team has them once."""


def rows(teams: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns the table of *teams*; a team's own words stand in its first row."""
    found = []
    for team in teams:
        own = [printable(team["team"]), team["state"], str(team["running"]), str(team["waiting"])]
        for flavor, resources in team["flavors"].items() or [("", {"": {}})]:
            for resource, one in resources.items():
                amounts = [one.get(key, "") for key in ("nominal", "used", "borrowed")]
                found.append([*own, printable(flavor), printable(resource), *amounts])
                own = [""] * len(own)
    return found
