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
    fig = figure(9.5, 5.6)
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
                    s=60,
                    marker=marker,
                    facecolor="none" if hypothetical else colour,
                    edgecolor=colour,
                    linewidth=1.6,
                    label=f"{group} (not built yet)" if hypothetical else group,
                    zorder=2,
                )
    _names(axes, points)
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
    if len(groups) > 1 or any(point[4] for point in points):
        handles, labels = axes.get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    return fig


def draw_pareto(path: Path, *arguments: Any, **keywords: Any) -> Path:
    """As :func:`pareto_figure`, into a file."""
    return save(pareto_figure(*arguments, **keywords), path)


def _names(axes: Any, points: Sequence[tuple[str, float, float, str, bool]]) -> None:
    """A name beside every point, above and below in turn so that neighbours do not cover each other."""
    for index, (name, x, y, _group, _hypothetical) in enumerate(sorted(points, key=lambda point: (point[1], point[2]))):
        above = index % 2 == 0
        offset = (0, 9) if above else (0, -9)
        axes.annotate(
            name,
            (x, y),
            offset,
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize=8,
            color=INK,
        )


def _spread(values: Sequence[float]) -> float:
    positive = [value for value in values if value > 0]
    return max(positive) / min(positive) if len(positive) == len(values) and positive else 1.0
