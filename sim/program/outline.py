"""What a lowering needs to know of a step whatever the machine; looked up once per step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from sim.errors import Fault, InputError
from sim.records import Kernel, Kind, Residency, Step, StepOperation


class Outline:
    """What a lowering needs to know of a step whatever the machine: its operations by class, and what they ask for."""

    def __init__(self, step: Step, *, is_by_layer: bool) -> None:
        self.step = step
        self.is_by_layer = is_by_layer  # the placement tells layers apart
        self.ranges = {item.name: range(item.first_rank, item.first_rank + item.num_ranks) for item in step.rank_classes}
        self.by_class: dict[str, list[StepOperation]] = {name: [] for name in self.ranges}
        for op in step.operations:
            self.by_class[self.known_class(op.stream.rsplit(".", 1)[0])].append(op)

    def known_class(self, name: str) -> str:
        """The name of a rank class, if it is one. Raises InputError."""
        if name not in self.ranges:
            known = ", ".join(self.ranges)
            raise InputError(Fault(what=f"unknown rank class {name!r}", remedy=f"name one of rank_classes: {known}"))
        return name

    def demand(self, op: StepOperation) -> tuple[object, ...]:
        """What decides an operation's route, apart from who runs it."""
        is_by_layer = self.is_by_layer and ("home:" in op.source + op.target or op.kind == Kind.HOST_UPDATE)
        layer = op.layer if is_by_layer else -1
        how = (op.is_pinned, op.is_direct, op.is_spread, op.is_fused, op.file_bytes, op.num_in_flight)
        return (op.kind, op.source, op.target, layer, how, op.collective, op.group, op.tensor_class, op.write_share)

    @cached_property
    def has_sm(self) -> bool:
        """Whether something takes multiprocessors away from kernels."""
        return any(op.compute_share > 0 for op in self.step.operations)

    @cached_property
    def kernels(self) -> list[tuple[Kernel, ...]]:
        """The kernels of computing operations, those that operations share once."""
        return list({id(op.kernels): op.kernels for op in self.step.operations if op.kernels}.values())

    @cached_property
    def on_host(self) -> frozenset[str]:
        """Classes whose ranks have work for CPU threads."""
        kinds = (Kind.HOST_UPDATE, Kind.HOST_WORK)
        return frozenset(name for name, operations in self.by_class.items() if any(op.kind in kinds for op in operations))

    @cached_property
    def distinct(self) -> Mapping[str, tuple[StepOperation, ...]]:
        """By class, one operation for each route that is asked for."""
        found: dict[str, dict[tuple[object, ...], StepOperation]] = {name: {} for name in self.by_class}
        for name, operations in self.by_class.items():
            for op in operations:
                if op.kind not in (Kind.COMPUTE, Kind.MARKER):
                    found[name].setdefault(self.demand(op), op)
        return {name: tuple(rows.values()) for name, rows in found.items()}

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """By class, the groups of its collectives."""
        return {
            name: tuple(dict.fromkeys(op.group or "world" for op in operations if op.kind == Kind.COLLECTIVE))
            for name, operations in self.by_class.items()
        }

    @cached_property
    def residencies(self) -> tuple[Residency, ...]:
        """One residency for each place that is asked for."""
        found = {(item.tier, item.tensor_class): item for item in self.step.resident}
        for op in self.step.operations:
            for item in (*op.allocates, *op.frees):
                found.setdefault((item.tier, item.tensor_class), item)
        return tuple(found.values())
