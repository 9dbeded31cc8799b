"""Loaded latency: what a request waits for when its channel is busy, and what that does to a bounded window of requests.

Little's law: a flow that keeps `window` bytes outstanding moves at most window / latency. The latency law is finite at u = 1:
L(u) = L0 (1 + (a + c w) u / (1 - k u)), fitted on loaded-latency curves of server memories (docs/model.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

from sim.errors import InternalError
from sim.laws.sharing import Demand, max_min
from sim.records import LatencyLaw

#: relative width to which the fixed point is solved
CONVERGED = 1e-13
_MAX_SWEEPS = 500


def loaded_latency(law: LatencyLaw, utilisation: float, write_share: float = 0.0) -> float:
    """Latency in seconds of a channel at `utilisation` (clamped to 0..1) and `write_share` (clamped to 0..0.5)."""
    u = min(max(utilisation, 0.0), 1.0)
    w = min(max(write_share, 0.0), 0.5)
    return law.idle_latency_s * (1.0 + (law.a + law.c * w) * u / (1.0 - law.k * u))


def alone(law: LatencyLaw, window_bytes: float, bandwidth_per_s: float, *, write_share: float = 0.0) -> float:
    """Rate in bytes/s of one latency-bound flow alone on one channel, in closed form.

    Solves u B L(u) = window for u, a quadratic: with b = a + c w and q = window / (B L0),
    (b - k) u^2 + (1 + q k) u - q = 0; the root in [0, 1], or the bandwidth if the window covers it.
    N equal flows are one flow with N windows.
    """
    b = law.a + law.c * min(max(write_share, 0.0), 0.5)
    q = window_bytes / (bandwidth_per_s * law.idle_latency_s)
    linear = 1.0 + q * law.k
    # the form 2c / (b + sqrt(...)) has no cancellation and covers b = k
    root = 2.0 * q / (linear + sqrt(max(linear * linear + 4.0 * (b - law.k) * q, 0.0)))
    return min(root, 1.0) * bandwidth_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What makes a flow latency-bound: bytes outstanding; 0 = it is not. `write_share` is of the flow's traffic.

    `shares` = (channel, share of the flow's bytes that it carries); empty = its cost, at most 1.
    """

    window_bytes: float = 0.0
    write_share: float = 0.0
    shares: tuple[tuple[int, float], ...] = ()


def bound_caps(
    bandwidths: Sequence[float], laws: Mapping[int, LatencyLaw], demands: Sequence[Demand], windows: Sequence[Window]
) -> list[float]:
    """Caps of all flows when those with a window get min(cap, window / loaded latency of their path).

    The rates decide utilisations, these the latencies, these the caps: a fixed point in the latencies of the channels that
    latency-bound flows cross. It starts from idle latency, so the answer has no history, and is solved channel by channel
    with a safeguarded secant until no latency moves by more than 1e-13, or InternalError. A channel counts in the
    latency of a path with the share of the flow's bytes that it carries.
    """
    shares = [
        {channel: min(cost, 1.0) for channel, cost in window.shares or demand.uses if channel in laws and cost > 0.0}
        if window.window_bytes > 0.0
        else {}
        for demand, window in zip(demands, windows, strict=True)
    ]
    latencies = {channel: laws[channel].idle_latency_s for channel in sorted({c for share in shares for c in share})}

    def caps() -> list[float]:
        return [
            min(demand.cap, window.window_bytes / sum(part * latencies[channel] for channel, part in share.items()))
            if share
            else demand.cap
            for demand, window, share in zip(demands, windows, shares, strict=True)
        ]

    def answer(channel: int, latency_s: float) -> float:
        """The latency that `channel` shows when flows reckon with `latency_s`."""
        latencies[channel] = latency_s
        limited = [Demand(uses=demand.uses, cap=cap, weight=demand.weight) for demand, cap in zip(demands, caps(), strict=True)]
        load = written = 0.0
        for demand, window, rate in zip(demands, windows, max_min(bandwidths, limited, tie=0.0), strict=True):
            part = rate * sum(cost for used, cost in demand.uses if used == channel)
            load += part
            written += part * window.write_share
        return loaded_latency(laws[channel], load / bandwidths[channel], written / load if load else 0.0)

    for _ in range(_MAX_SWEEPS):
        before = dict(latencies)
        for channel in latencies:
            idle_s = laws[channel].idle_latency_s
            full_s = loaded_latency(laws[channel], 1.0, 0.5)
            latencies[channel] = _crossing(partial(answer, channel), idle_s, full_s)
        if len(latencies) < 2 or all(abs(latencies[c] - before[c]) <= CONVERGED * before[c] for c in latencies):
            return caps()
    raise InternalError("loaded latencies of coupled channels did not converge")


def _crossing(answer: Callable[[float], float], low: float, high: float) -> float:
    """The latency in [low, high] that answers itself; `answer(low) >= low` and `answer(high) <= high`. Illinois secant."""
    at_low, at_high = answer(low) - low, answer(high) - high
    if at_low <= 0.0:
        return low
    if at_high >= 0.0:
        return high
    for _ in range(200):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        if not low < middle < high:
            middle = 0.5 * (low + high)
        value = answer(middle) - middle
        # to the last bits, so that the sweeps around this converge to CONVERGED
        if abs(value) <= 1e-15 * middle or high - low <= 4e-16 * high:
            return middle
        if value > 0.0:
            low, at_low, at_high = middle, value, at_high * 0.5
        else:
            high, at_high, at_low = middle, value, at_low * 0.5
    if high - low <= CONVERGED * high or abs(value) <= CONVERGED * middle:
        return middle
    raise InternalError("loaded latency did not converge")
