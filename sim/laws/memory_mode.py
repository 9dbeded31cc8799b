"""DRAM as a direct-mapped cache of persistent memory (Optane's memory mode): what hits, and what a byte moves.

The memory controller keeps lines of 64 B and their tags in DRAM; a line of persistent memory has one place there, at its
address modulo the DRAM. Linux deals out pages of 4 KiB, so pages of a working set W share places of a DRAM of C bytes by
chance: scattered pages meet Poisson(W / C) others in a place. A step sweeps its data in order, so that a page hits only if
it has its place for itself: exp(-W / C). Contiguous pages (a freshly started machine, huge pages) share none until W = C, two
of them a place until 2 C: hits (2 C - W) / W. Each access reads DRAM for the tag; a miss reads persistent memory and fills
DRAM, a dirty victim goes back: up to five accesses for one (Hildebrand, Angeles, Lowe-Power and Akella, A Case Against
Hardware Managed DRAM Caches for NVRAM Based Systems, ISPASS 2021, table of access amplification).
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: a miss waits for the tag in DRAM before persistent memory is asked (Moon, Oh and Ahn, Journal of KIISE 47 (10), 2020)
TAG_LATENCY_S = 70e-9


class Moved(NamedTuple):
    """Bytes per byte of traffic: of the DRAM and of the memory behind it, read and written."""

    near_read: float
    near_written: float
    far_read: float
    far_written: float

    @property
    def near_write_share(self) -> float:
        """Share of writes in the DRAM's traffic."""
        return self.near_written / (self.near_read + self.near_written)


def hit_share(working_set_bytes: float, cache_bytes: float, *, is_scattered: bool = True) -> float:
    """Share of the accesses of a repeated sweep over the working set that DRAM answers."""
    filled = working_set_bytes / cache_bytes
    if is_scattered:
        return math.exp(-filled)
    return 1.0 if filled <= 1.0 else max(0.0, 2.0 - filled) / filled


def moved(write_share: float, miss_share: float) -> Moved:
    """What one byte of traffic with this write share moves when this share of its lines misses.

    Writes up to the reads are of lines that were read just before, found without another look at the tag; the rest looks up
    its tag first. Each written line that is evicted is written back.
    """
    reads, w, m = 1.0 - write_share, write_share, miss_share
    blind = max(0.0, w - reads)
    return Moved(
        near_read=reads + blind,
        near_written=(w - blind) + reads * m + blind * (1.0 + m),
        far_read=(reads + blind) * m,
        far_written=w * m,
    )
