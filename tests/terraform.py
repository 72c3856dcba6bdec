"""What the templates for Terraform would make: parsed with python-hcl2, and worked out as far as these templates go.

Terraform itself is not needed. What this does not know of the language is an error, and never passed over.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hcl2

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_][\w-]*)|(?P<mark>==|!=|>=|<=|&&|\|\||=>|[][(){}?:.,<>=!]))", re.DOTALL
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_COMPARISONS = {"==": lambda a, b: a == b, "!=": lambda a, b: a != b, ">": lambda a, b: a > b, "<": lambda a, b: a < b}
_FUNCTIONS = {
    "concat": lambda *lists: [item for one in lists for item in one],
    "toset": lambda items: sorted(set(items)),
    "split": lambda mark, text: text.split(mark),
    "flatten": lambda lists: [item for one in lists for item in one],
}
_BLOCK = "__is_block__"


@functools.cache  # a second or two of CPU for the templates
def _parsed(text: str) -> Mapping[str, Any]:
    return hcl2.loads(text)


class Terraform:
    """The templates of a folder, with values of their variables."""

    def __init__(self, folder: Path, values: Mapping[str, Any]) -> None:
        parsed = [_parsed(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.tf"))]
        self.variables = {
            _plain(name): body for part in parsed for one in part.get("variable", []) for name, body in one.items()
        }
        self._locals = {name: text for part in parsed for one in part.get("locals", []) for name, text in one.items()}
        self._blocks = {
            f"{_plain(kind)}.{_plain(name)}": body
            for part in parsed
            for one in part.get("resource", [])
            for kind, named in one.items()
            for name, body in named.items()
        }
        if unknown := set(values) - set(self.variables):
            raise ValueError(f"no variables of the templates: {', '.join(sorted(unknown))}")
        self._values = {name: self._value_of(name, values) for name in self.variables}

    def _value_of(self, name: str, values: Mapping[str, Any]) -> Any:
        if name in values:
            return values[name]
        if "default" not in self.variables[name]:
            raise ValueError(f"variable {name} has no value")
        return self._evaluated(self.variables[name]["default"], {})

    def resources(self) -> dict[str, list[dict[str, Any]]]:
        """Return what is made, by kind."""
        found: dict[str, list[dict[str, Any]]] = {}
        for name in self._blocks:
            found.setdefault(name.partition(".")[0], []).extend(self._made(name))
        return found

    def _made(self, name: str) -> list[dict[str, Any]]:
        body = {
            key: value for key, value in self._blocks[name].items() if key not in {"count", "for_each", "depends_on"}
        }
        if "for_each" in self._blocks[name]:
            every = self._evaluated(self._blocks[name]["for_each"], {})
            return [self._block(body, {"each": {"key": value, "value": value}}) for value in every]
        count = self._evaluated(self._blocks[name].get("count", 1), {})
        return [self._block(body, {}) for _ in range(int(count))]

    def _block(self, body: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in body.items():
            if key == "dynamic":
                for kind, about in ((k, a) for one in value for k, a in one.items()):
                    every = self._evaluated(about["for_each"], scope)
                    (content,) = about["content"]
                    made = [self._block(content, {**scope, _plain(kind): {"value": item}}) for item in every]
                    found.setdefault(_plain(kind), [])[:0] = made
            elif isinstance(value, list) and value and isinstance(value[0], dict) and _BLOCK in value[0]:
                found.setdefault(key, []).extend(self._block(one, scope) for one in value)
            elif key != _BLOCK:
                found[key] = self._evaluated(value, scope)
        return found

    # --- Expressions

    def _evaluated(self, value: Any, scope: Mapping[str, Any]) -> Any:
        if isinstance(value, list):
            return [self._evaluated(one, scope) for one in value]
        if isinstance(value, dict):
            return {_plain(key): self._evaluated(one, scope) for key, one in value.items() if key != _BLOCK}
        if not isinstance(value, str):
            return value
        if value.startswith("${") and value.endswith("}"):
            return _Expression(value[2:-1], self, scope).whole()
        return _Expression(value, self, scope).whole()

    def named(self, path: list[str], scope: Mapping[str, Any]) -> Any:
        """Return what a name such as ``var.region`` or ``each.value`` stands for."""
        if path[0] in scope:
            value = scope[path[0]]
            for part in path[1:]:
                value = value[part]
            return value
        if path[0] == "var":
            return self._values[path[1]]
        if path[0] == "local":
            return self._evaluated(self._locals[path[1]], {})
        if path[2] == "id":
            return f"<OCID of {path[0]}>"
        (made,) = self._made(".".join(path[:2]))
        return made[path[2]]


class _Expression:
    """An expression of the language, worked out from left to right."""

    def __init__(self, text: str, terraform: Terraform, scope: Mapping[str, Any]) -> None:
        self.text, self.at = text, 0
        self._terraform, self._scope = terraform, scope

    def whole(self) -> Any:
        value = self._value()
        if self.text[self.at :].strip():
            raise ValueError(f"not understood: {self.text[self.at :]} in {self.text}")
        return value

    def _peek(self) -> str:
        rest = self.text[self.at :].lstrip()
        if rest.startswith('"'):
            return '"'
        found = _TOKEN.match(self.text, self.at)
        return found.group().strip() if found else ""

    def _take(self, wanted: str = "") -> str:
        found = _TOKEN.match(self.text, self.at)
        if not found or wanted not in {"", found.group().strip()}:
            raise ValueError(f"expected {wanted or 'something'} at {self.text[self.at :]}")
        self.at = found.end()
        return found.group().strip()

    def _value(self) -> Any:
        value = self._operand()
        if self._peek() in _COMPARISONS:
            value = _COMPARISONS[self._take()](value, self._operand())
        if self._peek() == "?":
            self._take()
            first = self._value()
            self._take(":")
            second = self._value()
            return first if value else second
        return value

    def _operand(self) -> Any:
        word = self._peek()
        begun = {'"': self._template, "[": self._list, "{": self._object}
        if word in begun:
            return begun[word]()
        self._take()
        if word.isdigit():
            return int(word)
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if self._peek() == "(":
            return _FUNCTIONS[word](*self._items("(", ")"))
        path = [word]
        while self._peek() in {".", "["}:
            if self._take() == "[":
                self._take("0")  # what is made once, if at all
                self._take("]")
            else:
                path.append(self._take())
        return self._terraform.named(path, self._scope)

    def _items(self, first: str, last: str) -> list[Any]:
        self._take(first)
        found = []
        while self._peek() != last:
            found.append(self._value())
            if self._peek() == ",":
                self._take()
        self._take(last)
        return found

    def _list(self) -> Any:
        start = self.at
        self._take("[")
        if self._peek() != "for":
            self.at = start
            return self._items("[", "]")
        self._take()
        name = self._take()
        self._take("in")
        every = self._value()
        self._take(":")
        body = self.at
        found = []
        for item in [*every, ""]:  # once more, for what follows: the value of an empty loop is not wanted
            self.at = body
            usual, self._scope = self._scope, {**self._scope, name: item}
            found.append(self._value())
            self._scope = usual
        self._take("]")
        return found[:-1]

    def _object(self) -> dict[str, Any]:
        self._take("{")
        found = {}
        while self._peek() != "}":
            key = self._take()
            self._take()  # = or :
            found[key] = self._value()
            if self._peek() == ",":
                self._take()
        self._take("}")
        return found

    def _template(self) -> str:
        self.at = self.text.index('"', self.at) + 1
        found = []
        while self.text[self.at] != '"':
            if self.text.startswith("${", self.at):
                end = self.text.index("}", self.at)
                found.append(str(_Expression(self.text[self.at + 2 : end], self._terraform, self._scope).whole()))
                self.at = end + 1
            else:
                found.append(self.text[self.at])
                self.at += 1
        self.at += 1
        return "".join(found)


def _plain(name: str) -> str:
    return name.strip('"')


def as_lifecycle(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule of a bucket as the service has it."""
    found = {camel(key): value for key, value in rule.items() if value != []}
    if "objectNameFilter" in found:
        (names,) = found["objectNameFilter"]
        found["objectNameFilter"] = {"inclusionPrefixes": names["inclusion_prefixes"]}
    return found


def as_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a security rule as the service has it."""
    found = {camel(key): value for key, value in rule.items()}
    (ports,) = found["tcpOptions"]
    found["tcpOptions"] = {"destinationPortRange": ports}
    found["isStateless"] = found.pop("stateless")
    return found


def camel(name: str) -> str:
    """Return the name of a field as the service has it: ``display_name`` is ``displayName``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
