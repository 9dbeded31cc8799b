"""What each channel carried over a replay."""

from __future__ import annotations

from collections.abc import Sequence

from sim.engine.arrays import Arrays
from sim.records import ChannelTotal


def work_on(arrays: Arrays) -> list[float]:
    """Work on each path, summed over operations in their order."""
    work_on = [0.0] * len(arrays.paths)
    for path, work in zip(arrays.path, arrays.work, strict=True):
        work_on[path] += work
    return work_on


def totals(
    arrays: Arrays, work_on: Sequence[float], busy_s: Sequence[float], full_s: Sequence[float], peak: Sequence[float]
) -> tuple[ChannelTotal, ...]:
    """One row per channel: amounts are those of `work_on` paths, so exact whatever the rates were."""
    amount = [0.0] * len(arrays.channels)
    for path, row in enumerate(arrays.paths):
        for channel, load in zip(row.channels, row.loads, strict=True):
            amount[channel] += work_on[path] * load
    return tuple(
        ChannelTotal(name=channel.name, amount=amount[i], busy_s=busy_s[i], saturated_s=full_s[i], peak_rate_per_s=peak[i])
        for i, channel in enumerate(arrays.channels)
    )
