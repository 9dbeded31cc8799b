"""How far apart the ranks of a job began their step: by what they did together, not by their clocks.

Clocks of different nodes disagree by more than a collective lasts, but a collective ends on all its ranks at the same
time. The shift of a rank is the median, over the collectives that it has in common with the first rank, of that difference.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from sim.interchange.groups import Communicator
from sim.interchange.kineto.build import Reading
from sim.interchange.kineto.steps import Window


def start_delays_s(readings: Sequence[Reading], windows: Sequence[Window], counts: Counter[str]) -> list[float]:
    """Seconds from the first rank's start of its step to each rank's own; zeros where there is nothing to align by."""
    if len(readings) == 1:
        return [0.0]
    ends = [_ends_ns(reading, window) for reading, window in zip(readings, windows, strict=True)]
    shifts = []
    for own in ends:
        shared = [key for key in own if len(own[key]) == len(ends[0].get(key, ()))]
        apart = [first - mine for key in shared for first, mine in zip(ends[0][key], own[key], strict=True)]
        if not apart:
            counts["ranks without a collective in common with the first (taken to start with it)"] += 1
        shifts.append(statistics.median(apart) if apart else 0.0)
    return [(shift - min(shifts)) * 1e-9 for shift in shifts]


def _ends_ns(reading: Reading, window: Window) -> dict[Communicator, list[int]]:
    """Ends of the collectives of the step over all ranks, from its start, by communicator."""
    found: dict[Communicator, list[int]] = defaultdict(list)
    world = reading.recording.header.world_size
    for work, group in reading.describer.collective_works():
        launched_ns = reading.linked.calls[work.call].start_ns if work.call >= 0 else work.start_ns
        if group.size >= world and window.start_ns <= launched_ns < window.end_ns:
            found[group].append(work.end_ns - window.start_ns)
    return found
