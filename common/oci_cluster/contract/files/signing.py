"""Signatures of files in the work dir: only the launch has ``LAUNCH_KEY``."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

UNSIGNED = "not signed by this launch: somebody else wrote it, or a node of another version"
OTHER_LIFE = "of another life of this launch"
OLDER = "older than what was there before: somebody has put it back"

# HMAC-SHA256. Its keys have as many bytes as its output (RFC 2104).
_HASH = "sha256"


def derived_key(launch_key: str, launch_id: str, purpose: str) -> bytes:
    """Return the key of *purpose*, 32 bytes: a signature counts for one purpose.

    Without a *launch_key* the *launch_id* stands for it. That one is no secret: it names the cluster dir.
    """
    return hmac.digest((launch_key or launch_id).encode(), purpose.encode(), _HASH)


class Signer:
    """Signs the JSON files of one launch, and checks the signatures of others.

    A signature is over the file's name and all fields, ``launch_id`` and ``counter`` among them. The counter is the
    writer's clock in nanoseconds, and grows with each file, so that an older file is not taken for a newer one.
    """

    def __init__(self, key: bytes, *, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._key = key
        self._wall_clock_ns = wall_clock_ns
        # The greatest counter that was written or read: who follows another is later, whatever its clock shows.
        self._counter = 0
        self._seen: dict[str, int] = {}

    def forget(self, kept: Collection[str]) -> None:
        """Forget which counters were read, except those of the files *kept*."""
        self._seen = {name: counter for name, counter in self._seen.items() if name in kept}

    def sign(self, name: str, fields: Mapping[str, Any]) -> tuple[bytes, int]:
        """Return the content of the file *name* that holds *fields*, and its counter."""
        self._counter = max(self._wall_clock_ns(), self._counter + 1)
        # As a reader will see it: a tuple is a list there.
        signed = json.loads(json.dumps({**fields, "counter": self._counter}))
        return json.dumps({**signed, "mac": self._mac(name, signed)}).encode(), self._counter

    def refusal(self, name: str, fields: dict[str, Any]) -> str:
        """Return why the file *name* is not to be used, if so; removes ``mac``."""
        mac = str(fields.pop("mac", "")).encode(errors="replace")
        if not hmac.compare_digest(mac, self._mac(name, fields).encode()):
            return UNSIGNED
        counter = fields.get("counter")
        if type(counter) is not int:  # where the launch id is the key, anybody signs anything
            return UNSIGNED
        if counter < self._seen.get(name, 0):
            return OLDER
        self._seen[name] = counter
        self._counter = max(self._counter, counter)
        return ""

    def _mac(self, name: str, fields: Mapping[str, Any]) -> str:
        text = json.dumps([name, fields], sort_keys=True, separators=(",", ":"))
        return hmac.digest(self._key, text.encode(), _HASH).hex()
