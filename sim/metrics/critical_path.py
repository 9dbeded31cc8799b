"""The chain of operations that a step waits for, and the resource that owns most of its seconds.

From the operation that ends last we walk back to whatever released each operation (a dependency, or the one before it on
its stream). The seconds of each link are split among the resources that set its pace:

- at its cap, computation is paced by its own device. Kernel time is arithmetic plus memory time plus launches, so the
  device's cores ("gpu0.sm", "cpu0.cores") own the arithmetic, nobody the launches ("overhead"), and the channel of its memory
  the rest; where that split is unknown, the channel owns the share of it that the operation used, and the cores the rest;
- at its cap, a copy that saturates no channel is paced by the copy engine;
- below its cap, the channel that limited it owns all: the one that its own ranks fill, else of those it crosses the one
  that was saturated longest;
- threads that wait for what they have in flight, on channels that are not full, are paced by their cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.metrics.breakdown import Stretch
from sim.metrics.seen import Seen
from sim.records import Channel, Kind, Operation, OperationRecord, Program, Replay

#: share of the critical path above which a resource is said to bind
BINDING_SHARE = 0.3
#: an operation that reached this share of its cap was not held back by others
_AT_CAP = 0.98
_COMPUTING = frozenset({Kind.COMPUTE, Kind.HOST_UPDATE, Kind.HOST_WORK})
NONE = "none"
OVERHEAD = "overhead"
#: seconds before a job of a scenario with several starts
ARRIVAL = "arrival"


def critical_path(program: Program, replay: Replay) -> list[OperationRecord]:
    """Records of the operations on the critical path, first to last. Empty for an empty replay."""
    seen = Seen(program, replay)
    return [seen.records[index] for index in _path(seen)]


def _path(seen: Seen) -> list[int]:
    """Records on the critical path, first to last."""
    if not seen.records:
        return []
    records, causes = seen.records, seen.order.causes
    last_s = max([record.end_s for record in records])
    current = max((index for index, record in enumerate(records) if record.end_s == last_s), key=lambda i: records[i].id)
    path = [current]
    while before := causes[current]:
        current = before[0]
        for other in before[1:]:
            if (records[other].end_s, records[other].id) > (records[current].end_s, records[current].id):
                current = other
        path.append(current)
    path.reverse()
    return path


def owners_s(seen: Seen, *, stretch: Stretch | None = None) -> dict[str, float]:
    """Seconds of the critical path by the resource that owns them, largest first."""
    length = stretch.seconds if stretch else None
    owners = _Owners(seen)
    seconds: dict[str, float] = defaultdict(float)
    operations, records, streams = seen.operations, seen.records, owners.streams
    for index in _path(seen):
        operation, record = operations[index], records[index]
        ready_s, start_s, end_s = record.ready_s, record.start_s, record.end_s
        begun_s = ready_s + max(0.0, min(operation.latency_s, end_s - ready_s))
        # a clock runs until a job starts; idle time of a rank is its framework's
        waiting = ARRIVAL if streams[operation.stream].role == "clock" else OVERHEAD
        seconds[waiting] += length(ready_s, begun_s) if length else begun_s - ready_s
        if (duration := end_s - start_s) > 0.0:
            owned = length(start_s, end_s) if length else duration
            for resource, share in owners.shares(operation, duration).items():
                seconds[resource] += share * owned
    return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))


class _Owners:
    """Who owns the seconds of operations; equal kernels at their own pace share the answer."""

    def __init__(self, seen: Seen) -> None:
        self.channels = {channel.name: channel for channel in seen.program.channels}
        self.saturated_s = {total.name: total.saturated_s for total in seen.replay.channels}
        self.streams = {stream.name: stream for stream in seen.program.streams}
        self._uses: dict[tuple[int, str], Sequence[_Use]] = {}  # by the identity of `uses`, which operations share
        self._paced: dict[tuple[object, ...], Mapping[str, float]] = {}

    def shares(self, operation: Operation, duration_s: float) -> Mapping[str, float]:
        """Resource -> share of the seconds of an operation; sums to 1."""
        key = (id(operation.uses), operation.stream)
        work, cap, arithmetic_s, launch_s = operation.work, operation.rate_cap, operation.arithmetic_s, operation.launch_s
        if arithmetic_s + launch_s <= 0.0 or operation.kind not in _COMPUTING or work / duration_s < _AT_CAP * cap:
            return self._found(operation, duration_s, key)
        kernels = (key, work, cap, arithmetic_s, launch_s)
        if kernels not in self._paced:
            self._paced[kernels] = self._found(operation, duration_s, key)
        return self._paced[kernels]

    def _found(self, operation: Operation, duration_s: float, key: tuple[int, str]) -> Mapping[str, float]:
        stream = self.streams[operation.stream]
        if key not in self._uses:
            self._uses[key] = _uses(operation, self.channels, self.saturated_s, stream.multiplicity)
        return _shares(operation, duration_s, self._uses[key], stream.device or operation.stream)


def launching_share(program: Program, replay: Replay) -> float:
    """Share of the critical path's overhead in which the CPU launches kernels; the rest is starts and framework time."""
    known = {operation.id: operation for operation in program.operations}
    launching_s = starting_s = 0.0
    for record in critical_path(program, replay):
        operation = known[record.id]
        starting_s += max(0.0, min(operation.latency_s, record.end_s - record.ready_s))
        launching_s += operation.launch_s if record.end_s > record.start_s else 0.0
    return launching_s / (launching_s + starting_s) if launching_s else 0.0


def bound_by(owners: Mapping[str, float], total_s: float) -> str:
    """The resource that owns most seconds of the critical path; "none" when none owns more than 30 % of the step.

    "arrival" where a later start of a job decides when all have ended; "overhead" when launches, framework code and fixed
    latencies own more than any resource: faster hardware gains little.
    """
    first = max(owners, key=lambda name: (owners[name], name), default="")
    return first if first and owners[first] > BINDING_SHARE * total_s else NONE


@dataclass(frozen=True, slots=True)
class _Use:
    """What one unit of rate takes of a channel."""

    name: str
    cost: float
    bandwidth: float
    is_moved: bool  # bytes, not cores
    num_sharers: float  # identical ranks per member of the channel
    saturated_s: float


def _uses(
    operation: Operation, channels: Mapping[str, Channel], saturated_s: Mapping[str, float], crowd: int
) -> Sequence[_Use]:
    return [
        _Use(
            name=name, cost=cost, bandwidth=channels[name].bandwidth_per_s, is_moved=channels[name].unit == "bytes",
            num_sharers=crowd / channels[name].multiplicity, saturated_s=saturated_s.get(name, 0.0),
        )
        for name, cost in operation.uses
        if cost > 0.0
    ]  # fmt: skip


def _shares(operation: Operation, duration_s: float, uses: Sequence[_Use], device: str) -> dict[str, float]:
    """Resource -> share of the seconds of an operation; sums to 1."""
    rate = operation.work / duration_s
    most, busiest = 0.0, ""
    for use in uses:
        share = rate * use.cost / use.bandwidth
        if use.is_moved and (share > most or (share == most and use.name > busiest)):
            most, busiest = share, use.name
    if operation.kind in _COMPUTING:
        if rate >= _AT_CAP * operation.rate_cap or not uses:
            own = next((use.name for use in uses if not use.is_moved), f"{device}.sm")
            if operation.arithmetic_s + operation.launch_s > 0.0:
                return _kernel_shares(operation, busiest, own)
            share = min(1.0, most)
            return {busiest: share, own: 1.0 - share} if busiest else {own: 1.0}
    elif not uses or (rate >= _AT_CAP * operation.rate_cap and most < _AT_CAP):
        return {f"{device}.copy_engine" if operation.kind == Kind.TRANSFER else busiest or OVERHEAD: 1.0}
    used = [(rate * use.cost / use.bandwidth, use) for use in uses]
    # the ranks that run it fill the channel by themselves
    _, alone = max(
        [(share * use.num_sharers, use.name) for share, use in used if share * use.num_sharers >= _AT_CAP], default=(0.0, "")
    )
    if not alone and operation.window_bytes and all(use.saturated_s < duration_s / 2 for _, use in used):
        own = next((use.name for use in uses if not use.is_moved), f"{busiest.split('.')[0]}.cores")
        return {own: 1.0}
    return {alone or max((use.saturated_s, share, use.name) for share, use in used)[2]: 1.0}


def _kernel_shares(operation: Operation, memory: str, own: str) -> dict[str, float]:
    """Shares of kernels that ran at their own pace, from the parts of their solo time."""
    solo_s = operation.work / operation.rate_cap
    arithmetic, launch = operation.arithmetic_s / solo_s, operation.launch_s / solo_s
    rest = max(0.0, 1.0 - arithmetic - launch)
    return {own: arithmetic + (0.0 if memory else rest), OVERHEAD: launch} | ({memory: rest} if memory else {})
