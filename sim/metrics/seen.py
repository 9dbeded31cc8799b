"""A program and its replay side by side: the operation of every record, joined once for all statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sim.errors import InternalError
from sim.program.order import Order, order_of
from sim.records import Operation, OperationRecord, Program, Replay


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
    def operations(self) -> list[Operation]:
        """The operation of each record."""
        operations = self.program.operations
        return [operations[position] for position in self.order.positions]
