"""Loopback addresses that a cluster has alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oci_cluster.backends.local import addresses as local
from oci_cluster.errors import BackendError

linux = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.x and abstract sockets are Linux's")

pytestmark = pytest.mark.usefixtures("no_other_claims")


@linux
def test_nodes_get_the_lowest_addresses_that_no_other_cluster_has() -> None:
    """The first cluster's main is where people look for it; two clusters share no address, so they may share ports."""
    with local.Addresses(3) as first:
        assert first.texts == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        with local.Addresses(2) as second:
            assert second.texts == ["127.0.0.4", "127.0.0.5"]
    with local.Addresses(1) as third:
        assert third.texts == ["127.0.0.1"]


@linux
def test_addresses_that_do_not_suffice_are_counted_and_given_up() -> None:
    """The message holds the value, the limit and the next step; nothing stays claimed."""
    with local.Addresses(252):
        with pytest.raises(
            BackendError, match=r"3 nodes do not fit: running clusters leave 2 addresses; end one: scripts/stop.sh$"
        ):
            local.Addresses(3)
        with local.Addresses(2) as rest:
            assert rest.texts == ["127.0.0.253", "127.0.0.254"]


@linux
def test_claim_lives_as_long_as_a_process_that_inherited_it() -> None:
    """The runner holds its cluster's addresses, not the launcher."""
    with local.Addresses(1) as claimed:
        holder = subprocess.Popen(["sleep", "100"], pass_fds=claimed.descriptors())
    try:
        with local.Addresses(1) as other:
            assert other.texts == ["127.0.0.2"]
    finally:
        holder.kill()
        holder.wait()
    with local.Addresses(1) as again:
        assert again.texts == ["127.0.0.1"]


def test_without_a_loopback_range_nodes_share_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS has 127.0.0.1 alone."""
    monkeypatch.setattr(local, "has_loopback_range", lambda: False)
    with local.Addresses(2) as addresses:
        assert (addresses.texts, addresses.descriptors()) == (["127.0.0.1", "127.0.0.1"], [])


@linux
def test_claims_are_made_together_or_not_at_all() -> None:
    """Where somebody has one of them, the others are nobody's."""
    with local.Addresses(1) as mine, local.Addresses(1) as yours:
        assert mine.claim(["*:2"])
        assert not yours.claim(["*:1", "*:2"])
        assert mine.claim(["*:1"])
