"""Memory of the system's allocator on a superchip: pages lie where the CPU touched them first, access counters move them.

A GPU that loads from the CPU's memory over a coherent link counts its accesses; the driver is told of a region past a
threshold (256 accesses: a sweep passes it at once) and moves it into GPU memory while there is room. Nothing is evicted for
it. The driver serves a notification as it serves a batch of faults. Source: NVIDIA open GPU kernel modules,
uvm_gpu_access_counters.c (uvm_perf_access_counter_threshold 256); CUDA programming guide, system-allocated memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sim.laws.paging import gpu_fault_rate
from sim.placement.hot_cold import Scan
from sim.placement.plan import Entry, Placement
from sim.placement.policies import Demand, FirstTouch, Migration, Observation, Shares, TierView
from sim.records import TensorClass
from sim.topology.machine import Machine
from sim.workload.inference import Inference

NAME = "access_counter"
#: share of GPU memory that counters leave to the runtime's own allocations; assumed
_HEADROOM = 0.02


class AccessCounter:
    """The CPU touches first; each look moves what the GPU has read into free GPU memory, within the driver's rate."""

    def place(self, demands: Sequence[Demand], tiers: Sequence[TierView], options: Mapping[str, object]) -> Shares:
        """Pages land in the CPU's memory, the last of the tiers."""
        return FirstTouch().place(demands, tiers[-1:], options)

    def decide(self, seen: Observation, options: Mapping[str, object]) -> tuple[Migration, ...]:
        """Promotions only: system memory is not evicted from a GPU by counters."""
        scan = Scan(seen, hysteresis=float("inf"))
        rate = float(options["promotion_bandwidth_bytes_per_s"])  # type: ignore[arg-type]
        scan.promote(rate * seen.elapsed_s, _HEADROOM * seen.tiers[0].capacity_bytes)
        return tuple(scan.moves)


def counted_views(machine: Machine, device: str, taken: Mapping[str, float]) -> list[TierView]:
    """The GPU's own memory and its host's, as the GPU reads them, the faster first."""
    views = []
    for name in (machine.memory_tier(device), machine.resolve("dram", device)):
        route = machine.access(device, name)
        limits = [machine.channels[channel].bandwidth_per_s / cost for channel, cost in route.uses if cost > 0]
        capacity = machine.tiers[name].capacity_bytes
        views.append(
            TierView(
                name=name, free_bytes=max(0.0, capacity - taken.get(name, 0.0)), capacity_bytes=capacity,
                bandwidth_bytes_per_s=min(limits), latency_s=machine.latency(device, name),
            )
        )  # fmt: skip
    return views


def answer_while_moving_s(
    prefill_s: float, token_s: float, later_token_s: float, num_tokens: float, moved_bytes: float, rate_bytes_per_s: float
) -> float:
    """Seconds of an answer during which the driver moves so many bytes: tokens come faster as pages arrive.

    A token takes `token_s` before the move and `later_token_s` after it, in between in proportion to what is still to come:
    dt/dn = A - k t, so t(n) = A / k (1 - exp(-k n)) with A the first token's time after the prefill.
    """
    if moved_bytes < 1.0:
        return prefill_s + num_tokens * token_s
    done = min(moved_bytes, rate_bytes_per_s * prefill_s)
    first_s = token_s + (later_token_s - token_s) * done / moved_bytes
    gain = (token_s - later_token_s) * rate_bytes_per_s / moved_bytes
    left_s = (moved_bytes - done) / rate_bytes_per_s
    if abs(gain) * num_tokens < 1e-9:
        return prefill_s + num_tokens * first_s
    num_moving = -math.log(1.0 - gain * left_s / first_s) / gain
    if num_tokens <= num_moving:
        return prefill_s - first_s / gain * math.expm1(-gain * num_tokens)
    return prefill_s + left_s + (num_tokens - num_moving) * later_token_s


def driver_rate(machine: Machine, device: str) -> float:
    """Bytes/s at which the driver moves what the counters report."""
    return gpu_fault_rate(counted_views(machine, device, {})[-1].bandwidth_bytes_per_s, is_clean=True)


def on_system_memory(placement: Placement, workload: object, machine: Machine) -> Placement:
    """The placement of an answer whose weights the system allocated, where nothing says more: counters move them."""
    if not isinstance(workload, Inference) or not workload.is_system or not machine.gpus():
        return placement
    gpu = machine.gpus()[0]
    is_placed = any(entry.tensor_class == TensorClass.WEIGHTS for entry in placement.entries)
    if is_placed or machine.resolve("dram", gpu) == machine.memory_tier(gpu):
        return placement
    entry = Entry(
        tensor_class=TensorClass.WEIGHTS, shares={}, policy=NAME,
        options={"promotion_bandwidth_bytes_per_s": driver_rate(machine, gpu)},
    )  # fmt: skip
    return Placement(entries=(*placement.entries, entry), overflow=placement.overflow, replacement=placement.replacement)
