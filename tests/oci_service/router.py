"""Which operation a request is, by its method and path."""

from __future__ import annotations

import re
from urllib.parse import unquote

from oci_service.resources import Operation, Refusal, Route


class Router:
    """Finds the operation of a request by method and path."""

    def __init__(self, service: str, routes: list[Route]) -> None:
        self._service = service
        self._routes: dict[str, list[tuple[re.Pattern[str], str, Operation]]] = {}
        for method, path, name, function in routes:
            pattern = re.sub(r"\\\{(\w+)\\\*\\\}|\\\{(\w+)\\\}", _group, re.escape(path))
            self._routes.setdefault(method, []).append(
                (re.compile(pattern), name if "." in name else f"{service}.{name}", function)
            )

    @property
    def names(self) -> set[str]:
        """The names of its operations."""
        return {name for routes in self._routes.values() for _, name, _ in routes}

    def find(self, method: str, path: str) -> tuple[str, Operation, dict[str, str]]:
        """Return the operation's name, what does it, and the parts of the path that vary."""
        path = path if path == "/" else path.rstrip("/")
        for pattern, name, function in self._routes.get(method, []):
            if found := pattern.fullmatch(path):
                return name, function, {key: unquote(value) for key, value in found.groupdict().items()}
        raise Refusal(404, "NotFound", f"The stand-in has no operation {method} {path} in {self._service}")


def _group(match: re.Match[str]) -> str:
    return f"(?P<{match[1]}>.+)" if match[1] else f"(?P<{match[2]}>[^/]+)"
