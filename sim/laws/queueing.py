"""The queue in front of a saturated port: what a victim waits behind neighbours that keep many requests in flight.

A neighbour with W bytes in flight and an idle latency L asks for W / L. While all together ask for less than the port
carries, nobody waits. Beyond, requests queue in one line: each waits q more, so that sum W / (L + q) = B. A victim with one
line in flight waits the same q in front of each access (arrivals see the queue of the others: Reiser and Lavenberg, mean
value analysis, 1980). Not modelled: arbitration by port instead of by arrival, credits that stop a neighbour before the port.
"""

from __future__ import annotations

from collections.abc import Sequence


def queueing_delay(bandwidth_bytes_per_s: float, neighbours: Sequence[tuple[float, float]]) -> float:
    """Seconds that each request waits at a port of that bandwidth; `neighbours` are (bytes in flight, idle latency in s)."""

    def asked(delay_s: float) -> float:
        return sum(size / (idle_s + delay_s) for size, idle_s in neighbours if size > 0.0)

    if asked(0.0) <= bandwidth_bytes_per_s:
        return 0.0
    low, high = 0.0, sum(size for size, _ in neighbours) / bandwidth_bytes_per_s
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if asked(middle) > bandwidth_bytes_per_s else (low, middle)
    return high
