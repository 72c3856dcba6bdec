"""Is what is rendered what Kubernetes takes? Read from its schemas, without a server, for several of its versions."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import kubernetes_validate
import yaml
from kubernetes_validate import utils

# From the oldest that is rendered for to the newest that there is.
VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")


class _Loader(yaml.CSafeLoader):
    """Takes no key twice: the API refuses that, and PyYAML keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is there twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a YAML text, as ``kubectl apply -f -`` reads it; a List is what it lists."""
    found: list[dict[str, Any]] = []
    for document in yaml.load_all(text, _Loader):
        if document is not None:
            found += document["items"] if document.get("kind") == "List" else [document]
    return found


def faults(
    rendered: str | Iterable[dict[str, Any]], versions: Sequence[str] = VERSIONS, *, unknown: Sequence[str] = ()
) -> list[str]:
    """Return a line for each thing that a version's strict schema does not know or refuses; none where all is well.

    Args:
        rendered: YAML, or objects.
        versions: Of Kubernetes.
        unknown: Groups, such as ``kueue.x-k8s.io``, of kinds that are not Kubernetes' own: those are left out.
    """
    objects = documents(rendered) if isinstance(rendered, str) else list(rendered)
    if not objects:
        return ["there is no object"]
    found: list[str] = []
    with _remembered():
        for item in objects:
            if item["apiVersion"].partition("/")[0] in unknown:
                continue
            name = f"{item['kind']} {item['metadata'].get('name')}"
            lines = {version: _fault(item, version) for version in versions}
            found += [f"{name}: {version}: {line}" for version, line in lines.items() if line]
    return found


def _fault(item: dict[str, Any], version: str) -> str:
    try:
        used = kubernetes_validate.validate(item, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        place = ".".join(str(part) for part in error.absolute_path)
        return f"{place or 'the object'}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return str(error.message)
    # It takes an older schema where it has none of the version.
    return "" if used == version else f"there is no schema of it; kubernetes-validate has {used}"


class _remembered:  # noqa: N801 - used as a function
    """Have each schema read once: every object needs the same megabytes of definitions."""

    def __enter__(self) -> None:
        self._read = utils.schema_contents
        utils.schema_contents = _schema

    def __exit__(self, *_: object) -> None:
        utils.schema_contents = self._read


_read = utils.schema_contents


@functools.cache
def _schema(filename: str, version: str) -> Any:
    return _read(filename, version)
