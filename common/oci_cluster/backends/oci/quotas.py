"""Which quotas of a tenancy are about a limit of Data Science, and what an administrator says to have more of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

import oci

from oci_cluster.backends.oci.tenancy import Tenancy

SERVICE = "data-science"
# Source: OCI's documentation of quota policies: "set <service> quota <name> to <n> in compartment <path>", "zero
# <service> quotas in ..." about all of a service. Of several statements of a quota the last counts, of several quotas
# the least.
_STATEMENT = re.compile(
    rf"(set|unset|zero)\s+{SERVICE}\s+quotas?(\s+(?P<name>\S+?))?(\s+to\s+\d+)?\s+in\s+.+", re.IGNORECASE | re.DOTALL
)


def is_about(statement: str, limit: str) -> bool:
    """Return whether a quota's *statement* is about the *limit* of Data Science, by its name or as one of all."""
    found = _STATEMENT.fullmatch(statement.strip())
    if not found:
        return False
    name = (found["name"] or "").strip("/").lower()
    return not name or re.fullmatch(re.escape(name).replace(r"\*", ".*"), limit) is not None


def place_of(tenancy: Tenancy) -> str:
    """Return how a statement names the compartment of the Jobs: by the path from the tenancy."""
    chain = tenancy.chain(tenancy.places.jobs)
    names = [one.name for one in chain if not one.is_root]
    if not chain or not chain[-1].is_root or not all(names):
        return "compartment <its path from the tenancy>"
    return f"compartment {':'.join(reversed(names))}" if names else "tenancy"


def more(tenancy: Tenancy, limit: str, at_least: float, place: str) -> Iterator[str]:
    """Yield the lines that have quotas leave *at_least* so much of *limit* in a *place*.

    A command for each quota that is about it, which keeps its other statements; else the statement that is to be added.
    """
    statement = f"set {SERVICE} quota {limit} to {at_least:g} in {place}"
    client = tenancy.client(oci.limits.QuotasClient)
    listed = tenancy.ask_all("list the quotas", client.list_quotas, tenancy.id)
    quotas = [tenancy.ask("read a quota", client.get_quota, item.id) for item in listed.value or ()]
    own = [answer.value for answer in quotas if answer.is_given and _has(answer.value.statements, limit)]
    for quota in own:
        statements = shlex.quote(json.dumps([*quota.statements, statement]))
        yield f"oci limits quota update --quota-id {quota.id} --statements {statements} --force"
    if not own:
        yield "# an administrator adds this behind all others: Console > Governance & Administration > Quota Policies"
        yield f"# {statement}"


def _has(statements: Sequence[str], limit: str) -> bool:
    return any(is_about(text, limit) for text in statements)
