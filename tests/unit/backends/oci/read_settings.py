"""The backend's settings as a test reads them."""

from __future__ import annotations

from typing import Any

import pytest
from unit.fake_oci import Checkout

from oci_cluster.backends.oci.settings import settings_of
from oci_cluster.errors import SettingsError

HINT = "(config.env.example explains each)"


def settings(checkout: Checkout, **given: str) -> dict[str, Any]:
    return settings_of(checkout.plan(**given), checkout.root)


def problem(checkout: Checkout, **given: str) -> str:
    """Return what is wrong, without what stands around it in every message."""
    with pytest.raises(SettingsError) as caught:
        settings(checkout, **given)
    text = str(caught.value)
    assert text.startswith("bad settings: ")
    assert text.endswith(f" {HINT}")
    assert caught.value.exit_code == 78
    return text.removeprefix("bad settings: ").removesuffix(f" {HINT}")
