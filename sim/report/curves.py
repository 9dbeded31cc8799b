"""Curves of a sweep: one metric over one parameter, one line per combination of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.report.choices import choices_figure
from sim.report.draws import draws_figure
from sim.report.findings import short_path, short_value
from sim.report.style import MARKERS, SERIES, figure, legend_below, plain, readable, save, titled
from sim.report.swept import cut, number_of, unit_of

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
#: with fewer points to a line on average they are draws, whose lines would say nothing
_LEAST_PER_LINE = 1.5
#: bands of more lines than this would cover each other
_MAX_BANDS = 3
#: a wider range of values gets a logarithmic axis: lines at its foot could not be told apart
_WIDE = 50
#: height between crosses at one place, as a share of the axis
_CROSS_STEP = 0.035
_LEAST_FOR_A_BAND = 2
#: what an error of the time carries over to
_WITH_BAND = ("step_time_s", "tokens_per_s", "time_per_output_token_s")
Point = Mapping[str, Any]


def sweep_figure(name: str, points: Sequence[Point], metric: str) -> Any:
    """`metric` over the parameter with most values; other parameters give lines. Points that don't fit are crosses.

    A sweep over named choices alone is drawn as bars, points drawn at random as one panel per parameter.
    """
    label, factor, unit, _is_more = METRICS[metric]
    over, others = axes_of_sweep(points)
    lines = _lines(points, others)
    units = {unit_of(point["parameters"].get(over)) for point in points}
    is_numeric = len(units) == 1 and all(number_of(point["parameters"].get(over)) is not None for point in points)
    if not is_numeric and not others:
        return choices_figure(points, over, (metric, label, factor, unit), finding=finding(name, points, metric))
    if len(lines) > MAX_LINES and len(points) < _LEAST_PER_LINE * len(lines):
        parameters = [key for key in points[0]["parameters"] if key in (over, *others)]
        return draws_figure(points, parameters, (metric, label, factor, unit), finding=finding(name, points, metric))
    fig = figure(9.0, 5.0)
    axes = fig.add_subplot()
    places = _places(points, over, is_numeric=is_numeric)
    has_bands = len(lines) <= _MAX_BANDS and metric in _WITH_BAND
    handles, labels = [], []
    for index, (key, members) in enumerate(list(lines.items())[:MAX_LINES]):
        drawn = sorted(
            (places[_key(point, over)], factor * point[metric], point.get("band") or (1.0, 1.0))
            for point in members
            if _is_drawn(point, metric)
        )
        handles.append(_draw_line(axes, drawn, index))
        labels.append(key or label)
        if has_bands:
            _draw_band(axes, drawn, metric, SERIES[index % len(SERIES)])
    is_wide = _scaled(axes, [factor * point[metric] for point in points if _is_drawn(point, metric)])
    if cross := _cross_out(axes, lines, places, over, metric):
        handles.append(cross)
        labels.append("does not fit" if len(lines) == 1 else "does not fit (in the colour of its line)")
    _mark_places(axes, places, over, units.pop() if is_numeric else "", is_numeric=is_numeric)
    axes.set_ylabel(f"{label} ({unit}{', logarithmic' if is_wide else ''})")
    plain(axes, grid="both")
    has_band = has_bands and any("band" in point for point in points)
    titled(fig, finding(name, points, metric), _detail(len(lines) - MAX_LINES, has_band=has_band))
    if len(labels) > 1:
        legend_below(fig, handles, labels, num_columns=3)
    return fig


def _draw_line(axes: Any, drawn: Sequence[tuple[float, float, tuple[float, float]]], index: int) -> Any:
    """The `index`-th line, in its colour and with its marker."""
    style = {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)], "markersize": 5}
    (line,) = axes.plot([x for x, _y, _band in drawn], [y for _x, y, _band in drawn], linewidth=1.8, **style)
    return line


def _mark_places(axes: Any, places: Mapping[str, float], over: str, unit: str, *, is_numeric: bool) -> None:
    """What stands along the axis of the parameter `over`."""
    if not is_numeric:
        axes.set_xticks(list(places.values()), [cut(text, 24) for text in places])
    elif all(float(x).is_integer() for x in places.values()):
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(f"{short_path(over)} ({unit})" if unit else short_path(over))


def draw_sweep(name: str, points: Sequence[Point], metric: str, path: Path) -> Path:
    """As :func:`sweep_figure`, into a file."""
    return save(sweep_figure(name, points, metric), path)


def _scaled(axes: Any, values: Sequence[float]) -> bool:
    """From zero, or logarithmic where a linear axis would press lines onto it; returns whether it is."""
    is_wide = bool(values) and min(values) > 0 and max(values) > _WIDE * min(values)
    if is_wide:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _position: readable(value))
        axes.set_ylim(min(values) / 2, 2 * max(values))
    else:
        axes.set_ylim(bottom=0)
    return is_wide


def _cross_out(axes: Any, lines: Mapping[str, Sequence[Point]], places: Mapping[str, float], over: str, metric: str) -> Any:
    """A cross on the axis for each point that does not fit, those of one place above each other; None without any."""
    above: dict[float, int] = {}
    cross = None
    for index, members in enumerate(list(lines.values())[:MAX_LINES]):
        missing = sorted({places[_key(point, over)] for point in members if not _is_drawn(point, metric)})
        for place in missing:
            above[place] = above.get(place, -1) + 1
        if not missing:
            continue
        (cross,) = axes.plot(
            missing, [_CROSS_STEP * above[place] for place in missing], "x", color=SERIES[index % len(SERIES)], markersize=8,
            markeredgewidth=2, clip_on=False, linestyle="none", transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    return cross


def _draw_band(axes: Any, drawn: Sequence[tuple[float, float, tuple[float, float]]], metric: str, colour: str) -> None:
    """The error band behind a line: of a rate, the slow end of the time is the low end."""
    if len(drawn) < _LEAST_FOR_A_BAND or all(band == (1.0, 1.0) for _x, _y, band in drawn):
        return
    is_time = metric != "tokens_per_s"
    low = [y * band[0] if is_time else y / band[1] for _x, y, band in drawn]
    high = [y * band[1] if is_time else y / band[0] for _x, y, band in drawn]
    axes.fill_between([x for x, _y, _band in drawn], low, high, color=colour, alpha=0.12, linewidth=0)


def _detail(num_hidden: int, *, has_band: bool) -> str:
    parts = ["shaded: error band"] if has_band else []
    parts += [f"{num_hidden} more combinations not drawn"] if num_hidden > 0 else []
    return "; ".join(parts)


def axes_of_sweep(points: Sequence[Point]) -> tuple[str, list[str]]:
    """The parameter with most distinct values, numbers before words, and the other ones that vary."""
    values: dict[str, list[Any]] = {}
    for point in points:
        for key, value in point["parameters"].items():
            known = values.setdefault(key, [])
            if value not in known:
                known.append(value)
    varying = [key for key in values if len(values[key]) > 1] or list(values)
    over = max(varying, key=lambda key: (all(number_of(v) is not None for v in values[key]), len(values[key])))
    return over, [key for key in varying if key != over]


def finding(name: str, points: Sequence[Point], metric: str) -> str:
    """The best point and what it gains over the worst."""
    label, factor, unit, is_more = METRICS[metric]
    fitting = [point for point in points if _is_drawn(point, metric)]
    if not fitting:
        return f"{name}: no point fits"
    order = sorted(fitting, key=lambda point: point[metric], reverse=is_more)
    best, worst = order[0], order[-1]
    at = ", ".join(f"{short_path(key)} {short_value(value)}" for key, value in best["parameters"].items())
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
        return {key: float(number_of(key) or 0.0) for key in keys}
    return {key: float(index) for index, key in enumerate(keys)}
