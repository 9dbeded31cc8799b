"""Loaded latency: what a request waits for when its channel is busy, and what that does to a bounded window of requests.

Little's law: a flow that keeps `window_bytes` outstanding moves at most window / latency. The latency law is finite at
u = 1: L(u) = L0 (1 + (a + c w) u / (1 - k u)), fitted on loaded-latency curves of server memories (docs/model.md).
"""

from __future__ import annotations

from math import sqrt

from sim.records import LatencyLaw


def loaded_latency(law: LatencyLaw, utilisation: float, write_share: float = 0.0) -> float:
    """Latency in seconds of a channel at `utilisation` (clamped to 0..1) and `write_share` (clamped to 0..0.5)."""
    u = min(max(utilisation, 0.0), 1.0)
    w = min(max(write_share, 0.0), 0.5)
    return law.idle_latency_s * (1.0 + (law.a + law.c * w) * u / (1.0 - law.k * u))


def alone(law: LatencyLaw, window: float, bandwidth_per_s: float, *, write_share: float = 0.0) -> float:
    """Rate in bytes/s of one latency-bound flow alone on one channel, in closed form.

    Solves u B L(u) = window for u, a quadratic: with b = a + c w, q = window / (B L0),
    (b - k) u^2 + (1 + q k) u - q = 0; the root in [0, 1], or the bandwidth if the window covers it.
    """
    b = law.a + law.c * min(max(write_share, 0.0), 0.5)
    q = window / (bandwidth_per_s * law.idle_latency_s)
    if q >= 1.0 + b / (1.0 - law.k):
        return bandwidth_per_s
    quadratic, linear = b - law.k, 1.0 + q * law.k
    # the form 2c / (b + sqrt(..)) has no cancellation and covers quadratic = 0
    root = 2.0 * q / (linear + sqrt(max(linear * linear + 4.0 * quadratic * q, 0.0)))
    return min(root, 1.0) * bandwidth_per_s
