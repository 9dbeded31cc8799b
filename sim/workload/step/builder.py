"""Writes operations in program order: numbers the streams, keeps ids unique."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sim.records import Category, Kind, StepOperation
from sim.workload.footprint.counts import quantised_bytes
from sim.workload.step.plan import Plan
from sim.workload.step.work import Pass

#: role of a stream -> category of its operations unless told otherwise
_CATEGORY: dict[str, Category] = {
    "compute": "compute", "h2d": "transfer", "d2h": "transfer", "collective": "collective",
    "exchange": "collective", "p2p": "collective", "cpu": "cpu_optimizer", "storage": "storage", "saver": "storage",
    "loader": "data", "reader": "data", "input": "data", "launcher": "data",
    "late_cpu": "cpu_optimizer", "late_h2d": "transfer", "late_d2h": "transfer", "late_storage": "storage",
}  # fmt: skip


class StepBuilder:
    """Collects operations; `add` returns the id that later operations wait for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.operations: list[StepOperation] = []
        self._next: dict[str, int] = {}
        adapter = plan.training.adapter
        #: bytes of one weight as kept and gathered: quantised where the frozen base is
        self.stored_weight_bytes = quantised_bytes(plan.training) if adapter.is_quantised else plan.weight_bytes

    def add(self, rank_class: str, role: str, kind: Kind, name: str, *, after: Iterable[str | None] = (), **fields: Any) -> str:
        """Append one operation to stream "<rank_class>.<role>" and return its id; `None` in `after` is skipped."""
        stream = f"{rank_class}.{role}"
        sequence = self._next.get(stream, 0)
        self._next[stream] = sequence + 1
        identity = f"{stream}.{sequence}"
        waits = tuple(dict.fromkeys(item for item in after if item))
        fields.setdefault("category", _CATEGORY[role])
        self.operations.append(
            StepOperation(id=identity, kind=kind, stream=stream, sequence=sequence, name=name, after=waits, **fields)
        )
        return identity

    def compute(self, rank_class: str, name: str, work: Pass, *, after: Iterable[str | None] = (), **fields: Any) -> str:
        """Append kernels to the compute stream, with the CPU time that launching them takes."""
        dispatch = work.num_launches * self.plan.dispatch_s
        return self.add(
            rank_class, "compute", Kind.COMPUTE, name, after=after, kernels=work.kernels, dispatch_s=dispatch, **fields
        )
