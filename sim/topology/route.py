"""Route: what a flow uses on its way, and what bounds it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.records import Uses


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How bytes get from one place to another: what a flow uses per byte, and what bounds it.

    uses: (channel, cost per byte); rate_cap in bytes/s (copy engine, cores, pageable staging);
    latency_s: time before the first byte (t0 of the ramp T = t0 + S/B); weight: outstanding bytes.
    window_bytes > 0: the flow is latency-bound, rate <= window / summed loaded latency of its channels.
    hops: devices on the way; is_staged: the copy goes through host memory because there is no direct way.
    """

    uses: Uses
    rate_cap_bytes_per_s: float
    latency_s: float
    weight: float = 1.0
    window_bytes: float = 0.0
    idle_latency_s: float = 0.0  # of a load on an idle machine (access routes)
    own_window_bytes: float = 0.0  # window of the initiator; `window_bytes` is scaled to the channels' summed latencies
    hops: tuple[str, ...] = ()
    is_staged: bool = False
    second_stage_bytes_per_s: float = math.inf  # a copy through a buffer: rate of the stage that is one engine's or core's


def merged(*groups: Uses) -> Uses:
    """One cost per channel: costs of a channel named several times add up, order of first mention kept."""
    costs: dict[str, float] = {}
    for group in groups:
        for channel, cost in group:
            costs[channel] = costs.get(channel, 0.0) + cost
    return tuple(costs.items())
