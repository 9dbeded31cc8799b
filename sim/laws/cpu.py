"""CPU work that memory decides: the Adam update of offloaded optimizer states."""

from __future__ import annotations

from math import exp
from typing import NamedTuple

from sim.held_out import Fitted

#: bytes per element of fp32 Adam on the host: weight, gradient and two moments read (16), weight and moments written (12)
ADAM_BYTES = 28.0
ADAM_WRITE_SHARE = 12.0 / 28.0
#: share of what a DRAM bus streams that an update in place reaches, whose threads each walk four arrays and write three of
#: them; links bind before that; fit over Grace, a Threadripper 3970X and two H200 hosts; without it: as one stream
IN_PLACE_SHARE = Fitted(0.91, 1.0, ("superoffload/grace", "lsp-offload/llama-7b", "prime-rl/glm5-171b"))
#: share of the bound rate when threads wander over NUMA nodes: fit on DeepSpeed runs of 1 to 16 ranks (arXiv 2410.21316);
#: without them: half of the accesses are remote, at half the rate
UNBOUND_SHARE = Fitted(
    0.61,
    0.67,
    tuple(f"deep-optimizer-states/{job}" for job in ("7b-scale-dp", "13b-scale-dp", "13b-scale-gaps-scale-dp", "30b")),
)
#: seconds that ranks on the same unbound cores wait for each other's time slices at the end of an update; fit, one machine:
#: two processes of 5 to 73 million elements (numa-cpu-adam-bench, nproc 2); without it: half a scheduling period of Linux on
#: eight or more cores (24 ms, sched-design-CFS)
UNBOUND_WAIT_S = Fitted(16e-3, 12e-3, ("liaw-chen-2025/dram", "liaw-chen-2025/cpu-adam"))
#: cycles of one core per element where the kernel has no vector code for the CPU (a square root, a division and ten
#: simple operations, one after the other); fit on CPUAdam, Grace (DeepSpeed blog on SuperOffload); without it: 8 cycles for
#: each of the two and one for each operation (Arm, software optimization guide of Neoverse V2)
SCALAR_CYCLES = Fitted(22.0, 26.0, ("superoffload/grace",))
#: page faults that all cores of a Linux process take together, per second: temporaries of torch's update are mapped anew
#: each step; fit on PT-CPU, table 4 of ZeRO-Offload; without it: what one rank's flushes in Deep Optimizer States leave for
#: faults (0.47 to 0.58 ns per parameter of 2 B, where copies and casts account for 0.31)
FAULTS_PER_S = Fitted(3.6e6, 2.3e6, ("zero-offload/table-4-torch",))
#: seconds that a core loses when it turns to another process (4 us directly, the rest to fill its caches again: Li et al.,
#: Quantifying the cost of context switch, 2007, up to 1 ms; assumed, 50 to 300 us), and seconds that each process runs
#: between two turns (Linux, smallest slice with eight cores and more, sched-design-CFS)
SWITCH_S, SLICE_S = 100e-6, 3e-3
#: bytes/s that Adam draws from the last-level cache per core where a part does not say: 569 GB/s with 84 MB of states on a
#: large Xeon (numa-cpu-adam-bench), +-40 % elsewhere; without it: 8 B per cycle at 2 GHz
CACHE_BYTES_PER_CORE_S = Fitted(10e9, 16e9, ("liaw-chen-2025/dram", "liaw-chen-2025/cpu-adam"))
#: bytes of one element's states that stay in cache between steps of a microbenchmark: 16 read
_CACHED_BYTES = 16.0


class Adam(NamedTuple):
    """An implementation: bytes per fp32 element and write share, bytes of temporaries, whether only AVX is vectorised,
    whether one pass walks all arrays."""

    size_bytes: float = ADAM_BYTES
    write_share: float = ADAM_WRITE_SHARE
    temporary_bytes: float = 0.0
    needs_avx: bool = False
    is_fused: bool = True


#: simd = DeepSpeed's CPUAdam, fused, AVX only; grace = the same in Arm vectors; torch = one pass per operation: multiply
#: and add per moment (8 + 12, 8 + 12), root 8, division 8, addition 8, update 16 and the zeroing of two temporaries
#: (8, and 8 read for ownership)
IMPLEMENTATIONS = {
    "simd": Adam(needs_avx=True),
    "grace": Adam(),
    "torch": Adam(size_bytes=96.0, write_share=0.4, temporary_bytes=8.0, is_fused=False),
}


def cached_elements(num_elements: float, cache_bytes: float) -> float:
    """Elements whose states the last-level cache holds from one update to the next.

    S bytes of states fall by address hash on C bytes of cache lines; C (1 - exp(-S / C)) of them are occupied.
    """
    if cache_bytes <= 0.0:
        return 0.0
    capacity = cache_bytes / _CACHED_BYTES
    return capacity * (1.0 - exp(-num_elements / capacity))


def shared_work(core_s: float, num_processes: float, num_cores: float) -> float:
    """Core-seconds of work that `num_processes` share: more of them than cores lose time to turns."""
    return core_s * (1.0 + SWITCH_S / SLICE_S) if num_processes > num_cores else core_s


def scalar_time(num_elements: float, num_cores: int, clock_hz: float) -> float:
    """Seconds of the arithmetic of an update without vector code; 0 for a CPU whose clock is not stated."""
    return num_elements * SCALAR_CYCLES.get() / (num_cores * clock_hz) if clock_hz else 0.0


def fault_time(size_bytes: float, page_bytes: float) -> float:
    """Seconds in which a process maps `size_bytes` of fresh memory in pages of `page_bytes`."""
    return size_bytes / page_bytes / FAULTS_PER_S.get()
