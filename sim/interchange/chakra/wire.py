"""Protocol Buffers on the wire: the little that Chakra files need, both ways, without generated code.

A message is fields of (number, type, value): varint (0), 8 bytes (1), length-delimited (2), 4 bytes (5). A Chakra file is
messages, each behind its length as a varint.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
#: a varint has at most ten bytes
_MAX_SHIFT = 63


class WireError(ValueError):
    """The bytes are no message; `position` says where."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(f"{what} at byte {position}")
        self.position = position


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position after it) of the unsigned varint at `at`."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise WireError("cut varint", at)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise WireError("overlong varint", at)


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field number, wire type, value) of one message; raises WireError where it is none."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError("field number 0", at)
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"wire type {kind}", at)
        if at + size > len(data):
            raise WireError("cut field", at)
        yield number, kind, data[at : at + size]
        at += size


def varints(value: int | bytes) -> list[int]:
    """A repeated integer field: packed (bytes) or a single value."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = read_varint(value, at)
        found.append(number)
    return found


def signed(value: int) -> int:
    """Two's complement of int32 and int64 fields."""
    return value - 2**64 if value >= 2**63 else value


def zigzag(value: int) -> int:
    """sint32 and sint64 fields."""
    return (value >> 1) ^ -(value & 1)


def messages(data: bytes) -> Iterator[bytes]:
    """Each length-prefixed message of a file; raises WireError when the last one is cut."""
    at = 0
    while at < len(data):
        start = at
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise WireError("cut message", start)
        yield data[at : at + size]
        at += size


def varint(value: int) -> bytes:
    """An integer as varint; negative ones as 64-bit two's complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(number: int, value: int) -> bytes:
    """A varint field."""
    return varint(number << 3 | VARINT) + varint(value)


def text(number: int, value: str) -> bytes:
    """A string field."""
    return chunk(number, value.encode())


def chunk(number: int, value: bytes) -> bytes:
    """A length-delimited field: string, bytes, message, packed list."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def packed(number: int, values: Iterable[int]) -> bytes:
    """A packed list of integers; nothing when it is empty."""
    body = b"".join(varint(value) for value in values)
    return chunk(number, body) if body else b""


def double(number: int, value: float) -> bytes:
    """A double field."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def framed(message: bytes) -> bytes:
    """A message behind its length."""
    return varint(len(message)) + message
