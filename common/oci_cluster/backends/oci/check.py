"""What ``check.sh`` looks at on OCI: first what nobody needs to be asked for, then what the tenancy has."""

from __future__ import annotations

from collections.abc import Iterator

from oci_cluster.backends.findings import Checked, Finding
from oci_cluster.backends.oci import check_settings
from oci_cluster.system.console import Say


def findings(checked: Checked, say: Say) -> Iterator[Finding]:
    """Yield what was found of the launch that *checked* is about, item by item."""
    yield from check_settings.findings(checked, say)
    from oci_cluster.backends.oci import check_tenancy  # noqa: PLC0415 - the SDK

    yield from check_tenancy.findings(checked)
