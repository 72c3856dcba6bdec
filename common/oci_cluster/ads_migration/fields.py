"""Fields of a YAML file, each with its path, line and text as written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

# Of a description of a cluster that is 100 times as long as those of ADS's documentation. They bound what is read of a
# file that was made to take memory and time.
_MOST_BYTES, _MOST_FIELDS, _DEEPEST = 200_000, 5_000, 20
_GIVE = "give the YAML of ads opctl run"


@dataclass(frozen=True)
class Field:
    """One field: a text, a mapping or a list of fields."""

    path: str
    """Such as ``spec.cluster.spec.config.env[0].name``."""
    line: int
    """Of the file, from 1."""
    value: str | dict[str, Field] | list[Field]

    @property
    def where(self) -> str:
        """Its path and line, for people."""
        return f"line {self.line}, {self.path or 'the file'}"

    def mapping(self) -> dict[str, Field]:
        """Return its fields."""
        if isinstance(self.value, dict):
            return self.value
        raise self._other("fields of its own")

    def items(self) -> list[Field]:
        """Return the items of its list."""
        if isinstance(self.value, list):
            return self.value
        raise self._other("a list")

    def text(self) -> str:
        """Return its text: of a number or a switch too, as it is written."""
        if isinstance(self.value, str):
            return self.value
        raise self._other("a text or a number")

    def _other(self, wanted: str) -> SettingsError:
        found = {str: "a text", dict: "fields", list: "a list"}[type(self.value)]
        return SettingsError(f"{self.where}: expected {wanted}, found {found}")


def read_yaml(path: Path) -> Field:
    """Return what is in the file *path*; empty fields count as missing.

    No object is made of what stands in it: tags are not looked at.
    """
    try:
        with path.open("rb") as file:
            body = file.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise SettingsError(f"{path} has more than {_MOST_BYTES} bytes: no description of a cluster; {_GIVE}")
        root = yaml.compose(body.decode("utf-8"), Loader=yaml.SafeLoader)
        if root is None:
            raise SettingsError(f"{path} is empty; {_GIVE}")
        return _Reader().field(root, "", 1, 0)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; {_GIVE}") from error
    except RecursionError as error:
        raise SettingsError(f"{path}: fields are deeper than {_DEEPEST} in one another; {_GIVE}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path} is no YAML: {printable(' '.join(str(error).split()), 300)}") from error


class _Reader:
    """Makes fields of the parser's nodes; aliases are read and counted again."""

    def __init__(self) -> None:
        self._count = 0

    def field(self, node: Any, path: str, line: int, depth: int) -> Field:
        """Return the parser's *node*, which is called *path* in *line*."""
        self._count += 1
        if self._count > _MOST_FIELDS or depth > _DEEPEST:
            limit = f"{_DEEPEST} fields in one another" if depth > _DEEPEST else f"{_MOST_FIELDS} fields"
            raise SettingsError(f"line {line}: more than {limit}: no description of a cluster; {_GIVE}")
        if isinstance(node, yaml.MappingNode):
            return Field(path, line, self._fields(node, path, depth + 1))
        if isinstance(node, yaml.SequenceNode):
            items = [
                self.field(item, f"{path}[{number}]", _line(item), depth + 1) for number, item in enumerate(node.value)
            ]
            return Field(path, line, items)
        return Field(path, line, str(node.value))

    def _fields(self, node: Any, path: str, depth: int) -> dict[str, Field]:
        merged: dict[str, Field] = {}
        own: dict[str, Field | None] = {}
        for key, value in node.value:
            line = _line(key)
            if key.tag == "tag:yaml.org,2002:merge":  # <<: *others, or several of which the first wins
                several = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for other in reversed(several):
                    merged |= self.field(other, path, line, depth).mapping()
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise SettingsError(f"line {line}: the name of a field is a text")
            name = printable(key.value, 100)
            if name in own:
                raise SettingsError(f"line {line}: {path or 'the file'} has {name} twice; keep one of them")
            is_empty = value.tag == "tag:yaml.org,2002:null"
            own[name] = None if is_empty else self.field(value, f"{path}.{name}" if path else name, line, depth)
        return {name: found for name, found in {**merged, **own}.items() if found is not None}


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
