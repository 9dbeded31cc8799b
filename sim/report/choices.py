"""Choices side by side: one bar per named option of a sweep, with its error band; what is not built yet is hatched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.report.style import COLOURS, GRID, INK, figure, legend_below, plain, readable, titled
from sim.report.swept import cut

_MAX_BARS = 40
#: a wider range of values gets a logarithmic axis
_WIDE = 20


def choices_figure(points: Sequence[Mapping[str, Any]], over: str, metric: tuple[str, str, float, str], *, finding: str) -> Any:
    """`metric` is (key, label, factor, unit). A point carries its band in `band` (low, high as shares of the time).

    Options that do not fit keep their line, without a bar.
    """
    from matplotlib.patches import Patch

    key, label, factor, unit = metric
    shown = list(points[:_MAX_BARS])
    fig = figure(10.0, 1.9 + 0.42 * max(2, len(shown)))
    axes = fig.add_subplot()
    values = [factor * point[key] if point.get("fits") and point.get(key) is not None else None for point in shown]
    ends = []
    for index, (point, value) in enumerate(zip(shown, values, strict=True)):
        if value is None:
            axes.text(
                0.01, index, "does not fit", va="center", fontsize=9, color="#B00020", transform=axes.get_yaxis_transform()
            )
            continue
        hatch = "///" if point.get("hypothetical") else ""
        axes.barh(
            index, value, height=0.62, color=COLOURS["data"], edgecolor=INK if hatch else "none", hatch=hatch, linewidth=0.6
        )
        low, high = _edges(point, value, is_time=key != "tokens_per_s")
        axes.plot([low, high], [index, index], color=INK, linewidth=1.4)
        axes.plot([low, high], [index, index], "|", color=INK, markersize=7)
        axes.text(max(value, high), index, f"  {readable(value)}", va="center", fontsize=9, color=INK)
        ends.append(max(value, high))
    axes.set_yticks(range(len(shown)), [cut(point["parameters"].get(over), 40) for point in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    found = [value for value in values if value]
    is_wide = bool(found) and max(found) > _WIDE * min(found)
    if is_wide:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _position: readable(value))
    axes.set_xlim(min(found) / 2 if is_wide else 0, (2 if is_wide else 1.15) * max(ends, default=1.0))
    axes.set_xlabel(f"{label} ({unit}{', logarithmic' if is_wide else ''}); the line is the error band")
    plain(axes)
    titled(fig, finding)
    if any(point.get("hypothetical") for point in shown):
        handles = [Patch(facecolor=COLOURS["data"]), Patch(facecolor=COLOURS["data"], edgecolor=INK, hatch="///")]
        legend_below(fig, handles, ["parts that exist", "with parts that do not exist yet"])
    else:
        axes.grid(axis="x", color=GRID)
    return fig


def _edges(point: Mapping[str, Any], value: float, *, is_time: bool) -> tuple[float, float]:
    """The band around a value: of a rate, the slow end of the time is the low end."""
    low, high = point.get("band") or (1.0, 1.0)
    return (value * low, value * high) if is_time else (value / high, value / low)
