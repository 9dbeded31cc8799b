"""A program and its replay side by side: the operation of every record, joined once for all statistics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sim.records import Operation, OperationRecord, Program, Replay


@dataclass(frozen=True)
class Seen:
    """`operations[i]` is the operation of `records[i]`."""

    program: Program
    replay: Replay

    @cached_property
    def records(self) -> tuple[OperationRecord, ...]:
        """Records in the order of the replay."""
        return self.replay.operations

    @cached_property
    def operations(self) -> list[Operation]:
        """The operation of each record."""
        by_id = {operation.id: operation for operation in self.program.operations}
        return [by_id[record.id] for record in self.records]

    @cached_property
    def before(self) -> list[int]:
        """The record of the operation before each on its stream; -1 for the first."""
        keys = [(operation.stream, operation.sequence) for operation in self.operations]
        before = [-1] * len(keys)
        previous = -1
        for index in sorted(range(len(keys)), key=keys.__getitem__):
            if previous >= 0 and keys[previous][0] == keys[index][0]:
                before[index] = previous
            previous = index
        return before
