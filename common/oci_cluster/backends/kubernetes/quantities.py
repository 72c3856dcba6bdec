"""Amounts as Kubernetes writes them: ``500m`` ``8`` ``64Gi``; compared as numbers, shown as they were written."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,18}(?:\.\d{0,9})?|\.\d{1,9}))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2}|)", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def amount(text: object) -> Decimal:
    """Return the number that *text* is.

    Raises:
        ValueError: it is no amount.
    """
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"'{text}' is not an amount such as 8, 500m or 64Gi")
    number, unit = Decimal(found[1]), found[2]
    if unit in _BINARY:
        return number * (1 << 10 * _BINARY[unit])
    return number.scaleb(_DECIMAL[unit] if unit in _DECIMAL else int(unit[1:]))


def is_amount(text: object) -> bool:
    """Return whether *text* is an amount."""
    return isinstance(text, (int, str)) and not isinstance(text, bool) and bool(_QUANTITY.fullmatch(str(text).strip()))


def shown(number: Decimal) -> str:
    """Return *number* as Kubernetes would write it, in the largest unit that keeps it whole: ``64Gi``, ``500m``, ``8``.

    Decimal units above one are not used, as ``1k`` of CPUs reads badly.
    """
    if number == 0:
        return "0"
    if number != number.to_integral_value():
        return f"{(number * 1000).to_integral_value():f}m"
    whole = int(number)
    for unit, power in reversed(_BINARY.items()):
        if power >= 2 and whole % 1024**power == 0:  # Ki of GPUs or CPUs would be a riddle
            return f"{whole // 1024**power}{unit}"
    return str(whole)
