"""The simulated machine second by second, as nvidia-smi, free and top would show it. Pure; needs a replay of level full."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence

from sim.errors import InternalError
from sim.metrics.breakdown import busy_interval
from sim.metrics.summary import TierUse
from sim.records import Kind, Program, Replay, Struct

Span = tuple[float, float]
#: nvidia-smi counts a GPU as busy while any kernel runs on it; copies by the copy engines are not kernels
_KERNELS = (Kind.COMPUTE, Kind.COLLECTIVE)


class DeviceSample(Struct, frozen=True, kw_only=True):
    """One device over one interval: share of it in which it was busy, bytes in its memory at its end."""

    busy: float  # 0..1: a GPU's kernels, a CPU's cores
    memory_bytes: float
    capacity_bytes: float
    multiplicity: int = 1  # identical devices that this one stands for


class MonitorSample(Struct, frozen=True, kw_only=True):
    """The machine over the interval that ends at `time_s`. Link rates are means over the interval, bytes/s."""

    time_s: float
    devices: dict[str, DeviceSample]
    links_bytes_per_s: dict[str, float]


def monitor(
    program: Program, replay: Replay, interval_s: float = 1.0, tiers: Mapping[str, TierUse] | None = None
) -> list[MonitorSample]:
    """Samples every `interval_s` seconds from the start to the end of the replay; the last interval may be shorter.

    `tiers` are the peaks of the memory plan: what it knows beyond the replay (contexts, buffers) is there all the time.
    Raises InternalError for a replay without segments (level summary).
    """
    if interval_s <= 0:
        raise InternalError(f"a monitor needs a positive interval, got {interval_s}")
    if not replay.segments and any(total.amount for total in replay.channels):
        raise InternalError("a monitor needs a replay of level full")
    edges = _edges(replay.makespan_s, interval_s)
    kernels = {device: _shares(_kernel_spans(program, replay, device), edges) for device in _gpu_devices(program)}
    rates = {name: _means(segments, edges) for name, segments in _segments(replay).items()}
    memory = {tier.name: _levels(replay, tier.name, edges, (tiers or {}).get(tier.name)) for tier in program.tiers}
    samples = []
    for index, end in enumerate(edges[1:]):
        samples.append(
            MonitorSample(
                time_s=end,
                devices=_devices(program, index, kernels, rates, memory),
                links_bytes_per_s={
                    channel.name: rates[channel.name][index]
                    for channel in program.channels
                    if "->" in channel.name and channel.name in rates
                },
            )
        )
    return samples


def _edges(total_s: float, interval_s: float) -> list[float]:
    count = max(1, math.ceil(total_s / interval_s - 1e-9))
    return [*(index * interval_s for index in range(count)), total_s]


def _gpu_devices(program: Program) -> dict[str, int]:
    """Device of each compute stream and how many identical ones it stands for."""
    return {stream.device: stream.multiplicity for stream in program.streams if stream.role == "compute" and stream.device}


def _devices(
    program: Program,
    index: int,
    kernels: dict[str, list[float]],
    rates: dict[str, list[float]],
    memory: dict[str, list[float]],
) -> dict[str, DeviceSample]:
    found: dict[str, DeviceSample] = {}
    counts = _gpu_devices(program)
    cores = {channel.device: channel for channel in program.channels if channel.name.endswith(".cores")}
    for tier in program.tiers:
        device = tier.device or tier.name
        busy = kernels[device][index] if device in kernels else 0.0
        if device in cores:
            channel = cores[device]
            busy = rates.get(channel.name, [0.0] * (index + 1))[index] / channel.bandwidth_per_s
        found[device] = DeviceSample(
            busy=min(1.0, busy),
            memory_bytes=memory[tier.name][index],
            capacity_bytes=tier.capacity_bytes,
            multiplicity=counts.get(device, tier.multiplicity),
        )
    return found


def _kernel_spans(program: Program, replay: Replay, device: str) -> list[Span]:
    streams = {stream.name for stream in program.streams if stream.device == device}
    by_id = {operation.id: operation for operation in program.operations}
    spans = []
    for record in replay.operations:
        operation = by_id[record.id]
        if operation.stream in streams and operation.kind in _KERNELS and record.end_s > record.ready_s:
            spans.append(busy_interval(operation, record))
    return _union(spans)


def _union(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _shares(spans: Sequence[Span], edges: Sequence[float]) -> list[float]:
    """Share of each interval that disjoint spans cover."""
    covered = _integrals([(start, end, 1.0) for start, end in spans], edges)
    return [
        amount / (end - start) if end > start else 0.0
        for amount, start, end in zip(covered, edges[:-1], edges[1:], strict=True)
    ]


def _segments(replay: Replay) -> dict[str, list[tuple[float, float, float]]]:
    found: dict[str, list[tuple[float, float, float]]] = {}
    for segment in replay.segments:
        found.setdefault(segment.name, []).append((segment.start_s, segment.end_s, segment.rate_per_s))
    return found


def _means(segments: Sequence[tuple[float, float, float]], edges: Sequence[float]) -> list[float]:
    amounts = _integrals(segments, edges)
    return [
        amount / (end - start) if end > start else 0.0
        for amount, start, end in zip(amounts, edges[:-1], edges[1:], strict=True)
    ]


def _integrals(pieces: Sequence[tuple[float, float, float]], edges: Sequence[float]) -> list[float]:
    """Integral of piecewise constant rates over each interval."""
    amounts = [0.0] * (len(edges) - 1)
    for start, end, rate in pieces:
        first = max(0, bisect.bisect_right(edges, start) - 1)
        for index in range(first, len(amounts)):
            if edges[index] >= end:
                break
            amounts[index] += rate * (min(end, edges[index + 1]) - max(start, edges[index]))
    return amounts


def _levels(replay: Replay, tier: str, edges: Sequence[float], plan: TierUse | None) -> list[float]:
    """Bytes in a tier at the end of each interval."""
    seen = next((peak.peak_bytes for peak in replay.tiers if peak.name == tier), 0.0)
    constant = max(0.0, plan.peak_bytes - seen) if plan else 0.0
    events = [event for event in replay.occupancy if event.tier == tier]
    by_class: dict[str, float] = {}
    levels: list[float] = []
    position = 0
    for end in edges[1:]:
        while position < len(events) and events[position].time_s <= end:
            by_class[events[position].tensor_class] = events[position].size_bytes
            position += 1
        levels.append(math.fsum(by_class.values()) + constant)
    return levels
