"""``WORK_DIR=main://host:port``: where main is, in whose memory the cluster dir is."""

from __future__ import annotations

import re

PURPOSE = "exchange-requests"
"""The word of the key by which main and the other nodes know each other."""

_PLACE = re.compile(
    r"main://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):(?P<port>\d{1,5})/?"
)


def is_at_main(url: str) -> bool:
    """Return whether *url* is one of these."""
    return url.startswith("main://")


def parse_place(url: str) -> tuple[str, int]:
    """Return host and port of main in the work dir *url*.

    Raises:
        ValueError: it has none, or more than these.
    """
    found = _PLACE.fullmatch(url)
    if found is None or not 0 < int(found["port"]) < 65536:
        msg = f"'{url}' is not main://HOST:PORT, with a name or an address of main and a port from 1 to 65535"
        raise ValueError(msg)
    return found["host"].strip("[]"), int(found["port"])
