"""A Program as flat arrays: the form that both backends run on.

Operations are numbered by (stream name, sequence), channels, tiers and streams by name, so that the numbers, and with
them every tie-break and every sum, do not depend on the order of lines in a trace. Paths (tuples of channel and cost)
are shared: a step has a few dozen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from operator import lt

from sim.errors import Fault, InputError
from sim.records import INFINITY, Channel, Operation, Program, Stream, Tier

#: a channel is linked when the upper bounds of its users exceed this share of its bandwidth; below 1, so that the
#: rounding of a running sum can only link too much, which costs time and changes nothing
LINKED = 1.0 - 1e-9

#: sequence numbers of one stream lie within +- half of this
_SEQUENCES = 1 << 62


@dataclass(slots=True)
class Path:
    """Channels that a flow uses and the load per unit of rate on one member of each.

    `limit` is the largest rate that an otherwise idle machine allows, `tight` the first channel that sets it (-1: none).
    `couplings` are the (channel, load) that can ever be full (the caps of what may run at once exceed their bandwidth) or
    whose latency limits someone.
    `servers` are the channels that serve one operation at a time.
    """

    channels: tuple[int, ...]
    loads: tuple[float, ...]
    costs: tuple[float, ...]  # per unit of work of one rank
    limit: float = INFINITY
    tight: int = -1
    couplings: tuple[tuple[int, float], ...] = ()
    servers: tuple[int, ...] = ()


@dataclass(slots=True)
class Arrays:
    """Structure of arrays; index i is operation i everywhere. Times in s, work in bytes or solo seconds."""

    name: str
    operations: list[Operation]  # in canonical order
    channels: list[Channel]
    tiers: list[Tier]
    streams: list[Stream]
    stream: list[int]
    paths: list[Path] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    cap: list[float] = field(default_factory=list)  # min(rate cap, path limit)
    weight: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    own_limit: list[int] = field(default_factory=list)  # the channel that sets the cap; -1: the operation's own rate cap
    waits: list[int] = field(default_factory=list)  # dependencies, plus one for the predecessor on the stream
    successors: list[list[int]] = field(default_factory=list)  # dependents, the next operation of the stream included
    allocates: dict[int, tuple[tuple[int, str, float], ...]] = field(default_factory=dict)  # (tier, class, bytes per member)
    frees: dict[int, tuple[tuple[int, str, float], ...]] = field(default_factory=dict)
    windows: dict[int, tuple[float, float]] = field(default_factory=dict)  # latency-bound: (window bytes, write share)
    servers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # exclusive channels, ascending
    resident: list[tuple[int, str, float]] = field(default_factory=list)
    is_open: bool = False  # operations, bandwidths and caps may change during the replay

    @property
    def bandwidths(self) -> list[float]:
        """Bandwidth of one member of each channel, per second."""
        return [channel.bandwidth_per_s for channel in self.channels]

    def idle_cap(self, i: int) -> float:
        """Rate at which the window of the latency-bound operation `i` covers the idle latency of its path."""
        path = self.paths[self.path[i]]
        idle_s = 0.0
        for channel, cost in zip(path.channels, path.costs, strict=True):
            law = self.channels[channel].latency
            idle_s += min(cost, 1.0) * law.idle_latency_s if law is not None else 0.0
        return self.windows[i][0] / idle_s if idle_s > 0.0 else INFINITY


def append(arrays: Arrays, operation: Operation) -> int:
    """Add one operation (on a new stream if need be) to open arrays; return its number. It waits for nothing yet."""
    builder = _Builder(
        {channel.name: i for i, channel in enumerate(arrays.channels)},
        {tier.name: i for i, tier in enumerate(arrays.tiers)},
        {stream.name: i for i, stream in enumerate(arrays.streams)},
        [],
    )
    if operation.stream not in builder.stream_of:
        builder.stream_of[operation.stream] = len(arrays.streams)
        arrays.streams.append(Stream(name=operation.stream))
    one = Arrays(
        name=arrays.name,
        operations=[operation],
        channels=arrays.channels,
        tiers=arrays.tiers,
        streams=arrays.streams,
        stream=[builder.stream_of[operation.stream]],
        is_open=True,
    )
    builder.fill(one)
    if builder.faults:
        raise InputError(builder.faults)
    number = len(arrays.operations)
    arrays.operations.append(operation)
    arrays.stream += one.stream
    arrays.path.append(len(arrays.paths))
    arrays.paths += one.paths
    for name in ("work", "cap", "weight", "latency_s", "own_limit"):
        getattr(arrays, name).append(getattr(one, name)[0])
    arrays.waits.append(0)
    arrays.successors.append([])
    for name in ("allocates", "frees", "servers"):
        if 0 in getattr(one, name):
            getattr(arrays, name)[number] = getattr(one, name)[0]
    return number


def build(program: Program, *, is_open: bool = False) -> Arrays:
    """Arrays of `program`; raises InputError with every fault of its references and numbers.

    `is_open`: operations, bandwidths and caps may change during the replay, so any channel may couple flows.
    """
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
    operations, stream = builder.ordered(program.operations)
    arrays = Arrays(
        name=program.name,
        operations=operations,
        channels=channels,
        tiers=tiers,
        streams=streams,
        stream=stream,
        is_open=is_open,
    )
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
    """Find the channels that can ever couple flows: a stream runs one operation at a time, at most at its largest cap."""
    top: dict[tuple[int, int], float] = {}
    for key, cap in zip(zip(arrays.stream, arrays.path, strict=True), arrays.cap, strict=True):
        if cap > top.get(key, 0.0):
            top[key] = cap
    most: list[dict[int, float]] = [{} for _ in arrays.channels]  # channel -> stream -> largest load
    for (stream, path), cap in top.items():
        row = arrays.paths[path]
        for channel, load in zip(row.channels, row.loads, strict=True):
            most[channel][stream] = max(most[channel].get(stream, 0.0), load * cap)
    bound_paths = {arrays.path[flow] for flow in arrays.windows}
    crossed = {channel for path in bound_paths for channel in arrays.paths[path].channels}
    can_fill = [
        arrays.is_open
        or (len(loads) > 1 and sum(loads.values()) > channel.bandwidth_per_s * LINKED)
        or (channel.latency is not None and i in crossed)
        for i, (channel, loads) in enumerate(zip(arrays.channels, most, strict=True))
    ]
    for row in arrays.paths:
        row.couplings = tuple((c, load) for c, load in zip(row.channels, row.loads, strict=True) if can_fill[c])


@dataclass(slots=True)
class _Builder:
    """Columns first, one operation at a time only where something is unusual: a step has half a million operations."""

    channel_of: dict[str, int]
    tier_of: dict[str, int]
    stream_of: dict[str, int]
    faults: list[Fault]

    def ordered(self, operations: tuple[Operation, ...]) -> tuple[list[Operation], list[int]]:
        """(operations in canonical order, the stream of each)."""
        stream_of = self.stream_of
        streams = [stream_of.get(operation.stream, -1) for operation in operations]
        rows = list(operations)
        if -1 in streams:
            for operation, stream in zip(operations, streams, strict=True):
                if stream < 0:
                    self.faults.append(Fault(what=f"operation {operation.id!r} is on unknown stream {operation.stream!r}"))
            rows = [operation for operation in operations if operation.stream in stream_of]
            streams = [stream for stream in streams if stream >= 0]
        keys = [stream * _SEQUENCES + operation.sequence for stream, operation in zip(streams, rows, strict=True)]
        if all(map(lt, keys, keys[1:])):
            return rows, streams
        order = sorted(range(len(keys)), key=keys.__getitem__)
        for i, j in pairwise(order):
            if keys[i] == keys[j]:
                a, b = rows[i], rows[j]
                what = f"operations {a.id!r} and {b.id!r} both have sequence {a.sequence} on stream {a.stream!r}"
                self.faults.append(Fault(what=what, remedy="number the operations of a stream in their order"))
        return [rows[i] for i in order], [streams[i] for i in order]

    def fill(self, arrays: Arrays) -> None:
        operations = arrays.operations
        self._dependencies(arrays)
        arrays.path = self._paths(arrays)
        arrays.work = [operation.work for operation in operations]
        arrays.weight = [operation.weight for operation in operations]
        arrays.latency_s = [operation.latency_s for operation in operations]
        limits, tights = [path.limit for path in arrays.paths], [path.tight for path in arrays.paths]
        caps = [operation.rate_cap for operation in operations]
        self._check_numbers(arrays, caps)
        arrays.cap = [min(cap, limits[path]) for cap, path in zip(caps, arrays.path, strict=True)]
        arrays.own_limit = [tights[path] if cap >= limits[path] else -1 for cap, path in zip(caps, arrays.path, strict=True)]
        for i, operation in enumerate(operations):
            if operation.window_bytes > 0.0:
                self._window(operation, i, arrays)
            if operation.allocates or operation.frees:
                self._memory(operation, i, arrays)
        if INFINITY in arrays.cap:
            for operation, cap in zip(operations, arrays.cap, strict=True):
                if cap == INFINITY and operation.work > 0.0:
                    what = (
                        f"operation {operation.id!r} has work, no rate cap, and uses no channel: it would run infinitely fast"
                    )
                    self.faults.append(Fault(what=what, remedy="give it a rate cap or a channel with a cost"))
        if any(path.servers for path in arrays.paths):
            arrays.servers = {i: servers for i, path in enumerate(arrays.path) if (servers := arrays.paths[path].servers)}
        couple(arrays)

    def _dependencies(self, arrays: Arrays) -> None:
        operations, stream = arrays.operations, arrays.stream
        number = {operation.id: i for i, operation in enumerate(operations)}
        if len(number) != len(operations):
            counts = Counter(operation.id for operation in operations)
            self.faults.extend(Fault(what=f"{n} operations are called {name!r}") for name, n in counts.items() if n > 1)
        arrays.successors = successors = [[i + 1] if a == b else [] for i, (a, b) in enumerate(pairwise(stream))]
        successors.append([])
        arrays.waits = waits = [len(operation.after) for operation in operations]
        for i, row in enumerate(successors):
            if row:
                waits[i + 1] += 1
        for i, operation in enumerate(operations):
            for name in operation.after:
                j = number.get(name, -1)
                if j >= 0:
                    successors[j].append(i)
                else:
                    self.faults.append(Fault(what=f"operation {operation.id!r} waits for unknown operation {name!r}"))

    def _paths(self, arrays: Arrays) -> list[int]:
        """The path of each operation; operations made by one generator mostly share the very tuple, so look at that first."""
        by_identity: dict[tuple[int, int], int] = {}
        by_value: dict[tuple[int, tuple[tuple[str, float], ...]], int] = {}
        owners = [stream.multiplicity for stream in arrays.streams]
        path_of = []
        for stream, operation in zip(arrays.stream, arrays.operations, strict=True):
            identity = (owners[stream], id(operation.uses))
            path = by_identity.get(identity, -1)
            if path < 0:
                path = by_value.setdefault((owners[stream], operation.uses), len(arrays.paths))
                by_identity[identity] = path
                if path == len(arrays.paths):
                    arrays.paths.append(self._path(operation, arrays.streams[stream], arrays.channels))
            path_of.append(path)
        return path_of

    def _check_numbers(self, arrays: Arrays, caps: list[float]) -> None:
        work, weight, latency_s = arrays.work, arrays.weight, arrays.latency_s
        if not work or (
            # sums: a NaN anywhere makes these false
            (min(work) >= 0.0 and sum(work) < INFINITY)
            and (min(weight) > 0.0 and sum(weight) < INFINITY)
            and (min(latency_s) >= 0.0 and sum(latency_s) < INFINITY)
            and (min(caps) > 0.0 and sum(caps) > 0.0)
        ):
            return
        for operation in arrays.operations:
            if not 0.0 <= operation.work < INFINITY:
                what = f"operation {operation.id!r} has work {operation.work!r}"
                self.faults.append(Fault(what=what, remedy="work is finite and >= 0"))
            if not operation.rate_cap > 0.0:
                what = f"operation {operation.id!r} has rate cap {operation.rate_cap!r}"
                self.faults.append(Fault(what=what, remedy="make it > 0"))
            if not 0.0 < operation.weight < INFINITY or not 0.0 <= operation.latency_s < INFINITY:
                what = f"operation {operation.id!r} has weight {operation.weight!r} and latency {operation.latency_s!r} s"
                self.faults.append(Fault(what=what, remedy="weight > 0, latency >= 0, both finite"))

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

    def _window(self, operation: Operation, i: int, arrays: Arrays) -> None:
        """A latency-bound flow is capped at most at the rate at which its window covers the idle latency of the path."""
        arrays.windows[i] = (operation.window_bytes, operation.write_share)
        idle_cap = arrays.idle_cap(i)
        if idle_cap == INFINITY:
            what = f"operation {operation.id!r} is latency-bound but no channel of its path has a latency law"
            self.faults.append(Fault(what=what, remedy="give a channel a latency or drop window_bytes"))
        elif idle_cap < arrays.cap[i]:
            arrays.cap[i], arrays.own_limit[i] = idle_cap, -1

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
