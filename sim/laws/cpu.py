"""CPU work that memory decides: the Adam update of offloaded optimizer states."""

from __future__ import annotations

from collections.abc import Sequence

#: bytes per element of fp32 Adam on the host: weight, gradient and two moments read (16), weight and moments written (12)
ADAM_BYTES = 28.0
ADAM_WRITE_SHARE = 12.0 / 28.0
#: bytes per element and write share by implementation: fused SIMD kernels touch each state once; torch's unfused update
#: makes a pass per operation (about seven passes of 12 B and temporaries, DeepSpeed PR 735: 5 to 6x the fused time)
TRAFFIC = {"simd": (ADAM_BYTES, ADAM_WRITE_SHARE), "grace": (ADAM_BYTES, ADAM_WRITE_SHARE), "torch": (160.0, 0.4)}
#: share of the bound rate when threads wander over sockets: 0.34 / 0.54 of the DRAM peak in DeepSpeed runs
UNBOUND_SHARE = 0.63
#: bytes of one element's states that stay in cache between steps of a microbenchmark: 16 read
_CACHED_BYTES = 16.0


def cached_elements(num_elements: float, cache_bytes: float) -> float:
    """Elements whose states the last-level cache holds from one update to the next."""
    return min(num_elements, cache_bytes / _CACHED_BYTES)


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
    cached = cached_elements(num_elements, cache_bytes) if cache_bytes_per_s else 0.0
    per_byte = max((share / bandwidth for share, bandwidth in tiers if share > 0), default=0.0)
    memory_s = ADAM_BYTES * (num_elements - cached) * per_byte
    return memory_s + (ADAM_BYTES * cached / cache_bytes_per_s if cached else 0.0)
