"""Kernels of one operation as one flow: their times added, their bytes on the device's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.held_out import held_out
from sim.kept import Kept
from sim.laws.kernels import solo_parts, zero_copy_bytes
from sim.program.transfers import Flow
from sim.records import INFINITY, StepOperation, Uses
from sim.topology.route import merged

#: how sharply launching and running take turns being the limit: T = (gpu^p + cpu^p)^(1/p); fitted on vTrain runs whose
#: launch time is near their kernel time (p = 3 to 6 differ by 1 point of mean error)
SMOOTH = 4.0


@dataclass(frozen=True, slots=True)
class Compute:
    """Work of a compute operation (bytes, or seconds when it moves none), its cap, and the seconds its kernels run.

    Of the solo time work / rate_cap, `arithmetic_s` is arithmetic and `launch_s` is launches and dispatch; the rest is memory.
    """

    work: float
    rate_cap: float
    uses: Uses
    busy_s: float
    flops: float
    arithmetic_s: float = 0.0
    launch_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Lent:
    """Host memory that holds a share of what a full GPU's kernels touch, and how a byte is read and written there."""

    share: float
    read: Flow
    write: Flow

    @property
    def channels(self) -> tuple[str, ...]:
        """All that either way uses."""
        return tuple(name for way in (self.read, self.write) for name, _ in way.uses)


def compute(op: StepOperation, part: Mapping[str, Any], memory: Flow, lent: Lent | None = None) -> Compute:
    """The flow of the operation's kernels; it lasts at least as long as the CPU needs to launch them.

    `memory` is the device's access to its own memory. Operands that the host's allocator gave lie in smaller pages: an APU
    reads them at `host_allocation_share` of its rate. A fully dispatch-bound operation moves its bytes slowly.
    """
    key = (id(op.kernels), op.dispatch_s, op.is_host_allocated, id(part), memory, lent, held_out())
    return _COMPUTED.get(key, lambda: (op.kernels, part, _computed(op, part, memory, lent)))[2]


#: kernels on devices of the last machines, with what their keys name: a sweep's points have most of both in common
_COMPUTED: Kept[tuple[object, object, Compute]] = Kept(20_000, lambda _: 1)


def _computed(op: StepOperation, part: Mapping[str, Any], memory: Flow, lent: Lent | None) -> Compute:
    parts = [solo_parts(kernel, part) for kernel in op.kernels]
    share = float(part.get("host_allocation_share") or 1.0) if op.is_host_allocated else 1.0
    busy = sum(sum(item) for item in parts) + (1.0 / share - 1.0) * sum(item.memory_s for item in parts)
    flops = sum(kernel.flops * kernel.count for kernel in op.kernels)
    size = sum((kernel.read_bytes + kernel.write_bytes) * kernel.count for kernel in op.kernels)
    duration = (busy**SMOOTH + op.dispatch_s**SMOOTH) ** (1 / SMOOTH)
    if duration <= 0:
        return Compute(0.0, INFINITY, (), 0.0, flops)
    arithmetic = sum(item.arithmetic_s for item in parts)
    launch = sum(item.fixed_s for item in parts) + duration - busy
    if size <= 0:
        return Compute(duration, 1.0, (), busy, flops, arithmetic, launch)
    uses = memory.uses if lent is None else _lent_uses(op, size, memory, lent)
    return Compute(size, size / duration, uses, busy, flops, arithmetic, launch)


def _lent_uses(op: StepOperation, size: float, memory: Flow, lent: Lent) -> tuple[tuple[str, float], ...]:
    """Per byte of the operation: what stays on the device, and what passes its link since host memory is not cached."""
    moved = [(kernel.count / size, *zero_copy_bytes(kernel)) for kernel in op.kernels]
    read, written = (lent.share * sum(row[0] * row[index] for row in moved) for index in (1, 2))
    parts = ((memory.uses, 1.0 - lent.share), (lent.read.uses, read), (lent.write.uses, written))
    return merged(*(tuple((channel, share * cost) for channel, cost in uses) for uses, share in parts))
