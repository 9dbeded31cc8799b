"""Waterfall: from the baseline's step time to another's, one bar per part of the difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.report.style import INK, figure, plain, save, seconds_axis, titled
from sim.report.swept import cut
from sim.units import format_seconds

SLOWER, FASTER, TOTAL = "#D55E00", "#009E73", "#0072B2"
_MAX_BARS = 8


def waterfall_figure(
    baseline: tuple[str, float], other: tuple[str, float], parts: Sequence[tuple[str, float]], *, finding: str
) -> Any:
    """The picture. `baseline` and `other` are (name, step time in s); `parts` are (name, difference in s), largest first.

    Parts beyond the eighth are one bar; the bars add up to the difference exactly.
    """
    shown = list(parts[:_MAX_BARS])
    rest = sum(difference for _name, difference in parts[_MAX_BARS:])
    if rest:
        shown.append((f"{len(parts) - _MAX_BARS} smaller parts", rest))
    factor, unit = seconds_axis(max(baseline[1], other[1]))
    fig = figure(10.0, 2.2 + 0.42 * len(shown))
    axes = fig.add_subplot()
    labels = [baseline[0], *(name for name, _difference in shown), other[0]]
    axes.barh(0, baseline[1] * factor, color=TOTAL, height=0.62)
    level = baseline[1]
    levels = [0.0, baseline[1]]
    for index, (_name, difference) in enumerate(shown, start=1):
        colour = SLOWER if difference > 0 else FASTER
        axes.barh(index, abs(difference) * factor, left=min(level, level + difference) * factor, color=colour, height=0.62)
        axes.plot([level * factor] * 2, [index - 1, index], color="#888888", linewidth=0.8)
        level += difference
        levels.append(level)
        text = f" {'+' if difference > 0 else '−'}{format_seconds(abs(difference))}"
        axes.text(max(level, level - difference) * factor, index, text, va="center", fontsize=9, color=INK)
    axes.plot([level * factor] * 2, [len(shown), len(shown) + 1], color="#888888", linewidth=0.8)
    axes.barh(len(shown) + 1, other[1] * factor, color=TOTAL, height=0.62)
    for index, value in ((0, baseline[1]), (len(shown) + 1, other[1])):
        axes.text(value * factor, index, f" {format_seconds(value)}", va="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(labels)), [cut(label, 34) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(min(0.0, *levels) * factor, max(*levels, other[1]) * factor * 1.15)
    axes.set_xlabel(f"step time of the slowest rank ({unit})")
    plain(axes)
    titled(fig, finding, "orange: costs more than the baseline; green: saves")
    return fig


def draw_waterfall(
    baseline: tuple[str, float], other: tuple[str, float], parts: Sequence[tuple[str, float]], path: Path, *, finding: str
) -> Path:
    """As :func:`waterfall_figure`, into a file."""
    return save(waterfall_figure(baseline, other, parts, finding=finding), path)
