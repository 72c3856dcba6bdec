"""Has TensorFlow's library bind a port on one address where it would on all: ``narrow``.

The library is an ELF file, loaded by the dynamic loader; elf(5) describes the tables that are read here.
"""

from __future__ import annotations

import ctypes
import re
import socket
import struct
import sys

# The libraries that hold gRPC's servers: since 2.12 the first; the second in older ones.
_LIBRARIES = re.compile(r"/(libtensorflow_cc\.so|libtensorflow_framework\.so|_pywrap_tensorflow_internal\.so)[.\d]*$")
# Entries of a library's dynamic section.
_PLT_SIZE, _STRINGS, _SYMBOLS, _PLT = 2, 5, 6, 23
_BIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, use_errno=True)
# What is handed to the library must stay for as long as that may call it.
_kept = []


def narrow(address: str, port: int) -> None:
    """Have the library bind *port* on *address* alone, where it asks for all addresses.

    Raises:
        OSError, ValueError: this cannot be done here.
    """
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        msg = "this system's libraries are not known here"
        raise OSError(msg)
    own = narrowing(address, port)
    places = [place for base in library_bases() for place in entries_of(base, b"bind")]
    if not places:
        msg = "its library has no call of bind that could be changed"
        raise OSError(msg)
    for place in places:
        check_writable(place)
    _kept.append(own)
    for place in places:
        ctypes.c_void_p.from_address(place).value = ctypes.cast(own, ctypes.c_void_p).value


def narrowing(address: str, port: int) -> object:
    """Return a C function that binds as ``bind`` does, but *port* on *address* in the place of all addresses."""
    system_bind = ctypes.CDLL(None, use_errno=True).bind
    system_bind.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)

    def bind(descriptor: int, where: int, length: int) -> int:
        wanted = narrowed(ctypes.string_at(where, length), address, port)
        return int(system_bind(descriptor, ctypes.cast(wanted, ctypes.c_void_p), length))

    return _BIND(bind)


def narrowed(where: bytes, address: str, port: int) -> bytes:
    """Return *where*, a struct sockaddr, with *address* in the place of all addresses if it has *port*."""
    if len(where) < 8 or struct.unpack_from("!H", where, 2)[0] != port:
        return where
    (family,) = struct.unpack_from("=H", where)
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    if family == socket.AF_INET and len(packed) == 4 and where[4:8] == bytes(4):
        return where[:4] + packed + where[8:]
    if family == socket.AF_INET6 and len(where) >= 24 and where[8:24] == bytes(16):
        # gRPC has one socket for both kinds of address.
        packed = packed if len(packed) == 16 else b"\0" * 10 + b"\xff\xff" + packed
        return where[:8] + packed + where[24:]
    return where


def library_bases() -> list[int]:
    """Return where TensorFlow's libraries begin in this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123 - as in on_import.py
        lines = [line.split(maxsplit=5) for line in maps]
    found = [line for line in lines if len(line) == 6 and _LIBRARIES.search(line[5].rstrip())]
    return [int(line[0].partition("-")[0], 16) for line in found if int(line[2], 16) == 0]


def entries_of(base: int, name: bytes) -> list[int]:
    """Return where the library at *base* holds the addresses of the foreign function *name*."""
    headers, size, count = struct.unpack_from("=Q14xHH", ctypes.string_at(base, 64), 32)
    programs = [struct.unpack("=IIQQQQQQ", ctypes.string_at(base + headers + i * size, 56)) for i in range(count)]
    dynamic = next(base + program[3] for program in programs if program[0] == 2)
    tags = {}
    while (tag := struct.unpack("=QQ", ctypes.string_at(dynamic, 16)))[0]:
        tags[tag[0]] = tag[1]
        dynamic += 16
    if not {_PLT, _PLT_SIZE, _STRINGS, _SYMBOLS} <= tags.keys():
        return []
    # The loader has made addresses of them, where the system lets it write there.
    plt, strings, symbols = (tags[key] if tags[key] >= base else base + tags[key] for key in (_PLT, _STRINGS, _SYMBOLS))
    found = []
    for offset, info, _ in struct.iter_unpack("=QQq", ctypes.string_at(plt, tags[_PLT_SIZE])):
        symbol = symbols + 24 * (info >> 32)
        if ctypes.string_at(strings + ctypes.c_uint32.from_address(symbol).value, len(name) + 1) == name + b"\0":
            found.append(base + offset)
    return found


def check_writable(place: int) -> None:
    """Raise an OSError where this process may not write to *place*."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123 - as above
        for line in maps:
            span, access = line.split(maxsplit=2)[:2]
            begin, end = (int(number, 16) for number in span.split("-"))
            if begin <= place < end and access[1] == "w":
                return
    msg = "its table of functions is read-only"
    raise OSError(msg)
