"""Merges a user's own piece into the pods' template, as ``kubectl patch --type=strategic`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

Object = dict[str, Any]

# What items of a pod's lists are merged by, the first that they have; other lists are replaced. Source: patchMergeKey
# in k8s.io/api/core/v1/types.go, 1.36.
_MERGE_KEYS = ("mountPath", "devicePath", "containerPort", "ip", "topologyKey", "name")
# What finds the pods, and what makes them nodes.
_KEPT = ("restartPolicy", "subdomain", "hostname")


def read_patch(path: Path) -> Object:
    """Returns the patch in the file *path*: a pod's template, or its ``spec`` alone."""
    import yaml  # noqa: PLC0415 - only there once the launcher's packages are

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"POD_PATCH: {path} cannot be read: {printable(error)}") from error
    if not isinstance(found, dict) or not found or not set(found) <= {"metadata", "spec"}:
        raise SettingsError(
            f"POD_PATCH: {path} is not a part of a pod's template: it has 'metadata:' or 'spec:' at its top, or both"
        )
    spec = found.get("spec") or {}
    if own := [name for name in _KEPT if isinstance(spec, dict) and name in spec]:
        raise SettingsError(f"POD_PATCH: {path} changes spec.{own[0]}, by which nodes find each other; leave it out")
    return found


def with_patch(template: Object, patch: Object) -> Object:
    """Merges *patch* into *template*: null removes, lists of named items are merged by name."""
    merged = _merged(template, patch, "")
    assert isinstance(merged, dict)  # noqa: S101 - both are
    return merged


def _merged(there: Any, patch: Any, place: str) -> Any:
    if isinstance(patch, dict) and isinstance(there, dict):
        found = dict(there)
        for name, value in patch.items():
            where = f"{place}.{name}" if place else str(name)
            if str(name).startswith("$"):
                raise SettingsError(
                    f"POD_PATCH: {where}: directives are not supported; write what is to be added or changed"
                )
            if value is None:
                found.pop(name, None)
            elif isinstance(value, list) and isinstance(found.get(name), list):
                found[name] = _merged_lists(found[name], value, where)
            else:
                found[name] = _merged(found.get(name), value, where)
        return found
    return patch


def _merged_lists(there: list[Any], patch: list[Any], place: str) -> list[Any]:
    found = list(there)
    key = next((key for key in _MERGE_KEYS if any(isinstance(one, dict) and key in one for one in there)), "")
    if not key:
        return patch
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise SettingsError(f"POD_PATCH: {place}: each item needs '{key}', by which it is found")
        at = next((number for number, one in enumerate(found) if one.get(key) == item[key]), None)
        if at is None:
            found.append(_merged({}, item, place))
        else:
            found[at] = _merged(found[at], item, f"{place}[{item[key]}]")
    return found
