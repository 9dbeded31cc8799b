"""GPU works as operations: kernels with what they computed and moved, copies with direction, collectives with size."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sim.interchange import kernel_class
from sim.interchange.copy_names import ends_of, is_pageable
from sim.interchange.groups import Communicator, Groups
from sim.interchange.kernel_class import Amount
from sim.interchange.kineto import collectives
from sim.interchange.kineto.events import Recording
from sim.interchange.kineto.links import Linked, Work
from sim.interchange.kineto.queues import is_collective
from sim.interchange.rules import Rule, class_of
from sim.records import Dtype, Kernel, Kind


class WorkDescriber:
    """Fields of the operation of each GPU work of one recording; counts what it had to infer."""

    def __init__(self, recording: Recording, linked: Linked, counts: Counter[str], rules: tuple[Rule, ...]) -> None:
        self.header, self.linked, self.counts, self.rules = recording.header, linked, counts, rules
        self.world_size = max(1, recording.header.world_size)
        self.bus_rate = collectives.bus_rate(recording.header.gpu_names)
        self.collectives: dict[int, collectives.Collective] = {}
        self.arithmetic_ns: Counter[int] = Counter()
        self.total_ns: Counter[int] = Counter()
        for work in linked.works:
            if work.kind == "kernel" and work.operator >= 0:
                duration_ns = work.end_ns - work.start_ns
                self.total_ns[work.operator] += duration_ns
                if kernel_class.kind_of(work.name) in ("gemm", "attention"):
                    self.arithmetic_ns[work.operator] += duration_ns
        self.shares = _memory_shares(linked.works)
        busy_ns = Counter[int]()
        for work in linked.works:
            busy_ns[work.queue[0]] += work.end_ns - work.start_ns
        self.device = min(busy_ns, key=lambda device: (-busy_ns[device], device), default=0)
        self.amounts: dict[int, tuple[Amount, tuple[str, ...]]] = {}

    def describe(self, work: Work, phase: str, groups: Groups) -> dict[str, Any]:
        """Keyword arguments of the `StepOperation` (kind, category, amounts) of one work; `groups` are the whole job's."""
        fields: dict[str, Any] = {"name": work.name, "phase": phase}
        if is_collective(work):
            return fields | self._collective(work, groups)
        if work.kind == "memcpy":
            return fields | self._copy(work, phase)
        if work.kind == "memset":
            filled = self._memory(work, 0.0, work.size_bytes)
            return fields | _kernels(Kernel(kind="elementwise", recorded_s=_seconds(work), **filled))
        return fields | _kernels(self._kernel(work))

    def _memory(self, work: Work, read_bytes: float, write_bytes: float) -> dict[str, Any]:
        """Traffic of a work; that of the process's other devices does not meet the one that is simulated."""
        if work.queue[0] != self.device:
            self.counts["works of further devices of the process (replayed without their memory traffic)"] += 1
            return {}
        return {"read_bytes": read_bytes, "write_bytes": write_bytes, "memory_share": self.shares[work.index]}

    def _kernel(self, work: Work) -> Kernel:
        kind = kernel_class.kind_of(work.name)
        amount, types = self._amount(work.operator)
        dtype: Dtype = kernel_class.dtype_of(work.name, types)
        duration_ns = max(1, work.end_ns - work.start_ns)
        share = duration_ns / max(self.total_ns[work.operator], duration_ns) if work.operator >= 0 else 0.0
        flops = 0.0
        if kind in ("gemm", "attention") and work.operator >= 0:
            flops = amount.flops * duration_ns / max(self.arithmetic_ns[work.operator], duration_ns)
        self.counts["kernels with FLOPs from shapes" if flops else "kernels scaled by class"] += 1
        return Kernel(
            kind=kind, flops=flops, dtype=dtype, recorded_s=_seconds(work), name=work.name,
            variant=kernel_class.variant_of(work.name),
            **self._memory(work, amount.read_bytes * share, amount.write_bytes * share),
        )  # fmt: skip

    def _amount(self, operator: int) -> tuple[Amount, tuple[str, ...]]:
        if operator < 0:
            return Amount(), ()
        if operator not in self.amounts:
            held = self.linked.operators[operator]
            shapes = collectives.shapes_of(held)
            self.amounts[operator] = (kernel_class.amount_of(held.name, shapes), shapes.types)
        return self.amounts[operator]

    def _copy(self, work: Work, phase: str) -> dict[str, Any]:
        size, ends = work.size_bytes, ends_of(work.name)
        if ends == ("gpu", "gpu"):
            return _kernels(Kernel(kind="elementwise", recorded_s=_seconds(work), **self._memory(work, size, size)))
        if not size or ends is None:
            why = "without a size" if not size else "whose name tells no direction"
            self.counts[f"copies {why}: replayed by their duration"] += 1
            return _kernels(Kernel(kind="recorded", recorded_s=_seconds(work), name=work.name))
        if "peer" in ends:
            self.counts["copies between GPUs replayed by their duration (the peer is not recorded)"] += 1
            return _kernels(Kernel(kind="recorded", read_bytes=size, recorded_s=_seconds(work), name=work.name))
        source, target = ends
        tensor_class = class_of(self.rules, source=source, phase=phase, name=work.name, size_bytes=size)
        if tensor_class is not None:
            self.counts[f"copies placed as {tensor_class.value} by rule"] += 1
            source, target = (f"home:{tensor_class.value}" if end == "dram" else end for end in (source, target))
        if (is_paged := is_pageable(work.name)) is None:
            self.counts["copies assumed pinned (the recording does not say)"] += 1
        return {
            "kind": Kind.TRANSFER, "category": "transfer", "source": source, "target": target, "size_bytes": size,
            "tensor_class": tensor_class, "is_pinned": not is_paged,
        }  # fmt: skip

    def _collective(self, work: Work, groups: Groups) -> dict[str, Any]:
        found = self._described(work)
        self.counts[f"collectives sized by {found.basis}"] += 1
        return {
            "kind": Kind.COLLECTIVE, "category": "collective", "collective": found.kind, "size_bytes": found.size_bytes,
            "group": groups.name(found.group), "dtype": kernel_class.dtype_of(work.name),
        }  # fmt: skip

    def communicators(self) -> set[Communicator]:
        """Process groups of the recording's collectives."""
        return {group for _, group in self.collective_works()}

    def collective_works(self) -> list[tuple[Work, Communicator]]:
        """Communication kernels in order of start, with their process groups."""
        return [(work, self._described(work).group) for work in self.linked.works if is_collective(work)]

    def _described(self, work: Work) -> collectives.Collective:
        if work.index not in self.collectives:
            found = collectives.describe(work, self.linked, self.world_size, self.header.groups, self.bus_rate)
            self.collectives[work.index] = found
        return self.collectives[work.index]


def _memory_shares(works: list[Work]) -> list[float]:
    """Per work: its duration over the sum of its own and its overlaps with others on the same device.

    Two kernels that run together all the time have half of the memory each; copies over a link and collectives do not count.
    """
    beside_ns = [0] * len(works)
    active: list[Work] = []
    for work in works:
        if is_collective(work) or (work.kind == "memcpy" and ends_of(work.name) != ("gpu", "gpu")):
            continue
        active = [other for other in active if other.end_ns > work.start_ns]
        for other in active:
            if other.queue[0] == work.queue[0]:
                overlap_ns = min(other.end_ns, work.end_ns) - work.start_ns
                beside_ns[other.index] += overlap_ns
                beside_ns[work.index] += overlap_ns
        active.append(work)
    return [
        own / (own + beside) if (own := max(1, work.end_ns - work.start_ns)) and beside else 1.0
        for work, beside in zip(works, beside_ns, strict=True)
    ]


def _kernels(kernel: Kernel) -> dict[str, Any]:
    return {"kind": Kind.COMPUTE, "category": "compute", "kernels": (kernel,)}


def _seconds(work: Work) -> float:
    return max(1, work.end_ns - work.start_ns) * 1e-9
