"""Operations as they were written for one machine, renewed for the next.

Between two points of a sweep the step mostly stays, and so do its operations: their names, their order, what they wait
for and what they allocate. Only numbers change, and those of few; so only these operations are written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sim.kept import Kept
from sim.program.order import Order, give_order, order_of, with_kinds
from sim.records import Operation, Step, StepOperation

#: the fields of an operation that depend on how fast a machine is
Numbers = dict[str, Any]


@dataclass(slots=True)
class Slot:
    """Operations of one group that have all their numbers in common, and one of them to ask for."""

    op: StepOperation
    group: int
    numbers: Numbers
    members: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Written:
    """The operations of one step under one arrangement of its ranks."""

    step: Step
    operations: list[Operation] = field(default_factory=list)
    slots: dict[tuple[object, ...], Slot] = field(default_factory=dict)
    _streams: list[str] = field(default_factory=list)
    _order: Order | None = None

    def add(
        self, op: StepOperation, group: int, key: tuple[object, ...], ask: Callable[[StepOperation], Numbers], text: Numbers
    ) -> None:
        """Write one operation: `text` is what no machine changes, `ask` the numbers of all with this `key`."""
        slot = self.slots.get(key)
        if slot is None:
            slot = self.slots[key] = Slot(op, group, ask(op))
        slot.members.append(len(self.operations))
        self.operations.append(Operation(**text, **slot.numbers))

    def renew(self, ask: Callable[[StepOperation, int], Numbers]) -> None:
        """Bring every number up to date; operations whose numbers stay the same stay the same objects."""
        for slot in self.slots.values():
            numbers = ask(slot.op, slot.group)
            if numbers != slot.numbers:
                for index in slot.members:
                    self.operations[index] = msgspec.structs.replace(self.operations[index], **numbers)
                slot.numbers = numbers

    def ordered(self) -> tuple[Operation, ...]:
        """The operations as they are now, whose order is known without a look at them."""
        operations = tuple(self.operations)
        if self._order is None:
            self._order = with_kinds(order_of(operations), operations, [slot.members for slot in self.slots.values()])
        give_order(operations, self._order)
        return operations

    def streams(self) -> Sequence[str]:
        """Names of the streams, in the order in which they appear."""
        if not self._streams:
            self._streams.extend(dict.fromkeys(operation.stream for operation in self.operations))
        return self._streams

    def channels(self) -> set[str]:
        """Names of the channels that are used."""
        return {name for slot in self.slots.values() for name, _ in slot.numbers.get("uses", ())}


#: what was written last, by step and arrangement
WRITTEN: Kept[Written] = Kept(200_000, lambda written: len(written.operations))
