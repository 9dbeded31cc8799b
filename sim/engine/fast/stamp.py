"""When kept machine code is out of date."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

#: sources whose text or constants end up in the machine code
_SOURCES = (
    "fast/jit.py",
    "fast/c_source.py",
    "fast/c_code.py",
    "fast/heaps.py",
    "fast/flows.py",
    "fast/linking.py",
    "fast/fluid.py",
    "fast/bound.py",
    "fast/loop.py",
    "fast/layout.py",
    "flows.py",
    "fluid.py",
    "../laws/sharing.py",
)


def stamp() -> int:
    """Checksum of the sources."""
    value = 0
    for name in _SOURCES:
        value = crc32((Path(__file__).parents[1] / name).read_bytes(), value)
    return value
