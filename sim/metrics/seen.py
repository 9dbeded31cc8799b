"""A program and its replay side by side: the operation of every record, joined once for all statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sim.errors import InternalError
from sim.kept import Kept
from sim.program.order import Order, order_of
from sim.records import Operation, OperationRecord, Program, Replay

#: when the operations of the last replays were ready, started and ended, by the identity of their records
_TIMES: Kept[tuple[Sequence[OperationRecord], tuple[Any, Any, Any]]] = Kept(4, lambda _: 1)


def give_times(records: Sequence[OperationRecord], times_s: tuple[Any, Any, Any]) -> None:
    """Note when each operation was ready, started and ended, of whoever has it as arrays already."""
    _TIMES.get(id(records), lambda: (records, times_s))


def times_of(records: Sequence[OperationRecord]) -> tuple[Any, Any, Any]:
    """When each operation was ready, started and ended, as arrays."""
    return _TIMES.get(id(records), lambda: (records, _times_of(records)))[1]


def _times_of(records: Sequence[OperationRecord]) -> tuple[Any, Any, Any]:
    import numpy as np

    return (
        np.array([record.ready_s for record in records], float),
        np.array([record.start_s for record in records], float),
        np.array([record.end_s for record in records], float),
    )


@dataclass(frozen=True)
class Seen:
    """`operations[i]` is the operation of `records[i]`; both are in canonical order."""

    program: Program
    replay: Replay

    @cached_property
    def order(self) -> Order:
        """Who waits for whom."""
        if (order := order_of(self.program.operations)) is None:
            raise InternalError(f"the operations of {self.program.name!r} have no order")
        return order

    @cached_property
    def records(self) -> tuple[OperationRecord, ...]:
        """Records of the program's operations."""
        records = self.replay.operations
        if [record.id for record in records] == self.order.names:
            return records
        by_id = {record.id: record for record in records}
        return tuple(by_id[name] for name in self.order.names)

    @property
    def rows_of(self) -> Mapping[str, slice]:
        """Where the records of each stream are."""
        return self.order.rows_of

    @cached_property
    def times_s(self) -> tuple[Any, Any, Any]:
        """When each operation was ready, started and ended, as arrays."""
        return times_of(self.records)

    @cached_property
    def examples(self) -> list[Operation]:
        """One operation of each kind; `order.kinds` tells the kind of each."""
        operations, positions = self.program.operations, self.order.positions
        return [operations[positions[i]] for i in self.order.examples]

    @cached_property
    def operations(self) -> list[Operation]:
        """The operation of each record."""
        return list(self.order.pick(self.program.operations))
