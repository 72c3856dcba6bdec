"""What ``check.sh`` asks of a tenancy: who asks, what is there, the network, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator

from oci_cluster.backends.findings import Checked, Finding, Verdict, unknown
from oci_cluster.backends.oci import check_access, check_image, check_network, check_places, check_room
from oci_cluster.backends.oci.service import Service, service_environ
from oci_cluster.backends.oci.tenancy import Tenancy
from oci_cluster.errors import ClusterError, SettingsError

_PARTS = {
    "places": check_places,
    "network": check_network,
    "image": check_image,
    "access": check_access,
    "room": check_room,
}
# What cannot be told of a compartment that is not seen.
_IN_COMPARTMENT = {"access": "groups and policies", "room": "shapes, limits and hosts"}


def findings(checked: Checked) -> Iterator[Finding]:
    """Yield what the tenancy tells; where it does not know who asks, that alone."""
    tenancy = Tenancy(Service(service_environ(checked.given)), checked.given)
    who = check_places.credentials(tenancy)
    yield who
    if who.verdict is not Verdict.FINE:
        yield unknown("tenancy", "nothing of it was looked at, as OCI has not said who asks")
        return
    try:
        needed = check_places.needed_by(checked, tenancy)
    except SettingsError as error:
        yield unknown("tenancy", f"nothing of it was looked at, as settings are wrong: {error.reason}")
        return
    is_there = True
    for name, part in _PARTS.items():
        if name in _IN_COMPARTMENT and not is_there:
            yield unknown(name, f"{_IN_COMPARTMENT[name]} were not looked at, as the compartment is not seen")
            continue
        try:
            for finding in part.findings(checked, tenancy, needed):
                is_there = is_there and (finding.item, finding.verdict) != (check_places.COMPARTMENT, Verdict.FAILS)
                yield finding
        except ClusterError as error:
            yield unknown(name, f"the look at it ended here: {error}")
