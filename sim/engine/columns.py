"""The columns of the arrays, whole columns at a time: a step has half a million operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise
from typing import Any

from sim.engine.arrays import Arrays, Path
from sim.errors import Fault
from sim.kept import Kept
from sim.program.order import Order, order_of
from sim.records import INFINITY, Channel, Operation, Stream

_Rows = dict[int, tuple[tuple[int, str, float], ...]]  # operation -> (tier, class, bytes per member)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What operations of an order allocate and free."""

    order: Order | None
    allocates: _Rows = field(default_factory=dict)
    frees: _Rows = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


_MEMORY: Kept[_Memory] = Kept(200_000, lambda memory: len(memory.allocates) + len(memory.frees) + 1)


@dataclass(slots=True)
class Columns:
    """Numbers of names, and the faults found so far. One operation at a time only where something is unusual."""

    channel_of: dict[str, int]
    tier_of: dict[str, int]
    stream_of: dict[str, int]
    faults: list[Fault]
    order: Order | None = None  # of the operations, if they have one

    def ordered(self, operations: tuple[Operation, ...]) -> tuple[list[Operation], list[int]]:
        """(operations in canonical order, the stream of each)."""
        stream_of = self.stream_of
        if (order := order_of(operations)) is not None and stream_of.keys() >= order.rows_of.keys():
            self.order = order
            of_stream = {stream: stream_of[stream] for stream in order.rows_of}
            return list(order.pick(operations)), [of_stream[name] for name in order.streams]
        known = sorted(self._on_known_streams(operations), key=lambda operation: (operation.stream, operation.sequence))
        for a, b in pairwise(known):
            if (a.stream, a.sequence) == (b.stream, b.sequence):
                what = f"operations {a.id!r} and {b.id!r} both have sequence {a.sequence} on stream {a.stream!r}"
                self.faults.append(Fault(what=what, remedy="number the operations of a stream in their order"))
        return known, [stream_of[operation.stream] for operation in known]

    def _on_known_streams(self, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        for operation in operations:
            if operation.stream not in self.stream_of:
                self.faults.append(Fault(what=f"operation {operation.id!r} is on unknown stream {operation.stream!r}"))
        return tuple(operation for operation in operations if operation.stream in self.stream_of)

    def fill(self, arrays: Arrays) -> None:
        """All columns of `arrays` from its operations and their streams; numbers are looked at once for each kind."""
        self._dependencies(arrays)
        order, num = self.order, len(arrays.operations)
        examples: Sequence[int] = order.examples if order is not None else range(num)
        spread: Callable[[Sequence[Any]], Sequence[Any]] = order.spread if order is not None else list
        rows = [arrays.operations[i] for i in examples]
        path = self._paths(arrays, rows, [arrays.streams[arrays.stream[i]] for i in examples])
        self._check_numbers(rows)
        caps = [operation.rate_cap for operation in rows]
        limits, tights = [path.limit for path in arrays.paths], [path.tight for path in arrays.paths]
        limit = [limits[one] for one in path]
        cap = [a if a < b else b for a, b in zip(caps, limit, strict=True)]
        own_limit = [tights[one] if a >= b else -1 for a, b, one in zip(caps, limit, path, strict=True)]
        windows: list[tuple[float, float]] = [(0.0, 0.0)] * len(rows)
        for i in compress(range(len(rows)), [operation.window_bytes > 0.0 for operation in rows]):
            windows[i] = (rows[i].window_bytes, rows[i].write_share)
            idle_cap = self._idle_cap(rows[i], arrays, arrays.paths[path[i]])
            if idle_cap < cap[i]:
                cap[i], own_limit[i] = idle_cap, -1
        self._check_caps(rows, cap)
        arrays.path, arrays.cap, arrays.own_limit = list(spread(path)), list(spread(cap)), list(spread(own_limit))
        arrays.work = list(spread([operation.work for operation in rows]))
        arrays.weight = list(spread([operation.weight for operation in rows]))
        arrays.latency_s = list(spread([operation.latency_s for operation in rows]))
        if any(window_bytes for window_bytes, _ in windows):
            arrays.windows = self._spread(arrays, windows, [window_bytes > 0.0 for window_bytes, _ in windows])
        self._memory(arrays)
        if any(one.servers for one in arrays.paths):
            servers = [arrays.paths[one].servers for one in path]
            arrays.servers = self._spread(arrays, servers, list(map(bool, servers)))

    @staticmethod
    def _spread(arrays: Arrays, values: Sequence[Any], is_there: Sequence[bool]) -> dict[int, Any]:
        """Operation -> value, from one value per kind, of the kinds that have one."""
        if arrays.order is None or len(values) == len(arrays.stream):
            return {i: values[i] for i in compress(range(len(values)), is_there)}
        kind = arrays.order.kind
        return {i: values[kind[i]] for i in arrays.order.members(is_there)}

    def _dependencies(self, arrays: Arrays) -> None:
        if self.order is not None:
            arrays.num_after, arrays.after = list(self.order.num_after), list(self.order.after)
            return
        operations = arrays.operations
        names = [operation.id for operation in operations]
        number = dict(zip(names, range(len(names)), strict=True))
        if len(number) != len(names):
            self.faults.extend(Fault(what=f"{n} operations are called {name!r}") for name, n in Counter(names).items() if n > 1)
        after = [operation.after for operation in operations]
        arrays.num_after = list(map(len, after))
        try:
            arrays.after = list(map(number.__getitem__, chain.from_iterable(after)))
        except KeyError:
            for operation in operations:
                for name in operation.after:
                    if name not in number:
                        self.faults.append(Fault(what=f"operation {operation.id!r} waits for unknown operation {name!r}"))

    def _paths(self, arrays: Arrays, rows: Sequence[Operation], streams: Sequence[Stream]) -> list[int]:
        """The path of each operation; operations made by one generator mostly share the very tuple, so look at that first."""
        uses = [operation.uses for operation in rows]
        keys = list(zip([stream.multiplicity for stream in streams], map(id, uses), strict=True))
        by_value: dict[tuple[int, tuple[tuple[str, float], ...]], int] = {}
        by_identity: dict[tuple[int, int], int] = {}
        for key, i in dict(zip(keys, range(len(keys)), strict=True)).items():
            path = by_identity[key] = by_value.setdefault((key[0], uses[i]), len(arrays.paths))
            if path == len(arrays.paths):
                arrays.paths.append(self._path(rows[i], streams[i], arrays.channels))
        return list(map(by_identity.__getitem__, keys))

    def _check_numbers(self, rows: Sequence[Operation]) -> None:
        for operation in rows:
            work, weight, latency_s = operation.work, operation.weight, operation.latency_s
            if 0.0 <= work < INFINITY and operation.rate_cap > 0.0 and 0.0 < weight < INFINITY and 0.0 <= latency_s < INFINITY:
                continue
            if not 0.0 <= work < INFINITY:
                what = f"operation {operation.id!r} has work {work!r}"
                self.faults.append(Fault(what=what, remedy="work is finite and >= 0"))
            if not operation.rate_cap > 0.0:
                what = f"operation {operation.id!r} has rate cap {operation.rate_cap!r}"
                self.faults.append(Fault(what=what, remedy="make it > 0"))
            if not 0.0 < weight < INFINITY or not 0.0 <= latency_s < INFINITY:
                what = f"operation {operation.id!r} has weight {weight!r} and latency {latency_s!r} s"
                self.faults.append(Fault(what=what, remedy="weight > 0, latency >= 0, both finite"))

    def _check_caps(self, rows: Sequence[Operation], caps: Sequence[float]) -> None:
        if INFINITY not in caps:
            return
        for operation, cap in zip(rows, caps, strict=True):
            if cap == INFINITY and operation.work > 0.0:
                what = f"operation {operation.id!r} has work, no rate cap, and uses no channel: it would run infinitely fast"
                self.faults.append(Fault(what=what, remedy="give it a rate cap or a channel with a cost"))

    def _path(self, operation: Operation, stream: Stream, channels: list[Channel]) -> Path:
        loads: dict[int, float] = {}
        costs: dict[int, float] = {}
        for name, cost in operation.uses:
            index = self.channel_of.get(name, -1)
            if index < 0:
                self.faults.append(Fault(what=f"operation {operation.id!r} uses unknown channel {name!r}"))
            elif not cost >= 0.0 or cost == INFINITY:
                self.faults.append(Fault(what=f"operation {operation.id!r} has cost {cost!r} on channel {name!r}"))
            elif cost > 0.0:
                share = stream.multiplicity / channels[index].multiplicity
                loads[index] = loads.get(index, 0.0) + cost * share
                costs[index] = costs.get(index, 0.0) + cost
        path = Path(tuple(loads), tuple(loads.values()), tuple(costs.values()))
        for index, load in loads.items():
            if channels[index].bandwidth_per_s / load < path.limit:
                path.limit, path.tight = channels[index].bandwidth_per_s / load, index
            if channels[index].is_server:
                path.servers = tuple(sorted((*path.servers, index)))
                if stream.multiplicity != channels[index].multiplicity:
                    what = f"stream {stream.name!r} stands for {stream.multiplicity} ranks that queue at server"
                    remedy = "write these ranks out: their order at the server is not the same for all"
                    self.faults.append(Fault(what=f"{what} {channels[index].name!r}", remedy=remedy))
        return path

    def _idle_cap(self, operation: Operation, arrays: Arrays, path: Path) -> float:
        """A latency-bound flow is capped at most at the rate at which its window covers the idle latency of the path."""
        idle_cap = arrays.idle_cap(path, operation.window_bytes)
        if idle_cap == INFINITY:
            what = f"operation {operation.id!r} is latency-bound but no channel of its path has a latency law"
            self.faults.append(Fault(what=what, remedy="give a channel a latency or drop window_bytes"))
        return idle_cap

    def _memory(self, arrays: Arrays) -> None:
        """What operations allocate and free: kept, because machines that a sweep visits have the same tiers."""
        tiers = tuple([(name, arrays.tiers[tier].multiplicity) for name, tier in self.tier_of.items()])
        owners = tuple([(stream.name, stream.multiplicity) for stream in arrays.streams])

        def found() -> _Memory:
            memory = _Memory(self.order)
            for i, operation in enumerate(arrays.operations):
                if operation.allocates or operation.frees:
                    self._rows_of(operation, i, arrays, memory)
            return memory

        memory = found() if self.order is None else _MEMORY.get((id(self.order), tiers, owners), found)
        self.faults += memory.faults
        arrays.allocates, arrays.frees = dict(memory.allocates), dict(memory.frees)

    def _rows_of(self, operation: Operation, i: int, arrays: Arrays, memory: _Memory) -> None:
        owners = arrays.streams[arrays.stream[i]].multiplicity
        for allocations, target in ((operation.allocates, memory.allocates), (operation.frees, memory.frees)):
            rows = []
            for allocation in allocations:
                tier = self.tier_of.get(allocation.tier, -1)
                if tier < 0 or not allocation.size_bytes >= 0.0:
                    what = (
                        f"operation {operation.id!r} allocates or frees {allocation.size_bytes!r} bytes in {allocation.tier!r}"
                    )
                    memory.faults.append(Fault(what=what, remedy="name a tier of the machine and a size >= 0"))
                    continue
                share = owners / arrays.tiers[tier].multiplicity
                rows.append((tier, allocation.tensor_class, allocation.size_bytes * share))
            if rows:
                target[i] = tuple(rows)
