"""The sharing law: weighted max-min fairness with rate caps and a cost per unit of work on each channel.

The law is its definition, and the definition is what the tests check: (1) on no channel does sum(rate * cost) exceed
the bandwidth; (2) no flow exceeds its cap; (3) every flow is at its cap, or crosses a full channel on which no other
flow has a larger rate / weight. Such an allocation exists and is unique (docs/model.md). No clock here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.errors import InputError

#: relative width within which two levels are one: rounding of sums of up to 1e4 terms stays below it
TIE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One flow: `uses` = (channel index, cost per unit of work), a rate cap, a weight > 0."""

    uses: tuple[tuple[int, float], ...]
    cap: float = float("inf")
    weight: float = 1.0


def max_min(bandwidths: Sequence[float], demands: Sequence[Demand], *, tie: float = TIE) -> list[float]:
    """Rates (units of work per second) of `demands` on channels of `bandwidths`, by progressive filling.

    All unfrozen flows rise at one level (rate / weight) until a flow meets its cap or a channel is full; those freeze and
    the rest rise on. At most one round per distinct level; levels within `tie` of each other are one. A channel listed twice
    by a flow costs the sum; a cost of zero is no use at all. A flow with neither a finite cap nor a channel of
    positive cost is refused.
    Source: Bertsekas and Gallager, Data Networks, section 6.5.2 (max-min flow control).
    """
    uses = [_positive_uses(demand) for demand in demands]
    for index, demand in enumerate(demands):
        if demand.cap == float("inf") and not uses[index]:
            raise InputError(f"flow {index} has no rate cap and uses no channel: its rate would be infinite; give it a cap")
        if not demand.weight > 0.0:
            raise InputError(f"flow {index} has weight {demand.weight!r}; a weight is positive")
    rates = [0.0] * len(demands)
    residual = [float(bandwidth) for bandwidth in bandwidths]
    users: list[list[int]] = [[] for _ in residual]
    for index in range(len(demands)):
        for channel in uses[index]:
            users[channel].append(index)
    waiting = set(range(len(demands)))
    level = 0.0
    while waiting:
        # summed anew each round: subtracting a weight of 1e15 from a sum would swallow one of 1e-12
        slopes = [sum(uses[i][c] * demands[i].weight for i in flows if i in waiting) for c, flows in enumerate(users)]
        levels = [room / slope if slope > 0.0 else float("inf") for room, slope in zip(residual, slopes, strict=True)]
        # levels only rise: rounding may leave no room on a channel that flows of far larger weight filled to their caps
        level = max(level, min(levels, default=float("inf")))
        full = [channel for channel, value in enumerate(levels) if value <= level * (1.0 + tie)]
        capped = [index for index in waiting if demands[index].cap <= level * (1.0 + tie) * demands[index].weight]
        frozen = {index: demands[index].cap for index in capped}
        if not capped:
            frozen = {index: level * demands[index].weight for channel in full for index in users[channel] if index in waiting}
        for index, rate in sorted(frozen.items()):
            rates[index] = rate
            waiting.discard(index)
            for channel, cost in uses[index].items():
                residual[channel] = max(residual[channel] - rate * cost, 0.0)
    return rates


def _positive_uses(demand: Demand) -> dict[int, float]:
    total: dict[int, float] = {}
    for channel, cost in demand.uses:
        if cost > 0.0:
            total[channel] = total.get(channel, 0.0) + cost
    return total


def violations(
    bandwidths: Sequence[float], demands: Sequence[Demand], rates: Sequence[float], *, tolerance: float = 1e-9
) -> list[str]:
    """Every way in which `rates` break the definition; empty = they are *the* max-min allocation (within `tolerance`)."""
    uses = [_positive_uses(demand) for demand in demands]
    load = [0.0] * len(bandwidths)
    top = [0.0] * len(bandwidths)  # the largest rate / weight on each channel
    for demand, use, rate in zip(demands, uses, rates, strict=True):
        for channel, cost in use.items():
            load[channel] += rate * cost
            top[channel] = max(top[channel], rate / demand.weight)
    found = [
        f"channel {channel} carries {load[channel]!r} of {bandwidth!r}"
        for channel, bandwidth in enumerate(bandwidths)
        if load[channel] > bandwidth * (1.0 + tolerance)
    ]
    for index, (demand, use, rate) in enumerate(zip(demands, uses, rates, strict=True)):
        if rate > demand.cap * (1.0 + tolerance) or rate < 0.0:
            found.append(f"flow {index} runs at {rate!r}, its cap is {demand.cap!r}")
        is_capped = rate >= demand.cap * (1.0 - tolerance)
        is_bottlenecked = any(
            load[channel] >= bandwidths[channel] * (1.0 - tolerance)
            and rate / demand.weight >= top[channel] * (1.0 - tolerance)
            for channel in use
        )
        if not is_capped and not is_bottlenecked:
            found.append(f"flow {index} at {rate!r} is neither at its cap nor bottlenecked")
    return found
