"""What must hold for every replay, whatever the program: pure checks of Program + Replay, independent of the kernel."""

from __future__ import annotations

from collections import defaultdict

from sim.records import Operation, OperationRecord, Program, Replay

#: relative; sums of 1e6 rounded terms stay below it
TOLERANCE = 1e-9


def broken(program: Program, replay: Replay, *, is_enforced: bool = True) -> list[str]:
    """Every invariant that `replay` breaks, in words; empty = none. Segment checks need level full.

    Order (streams, dependencies, latencies), duration (no operation beats its cap or its narrowest channel),
    conservation of bytes, bandwidth, busy <= elapsed, capacity (unless not `is_enforced`: `capacity="observe"`).
    """
    records = {record.id: record for record in replay.operations}
    missing = [operation.id for operation in program.operations if operation.id not in records]
    if missing:
        return [f"no record of {len(missing)} operations, first {missing[0]!r}"]
    found = _order(program, records)
    found += _durations(program, records)
    found += _channels(program, replay)
    found += _tiers(program, replay, records, is_enforced)
    return found


def _slack(time_s: float) -> float:
    return TOLERANCE * max(abs(time_s), 1e-12)


def _order(program: Program, records: dict[str, OperationRecord]) -> list[str]:
    found = []
    last: dict[str, Operation] = {}
    for operation in sorted(program.operations, key=lambda operation: (operation.stream, operation.sequence)):
        record = records[operation.id]
        if not 0.0 <= record.ready_s <= record.start_s <= record.end_s:
            found.append(f"{operation.id!r}: ready, start, end are out of order: {record}")
        if record.start_s < record.ready_s + operation.latency_s - _slack(record.start_s):
            found.append(f"{operation.id!r} started before its latency was over")
        before = list(operation.after)
        if operation.stream in last:
            before.append(last[operation.stream].id)
        found += [
            f"{operation.id!r} was ready at {record.ready_s!r} s, before {name!r} ended at {records[name].end_s!r} s"
            for name in before
            if records[name].end_s > record.ready_s + _slack(record.ready_s)
        ]
        last[operation.stream] = operation
    return found


def _durations(program: Program, records: dict[str, OperationRecord]) -> list[str]:
    found = []
    owners = {stream.name: stream.multiplicity for stream in program.streams}
    members = {channel.name: channel for channel in program.channels}
    for operation in program.operations:
        fastest = operation.rate_cap
        for name, cost in operation.uses:
            channel = members[name]
            load = cost * owners[operation.stream] / channel.multiplicity
            if load > 0.0:
                fastest = min(fastest, channel.bandwidth_per_s / load)
        record = records[operation.id]
        if record.end_s - record.start_s < operation.work / fastest - _slack(record.end_s):
            found.append(
                f"{operation.id!r} took {record.end_s - record.start_s!r} s, its caps allow {operation.work / fastest!r} s"
            )
    return found


def _channels(program: Program, replay: Replay) -> list[str]:
    found = []
    owners = {stream.name: stream.multiplicity for stream in program.streams}
    members = {channel.name: channel for channel in program.channels}
    due: dict[str, float] = defaultdict(float)
    for operation in program.operations:
        for name, cost in operation.uses:
            due[name] += operation.work * cost * owners[operation.stream] / members[name].multiplicity
    carried: dict[str, float] = defaultdict(float)
    until: dict[str, float] = defaultdict(float)
    for segment in replay.segments:
        carried[segment.name] += segment.rate_per_s * (segment.end_s - segment.start_s)
        if segment.rate_per_s > members[segment.name].bandwidth_per_s * (1.0 + TOLERANCE):
            found.append(
                f"channel {segment.name!r} carried {segment.rate_per_s!r}/s of {members[segment.name].bandwidth_per_s!r}/s"
            )
        if segment.start_s < until[segment.name]:
            found.append(f"channel {segment.name!r} has overlapping segments at {segment.start_s!r} s")
        until[segment.name] = segment.end_s
    for total in replay.channels:
        if abs(total.amount - due[total.name]) > TOLERANCE * due[total.name]:
            found.append(f"channel {total.name!r} reports {total.amount!r}, operations put {due[total.name]!r} on it")
        if replay.segments and abs(carried[total.name] - due[total.name]) > 1e3 * TOLERANCE * due[total.name]:
            found.append(
                f"channel {total.name!r} carried {carried[total.name]!r} in time, operations put {due[total.name]!r} on it"
            )
        if total.busy_s > replay.makespan_s + _slack(replay.makespan_s) or total.saturated_s > total.busy_s + _slack(
            total.busy_s
        ):
            found.append(
                f"channel {total.name!r}: saturated {total.saturated_s!r} s, busy {total.busy_s!r} s of {replay.makespan_s!r} s"
            )
    return found


def _tiers(program: Program, replay: Replay, records: dict[str, OperationRecord], is_enforced: bool) -> list[str]:
    """Occupancy rebuilt from the records: at equal times frees come before allocations, as the law says."""
    if replay.events:
        return []  # a policy moved bytes: the operations alone do not tell where they are
    tiers = {tier.name: tier for tier in program.tiers}
    owners = {stream.name: stream.multiplicity for stream in program.streams}
    changes: dict[str, list[tuple[float, int, float]]] = defaultdict(list)
    for allocation, multiplicity in program.resident:
        changes[allocation.tier].append((-1.0, 1, allocation.size_bytes * multiplicity / tiers[allocation.tier].multiplicity))
    for operation in program.operations:
        record = records[operation.id]
        owner = owners[operation.stream]
        for allocation in operation.allocates:
            size = allocation.size_bytes * owner / tiers[allocation.tier].multiplicity
            changes[allocation.tier].append((record.start_s - operation.latency_s, 1, size))
        for allocation in operation.frees:
            size = allocation.size_bytes * owner / tiers[allocation.tier].multiplicity
            changes[allocation.tier].append((record.end_s, 0, -size))
    found = []
    peaks = {peak.name: peak.peak_bytes for peak in replay.tiers}
    for name, rows in changes.items():
        held = peak = 0.0
        for _, _, size in sorted(rows):
            held += size
            peak = max(peak, held)
        allowed = TOLERANCE * max(peak, 1.0)
        if is_enforced and peaks[name] > tiers[name].capacity_bytes * (1.0 + TOLERANCE):
            found.append(f"tier {name!r} held {peaks[name]!r} of {tiers[name].capacity_bytes!r} bytes")
        if peaks[name] < held - allowed:
            found.append(f"tier {name!r} reports a peak of {peaks[name]!r} bytes and ends with {held!r}")
    return found
