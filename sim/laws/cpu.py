"""CPU work that memory decides: the Adam update of offloaded optimizer states."""

from __future__ import annotations

from collections.abc import Sequence

#: bytes per element of fp32 Adam on the host: weight, gradient and two moments read (16), weight and moments written (12)
ADAM_BYTES = 28.0
ADAM_WRITE_SHARE = 12.0 / 28.0
#: bytes of one element's states that stay in cache between steps of a microbenchmark: 16 read
_CACHED_BYTES = 16.0


def adam_time(
    num_elements: float,
    tiers: Sequence[tuple[float, float]],
    *,
    cache_bytes: float = 0.0,
    cache_bytes_per_s: float = 0.0,
) -> float:
    """Seconds of one Adam step over states spread page by page: (share, bytes/s at Adam's write share) of each tier.

    The part of the working set that the last-level cache holds from step to step moves at the cache's rate: without
    this filter small updates look up to 4x too slow (below about 300 MB of states).
    """
    cached = min(num_elements, cache_bytes / _CACHED_BYTES) if cache_bytes_per_s else 0.0
    per_byte = max((share / bandwidth for share, bandwidth in tiers if share > 0), default=0.0)
    memory_s = ADAM_BYTES * (num_elements - cached) * per_byte
    return memory_s + (ADAM_BYTES * cached / cache_bytes_per_s if cached else 0.0)
