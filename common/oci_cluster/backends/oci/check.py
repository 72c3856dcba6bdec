"""What ``check.sh`` looks at on OCI: first what nobody needs to be asked for, then what the tenancy has."""

from __future__ import annotations

from collections.abc import Iterator

from oci_cluster.backends.findings import Checked, Finding, Verdict, unknown
from oci_cluster.backends.oci import check_settings
from oci_cluster.errors import ClusterError, SettingsError
from oci_cluster.system.console import Say

# What cannot be told of a compartment that is not seen.
_IN_COMPARTMENT = {"access": "groups and policies", "room": "shapes and hosts"}


def findings(checked: Checked, say: Say) -> Iterator[Finding]:
    """Yield what was found of the launch that *checked* is about, item by item."""
    yield from check_settings.findings(checked, say)
    yield from of_tenancy(checked)


def of_tenancy(checked: Checked) -> Iterator[Finding]:
    """Yield what the tenancy tells; where it does not know who asks, that alone."""
    # The SDK, which may not be there before.
    from oci_cluster.backends.oci import check_access, check_image, check_network, check_places, check_room  # noqa: PLC0415
    from oci_cluster.backends.oci.service import Service, service_environ  # noqa: PLC0415
    from oci_cluster.backends.oci.tenancy import Tenancy  # noqa: PLC0415

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
    for part in (check_places, check_network, check_image, check_access, check_room):
        name = part.__name__.rpartition("_")[2]
        if name in _IN_COMPARTMENT and not is_there:
            yield unknown(name, f"{_IN_COMPARTMENT[name]} were not looked at, as the compartment is not seen")
            continue
        try:
            for finding in part.findings(checked, tenancy, needed):
                is_there = is_there and (finding.item, finding.verdict) != (check_places.COMPARTMENT, Verdict.FAILS)
                yield finding
        except ClusterError as error:
            yield unknown(name, f"the look at it ended here: {error}")
