"""Optimizer states that live on storage, on their way to and from the CPU that updates them."""

from __future__ import annotations

from sim.records import Kind, TensorClass
from sim.workload.step.builder import StepBuilder
from sim.workload.step.lane import Lane
from sim.workload.step.swap_buffers import SWAPPED_GRADIENT_BYTES
from sim.workload.training import SWAPPED_TENSORS


class StateSwap:
    """Optimizer states that live on storage: read before each piece's update, written after it.

    A piece takes four staging buffers (weights, gradients, two moments) from its read to its write; the read of a piece
    waits for the write that frees them.
    """

    def __init__(self, builder: StepBuilder, lane: Lane, late: str, elements: float, num: int) -> None:
        self.builder, self.plan, self.lane, self.late = builder, builder.plan, lane, late
        self.elements, self.num = elements, num
        self.depth = max(1, self.plan.training.offload.num_state_buffers // SWAPPED_TENSORS)
        self.reads: list[str] = []
        self.writes: list[str] = []

    def load(self, index: int, after: list[str]) -> list[str]:
        """Ask for the states of all pieces that have buffers; what the update of piece `index` waits for."""
        size = self.elements * (self.plan.state_bytes + SWAPPED_GRADIENT_BYTES)
        while len(self.reads) < min(index + self.depth, self.num):
            free = self.writes[len(self.reads) - self.depth : len(self.reads) - self.depth + 1] if self.writes else []
            self.reads.append(self._io("read states", "home:optimizer_states", "dram", size, [*after, *free]))
        return [*after, self.reads[index]]

    def store(self, updated: str) -> None:
        """Write the states of a piece back."""
        size = self.elements * self.plan.state_bytes
        self.writes.append(self._io("write states", "dram", "home:optimizer_states", size, [updated]))

    def _io(self, name: str, source: str, target: str, size: float, after: list[str]) -> str:
        return self.builder.add(
            self.lane.name,
            f"{self.late}storage",
            Kind.IO,
            name,
            after=after,
            source=source,
            target=target,
            phase="update",
            size_bytes=size,
            tensor_class=TensorClass.OPTIMIZER_STATES,
        )
