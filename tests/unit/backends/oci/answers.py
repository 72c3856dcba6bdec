"""A Service that is not there: what each method of any client answers stands in a table, by its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oci_cluster.backends.oci.errors import refused

ROOT, JOBS = "ocid1.tenancy.oc1..t", "ocid1.compartment.oc1..jobs"


class Answers:
    """Answers what a test says: a value, what a function returns, or an error that is raised."""

    region = "us-ashburn-1"

    def __init__(self, **answers: Any) -> None:
        self.identity: tuple[dict[str, str], Any] = ({"tenancy": ROOT}, None)
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def client_of(self, _: Any) -> Any:
        client = SimpleNamespace(base_client=SimpleNamespace(signer="signs"))
        for name in self.answers:
            setattr(client, name, self._method(name))
        return client

    def _method(self, name: str) -> Any:
        def request(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            found = self.answers[name]
            found = found(*args, **kwargs) if callable(found) else found
            if isinstance(found, Exception):
                raise found
            return SimpleNamespace(data=found, headers={})

        request.__name__ = name
        return request

    def call(self, _: str, request: Any, *args: Any, patience_s: float, **kwargs: Any) -> Any:
        assert patience_s <= 30  # somebody waits
        return request(*args, **kwargs)

    def all_pages(self, what: str, request: Any, *args: Any, **kwargs: Any) -> Any:
        found = self.call(what, request, *args, **kwargs).data
        return getattr(found, "items", found)

    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


def item(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def unseen(operation: str = "") -> Exception:
    """Return what OCI says where somebody may not see something."""
    return refused("look", 404, "NotAuthorizedOrNotFound", "Not there", "r", operation=operation)
