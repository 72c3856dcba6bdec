"""What main and another node say to each other where ``WORK_DIR`` is ``main://``: frames that the launch key proves.

A connection begins with a random challenge of each side, main's first. After that the node asks and main answers, one
after the other: a frame each, with a number that both count. A frame is the lengths of its two parts, a JSON object,
the content of a file, and an HMAC-SHA256 over all of it, over both challenges, the number and the direction. So nobody
without the launch key can ask or answer, and nobody can play a frame again: not in another connection, not at another
place in this one, not in the other direction.
"""

from __future__ import annotations

import hmac
import json
import struct
from collections.abc import Mapping
from typing import Any

# What main says first, before its challenge: who speaks something else is no main.
GREETING = b"oci-cluster exchange 1\n"
CHALLENGE_BYTES = 32
PROOF_BYTES = 32
HEAD = struct.Struct("!II")

# The first frame of a connection, whose sender nobody knows yet: what is kept for it, somebody else may fill.
MAX_FIRST = 256
# A request: a name and some numbers; an answer: an error in words.
MAX_HEADER = 4 << 10
# A file.
MAX_FILE = 1 << 20
# The list of all files, whose names have 255 characters at most.
MAX_LIST = 8 << 20

ASKING, ANSWERING = b"?", b"!"


class Unproved(Exception):  # noqa: N818 - it is no bug of whoever meets it, and becomes another error there
    """A frame is not of who has the launch key, not at its place, or longer than any can be."""


class Seals:
    """Seals and opens the frames of one connection, in one direction."""

    def __init__(self, key: bytes, challenges: bytes, direction: bytes) -> None:
        """Count from 0.

        Args:
            key: The launch's, for this purpose.
            challenges: Main's, and then the other node's.
            direction: :data:`ASKING` or :data:`ANSWERING`.
        """
        self._begun = hmac.new(key, direction + challenges, "sha256")
        self._number = 0

    def seal(self, header: Mapping[str, Any], body: bytes = b"") -> bytes:
        """Return the next frame."""
        text = json.dumps(header).encode()
        lengths = HEAD.pack(len(text), len(body))
        return b"".join((lengths, text, body, self._proof(lengths, text, body)))

    def open(self, lengths: bytes, rest: bytes | bytearray) -> tuple[dict[str, Any], bytes]:
        """Return header and body of the next frame.

        Raises:
            Unproved: it is none.
        """
        header_bytes, body_bytes = HEAD.unpack(lengths)
        text, body = bytes(rest[:header_bytes]), bytes(rest[header_bytes : header_bytes + body_bytes])
        if not hmac.compare_digest(bytes(rest[header_bytes + body_bytes :]), self._proof(lengths, text, body)):
            raise Unproved("not of this launch: another LAUNCH_KEY")
        header = json.loads(text)
        if not isinstance(header, dict):
            raise Unproved("not a JSON object")
        return header, body

    def _proof(self, lengths: bytes, text: bytes, body: bytes) -> bytes:
        proof = self._begun.copy()
        # Numbers and lengths have a fixed size: two different frames are never the same text.
        proof.update(struct.pack("!Q", self._number) + lengths)
        proof.update(text)
        proof.update(body)
        self._number += 1
        return proof.digest()


def rest_bytes(lengths: bytes, max_header: int, max_body: int) -> int:
    """Return how many bytes of a frame follow its *lengths*.

    Raises:
        Unproved: more than there can be.
    """
    header_bytes, body_bytes = HEAD.unpack(lengths)
    if header_bytes > max_header or body_bytes > max_body:
        raise Unproved(f"a frame of {header_bytes} and {body_bytes} bytes; {max_header} and {max_body} are the limits")
    return int(header_bytes + body_bytes + PROOF_BYTES)
