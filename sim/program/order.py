"""The canonical order of a program's operations and who waits for whom, found once for all programs that share them.

Points of a sweep differ in numbers: names, streams and dependencies of their operations are the very same objects. So what
follows from these alone is kept by their identity.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

from sim.kept import Kept
from sim.records import Operation

#: operations whose order is kept
_ROOM = 200_000


@dataclass(frozen=True)
class Order:
    """Operations by (stream, sequence): index i is the i-th of them everywhere. Programs with the same order also have the
    same allocations.

    `positions` are their places in the program, `after` what each waits for, one operation after the other.
    """

    text: tuple[Sequence[object], ...] = field(repr=False)  # keeps the objects that the key names
    positions: Sequence[int]
    names: Sequence[str]
    streams: Sequence[str]
    num_after: Sequence[int]
    after: Sequence[int]
    #: one operation of each kind, and the kind of each operation: those of a kind are on one stream, and have all numbers and
    #: channels, `kind` and `category` in common
    examples: Sequence[int] = ()
    kind: Sequence[int] = ()

    @cached_property
    def spread(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """From one value per kind to one per operation."""
        return itemgetter(*self.kind) if len(self.kind) > 1 else list

    @cached_property
    def pick(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """From one value per position in the program to one per operation in this order."""
        return itemgetter(*self.positions) if len(self.positions) > 1 else list

    def members(self, kinds: Sequence[bool]) -> list[int]:
        """The operations of these kinds."""
        import numpy as np

        members: list[int] = np.flatnonzero(np.array(kinds, bool)[self.kinds]).tolist()
        return members

    @cached_property
    def kinds(self) -> Any:
        """`kind` as an array."""
        import numpy as np

        return np.array(self.kind, np.int64)

    @cached_property
    def before(self) -> list[int]:
        """The operation before each on its stream; -1 for the first."""
        return [-1, *(i if a == b else -1 for i, (a, b) in enumerate(pairwise(self.streams)))] if self.streams else []

    @cached_property
    def rows_of(self) -> dict[str, slice]:
        """Where the operations of each stream are."""
        firsts = [i for i, before in enumerate(self.before) if before < 0]
        return {self.streams[a]: slice(a, b) for a, b in pairwise([*firsts, len(self.streams)])}

    @cached_property
    def causes(self) -> tuple[Any, Any, Any]:
        """What operations may have waited for: their dependencies and the one before each; (who waits, where its causes
        begin, all causes). Those of one operation are in the order of their names.
        """
        import numpy as np

        num = len(self.names)
        waiting = np.concatenate((np.repeat(np.arange(num), np.array(self.num_after, np.int64)), np.arange(num)))
        cause = np.concatenate((np.array(self.after, np.int64), np.array(self.before, np.int64)))
        waiting, cause = waiting[cause >= 0], cause[cause >= 0]
        order = np.lexsort((self.by_name[cause], waiting))
        who, begin = np.unique(waiting[order], return_index=True)
        return who, begin, cause[order]

    @cached_property
    def by_name(self) -> Any:
        """The place of each operation among all names, sorted."""
        import numpy as np

        places = np.zeros(len(self.names), np.int64)
        places[sorted(range(len(self.names)), key=self.names.__getitem__)] = np.arange(len(self.names))
        return places

    @cached_property
    def digest(self) -> bytes:
        """Hash of the names, the streams and the dependencies."""
        state = blake2b(digest_size=16)
        for names in (self.names, self.streams):
            state.update("\0".join(names).encode())
            state.update(b"\1")
        for counts in (self.num_after, self.after):
            state.update(repr(counts).encode())
        return state.digest()


_ORDERS: Kept[Order | None] = Kept(_ROOM, lambda order: len(order.positions) if order is not None else 1)


_LAST: Kept[tuple[Sequence[Operation], Order | None]] = Kept(4, lambda _: 1)


def give_order(operations: Sequence[Operation], order: Order | None) -> None:
    """Note the order of operations that are those of another program but for numbers, as the kinds of `order` have them."""
    _LAST.get(id(operations), lambda: (operations, order))


def with_kinds(order: Order | None, operations: Sequence[Operation], kinds: Iterable[Sequence[int]]) -> Order | None:
    """The order; `kinds` are the positions in the program of operations that have all numbers and channels in common."""
    if order is None:
        return None
    number = {position: i for i, position in enumerate(order.positions)}
    first = list(range(len(number)))  # of its kind
    for members in kinds:
        leaders: dict[tuple[object, ...], int] = {}
        for i in sorted([number[position] for position in members]):
            operation = operations[order.positions[i]]
            first[i] = leaders.setdefault((operation.stream, operation.kind, operation.category), i)
    examples = sorted(set(first))  # in canonical order, so that what is numbered by its first use stays so
    kind_of = {example: kind for kind, example in enumerate(examples)}
    return replace(order, examples=examples, kind=[kind_of[i] for i in first])


def order_of(operations: Sequence[Operation]) -> Order | None:
    """The order of the operations; None where they have none: a name or a place taken twice, an unknown dependency."""
    return _LAST.get(id(operations), lambda: (operations, _order_of(operations)))[1]


def _order_of(operations: Sequence[Operation]) -> Order | None:
    names = [operation.id for operation in operations]
    streams = [operation.stream for operation in operations]
    after = [operation.after for operation in operations]
    sequences = [operation.sequence for operation in operations]
    memory = ([operation.allocates for operation in operations], [operation.frees for operation in operations])
    text = (names, streams, after, *memory)
    identities = array("Q", chain(*(map(id, column) for column in text))).tobytes()  # bytes remember their hash
    return _ORDERS.get((identities, tuple(sequences)), lambda: _found(text, names, streams, after, sequences))


def _found(
    text: tuple[Sequence[object], ...],
    names: Sequence[str],
    streams: Sequence[str],
    after: Sequence[tuple[str, ...]],
    sequences: Sequence[int],
) -> Order | None:
    places = list(zip(streams, sequences, strict=True))
    positions = sorted(range(len(places)), key=places.__getitem__)
    number = {names[position]: i for i, position in enumerate(positions)}
    if len(number) < len(names) or len(set(places)) < len(places):
        return None
    ordered = [after[position] for position in positions]
    try:
        waits = [number[name] for name in chain.from_iterable(ordered)]
    except KeyError:
        return None
    return Order(
        text=text,
        positions=positions,
        examples=range(len(positions)),
        kind=range(len(positions)),
        names=[names[position] for position in positions],
        streams=[streams[position] for position in positions],
        num_after=list(map(len, ordered)),
        after=waits,
    )
