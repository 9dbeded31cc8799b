"""Points drawn at random: one panel per parameter, every point in each; lines would join points that are no neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.report.findings import short_path
from sim.report.style import SERIES, figure, legend_below, plain, titled
from sim.report.swept import cut, number_of, unit_of

_MAX_PANELS = 6
_COLUMNS = 3
Point = Mapping[str, Any]


def draws_figure(
    points: Sequence[Point],
    parameters: Sequence[str],
    metric: tuple[str, str, float, str],
    *,
    finding: str,
) -> Any:
    """`metric` is (key, label, factor, unit).

    Parameters that are no numbers (named choices) stand in the order in which they come. Points that do not fit are crosses.
    """
    key, label, factor, unit = metric
    shown = list(parameters[:_MAX_PANELS])
    num_columns = 2 if len(shown) in (2, 4) else _COLUMNS
    num_rows = -(-len(shown) // num_columns)
    fig = figure(11.0, 1.2 + 3.1 * num_rows)
    panels = fig.subplots(num_rows, min(num_columns, len(shown)), sharey=True, squeeze=False)
    handles: list[Any] = []
    for index, axes in enumerate(panels.flat):
        if index >= len(shown):
            axes.set_visible(False)
            continue
        places = _places([point["parameters"].get(shown[index]) for point in points])
        drawn = [point.get("fits") and point.get(key) is not None for point in points]
        xs = [x for x, is_drawn in zip(places, drawn, strict=True) if is_drawn]
        ys = [factor * point[key] for point, is_drawn in zip(points, drawn, strict=True) if is_drawn]
        (dots,) = axes.plot(xs, ys, "o", color=SERIES[0], markersize=5, alpha=0.75)
        missing = [x for x, is_drawn in zip(places, drawn, strict=True) if not is_drawn]
        (cross,) = axes.plot(missing, [0.0] * len(missing), "x", color="#B00020", markersize=8, clip_on=False)
        handles = [dots, cross]
        own = unit_of(points[0]["parameters"].get(shown[index]))
        axes.set_xlabel(f"{short_path(shown[index])} ({own})" if own else short_path(shown[index]))
        axes.set_ylim(bottom=0)
        if number_of(points[0]["parameters"].get(shown[index])) is None:
            names = dict(zip(places, [str(point["parameters"].get(shown[index])) for point in points], strict=True))
            axes.set_xticks(list(names), [cut(name, 16) for name in names.values()], rotation=20)
        plain(axes, grid="both")
    for row in panels:
        row[0].set_ylabel(f"{label} ({unit})")
    hidden = len(parameters) - len(shown)
    titled(fig, finding, f"{hidden} more parameters not drawn" if hidden > 0 else "")
    has_misfit = any(not point.get("fits") for point in points)
    legend_below(fig, handles[: 1 + has_misfit], ["a point that fits", "does not fit"][: 1 + has_misfit])
    return fig


def _places(values: Sequence[object]) -> list[float]:
    numbers = [number_of(value) for value in values]
    if all(number is not None for number in numbers):
        return [float(number or 0.0) for number in numbers]
    order = list(dict.fromkeys(map(str, values)))
    return [float(order.index(str(value))) for value in values]
