"""Pareto: throughput against what it costs; the points that nothing beats in both are joined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.report.style import INK, MARKERS, SERIES, figure, plain, save, titled


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of (cost, gain) that no other point beats or equals in both and beats in one, by rising cost."""
    order = sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1]))
    front: list[int] = []
    best = float("-inf")
    for index in order:
        if points[index][1] > best:
            front.append(index)
            best = points[index][1]
    return front


def pareto_figure(
    points: Sequence[tuple[str, float, float, str, bool]], *, cost: str, gain: str, finding: str, detail: str = ""
) -> Any:
    """`points` are (name, cost, gain, group, is hypothetical); groups share a colour, hypothetical ones are hollow."""
    from matplotlib.lines import Line2D

    fig = figure(9.5, 5.0 + 0.12 * len(points))
    axes = fig.add_subplot()
    front = pareto_front([(point[1], point[2]) for point in points])
    axes.plot(
        [points[index][1] for index in front], [points[index][2] for index in front], color="#888888", linewidth=1.2, zorder=1
    )
    groups = list(dict.fromkeys(point[3] for point in points))
    for number, group in enumerate(groups):
        colour, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
        for hypothetical in (False, True):
            members = [point for point in points if point[3] == group and point[4] is hypothetical]
            if members:
                axes.scatter(
                    [point[1] for point in members],
                    [point[2] for point in members],
                    s=190,
                    marker=marker,
                    facecolor="white" if hypothetical else colour,
                    edgecolor=colour,
                    linewidth=1.6,
                    label=f"{group} (not built yet)" if hypothetical else group,
                    zorder=2,
                )
    names = _number_points(axes, points)
    if _spread([point[1] for point in points]) > 15:
        axes.set_xscale("log")
    if _spread([point[2] for point in points]) > 15:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.margins(x=0.12)
    axes.set_xlabel(cost)
    axes.set_ylabel(gain)
    plain(axes, grid="both")
    titled(fig, finding, detail)
    handles, labels = axes.get_legend_handles_labels()
    listed = [(handle, label) for handle, label in zip(handles, labels, strict=True) if len(groups) > 1]
    blank = [Line2D([], [], linestyle="none") for _name in names]
    fig.legend(
        [handle for handle, _label in listed] + blank, [label for _handle, label in listed] + names,
        loc="outside lower left", ncols=2, frameon=False, fontsize=9, handlelength=0.8,
    )  # fmt: skip
    return fig


def draw_pareto(path: Path, *arguments: Any, **keywords: Any) -> Path:
    """As :func:`pareto_figure`, into a file."""
    return save(pareto_figure(*arguments, **keywords), path)


def _number_points(axes: Any, points: Sequence[tuple[str, float, float, str, bool]]) -> list[str]:
    """A number in every marker, by rising cost; returns the names in that order, for the list under the picture."""
    names = []
    for number, (name, x, y, _group, is_hypothetical) in enumerate(sorted(points, key=lambda point: point[1:3]), start=1):
        colour = INK if is_hypothetical else "white"
        axes.text(x, y, str(number), ha="center", va="center", fontsize=8, fontweight="bold", color=colour, zorder=3)
        names.append(f"{number}  {name}" + (" (not built yet)" if is_hypothetical else ""))
    return names


def _spread(values: Sequence[float]) -> float:
    positive = [value for value in values if value > 0]
    return max(positive) / min(positive) if len(positive) == len(values) and positive else 1.0
