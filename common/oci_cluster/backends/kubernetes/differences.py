"""What an apply would change, told for people: two states of one object, compared field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oci_cluster.backends.kubernetes.quantities import amount, is_amount
from oci_cluster.backends.kubernetes.teams import name_of

# Of metadata only these are anybody's wish; the rest is the API's own book-keeping.
_METADATA = ("labels", "annotations")
# Lists whose entries have names are compared by these: an entry that is added in front moves no other.
_KEYS = ("name", "key")


@dataclass(frozen=True)
class Change:
    """What an apply does to one object: ``added``, ``changed``, ``removed``, ``kept`` (it should go, and stays)."""

    what: str
    item: Mapping[str, Any]
    lines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What a person calls the object."""
        return name_of(self.item)


def change(now: Mapping[str, Any] | None, then: Mapping[str, Any]) -> Change | None:
    """Return what makes *then* out of *now*, which is None where the object is not there; None where nothing does."""
    if now is None:
        return Change("added", then, tuple(_fields(_wishes(then))))
    lines = tuple(_differences(_wishes(now), _wishes(then), ""))
    return Change("changed", then, lines) if lines else None


def text(changes: list[Change]) -> str:
    """Return *changes* as ``quota.sh apply`` shows them."""
    signs = {"added": "+", "changed": "~", "removed": "-", "kept": "!"}
    lines = []
    for one in changes:
        lines.append(f"{signs[one.what]} {one.name} {one.what}")
        lines += [f"    {line}" for line in one.lines]
    return "\n".join(lines)


def _wishes(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return of an object what somebody has wished: no status, and none of the API's own fields."""
    about = item.get("metadata") or {}
    kept = {name: value for name, value in item.items() if name not in {"apiVersion", "kind", "metadata", "status"}}
    return {**kept, **{name: about[name] for name in _METADATA if about.get(name)}}


def _differences(now: Any, then: Any, place: str) -> Iterator[str]:
    if isinstance(now, Mapping) and isinstance(then, Mapping):
        for name in dict.fromkeys([*now, *then]):
            yield from _differences(now.get(name), then.get(name), f"{place}.{name}" if place else str(name))
    elif (one := _by_key(now)) is not None and (other := _by_key(then)) is not None:
        names = list(dict.fromkeys([*one, *other]))
        for name in names:
            yield from _differences(one.get(name), other.get(name), f"{place}[{name}]")
        if [name for name in one if name in other] != [name for name in other if name in one]:
            yield f"{place}: {', '.join(one)} -> {', '.join(other)}"  # the order of flavors is that of trying them
    elif not _is_same(now, then):
        yield f"{place}: {_word(now)} -> {_word(then)}"


def _by_key(value: Any) -> dict[str, Any] | None:
    """Return the entries of a list by their names; None where they have none, or one has another's."""
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        return None
    for key in _KEYS:
        if all(isinstance(entry.get(key), str) for entry in value):
            found = {entry[key]: entry for entry in value}
            return found if len(found) == len(value) else None
    if len(value) == 1:  # resourceGroups: ours has one
        return {"0": value[0]}
    return None


def _is_same(now: Any, then: Any) -> bool:
    """Return whether both say the same: ``1Ti`` is ``1024Gi``, and an empty list is none."""
    if is_amount(now) and is_amount(then):
        return amount(now) == amount(then)
    return now == then or (now in (None, [], {}) and then in (None, [], {}))


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_word(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(f"({_word(one)})" if isinstance(one, Mapping) else _word(one) for one in value) or "none"
    return str(value)


def _fields(value: Any, place: str = "") -> Iterator[str]:
    """Yield a line for each field of a new object."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            if name != "labels" or place:
                yield from _fields(one, f"{place}.{name}" if place else str(name))
    elif (entries := _by_key(value)) is not None:
        for name, one in entries.items():
            if all(not isinstance(inside, (Mapping, list)) for inside in one.values()):
                yield f"{place}[{name}]: {_word({key: inside for key, inside in one.items() if key not in _KEYS})}"
            else:
                yield from _fields({k: inside for k, inside in one.items() if k not in _KEYS}, f"{place}[{name}]")
    else:
        yield f"{place}: {_word(value)}"
