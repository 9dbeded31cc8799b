"""Running out of memory with paging: what share of accesses misses, and how fast missing pages come back.

A training step sweeps its data in the same order every time. Under least-recently-used replacement such a sweep misses
either nothing (it fits) or everything (it does not): the page needed next is always the one evicted longest ago. Kernels
that detect refaults keep a part resident; at best the part that has room (Belady). Both bounds are offered.
Not modelled: compressed swap, huge-page swap, several swap devices with priorities.
"""

from __future__ import annotations

from sim.errors import InternalError

#: replacement policy -> what it does to a cyclic sweep
REPLACEMENTS = ("lru", "refault")
#: bytes brought in by one fault: vm.page-cluster = 3, 2^3 pages of 4 KiB (Linux admin-guide/sysctl/vm)
SWAP_CLUSTER_BYTES = 8 * 4096.0
#: software path of one major fault, beside the drive's own latency (assumed, +-50%: fault entry, swap cache, block layer)
SWAP_FAULT_S = 10e-6
#: share of a link's rate at which managed pages are prefetched into full memory: each block's eviction precedes its copy
PREFETCH_SHARE = 0.5
#: GPU managed memory: one batch of replayable faults moves about this many bytes and costs this long to service, beside
#: the copy itself (assumed, +-50%; sized so that a thrashing kernel sees single-digit GB/s, as reported for V100 to GH200)
GPU_FAULT_BATCH_BYTES = 512.0 * 1024
GPU_FAULT_BATCH_S = 45e-6


def miss_share(working_set_bytes: float, room_bytes: float, replacement: str = "lru") -> float:
    """Share of a cyclic sweep over `working_set_bytes` that is not resident when it is touched.

    "lru": 0 while it fits, 1 beyond; "refault": the part that has no room.
    """
    if replacement not in REPLACEMENTS:
        raise InternalError(f"unknown page replacement {replacement!r}")
    if working_set_bytes <= room_bytes or working_set_bytes <= 0:
        return 0.0
    return 1.0 if replacement == "lru" else 1.0 - max(0.0, room_bytes) / working_set_bytes


def swap_rate(device_latency_s: float, num_threads: float) -> float:
    """Bytes/s at which `num_threads` faulting threads bring pages in, each waiting for its own cluster."""
    return max(1.0, num_threads) * SWAP_CLUSTER_BYTES / (device_latency_s + SWAP_FAULT_S)


def gpu_fault_rate(link_bytes_per_s: float, *, is_clean: bool = False) -> float:
    """Bytes/s at which a GPU's faults bring managed pages over a link, evicting as many the other way.

    A batch is serviced, then copied; the eviction precedes the copy when memory is full. Pages that the host has a copy of
    (`is_clean`: advice read-mostly) are dropped instead of written back.
    """
    num_copies = 1.0 if is_clean else 2.0
    return GPU_FAULT_BATCH_BYTES / (GPU_FAULT_BATCH_S + num_copies * GPU_FAULT_BATCH_BYTES / link_bytes_per_s)


def cache_hit_share(data_bytes: float, room_bytes: float, epochs: float) -> float:
    """Share of all reads of a data set, swept `epochs` times, that the page cache answers.

    It fills while the first epoch reads; a set that is larger than the free memory evicts itself (least recently used).
    """
    if data_bytes <= 0.0 or data_bytes > room_bytes or epochs <= 1.0:
        return 0.0
    return 1.0 - 1.0 / epochs
