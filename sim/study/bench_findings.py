"""One sentence on what a panel of the suite shows: the title of its picture and the line above its table."""

from __future__ import annotations

from sim.study.bench_panels import Curve, Line, Matrix, Panel, median_error
from sim.units import format_bandwidth, format_bytes, format_seconds


def finding(panel: Panel) -> str:
    """What a reader should take away."""
    return _of_matrix(panel) if isinstance(panel, Matrix) else _of_curve(panel)


def beside(panel: Panel) -> str:
    """How the panel stands to what was measured: how many values, median error; empty without any."""
    error = median_error(panel)
    if error is None:
        return ""
    num = len(panel.measurements)
    return f"{num} measured value{'s' if num > 1 else ''}, median error {100 * error:.1f} %"


def _of_matrix(panel: Matrix) -> str:
    if not panel.cells:
        return f"{panel.title}: no pair can"
    is_time = panel.value.dimension == "time"
    shown = format_seconds if is_time else format_bandwidth
    order = sorted(panel.cells, key=lambda at: (panel.cells[at], at), reverse=not is_time)
    best, worst = order[0], order[-1]
    if panel.cells[best] == panel.cells[worst]:
        return f"{panel.title}: {shown(panel.cells[best])} for every pair"
    ends = [f"{shown(panel.cells[at])} ({at[0]}, {at[1]})" for at in (best, worst)]
    return f"{panel.title}: from {ends[0]} to {ends[1]}"


#: a curve that ends below this share of where it starts falls
_FALLING = 0.9


def _of_curve(panel: Curve) -> str:
    first = panel.lines[0]
    points = sorted(first.points)
    if panel.name.startswith("loaded_latency"):
        idle, full = points[0][1], points[-1][1]
        knee = next((x for x, y in points if y >= 1.5 * idle), None)
        at = f", 1.5x idle at {format_bandwidth(knee)}" if knee else ""
        most = format_bandwidth(points[-1][0])
        return f"{panel.title} ({first.name}): {format_seconds(idle)} idle, {format_seconds(full)} at {most}{at}"
    if panel.name == "bandwidth_by_write_share":
        values = ", ".join(_ends(line) for line in panel.lines)
        return f"{panel.title}, reads alone and half writes: {values}"
    if panel.name == "host_copies_at_once":
        one, every = points[0], points[-1]
        together = f"{every[0]:.0f} together {format_bandwidth(every[1])} ({every[1] / one[1]:.3g}x)"
        return f"{panel.title}: one {format_bandwidth(one[1])}, {together}"
    if panel.y.dimension != "bandwidth" and points[-1][1] < _FALLING * points[0][1]:
        ends = [f"{points[0][1] / 1e9:.3g}", f"{points[-1][1] / 1e9:.3g}"]
        return f"{panel.title}: {first.name} falls from {ends[0]} to {ends[1]} billion/s beyond the caches"
    best = max(y for _x, y in points)
    half = next(x for x, y in points if y >= 0.5 * best)
    knob = format_bytes(half) if panel.x.dimension == "bytes" else f"{half:,.0f} {panel.x.label}"
    top = format_bandwidth(best) if panel.y.dimension == "bandwidth" else f"{best / 1e9:.3g} billion/s"
    ramp = f", half of it from {knob}" if half > points[0][0] else ""
    return f"{panel.title}: {first.name} reaches {top}{ramp}"


def _ends(line: Line) -> str:
    points = sorted(line.points)
    return f"{line.name} {format_bandwidth(points[0][1])} and {format_bandwidth(points[-1][1])}"
