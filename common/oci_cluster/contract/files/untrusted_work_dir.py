"""Checks a work dir that a Job names before it is opened."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import LostPlanError
from oci_cluster.system.text import printable

# A bucket, which is asked with the identity of the reader. fsspec knows other words: some dial, some run what they are
# told, as `dask://` does, and `::` chains them.
_BUCKET = re.compile(r"oci://[A-Za-z0-9._-]+@([A-Za-z0-9._-]+)(/[^:]*)?")


def own_work_dirs(given: Mapping[str, str], cluster: Cluster, root: Path) -> set[str]:
    """Return the reader's work dirs: of *given*, and of this checkout's launch."""
    try:
        kept = Plan.load(cluster.directory, root).work_dir
    except LostPlanError:  # another checkout has launched it
        kept = ""
    return {given.get("WORK_DIR", ""), kept} - {""}


def checked(url: str, own: Collection[str], what: str) -> str:
    """Return the work dir *url* that *what*, such as ``the Job x``, names.

    It is, among the reader's *own*, or in a bucket; if these are buckets, in one of their namespaces.
    """
    namespaces = {found[1] for one in own if (found := _BUCKET.fullmatch(one))}
    bucket = _BUCKET.fullmatch(url) if url.isprintable() else None  # messages name it
    is_bucket = bucket is not None and (not namespaces or bucket[1] in namespaces)
    if "::" not in url and (is_bucket or url.rstrip("/") in {one.rstrip("/") for one in own}):
        return url
    raise LostPlanError(
        f"{what} names a WORK_DIR that is not opened without being asked: {printable(url)};"
        " if it is yours, set WORK_DIR to it"
    )
