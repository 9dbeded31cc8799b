"""Pictures of a validation: predicted against measured, and the error by family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sim.report.style import INK, MARKERS, SERIES, figure, plain, titled

#: predicted value, measured value and their unit, of a family
Pairs = Mapping[str, Sequence[tuple[float, float, str]]]


def parity(pairs: Pairs, path: Path) -> None:
    """Predicted against measured, one panel per family, with bands of +-10 and +-25 %.

    A family mixes units: every value is divided by the geometric mean of the measured values of its unit.
    """
    names = list(pairs)
    columns = 4
    rows = max(1, math.ceil(len(names) / columns))
    fig = figure(3.2 * columns, 2.6 * rows)
    for index, name in enumerate(names):
        axes = fig.add_subplot(rows, columns, index + 1)
        points = _relative(pairs[name])
        xs, ys = [m for m, _ in points], [p for _, p in points]
        low, high = min([*xs, *ys], default=0.1) / 1.3, max([*xs, *ys], default=1.0) * 1.3
        axes.fill_between([low, high], [low * 0.75, high * 0.75], [low * 1.25, high * 1.25], color="#EEEEEE", linewidth=0)
        axes.fill_between([low, high], [low * 0.9, high * 0.9], [low * 1.1, high * 1.1], color="#DDDDDD", linewidth=0)
        axes.plot([low, high], [low, high], color=INK, linewidth=0.8)
        axes.scatter(xs, ys, s=9, color=SERIES[index % len(SERIES)], alpha=0.6, linewidths=0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
            axis.set_minor_formatter(NullFormatter())
            axis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:g}"))
            if high / low < 30:
                axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axes.set_title(f"{name.replace('_', ' ')} ({len(points)})", fontsize=9, loc="left")
        plain(axes, grid="")
        axes.tick_params(labelsize=7)
    if names:
        fig.supxlabel("measured / geometric mean of the measured values of that unit", fontsize=9)
        fig.supylabel("predicted / the same mean", fontsize=9)
    fig.suptitle(_finding(pairs), x=0.01, ha="left", fontsize=12, fontweight="bold")
    fig.savefig(path, dpi=130, format="png")


def _finding(pairs: Pairs) -> str:
    """How many of all values lie within both bands."""
    errors = [abs(predicted / measured - 1) for points in pairs.values() for predicted, measured, _unit in points if measured]
    if not errors:
        return "Predicted against measured: no values"
    inside = [100 * sum(error <= band for error in errors) / len(errors) for band in (0.1, 0.25)]
    shares = f"{inside[0]:.0f} % within ±10 %, {inside[1]:.0f} % within ±25 % (the bands)"
    return f"Predicted against measured: of {len(errors):,} values {shares}"


def _relative(values: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """(measured, predicted), each over the geometric mean of the measured values of its unit."""
    logs: dict[str, list[float]] = {}
    for predicted, measured, unit in values:
        if predicted > 0 and measured > 0:
            logs.setdefault(unit, []).append(math.log(measured))
    means = {unit: math.exp(math.fsum(found) / len(found)) for unit, found in logs.items()}
    return [(m / means[unit], p / means[unit]) for p, m, unit in values if p > 0 and m > 0]


def errors_by_family(errors: Mapping[str, Sequence[float]], path: Path) -> None:
    """Signed errors of each family: every row a dot, the median a bar, the middle 80 % a line."""
    names = [name for name in errors if errors[name]]
    fig = figure(9.0, 1.2 + 0.36 * len(names))
    axes = fig.add_subplot()
    for position, name in enumerate(reversed(names)):
        values = sorted(100 * e for e in errors[name] if math.isfinite(e))
        if not values:
            continue
        colour = SERIES[position % len(SERIES)]
        spread = [position + 0.22 * math.sin(37.0 * index) for index in range(len(values))]
        axes.scatter([max(-60.0, min(60.0, v)) for v in values], spread, s=5, color=colour, alpha=0.35, linewidths=0)
        last = len(values) - 1
        axes.plot([values[round(0.1 * last)], values[round(0.9 * last)]], [position, position], color=INK, linewidth=1.2)
        axes.plot([values[last // 2]], [position], marker=MARKERS[0], color=INK, markersize=5)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_xlim(-62, 62)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in reversed(names)])
    axes.set_xlabel("predicted / measured - 1, % (clipped at ±60)")
    plain(axes)
    titled(fig, "Error of every validation row, by family", "dot: one row; black: median and the middle 80 %")
    fig.savefig(path, dpi=130, format="png")
