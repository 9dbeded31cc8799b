"""From a Program to its arrays: numbering, and which channels can ever couple flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from sim.engine.arrays import LINKED, Arrays
from sim.engine.columns import Columns
from sim.errors import Fault, InputError
from sim.records import Channel, Operation, Program, Stream, Tier


def build(program: Program, *, is_open: bool = False) -> Arrays:
    """Arrays of `program`; raises InputError with every fault of its references and numbers.

    `is_open`: operations, bandwidths and caps may change during the replay, so any channel may couple flows.
    """
    channels = sorted(program.channels, key=lambda channel: channel.name)
    tiers = sorted(program.tiers, key=lambda tier: tier.name)
    streams = sorted(program.streams, key=lambda stream: stream.name)
    faults = _faults(channels, tiers, streams)
    columns = Columns(
        {channel.name: i for i, channel in enumerate(channels)},
        {tier.name: i for i, tier in enumerate(tiers)},
        {stream.name: i for i, stream in enumerate(streams)},
        faults,
    )
    operations, stream = columns.ordered(program.operations)
    arrays = Arrays(
        name=program.name,
        operations=operations,
        channels=channels,
        tiers=tiers,
        streams=streams,
        stream=stream,
        is_open=is_open,
        order=columns.order,
    )
    columns.fill(arrays)
    couple(arrays)
    faults += _place_resident(arrays, program, columns.tier_of)
    if faults:
        raise InputError(faults)
    return arrays


def _faults(channels: Sequence[Channel], tiers: Sequence[Tier], streams: Sequence[Stream]) -> list[Fault]:
    """Faults of names given twice, and of channels that carry nothing. Each sequence is sorted by name."""
    faults: list[Fault] = []
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
    return faults


def _place_resident(arrays: Arrays, program: Program, tier_of: Mapping[str, int]) -> list[Fault]:
    """Adds the bytes that are there throughout; returns the faults of those in unknown tiers."""
    faults = []
    for allocation, multiplicity in program.resident:
        tier = tier_of.get(allocation.tier, -1)
        if tier < 0:
            faults.append(Fault(what=f"resident bytes are in unknown tier {allocation.tier!r}"))
        else:
            share = allocation.size_bytes * multiplicity / arrays.tiers[tier].multiplicity
            arrays.resident.append((tier, allocation.tensor_class, share))
    return faults


def append(arrays: Arrays, operation: Operation) -> int:
    """Add one operation (on a new stream if need be) to open arrays; return its number. It waits for nothing yet."""
    columns = Columns(
        {channel.name: i for i, channel in enumerate(arrays.channels)},
        {tier.name: i for i, tier in enumerate(arrays.tiers)},
        {stream.name: i for i, stream in enumerate(arrays.streams)},
        [],
    )
    if operation.stream not in columns.stream_of:
        columns.stream_of[operation.stream] = len(arrays.streams)
        arrays.streams.append(Stream(name=operation.stream))
    one = Arrays(
        name=arrays.name,
        operations=[operation],
        channels=arrays.channels,
        tiers=arrays.tiers,
        streams=arrays.streams,
        stream=[columns.stream_of[operation.stream]],
        is_open=True,
    )
    columns.fill(one)
    couple(one)
    if columns.faults:
        raise InputError(columns.faults)
    number = len(arrays.operations)
    arrays.order = None
    arrays.operations.append(operation)
    arrays.stream += one.stream
    arrays.path.append(len(arrays.paths))
    arrays.paths += one.paths
    for name in ("work", "cap", "weight", "latency_s", "own_limit", "num_after"):
        getattr(arrays, name).append(getattr(one, name)[0])
    for name in ("allocates", "frees", "servers"):
        if 0 in getattr(one, name):
            getattr(arrays, name)[number] = getattr(one, name)[0]
    return number


def couple(arrays: Arrays) -> None:
    """Find the channels that can ever couple flows: a stream runs one operation at a time, at most at its largest cap."""
    top: dict[tuple[int, int], float] = {}
    columns = (arrays.of_kinds(column) for column in (arrays.stream, arrays.path))
    for stream, path, cap in dict.fromkeys(zip(*columns, arrays.of_kinds(arrays.cap), strict=True)):
        if cap > top.get((stream, path), 0.0):
            top[stream, path] = cap
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
