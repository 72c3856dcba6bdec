"""Those who may read what a service tells of a cluster: the words that they see, and doors on which they try them."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.parse import quote

from oci_cluster.contract.files.signing import derived_key
from oci_cluster.contract.session import verifier_of
from oci_cluster.launcher.session.types import Kind

PURPOSES = ("session", "client", "exchange", "logs", "certificate", "rendezvous")


def strings_of(value: object) -> Iterator[str]:
    """Yield all names and texts in *value*, which JSON can hold, also those between blanks and commas."""
    if isinstance(value, dict | list):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from strings_of(each)
    else:
        yield str(value)
        yield from re.split(r"[\s,]+", str(value))


def made_of(text: str) -> set[str]:
    """Return what might be a token of *text*: as it is; of a key also its hash, and the keys that the product makes."""
    if not re.fullmatch("[0-9a-f]{8,}", text):
        return {text} if len(text) >= 8 and text.isascii() and text.isprintable() else set()
    return {text, verifier_of(text), *(derived_key(text, "", purpose).hex() for purpose in PURPOSES)}


def opens(address: str, kind: Kind, launch_id: str, word: str) -> bool:
    """Return whether a session's server lets in who shows *word*: in the address; as a login, and in cookies."""
    of_jupyter = re.sub("[^A-Za-z0-9]", "-", f"username-{address}:{kind.port}")  # jupyter_server, auth/identity.py
    cookie = "; ".join(f"{name}={word}" for name in (f"session-{launch_id}", of_jupyter))
    said = set()
    for token, headers in ((word, {}), ("", {"Authorization": f"token {word}", "Cookie": cookie})):
        connection = http.client.HTTPConnection(address, kind.port, timeout=60)
        connection.request("GET", kind.probe.format(token=quote(token)), headers=headers)
        said.add(connection.getresponse().status)
        connection.close()
    return not said <= {401, 403}
