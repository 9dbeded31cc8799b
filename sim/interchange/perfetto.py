"""A replay as a timeline: Chrome trace JSON that ui.perfetto.dev and chrome://tracing open.

One process per rank class with one track per stream; a counter per channel (rate) and per tier (occupancy), when the
replay has level "full"; an arrow for each dependency that crosses streams. Times are microseconds, as the format says.
A run with more events than `max_events` is binned in time, and says so on its first track: nothing is cut.
"""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from sim.records import ChannelSegment, Occupancy, Operation, OperationRecord, Program, Replay
from sim.units import format_seconds

#: Perfetto stays fluid up to about this many events (its own guidance is some hundred MB of JSON)
MAX_EVENTS = 400_000
_ROLES = ("compute", "h2d", "d2h", "collective", "p2p", "cpu", "loader", "storage")
_US = 1e6
_COUNTERS = "channels and tiers"


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: events, and what was put together so that a viewer can open it ("" = every operation is there)."""

    num_events: int
    summarised: str = ""


class _Slice(msgspec.Struct, kw_only=True):
    """One bar of a track: an operation, or the operations of one kind inside one time bin."""

    stream: str
    name: str
    category: str
    start_s: float
    end_s: float
    busy_s: float
    args: dict[str, Any]
    count: int = 1


def write_timeline(program: Program, replay: Replay, path: str | Path, *, max_events: int = MAX_EVENTS) -> Timeline:
    """Write the timeline of `replay` to `path` (gzip if it ends in .gz), atomically.

    Events beyond `max_events` are avoided by binning: operations of a stream and category that start in one bin become
    one bar with their number and busy time; counters become the mean over each bin, so their areas (bytes) are kept.
    """
    events, summarised = _events(program, replay, max_events)
    head = {
        "displayTimeUnit": "ns",
        "otherData": {"tool": "tiersim", "program": program.name, "step_s": replay.makespan_s, "summarised": summarised},
    }
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    encoder = msgspec.json.Encoder()
    count = 0
    try:
        with gzip.open(scratch, "wb", compresslevel=5) if path.suffix == ".gz" else scratch.open("wb") as file:
            file.write(encoder.encode(head)[:-1] + b',"traceEvents":[')
            for event in events:
                file.write((b",\n" if count else b"\n") + encoder.encode(event))
                count += 1
            file.write(b"\n]}\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return Timeline(num_events=count, summarised=summarised)


def _events(program: Program, replay: Replay, max_events: int) -> tuple[Iterator[dict[str, Any]], str]:
    operations = {operation.id: operation for operation in program.operations}
    slices = [_slice(operations[record.id], record) for record in replay.operations]
    arrows = sum(len(operation.after) for operation in program.operations)
    total = len(slices) + 2 * arrows + len(replay.segments) + len(replay.occupancy)
    summarised = ""
    segments, occupancy = replay.segments, replay.occupancy
    if total > max_events:
        tracks = len(program.streams) + len(program.channels) + len(program.tiers)
        bins = max(16, max_events // (4 * max(tracks, 1)))
        width_s = replay.makespan_s / bins
        slices = _binned(slices, width_s)
        segments = tuple(_mean_rates(segments, width_s))
        occupancy = tuple(_sampled(occupancy, width_s))
        summarised = (
            f"{len(replay.operations):,} operations, {arrows:,} dependencies and {len(replay.segments):,} channel rates are "
            f"shown in {bins:,} bins of {format_seconds(width_s)}; arrows are left out"
        )
    shown = () if summarised else _arrows(program, replay)
    return _emit(program, slices, segments, occupancy, shown, summarised), summarised


def _emit(
    program: Program,
    slices: list[_Slice],
    segments: tuple[ChannelSegment, ...],
    occupancy: tuple[Occupancy, ...],
    arrows: Iterable[Any],
    summarised: str,
) -> Iterator[dict[str, Any]]:
    tracks = _tracks(program)
    yield from _names(program, tracks)
    if summarised:
        first = min(tracks.values(), default=(1, 1))
        yield {"ph": "i", "s": "g", "pid": first[0], "tid": first[1], "ts": 0, "name": f"summary: {summarised}"}
    for bar in slices:
        pid, tid = tracks[bar.stream]
        event = {"ph": "X", "pid": pid, "tid": tid, "name": bar.name, "cat": bar.category, "ts": _us(bar.start_s)}
        yield event | {"dur": _us(bar.end_s - bar.start_s), "args": bar.args}
    for stream_from, stream_to, start_s, end_s, number in arrows:
        (pid, tid), (pid_to, tid_to) = tracks[stream_from], tracks[stream_to]
        common = {"cat": "dependency", "name": "after", "id": number}
        yield common | {"ph": "s", "pid": pid, "tid": tid, "ts": _us(start_s)}
        yield common | {"ph": "f", "bp": "e", "pid": pid_to, "tid": tid_to, "ts": _us(end_s)}
    yield from _counters(segments, occupancy)


def _us(seconds: float) -> float:
    return round(seconds * _US, 6)


def _tracks(program: Program) -> dict[str, tuple[int, int]]:
    """stream -> (pid, tid): a process per rank class, tracks in the order of the roles."""

    def key(name: str) -> tuple[str, int, str]:
        owner, _, role = name.partition(".")
        return owner, next((i for i, known in enumerate(_ROLES) if role.startswith(known)), len(_ROLES)), role

    names = sorted((stream.name for stream in program.streams), key=key)
    owners = {owner: i for i, owner in enumerate(dict.fromkeys(name.partition(".")[0] for name in names), start=1)}
    return {name: (owners[name.partition(".")[0]], i) for i, name in enumerate(names, start=1)}


def _names(program: Program, tracks: dict[str, tuple[int, int]]) -> Iterator[dict[str, Any]]:
    multiplicity = {stream.name: stream.multiplicity for stream in program.streams}
    seen = set()
    for name, (pid, tid) in tracks.items():
        owner, _, role = name.partition(".")
        if pid not in seen:
            seen.add(pid)
            copies = f" (one of {multiplicity[name]} identical)" if multiplicity[name] > 1 else ""
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": owner + copies}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": role or name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": _COUNTERS}}


def _slice(operation: Operation, record: OperationRecord) -> _Slice:
    args: dict[str, Any] = {"id": operation.id, "kind": operation.kind.value}
    start_s, end_s = _begin_s(operation, record), record.end_s
    optional = {
        "phase": operation.phase, "bytes": operation.size_bytes, "flops": operation.flops,
        "waited_s": start_s - record.ready_s,
    }  # fmt: skip
    args |= {name: value for name, value in optional.items() if value}
    if operation.layer >= 0:
        args["layer"] = operation.layer
    if operation.micro_batch >= 0:
        args["micro_batch"] = operation.micro_batch
    return _Slice(
        stream=operation.stream, name=operation.name or operation.id, category=operation.category,
        start_s=start_s, end_s=end_s, busy_s=end_s - start_s, args=args,
    )  # fmt: skip


def _begin_s(operation: Operation, record: OperationRecord) -> float:
    """Start of an operation with its own latency, which comes before its work."""
    return max(record.ready_s, record.start_s - operation.latency_s)


def _arrows(program: Program, replay: Replay) -> Iterator[tuple[str, str, float, float, int]]:
    """Dependencies that cross streams: (from, to, end of the first, start of the second, number)."""
    records = {record.id: record for record in replay.operations}
    streams = {operation.id: operation.stream for operation in program.operations}
    number = 0
    for operation in program.operations:
        for name in operation.after:
            if streams[name] != operation.stream:
                number += 1
                first = records[name]
                # a viewer binds an arrow to the bar that encloses its time: just inside the end of the first bar
                inside_s = max(first.start_s, first.end_s - 1e-9)
                yield streams[name], operation.stream, inside_s, _begin_s(operation, records[operation.id]), number


def _counters(segments: Iterable[ChannelSegment], occupancy: Iterable[Occupancy]) -> Iterator[dict[str, Any]]:
    ends: dict[str, float] = {}
    for segment in sorted(segments, key=lambda s: (s.name, s.start_s)):
        if segment.name in ends and ends[segment.name] < segment.start_s:
            yield _counter(f"{segment.name} (GB/s)", ends[segment.name], {"rate": 0.0})
        yield _counter(f"{segment.name} (GB/s)", segment.start_s, {"rate": segment.rate_per_s / 1e9})
        ends[segment.name] = segment.end_s
    for name, end_s in ends.items():
        yield _counter(f"{name} (GB/s)", end_s, {"rate": 0.0})
    held: dict[str, dict[str, float]] = {}
    for row in occupancy:
        classes = held.setdefault(row.tier, {})
        classes[row.tensor_class] = row.size_bytes / 2**30
        yield _counter(f"{row.tier} (GiB)", row.time_s, dict(classes))


def _counter(name: str, time_s: float, args: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": 0, "tid": 0, "name": name, "ts": _us(time_s), "args": args}


def _binned(slices: list[_Slice], width_s: float) -> list[_Slice]:
    """Bars of one stream and category that start in one bin become one, from its first start to its last end."""
    merged: dict[tuple[str, str, int], _Slice] = {}
    for bar in sorted(slices, key=lambda s: s.start_s):
        key = (bar.stream, bar.category, math.floor(bar.start_s / width_s) if width_s else 0)
        into = merged.get(key)
        if into is None:
            merged[key] = bar
            continue
        into.count += 1
        into.end_s = max(into.end_s, bar.end_s)
        into.busy_s += bar.busy_s
        into.name = f"{into.count} x {into.category}"
        into.args = {"operations": into.count, "busy_s": into.busy_s}
    return list(merged.values())


def _mean_rates(segments: Iterable[ChannelSegment], width_s: float) -> Iterator[ChannelSegment]:
    """Mean rate per channel and bin: the area under the counter (bytes) is that of the segments."""
    amounts: dict[tuple[str, int], float] = {}
    for segment in segments:
        start_s = segment.start_s
        while start_s < segment.end_s:
            index = math.floor(start_s / width_s + 1e-9)
            end_s = min(segment.end_s, (index + 1) * width_s)
            if end_s <= start_s:
                break
            key = (segment.name, index)
            amounts[key] = amounts.get(key, 0.0) + segment.rate_per_s * (end_s - start_s)
            start_s = end_s
    for (name, index), amount in amounts.items():
        start_s = index * width_s
        yield ChannelSegment(name=name, start_s=start_s, end_s=start_s + width_s, rate_per_s=amount / width_s)


def _sampled(occupancy: Iterable[Occupancy], width_s: float) -> Iterator[Occupancy]:
    """The largest occupancy per tier, class and bin (a peak must not vanish)."""
    largest: dict[tuple[str, str, int], Occupancy] = {}
    for row in occupancy:
        key = (row.tier, row.tensor_class, math.floor(row.time_s / width_s) if width_s else 0)
        if key not in largest or row.size_bytes > largest[key].size_bytes:
            largest[key] = row
    yield from sorted(largest.values(), key=lambda row: row.time_s)
