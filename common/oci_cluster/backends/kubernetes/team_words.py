"""What a word of ``teams.yaml`` means: one parser for each kind; each raises ValueError with what is expected."""

from __future__ import annotations

import re

from oci_cluster.backends.kubernetes.quantities import amount
from oci_cluster.contract.values import parse_count, parse_switch

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_TAINT = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^=:\s]*))?(:(?P<effect>\w+))?")
# Source: Kubernetes' documentation of PriorityClass: larger values are for the system. Kueue takes 32 bits.
_MOST_PRIORITY = 1_000_000_000


def parse_name(text: str) -> str:
    """Return *text* if it can name a team, a namespace, a queue, a flavor or a priority."""
    if not _NAME.fullmatch(text):
        msg = f"'{text}' is not a name of small letters, digits and - (63 at most)"
        raise ValueError(msg)
    return text


def parse_label_key(text: str) -> str:
    """Return *text* if it can name a label or a resource."""
    if not _KEY.fullmatch(text):
        msg = f"'{text}' is not a name such as nvidia.com/gpu"
        raise ValueError(msg)
    return text


def parse_label_value(text: str) -> str:
    """Return *text* if it can be a label's value."""
    if not _VALUE.fullmatch(text):
        msg = f"'{text}' is not a label's value: letters, digits and . _ - (63 at most)"
        raise ValueError(msg)
    return text


def parse_priority(text: str) -> int:
    """Return *text* as a priority."""
    return parse_count(text, minimum=-_MOST_PRIORITY, maximum=_MOST_PRIORITY)


def parse_whole(text: str) -> str:
    """Return *text* if it is a whole number from 0."""
    return str(parse_count(text))


def parse_yes_no(text: str) -> bool:
    """Return whether *text* says yes."""
    try:
        return parse_switch(text)
    except ValueError:
        msg = f"'{text}' is neither yes nor no, nor amounts such as {{gpus: 4}}"
        raise ValueError(msg) from None


def parse_amount(text: str) -> str:
    """Return *text* if it is an amount from 0."""
    if amount(text) < 0:
        msg = f"{text} is negative; write 0 or more"
        raise ValueError(msg)
    return text


def parse_bytes(text: str) -> str:
    """Return *text* if it is an amount of memory or disk, and its unit was not forgotten."""
    if 0 < amount(parse_amount(text)) < 1024 * 1024:
        msg = f"{text} is less than a megabyte; write the unit, such as {text}Gi"
        raise ValueError(msg)
    return text


def parse_taint(text: str) -> dict[str, str]:
    """Return the taint that *text* is, as kubectl writes it, in the API's words."""
    found = _TAINT.fullmatch(text)
    if not found or found["effect"] not in EFFECTS or not _KEY.fullmatch(found["key"]):
        msg = f"'{text}' is not a taint KEY=VALUE:EFFECT with an effect of {', '.join(EFFECTS)}"
        raise ValueError(msg)
    value = {"value": found["value"]} if found["value"] else {}
    return {"key": found["key"], **value, "effect": found["effect"]}


def parse_toleration(text: str) -> dict[str, str]:
    """Return the toleration that *text* is, in the API's words."""
    found = _TAINT.fullmatch(text)
    if not found or found["effect"] not in (None, *EFFECTS) or not _KEY.fullmatch(found["key"]):
        msg = f"'{text}' is not a toleration KEY, KEY:EFFECT or KEY=VALUE:EFFECT"
        raise ValueError(msg)
    value = {"operator": "Equal", "value": found["value"]} if found["value"] else {"operator": "Exists"}
    return {"key": found["key"], **value, **({"effect": found["effect"]} if found["effect"] else {})}
