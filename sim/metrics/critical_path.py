"""The chain of operations that a step waits for, and the resource that owns most of its seconds.

From the operation that ends last we walk back to whatever released each operation (a dependency, or the one before it on
its stream). The seconds of each link are split among the resources that set its pace:

- at its cap, computation is paced by its own device. Kernel time is arithmetic plus memory time plus launches, so the
  device's cores ("gpu0.sm", "cpu0.cores") own the arithmetic, nobody the launches ("overhead"), and the channel of its memory
  the rest; where that split is unknown, the channel owns the share of it that the operation used, and the cores the rest;
- at its cap, a copy that saturates no channel is paced by the copy engine;
- below its cap, the channel that limited it owns all: the one that its own ranks fill, else of those it crosses the one
  that was saturated longest.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

from sim.metrics.breakdown import Stretch
from sim.records import Channel, ChannelTotal, Kind, Operation, OperationRecord, Program, Replay

#: share of the critical path above which a resource is said to bind
BINDING_SHARE = 0.3
#: an operation that reached this share of its cap was not held back by others
_AT_CAP = 0.98
NONE = "none"
OVERHEAD = "overhead"


def critical_path(program: Program, replay: Replay) -> list[OperationRecord]:
    """Records of the operations on the critical path, first to last. Empty for an empty replay."""
    if not replay.operations:
        return []
    by_id = {operation.id: operation for operation in program.operations}
    records = {record.id: record for record in replay.operations}
    before = _stream_predecessors(program)
    current = max(replay.operations, key=lambda record: (record.end_s, record.id))
    path = [current]
    seen = {current.id}
    while True:
        operation = by_id[current.id]
        causes = [name for name in (*operation.after, before.get(current.id, "")) if name in records and name not in seen]
        if not causes:
            break
        current = max((records[name] for name in causes), key=lambda record: (record.end_s, record.id))
        seen.add(current.id)
        path.append(current)
    path.reverse()
    return path


def owners_s(program: Program, replay: Replay, *, stretch: Stretch | None = None) -> dict[str, float]:
    """Seconds of the critical path by the resource that owns them, largest first."""
    length = stretch.seconds if stretch else lambda start, end: end - start
    by_id = {operation.id: operation for operation in program.operations}
    channels = {channel.name: channel for channel in program.channels}
    totals = {total.name: total for total in replay.channels}
    devices = {stream.name: stream.device for stream in program.streams}
    crowd = {stream.name: stream.multiplicity for stream in program.streams}
    seconds: dict[str, float] = defaultdict(float)
    for record in critical_path(program, replay):
        operation = by_id[record.id]
        latency = max(0.0, min(operation.latency_s, record.end_s - record.ready_s))
        seconds[OVERHEAD] += length(record.ready_s, record.ready_s + latency)
        duration = record.end_s - record.start_s
        if duration > 0.0:
            device = devices.get(operation.stream, "") or operation.stream
            for resource, share in _shares(operation, duration, channels, totals, device, crowd[operation.stream]).items():
                seconds[resource] += share * length(record.start_s, record.end_s)
    return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))


def bound_by(owners: Mapping[str, float], total_s: float) -> str:
    """The resource that owns most seconds of the critical path; "none" when none owns more than 30 % of the step.

    "overhead" when launches, framework code and fixed latencies own more than any resource: faster hardware gains little.
    """
    first = max(owners, key=lambda name: (owners[name], name), default="")
    return first if first and owners[first] > BINDING_SHARE * total_s else NONE


def _stream_predecessors(program: Program) -> dict[str, str]:
    streams: dict[str, list[Operation]] = defaultdict(list)
    for operation in program.operations:
        streams[operation.stream].append(operation)
    before: dict[str, str] = {}
    for operations in streams.values():
        operations.sort(key=lambda operation: operation.sequence)
        for first, then in itertools.pairwise(operations):
            before[then.id] = first.id
    return before


def _shares(
    operation: Operation,
    duration_s: float,
    channels: Mapping[str, Channel],
    totals: Mapping[str, ChannelTotal],
    device: str,
    crowd: int,
) -> dict[str, float]:
    """Resource -> share of the seconds of an operation that `crowd` identical ranks run; sums to 1."""
    rate = operation.work / duration_s
    used: dict[str, float] = {}
    moved: dict[str, float] = {}
    for name, cost in operation.uses:
        if cost > 0.0:
            channel = channels[name]
            used[name] = rate * cost / channel.bandwidth_per_s
            if channel.unit == "bytes":
                moved[name] = used[name]
    busiest = max(moved, key=lambda name: (moved[name], name)) if moved else ""
    if operation.kind in (Kind.COMPUTE, Kind.HOST_UPDATE, Kind.HOST_WORK):
        own = next((name for name in used if channels[name].unit == "cores"), f"{device}.sm")
        if rate >= _AT_CAP * operation.rate_cap or not used:
            if operation.arithmetic_s + operation.launch_s > 0.0:
                return _kernel_shares(operation, busiest, own)
            share = min(1.0, moved.get(busiest, 0.0))
            return {busiest: share, own: 1.0 - share} if busiest else {own: 1.0}
    elif not used or (rate >= _AT_CAP * operation.rate_cap and moved.get(busiest, 0.0) < _AT_CAP):
        return {f"{device}.copy_engine" if operation.kind == Kind.TRANSFER else busiest or OVERHEAD: 1.0}
    filled = {name: share * crowd / channels[name].multiplicity for name, share in used.items()}
    alone = [name for name in used if filled[name] >= _AT_CAP]  # the ranks that run it fill the channel by themselves
    if alone:
        return {max(alone, key=lambda name: (filled[name], name)): 1.0}
    limiting = max(used, key=lambda name: (totals[name].saturated_s if name in totals else 0.0, used[name], name))
    return {limiting: 1.0}


def _kernel_shares(operation: Operation, memory: str, own: str) -> dict[str, float]:
    """Shares of kernels that ran at their own pace, from the parts of their solo time."""
    solo_s = operation.work / operation.rate_cap
    arithmetic, launch = operation.arithmetic_s / solo_s, operation.launch_s / solo_s
    rest = max(0.0, 1.0 - arithmetic - launch)
    return {own: arithmetic + (0.0 if memory else rest), OVERHEAD: launch} | ({memory: rest} if memory else {})
