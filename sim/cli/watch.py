"""The simulated machine second by second, as nvidia-smi, free and top would show it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.experiment import Result
    from sim.metrics.monitor import MonitorSample

#: more lines than this are thinned out
_MAX_LINES = 60


def print_watch(result: Result) -> None:
    """One line per second of the step (fewer lines for a long one, more for one below a second), on standard error.

    GPUs: share of the interval with a kernel running and bytes in memory; CPUs: cores busy; links: mean rate.
    """
    from sim.metrics.monitor import monitor

    total_s = result.replay.makespan_s
    interval_s = total_s / 10 if total_s < 10 else max(1.0, total_s / _MAX_LINES)
    for sample in monitor(result.program, result.replay, interval_s, result.summary.tiers):
        print(line_of(sample), file=sys.stderr)  # noqa: T201 - messages go to standard error


def line_of(sample: MonitorSample) -> str:
    """One sample as one line; identical devices that one stands for carry their number."""
    from sim.units import format_bandwidth, format_bytes, format_seconds

    cells = [f"{format_seconds(sample.time_s):>9}"]
    for name, device in sample.devices.items():
        label = f"{name} (x{device.multiplicity})" if device.multiplicity > 1 else name
        cells.append(f"{label} {100 * device.busy:3.0f} % {format_bytes(device.memory_bytes):>8}")
    busiest = sorted(sample.links_bytes_per_s.items(), key=lambda item: (-item[1], item[0]))[:2]
    cells += [f"{name} {format_bandwidth(rate)}" for name, rate in busiest if rate > 0]
    return "  ".join(cells)
