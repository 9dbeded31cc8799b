"""A Program as flat arrays: the form that both backends run on.

Operations are numbered by (stream name, sequence), channels, tiers and streams by name, so that the numbers, and with
them every tie-break and every sum, do not depend on the order of lines in a trace. Paths (tuples of channel and cost)
are shared: a step has a few dozen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from sim.errors import Fault, InputError
from sim.records import INFINITY, Channel, Operation, Program, Stream, Tier

#: a channel is linked when the upper bounds of its users exceed this share of its bandwidth; below 1, so that the
#: rounding of a running sum can only link too much, which costs time and changes nothing
LINKED = 1.0 - 1e-9


@dataclass(slots=True)
class Path:
    """Channels that a flow uses and the load per unit of rate on one member of each.

    `limit` is the largest rate that an otherwise idle machine allows, `tight` the first channel that sets it (-1: none).
    `couplings` are the (channel, load) that can ever be full: the caps of what may run at once exceed their bandwidth.
    `shared` are the channels that more than one stream uses, `servers` those that serve one operation at a time.
    """

    channels: tuple[int, ...]
    loads: tuple[float, ...]
    limit: float = INFINITY
    tight: int = -1
    couplings: tuple[tuple[int, float], ...] = ()
    shared: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()


@dataclass(slots=True)
class Arrays:
    """Structure of arrays; index i is operation i everywhere. Times in s, work in bytes or solo seconds."""

    name: str
    operations: list[Operation]  # in canonical order
    channels: list[Channel]
    tiers: list[Tier]
    streams: list[Stream]
    paths: list[Path]
    path: list[int]
    work: list[float]
    cap: list[float]  # min(rate cap, path limit)
    weight: list[float]
    latency_s: list[float]
    stream: list[int]
    own_limit: list[int]  # the channel that sets the cap; -1: the operation's own rate cap
    waits: list[int]  # dependencies, plus one for the predecessor on the stream
    successors: list[list[int]]  # dependents, the next operation of the stream included
    allocates: dict[int, tuple[tuple[int, str, float], ...]] = field(default_factory=dict)  # (tier, class, bytes per member)
    frees: dict[int, tuple[tuple[int, str, float], ...]] = field(default_factory=dict)
    windows: dict[int, tuple[float, float]] = field(default_factory=dict)  # latency-bound: (window bytes, write share)
    servers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # exclusive channels, ascending
    gated: set[int] = field(default_factory=set)  # must be admitted: have allocations or servers
    resident: list[tuple[int, str, float]] = field(default_factory=list)

    @property
    def bandwidths(self) -> list[float]:
        """Bandwidth of one member of each channel, per second."""
        return [channel.bandwidth_per_s for channel in self.channels]


def build(program: Program) -> Arrays:
    """Arrays of `program`; raises InputError with every fault of its references and numbers."""
    faults: list[Fault] = []
    channels = sorted(program.channels, key=lambda channel: channel.name)
    tiers = sorted(program.tiers, key=lambda tier: tier.name)
    streams = sorted(program.streams, key=lambda stream: stream.name)
    for what, names in (
        ("channel", [channel.name for channel in channels]),
        ("tier", [tier.name for tier in tiers]),
        ("stream", [stream.name for stream in streams]),
    ):
        faults.extend(Fault(what=f"two {what}s are called {a!r}") for a, b in pairwise(names) if a == b)
    faults.extend(
        Fault(what=f"channel {channel.name!r} has bandwidth {channel.bandwidth_per_s!r}", remedy="make it > 0")
        for channel in channels
        if not channel.bandwidth_per_s > 0.0
    )
    builder = _Builder(
        {channel.name: i for i, channel in enumerate(channels)},
        {tier.name: i for i, tier in enumerate(tiers)},
        {stream.name: i for i, stream in enumerate(streams)},
        faults,
    )
    operations = builder.ordered(program.operations)
    arrays = Arrays(program.name, operations, channels, tiers, streams, [], [], [], [], [], [], [], [], [], [])
    builder.fill(arrays)
    for allocation, multiplicity in program.resident:
        tier = builder.tier_of.get(allocation.tier, -1)
        if tier < 0:
            faults.append(Fault(what=f"resident bytes are in unknown tier {allocation.tier!r}"))
        else:
            share = allocation.size_bytes * multiplicity / tiers[tier].multiplicity
            arrays.resident.append((tier, allocation.tensor_class, share))
    if faults:
        raise InputError(faults)
    return arrays


def couple(arrays: Arrays) -> None:
    """Find the channels that can ever be full: a stream runs one operation at a time, at most at its largest cap."""
    top: dict[tuple[int, int], float] = {}
    for stream, path, cap in zip(arrays.stream, arrays.path, arrays.cap, strict=True):
        if cap > top.get((stream, path), 0.0):
            top[stream, path] = cap
    most: list[dict[int, float]] = [{} for _ in arrays.channels]  # channel -> stream -> largest load
    for (stream, path), cap in top.items():
        row = arrays.paths[path]
        for channel, load in zip(row.channels, row.loads, strict=True):
            most[channel][stream] = max(most[channel].get(stream, 0.0), load * cap)
    can_fill = [
        len(loads) > 1 and sum(loads.values()) > channel.bandwidth_per_s * LINKED
        for channel, loads in zip(arrays.channels, most, strict=True)
    ]
    for row in arrays.paths:
        row.couplings = tuple((c, load) for c, load in zip(row.channels, row.loads, strict=True) if can_fill[c])
        row.shared = tuple(c for c in row.channels if len(most[c]) > 1)


@dataclass(slots=True)
class _Builder:
    channel_of: dict[str, int]
    tier_of: dict[str, int]
    stream_of: dict[str, int]
    faults: list[Fault]

    def ordered(self, operations: tuple[Operation, ...]) -> list[Operation]:
        known = []
        for operation in operations:
            if operation.stream in self.stream_of:
                known.append(operation)
            else:
                self.faults.append(Fault(what=f"operation {operation.id!r} is on unknown stream {operation.stream!r}"))
        known.sort(key=lambda operation: (operation.stream, operation.sequence))
        for a, b in pairwise(known):
            if a.stream == b.stream and a.sequence == b.sequence:
                what = f"operations {a.id!r} and {b.id!r} both have sequence {a.sequence} on stream {a.stream!r}"
                self.faults.append(Fault(what=what, remedy="number the operations of a stream in their order"))
        return known

    def fill(self, arrays: Arrays) -> None:
        operations, stream_of = arrays.operations, self.stream_of
        number = {operation.id: i for i, operation in enumerate(operations)}
        if len(number) != len(operations):
            seen: set[str] = set()
            for operation in operations:
                if operation.id in seen:
                    self.faults.append(Fault(what=f"two operations are called {operation.id!r}"))
                seen.add(operation.id)
        known_paths: dict[tuple[int, tuple[tuple[str, float], ...]], int] = {}
        successors: list[list[int]] = [[] for _ in operations]
        waits = [0] * len(operations)
        previous = -1
        for i, operation in enumerate(operations):
            stream = stream_of[operation.stream]
            if stream == previous:
                successors[i - 1].append(i)
                waits[i] = 1
            previous = stream
            arrays.stream.append(stream)
            for dependency in operation.after:
                j = number.get(dependency, -1)
                if j < 0:
                    self.faults.append(Fault(what=f"operation {operation.id!r} waits for unknown operation {dependency!r}"))
                    continue
                successors[j].append(i)
                waits[i] += 1
            key = (stream, operation.uses) if arrays.streams[stream].multiplicity != 1 else (-1, operation.uses)
            path = known_paths.get(key, -1)
            if path < 0:
                path = known_paths[key] = len(arrays.paths)
                arrays.paths.append(self._path(operation, arrays.streams[stream], arrays.channels))
            arrays.path.append(path)
            self._numbers(operation, arrays, arrays.paths[path])
            if operation.allocates or operation.frees:
                self._memory(operation, i, arrays)
            if arrays.paths[path].servers:
                arrays.servers[i] = arrays.paths[path].servers
                arrays.gated.add(i)
            if operation.window_bytes > 0.0:
                arrays.windows[i] = (operation.window_bytes, operation.write_share)
        arrays.successors, arrays.waits = successors, waits
        couple(arrays)

    def _path(self, operation: Operation, stream: Stream, channels: list[Channel]) -> Path:
        loads: dict[int, float] = {}
        for name, cost in operation.uses:
            index = self.channel_of.get(name, -1)
            if index < 0:
                self.faults.append(Fault(what=f"operation {operation.id!r} uses unknown channel {name!r}"))
            elif not cost >= 0.0 or cost == INFINITY:
                self.faults.append(Fault(what=f"operation {operation.id!r} has cost {cost!r} on channel {name!r}"))
            elif cost > 0.0:
                share = stream.multiplicity / channels[index].multiplicity
                loads[index] = loads.get(index, 0.0) + cost * share
        path = Path(tuple(loads), tuple(loads.values()))
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

    def _idle_cap(self, operation: Operation, arrays: Arrays) -> float:
        """Rate at which the window covers the idle latency of the path."""
        laws = [arrays.channels[self.channel_of[name]].latency for name, _ in operation.uses if name in self.channel_of]
        idle_s = sum(law.idle_latency_s for law in laws if law is not None)
        if idle_s <= 0.0:
            what = f"operation {operation.id!r} is latency-bound but no channel of its path has a latency law"
            self.faults.append(Fault(what=what, remedy="give a channel a latency or drop window_bytes"))
            return INFINITY
        return operation.window_bytes / idle_s

    def _numbers(self, operation: Operation, arrays: Arrays, path: Path) -> None:
        work, cap = operation.work, min(operation.rate_cap, path.limit)
        if operation.window_bytes > 0.0:
            cap = min(cap, self._idle_cap(operation, arrays))
        if not 0.0 <= work < INFINITY:
            self.faults.append(Fault(what=f"operation {operation.id!r} has work {work!r}", remedy="work is finite and >= 0"))
        if not operation.rate_cap > 0.0:
            self.faults.append(
                Fault(what=f"operation {operation.id!r} has rate cap {operation.rate_cap!r}", remedy="make it > 0")
            )
        elif cap == INFINITY and work > 0.0 and not operation.window_bytes > 0.0:
            what = f"operation {operation.id!r} has work, no rate cap, and uses no channel: it would run infinitely fast"
            self.faults.append(Fault(what=what, remedy="give it a rate cap or a channel with a cost"))
        if not operation.weight > 0.0 or not 0.0 <= operation.latency_s < INFINITY:
            what = f"operation {operation.id!r} has weight {operation.weight!r} and latency {operation.latency_s!r} s"
            self.faults.append(Fault(what=what, remedy="weight > 0, latency finite and >= 0"))
        arrays.work.append(work)
        arrays.cap.append(cap)
        arrays.own_limit.append(path.tight if cap >= path.limit else -1)
        arrays.weight.append(operation.weight)
        arrays.latency_s.append(operation.latency_s)

    def _memory(self, operation: Operation, i: int, arrays: Arrays) -> None:
        owners = arrays.streams[arrays.stream[i]].multiplicity
        for allocations, target in ((operation.allocates, arrays.allocates), (operation.frees, arrays.frees)):
            rows = []
            for allocation in allocations:
                tier = self.tier_of.get(allocation.tier, -1)
                if tier < 0 or not allocation.size_bytes >= 0.0:
                    what = (
                        f"operation {operation.id!r} allocates or frees {allocation.size_bytes!r} bytes in {allocation.tier!r}"
                    )
                    self.faults.append(Fault(what=what, remedy="name a tier of the machine and a size >= 0"))
                    continue
                share = owners / arrays.tiers[tier].multiplicity
                rows.append((tier, allocation.tensor_class, allocation.size_bytes * share))
            if rows:
                target[i] = tuple(rows)
                if target is arrays.allocates:
                    arrays.gated.add(i)
