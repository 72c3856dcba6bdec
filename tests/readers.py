"""Those who may read what a service tells of a cluster: the words that they see, and doors on which they try them."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.parse import quote

from oci_cluster.contract.files.signing import derived_key
from oci_cluster.contract.session import verifier_of
from oci_cluster.launcher.session.kinds import Kind

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


# By which ways who has the token gets in: it is in the address, in a header, or in a cookie that an address has led to.
WAYS = {
    "hello": {"address", "header"},
    "tensorboard": {"address", "cookie"},
    "jupyter": {"address", "header", "cookie"},
}


def opens(address: str, kind: Kind, launch_id: str, word: str) -> set[str]:
    """Return the ways by which a session's server lets in who shows *word*."""
    of_jupyter = re.sub("[^A-Za-z0-9]", "-", f"username-{address}:{kind.port}")  # jupyter_server, auth/identity.py
    cookies = [f"{name}={word}" for name in (f"session-{launch_id}", of_jupyter)]
    open_ways = set()
    for way in ("address", "header", "cookie"):
        connection = http.client.HTTPConnection(address, kind.port, timeout=60)
        path = kind.probe.format(token=quote(word if way == "address" else ""))
        shown = {"header": {"Authorization": f"token {word}"}, "cookie": {"Cookie": "; ".join(cookies)}}
        connection.request("GET", path, headers=shown.get(way, {}))
        answer = connection.getresponse()
        if answer.status not in {401, 403}:
            open_ways.add(way)
        cookies += [each.partition(";")[0] for each in answer.headers.get_all("Set-Cookie", [])]
        connection.close()
    return open_ways
