"""Where a step's seconds went, stage by stage: the breakdown again, split by the phase of the operation that owns them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from sim.metrics.breakdown import KEYS, Stretch, busy_interval, rank_of, slowest_rank
from sim.metrics.seen import Seen
from sim.records import Program, Replay

#: (phase, key of the breakdown)
Stage = tuple[str, str]
_PRIORITY = tuple(KEYS)


def stages_s(program: Program, replay: Replay, *, stretch: Stretch | None = None) -> dict[Stage, float]:
    """Seconds of the slowest rank by (phase, category); they sum to the makespan (stretched, if it is), as the breakdown does.

    An instant belongs to the running operation of the first category in the priority of the breakdown, then to the one
    that started first; an instant at which none runs is ("", "idle").
    """
    seen = Seen(program, replay)
    chosen = slowest_rank(seen)
    spans: list[tuple[float, float, int, str]] = []
    for operation, record in zip(seen.operations, seen.records, strict=True):
        if rank_of(operation.stream) == chosen and record.end_s > record.ready_s:
            start, end = busy_interval(operation, record)
            if end > start:
                spans.append((start, end, _PRIORITY.index(operation.category), operation.phase))
    parts: dict[Stage, list[float]] = {}
    counted = stretch or Stretch(after_s=0.0, factor=1.0)
    for stage, begin, until in _owned(spans):
        parts.setdefault(stage, []).append(counted.seconds(begin, until))
    found = {stage: math.fsum(seconds) for stage, seconds in parts.items()}
    whole_s = counted.seconds(0.0, replay.makespan_s)
    rest = whole_s - math.fsum(found.values())
    if rest > 1e-12 * whole_s:
        found["", "idle"] = found.get(("", "idle"), 0.0) + rest
    return found


def _owned(spans: list[tuple[float, float, int, str]]) -> Iterator[tuple[Stage, float, float]]:
    """Pieces of time with their owner, in order."""
    edges = sorted({time for start, end, _, _ in spans for time in (start, end)})
    waiting = sorted(spans)
    running: list[tuple[int, float, float, str]] = []
    next_span = 0
    for begin, until in pairwise(edges):
        while next_span < len(waiting) and waiting[next_span][0] <= begin:
            start, end, rank, phase = waiting[next_span]
            running.append((rank, start, end, phase))
            next_span += 1
        running = [item for item in running if item[2] > begin]
        if running:
            rank, _, _, phase = min(running)
            yield (phase, KEYS[_PRIORITY[rank]]), begin, until
