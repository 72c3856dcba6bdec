"""Whether a request's body is one that the service's own models allow: those of the SDK that is installed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, cast

import oci.data_science.models as sdk  # type: ignore[import-untyped]

from oci_service.resources import JSON, Refusal, invalid

_SIMPLE: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "datetime": lambda value: isinstance(value, str),
    "object": lambda value: True,
}


class _Field:
    """One field of a model: its type, whether it must be there, and the values that it may have."""

    def __init__(self, model: type, attribute: str, kind: str) -> None:
        self.kind = kind
        self.is_required = "**[Required]**" in (getattr(model, attribute).__doc__ or "")
        prefix = f"{attribute.upper()}_"
        # SOURCE_TYPE_CIDR_BLOCK is a value of source_type, and none of source.
        longer = tuple(f"{name.upper()}_" for name in model().swagger_types if name.startswith(f"{attribute}_"))
        names = [name for name in dir(model) if name.startswith(prefix) and not name.startswith(longer or (" ",))]
        self.values = {getattr(model, name) for name in names}


@functools.cache
def _fields(package: Any, name: str) -> dict[str, _Field]:
    model = getattr(package, name)
    made = model()
    return {
        made.attribute_map[attribute]: _Field(model, attribute, kind) for attribute, kind in made.swagger_types.items()
    }


def check(model: str, value: Any, path: str = "", package: Any = sdk) -> JSON:
    """Return *value*, which is to be a JSON object of that *model*; refuse it with the name of the field otherwise.

    *package* has the service's models.
    """
    if not isinstance(value, dict):
        raise invalid(f"{path or 'The request body'} must be an object")
    subtype = getattr(getattr(package, model), "get_subtype", None)
    if subtype is not None:
        for name, field in _fields(package, model).items():
            if field.values and value.get(name) not in field.values:
                raise invalid(f"{_join(path, name)} must be one of {', '.join(sorted(field.values))}")
        model = subtype(value)
    fields = _fields(package, model)
    for name, part in value.items():
        if name not in fields:
            raise invalid(f"{_join(path, name)} is not a known field")
        if part is not None:
            _check_kind(fields[name], fields[name].kind, part, _join(path, name), package)
    for name, field in fields.items():
        if field.is_required and value.get(name) is None:
            raise Refusal(400, "MissingParameter", f"{_join(path, name)} is required")
    return cast("JSON", value)


def _check_kind(field: _Field, kind: str, value: Any, path: str, package: Any) -> None:
    if kind in _SIMPLE:
        if not _SIMPLE[kind](value):
            raise invalid(f"{path} must be of type {kind}")
        if field.values and value not in field.values:
            raise invalid(f"{path} must be one of {', '.join(sorted(field.values))}")
    elif inside := re.fullmatch(r"list\[(.*)\]", kind):
        if not isinstance(value, list):
            raise invalid(f"{path} must be a list")
        for number, item in enumerate(value):
            _check_kind(field, inside[1], item, f"{path}[{number}]", package)
    elif inside := re.fullmatch(r"dict\(str, (.*)\)", kind):
        if not isinstance(value, dict):
            raise invalid(f"{path} must be an object")
        for name, item in value.items():
            _check_kind(field, inside[1], item, f"{path}.{name}", package)
    else:
        check(kind, value, path, package)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
