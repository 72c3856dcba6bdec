"""Which work dirs are opened that a Job tells: whoever may make a Job there may have written it."""

from __future__ import annotations

import re

from oci_cluster.errors import LostPlanError
from oci_cluster.system.text import printable

# A bucket, which is asked with who reads as its identity. fsspec knows other words: some dial, some run what they are
# told, as `dask://` does, and `::` chains them.
_BUCKET = re.compile(r"oci://[A-Za-z0-9._-]+@[A-Za-z0-9._-]+(/[^:]*)?")


def checked(url: str, own: str, what: str) -> str:
    """Return the work dir *url* that *what*, such as `the Job x`, tells; it is in a bucket, or who reads has set it.

    Args:
        url: Anybody's word.
        own: ``WORK_DIR`` of who reads; empty where it is not set.
        what: Where *url* stands, for people.

    Raises:
        LostPlanError: it is neither, and is not opened.
    """
    if "::" not in url and (_BUCKET.fullmatch(url) or (own and url.rstrip("/") == own.rstrip("/"))):
        return url
    msg = f"{what} tells of a WORK_DIR that is not opened unasked: {printable(url)}; if it is yours, set WORK_DIR to it"
    raise LostPlanError(msg)
