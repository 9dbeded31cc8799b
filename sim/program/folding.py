"""Automatic folding: equal streams, channels and tiers of a written-out program become one with a multiplicity.

Imported traces write every rank. Streams whose operations have the same numbers one by one, wait for operations of equal
streams at the same places, and use equal channels and tiers at the same costs are one class; so are channels and tiers that the
same classes use alike. That is the coarsest equitable partition of the graph of streams, channels and tiers (an operation is
its stream and its place on it), and the program of one representative per class has the same times (docs/model.md).
Operations that queue at an exclusive server are told apart: the server does it too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

import msgspec

from sim.program.partition import coarsest
from sim.records import (
    Allocation,
    Channel,
    ChannelSegment,
    ChannelTotal,
    Occupancy,
    Operation,
    OperationRecord,
    Program,
    Replay,
    Sample,
    Stream,
    Tier,
    TierPeak,
)

Thing = TypeVar("Thing", Stream, Channel, Tier)
Row = TypeVar("Row", ChannelTotal, TierPeak, ChannelSegment, Occupancy)

#: what members of a class share: what decides times, and what statistics ask for
_NUMBERS = attrgetter(
    "kind", "work", "rate_cap", "latency_s", "window_bytes", "write_share", "weight", "name", "phase", "category", "layer",
    "micro_batch", "flops", "arithmetic_s", "launch_s", "size_bytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Folding:
    """A folded program, and who is who: representative -> members, all of them by name."""

    program: Program
    streams: Mapping[str, tuple[str, ...]]
    channels: Mapping[str, tuple[str, ...]]
    tiers: Mapping[str, tuple[str, ...]]
    operations: Mapping[str, tuple[str, ...]]  # by id, in the order of the streams of the class

    def unfold(self, replay: Replay) -> Replay:
        """The records of the folded program as those of the program that it came from, in canonical order."""
        rows = {record.id: record for record in replay.operations}
        places = {member: rank for rank, member in enumerate(sorted(m for names in self.streams.values() for m in names))}
        order: list[tuple[int, int, OperationRecord]] = []
        for operation in self.program.operations:
            for stream, name in zip(self.streams[operation.stream], self.operations[operation.id], strict=True):
                record = msgspec.structs.replace(rows[operation.id], id=name)
                order.append((places[stream], operation.sequence, record))
        order.sort(key=lambda row: row[:2])
        return msgspec.structs.replace(
            replay,
            operations=tuple(record for _, _, record in order),
            channels=_renamed(replay.channels, self.channels, "name"),
            tiers=_renamed(replay.tiers, self.tiers, "name"),
            segments=_renamed(replay.segments, self.channels, "name"),
            occupancy=_renamed(replay.occupancy, self.tiers, "tier"),
            samples=tuple(self._sample(sample) for sample in replay.samples),
        )

    def _sample(self, sample: Sample) -> Sample:
        return Sample(
            time_s=sample.time_s,
            utilisation={name: value for own, value in sample.utilisation.items() for name in self.channels[own]},
            occupancy_bytes={name: value for own, value in sample.occupancy_bytes.items() for name in self.tiers[own]},
        )


def fold(program: Program) -> Folding | None:
    """The program with equal streams, channels and tiers as one; None where no two are equal (or references are broken).

    Costs about 3 us per operation.
    """
    graph = _Graph(program)
    classes = graph.classes() if graph.is_sound else []
    num_streams = len(program.streams)
    if not graph.is_sound or len(set(classes[:num_streams])) == num_streams:
        return None
    return _Quotient(program, graph, classes).folding()


class _Graph:
    """Nodes: streams, channels, tiers. An edge carries all that happens between its two ends, as one number."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rows: dict[str, list[Operation]] = {stream.name: [] for stream in program.streams}
        self.is_sound = all(operation.stream in self.rows for operation in program.operations)
        if not self.is_sound:
            return
        for operation in program.operations:
            self.rows[operation.stream].append(operation)
        for rows in self.rows.values():
            rows.sort(key=attrgetter("sequence"))
        #: operation -> (number of its stream, place on it)
        self.places = {row.id: (s, i) for s, rows in enumerate(self.rows.values()) for i, row in enumerate(rows)}
        num = len(self.rows)
        self.channel_of = {channel.name: num + i for i, channel in enumerate(program.channels)}
        num += len(program.channels)
        self.tier_of = {tier.name: num + i for i, tier in enumerate(program.tiers)}
        self.servers = {channel.name for channel in program.channels if channel.is_server}
        self.is_sound = (
            len(self.places) == len(program.operations)
            and len(self.rows) == len(program.streams)
            and len(self.channel_of) == len(program.channels)
            and len(self.tier_of) == len(program.tiers)
        )

    def classes(self) -> list[int]:
        """The class of each node."""
        program = self.program
        resident: dict[str, list[tuple[str, float, int]]] = defaultdict(list)
        for allocation, multiplicity in program.resident:
            resident[allocation.tier].append((allocation.tensor_class, allocation.size_bytes, multiplicity))
        links: dict[tuple[int, int], list[Hashable]] = defaultdict(list)
        labels: list[Hashable] = []
        numbers: dict[Hashable, int] = {}
        for s, stream in enumerate(program.streams):
            rows = self.rows[stream.name]
            marks = tuple([numbers.setdefault(_NUMBERS(row), len(numbers)) for row in rows])
            own = s if self.servers and any(name in self.servers for row in rows for name, _ in row.uses) else -1
            labels.append(("stream", stream.role, stream.multiplicity, own, marks))
            self._link(s, rows, links)
        for c, channel in enumerate(program.channels):
            own = c if channel.is_server else -1
            labels.append((channel.bandwidth_per_s, channel.latency, channel.multiplicity, channel.unit, own))
        labels += [
            ("tier", tier.capacity_bytes, tier.multiplicity, tier.kind, tuple(sorted(resident[tier.name])))
            for tier in program.tiers
        ]
        kinds: dict[Hashable, int] = {}
        edges: list[list[tuple[int, int]]] = [[] for _ in labels]
        num_streams = len(program.streams)
        for (one, other), what in links.items():
            kind = kinds.setdefault(tuple(what), len(kinds))
            edges[one].append((kind, other))
            if other >= num_streams:  # what is shared sees its users; who is waited for does not care
                edges[other].append((kind, one))
        return coarsest(labels, edges)

    def _link(self, stream: int, rows: list[Operation], links: dict[tuple[int, int], list[Hashable]]) -> None:
        """What the operations of a stream do to others, place by place."""
        places, channel_of, tier_of = self.places, self.channel_of, self.tier_of
        try:
            for i, row in enumerate(rows):
                for name in row.after:
                    other, j = places[name]
                    links[stream, other].append((i, j))
                for name, cost in row.uses:
                    links[stream, channel_of[name]].append((i, cost))
                for is_free, allocations in enumerate((row.allocates, row.frees)):
                    for item in allocations:
                        links[stream, tier_of[item.tier]].append((i, is_free, item.tensor_class, item.size_bytes))
        except KeyError:
            self.is_sound = False  # the replay tells which name is unknown


class _Quotient:
    """One representative per class: the first member."""

    def __init__(self, program: Program, graph: _Graph, classes: list[int]) -> None:
        self.program, self.graph = program, graph
        names = [thing.name for things in (program.streams, program.channels, program.tiers) for thing in things]
        by_class: dict[int, list[str]] = {}
        for name, own in zip(names, classes, strict=True):
            by_class.setdefault(own, []).append(name)
        num, num_channels = len(program.streams), len(program.channels)
        #: representative -> members
        self.streams = {rows[0]: tuple(rows) for own in dict.fromkeys(classes[:num]) for rows in (by_class[own],)}
        shared = dict.fromkeys(classes[num : num + num_channels])
        self.channels = {rows[0]: tuple(rows) for own in shared for rows in (by_class[own],)}
        self.tiers = {rows[0]: tuple(rows) for own in dict.fromkeys(classes[num + num_channels :]) for rows in (by_class[own],)}
        self.own_channel = {name: own for own, rows in self.channels.items() for name in rows}
        self.own_tier = {name: own for own, rows in self.tiers.items() for name in rows}
        self.own_operation = {
            row.id: twin.id
            for own, members in self.streams.items()
            for member in members
            for twin, row in zip(graph.rows[own], graph.rows[member], strict=True)
        }

    def folding(self) -> Folding | None:
        """The folded program; None where a latency-bound operation crosses equal channels that one cannot stand for."""
        program, rows = self.program, self.graph.rows
        operations = [self._operation(row) for own in self.streams for row in rows[own]]
        if any(self._mixes_windows(row) for own in self.streams for row in rows[own]):
            return None
        members: dict[str, list[str]] = {row.id: [] for row in operations}
        for own, names in self.streams.items():
            for name in names:
                for twin, row in zip(rows[own], rows[name], strict=True):
                    members[twin.id].append(row.id)
        folded = msgspec.structs.replace(
            program,
            operations=tuple(operations),
            streams=_folded(program.streams, self.streams),
            channels=_folded(program.channels, self.channels),
            tiers=_folded(program.tiers, self.tiers),
            resident=tuple(
                (msgspec.structs.replace(item, tier=self.own_tier.get(item.tier, item.tier)), count)
                for item, count in program.resident
            ),
        )
        return Folding(folded, self.streams, self.channels, self.tiers, {own: tuple(ids) for own, ids in members.items()})

    def _operation(self, row: Operation) -> Operation:
        uses: dict[str, float] = {}
        for name, cost in row.uses:
            own = self.own_channel.get(name, name)
            uses[own] = uses.get(own, 0.0) + cost
        return msgspec.structs.replace(
            row,
            after=tuple(dict.fromkeys(self.own_operation.get(name, name) for name in row.after)),
            uses=tuple(uses.items()),
            allocates=self._allocations(row.allocates),
            frees=self._allocations(row.frees),
        )

    def _allocations(self, items: Iterable[Allocation]) -> tuple[Allocation, ...]:
        return tuple(msgspec.structs.replace(item, tier=self.own_tier.get(item.tier, item.tier)) for item in items)

    def _mixes_windows(self, row: Operation) -> bool:
        """The latency of a path counts a channel with its cost, at most 1: that of a sum is not the sum of that."""
        if row.window_bytes <= 0.0:
            return False
        costs: dict[str, list[float]] = defaultdict(list)
        for name, cost in row.uses:
            costs[self.own_channel.get(name, name)].append(cost)
        return any(len(parts) > 1 and sum(parts) > 1.0 for parts in costs.values())


def _folded(things: tuple[Thing, ...], classes: Mapping[str, tuple[str, ...]]) -> tuple[Thing, ...]:
    return tuple(
        msgspec.structs.replace(thing, multiplicity=thing.multiplicity * len(classes[thing.name]))
        for thing in things
        if thing.name in classes
    )


def _renamed(rows: tuple[Row, ...], classes: Mapping[str, tuple[str, ...]], field: str) -> tuple[Row, ...]:
    """Each row once for each member; rows of one name stay in order."""
    return tuple(
        sorted(
            (msgspec.structs.replace(row, **{field: name}) for row in rows for name in classes[getattr(row, field)]),
            key=attrgetter(field),
        )
    )
