"""Curves of a sweep: one metric over one parameter, one line per combination of the others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.report.choices import draw_choices
from sim.report.findings import short_path
from sim.report.style import MARKERS, SERIES, figure, legend_below, plain, readable, save, titled

#: metric -> (label, factor, unit, whether more is better)
METRICS: Mapping[str, tuple[str, float, str, bool]] = {
    "step_time_s": ("step time", 1.0, "s", False),
    "tokens_per_s": ("throughput", 1.0, "tokens/s", True),
    "mfu": ("MFU", 100.0, "%", True),
    "offload_penalty": ("offload penalty", 1.0, "x", False),
    "time_to_first_token_s": ("time to first token", 1.0, "s", False),
    "time_per_output_token_s": ("time per output token", 1e3, "ms", False),
}
MAX_LINES = 8
Point = Mapping[str, Any]
_QUANTITY = re.compile(r"(?P<number>[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)( ?(%|[A-Za-z]+(/s)?))?")


def draw_sweep(name: str, points: Sequence[Point], metric: str, path: Path) -> Path:
    """`metric` over the parameter with most values; other parameters give lines. Points that don't fit are crosses.

    A sweep over named choices alone is drawn as bars.
    """
    label, factor, unit, _is_more = METRICS[metric]
    over, others = axes_of_sweep(points)
    lines = _lines(points, others)
    is_numeric = all(_number(point["parameters"].get(over)) is not None for point in points)
    if not is_numeric and not others:
        return draw_choices(points, over, (metric, label, factor, unit), path, finding=finding(name, points, metric))
    fig = figure(9.0, 5.0)
    axes = fig.add_subplot()
    places = _places(points, over, is_numeric=is_numeric)
    handles, labels = [], []
    for index, (key, members) in enumerate(list(lines.items())[:MAX_LINES]):
        drawn = [(places[_key(point, over)], factor * point[metric]) for point in members if _is_drawn(point, metric)]
        drawn.sort()
        style = {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)], "markersize": 5}
        (line,) = axes.plot([x for x, _y in drawn], [y for _x, y in drawn], linewidth=1.8, **style)
        handles.append(line)
        labels.append(key or label)
    axes.set_ylim(bottom=0)
    missing = sorted({places[_key(point, over)] for point in points if not _is_drawn(point, metric)})
    if missing:
        (cross,) = axes.plot(missing, [0.0] * len(missing), "x", color="#B00020", markersize=9, clip_on=False, linestyle="none")
        handles.append(cross)
        labels.append("does not fit")
    if not is_numeric:
        axes.set_xticks(list(places.values()), [_short(text) for text in places])
    axes.set_xlabel(short_path(over))
    axes.set_ylabel(f"{label} ({unit})")
    plain(axes, grid="both")
    hidden = len(lines) - MAX_LINES
    titled(fig, finding(name, points, metric), f"{hidden} more combinations not drawn" if hidden > 0 else "")
    if len(labels) > 1:
        legend_below(fig, handles, labels, num_columns=3)
    return save(fig, path)


def axes_of_sweep(points: Sequence[Point]) -> tuple[str, list[str]]:
    """The parameter with most distinct values, numbers before words, and the other ones that vary."""
    values: dict[str, list[Any]] = {}
    for point in points:
        for key, value in point["parameters"].items():
            known = values.setdefault(key, [])
            if value not in known:
                known.append(value)
    varying = [key for key in values if len(values[key]) > 1] or list(values)
    over = max(varying, key=lambda key: (all(_number(v) is not None for v in values[key]), len(values[key])))
    return over, [key for key in varying if key != over]


def finding(name: str, points: Sequence[Point], metric: str) -> str:
    """The best point and what it gains over the worst."""
    label, factor, unit, is_more = METRICS[metric]
    fitting = [point for point in points if _is_drawn(point, metric)]
    if not fitting:
        return f"{name}: no point fits"
    order = sorted(fitting, key=lambda point: point[metric], reverse=is_more)
    best, worst = order[0], order[-1]
    at = ", ".join(f"{short_path(key)} {value}" for key, value in best["parameters"].items())
    ratio = worst[metric] / best[metric] if not is_more else best[metric] / worst[metric]
    verb = "is highest" if is_more else "is lowest"
    return f"{name}: {label} {verb} at {at}: {readable(factor * best[metric])} {unit}, {ratio:.3g}x better than the worst point"


def _lines(points: Sequence[Point], others: Sequence[str]) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for point in points:
        key = ", ".join(f"{short_path(other)} {point['parameters'].get(other)}" for other in others)
        lines.setdefault(key, []).append(point)
    return lines


def _is_drawn(point: Point, metric: str) -> bool:
    return bool(point.get("fits")) and point.get(metric) is not None


def _key(point: Point, over: str) -> str:
    return str(point["parameters"].get(over))


def _places(points: Sequence[Point], over: str, *, is_numeric: bool) -> dict[str, float]:
    """Where each value of the parameter stands on the axis: at its number, or in file order."""
    keys = list(dict.fromkeys(_key(point, over) for point in points))
    if is_numeric:
        return {key: float(_number(key) or 0.0) for key in keys}
    return {key: float(index) for index, key in enumerate(keys)}


def _number(value: object) -> float | None:
    """A number, also when it is written with a unit: '48 GB/s' -> 48; words that start with one ('2024 GH200') are not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    match = _QUANTITY.fullmatch(str(value))
    return float(match["number"]) if match else None


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:22]}..."
