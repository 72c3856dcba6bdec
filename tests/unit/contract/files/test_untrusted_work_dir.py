"""Work dirs that Jobs tell: anybody's word, of which no more is opened than who reads would open unasked."""

from __future__ import annotations

import pytest

from oci_cluster.contract.files.untrusted_work_dir import checked
from oci_cluster.errors import LostPlanError


@pytest.mark.parametrize("url", ["oci://bucket@ns", "oci://bucket@ns/", "oci://my-bucket.1@ns_2/team a/work"])
def test_a_bucket_is_opened_with_who_reads_as_its_identity(url: str) -> None:
    assert checked(url, (), "the Job x") == url


def test_a_bucket_of_another_tenancy_is_not_asked() -> None:
    """The namespace of the reader's own bucket counts."""
    assert checked("oci://other@ns/x", {"oci://mine@ns/work"}, "the Job x") == "oci://other@ns/x"
    with pytest.raises(LostPlanError, match="set WORK_DIR to it"):
        checked("oci://mine@evil/work", {"oci://mine@ns/work", "s3://mine"}, "the Job x")


def test_what_who_reads_has_set_is_theirs() -> None:
    assert checked("s3://mine/work/", {"s3://mine/work"}, "the Job x") == "s3://mine/work/"


@pytest.mark.parametrize(
    "url",
    [
        "dask://evil:8786::file:///x",
        "oci://bucket@ns/x::dask://evil:8786",
        "oci://bucket@ns:8080/x",
        "oci://bucket/x",
        "local://x",
        "ftp://evil/x",
        "http://evil/x",
        "simplecache::oci://bucket@ns/x",
        "file:///home/ann",
        "s3://mine/workshop",
        "\x1b[2Joci://bucket@ns",
        "oci://bucket@ns/\x1b[2J",
    ],
)
def test_nothing_else_is_opened(url: str) -> None:
    """It is named, without what a terminal would obey, and with what to do."""
    with pytest.raises(LostPlanError, match="if it is yours, set WORK_DIR to it") as error:
        checked(url, {"s3://mine/work"}, "the Job x")
    assert "\x1b" not in str(error.value)


def test_a_chain_is_not_opened_whoever_has_set_it() -> None:
    with pytest.raises(LostPlanError):
        checked("dask://evil::file:///x", {"dask://evil::file:///x"}, "the Job x")
