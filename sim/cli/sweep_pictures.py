"""The pictures of a sweep: curves or bars, maps of two parameters, throughput against power or price."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.config.results_folder import ResultsFolder
    from sim.study.study import Study

#: pictures of more points than this would be a blot
_MAX_DRAWN = 2000
_LEAST_FOR_A_MAP = 3
#: more names than this cover each other
_MAX_PARETO = 30
Point = dict[str, Any]


def draw_pictures(study: Study, results: ResultsFolder) -> None:
    """Every picture that the sweep's parameters allow."""
    from sim.report.curves import draw_sweep
    from sim.report.machine_picture import draw_machine
    from sim.report.pooling import draw_pool, has_pool
    from sim.study.head import only_machine

    if (only := only_machine(study.file)) is not None:
        results.draw("machine.png", partial(draw_machine, only[0].machine, note=only[1]))
    pooled = [point for point in islice(study.points(), _MAX_DRAWN) if point.get("jobs")]
    if has_pool(pooled):
        results.draw("pool.png", partial(draw_pool, study.file.name, pooled))
        return
    points = _drawn(study.points())
    names = (
        ("sweep.png", "step_time_s"), ("sweep-throughput.png", "tokens_per_s"), ("sweep-token.png", "time_per_output_token_s"),
        ("sweep-first-token.png", "time_to_first_token_s"),
    )  # fmt: skip
    for name, metric in names:
        if any(point.get(metric) for point in points):
            results.draw(name, partial(draw_sweep, study.file.name, points, metric))
    if study.file.search:
        return
    _draw_map(study.file.name, points, results)
    _draw_pareto(study, points, results)


def _draw_map(name: str, points: Sequence[Point], results: ResultsFolder) -> None:
    """Two parameters of at least three values give a map; with a third one of two values, where these two cross over."""
    from sim.report.curves import axes_of_sweep, finding
    from sim.report.findings import short_path
    from sim.report.maps import draw_map

    over, others = axes_of_sweep(points)
    values = {key: list(dict.fromkeys(point["parameters"].get(key) for point in points)) for key in (over, *others)}
    pair = next((key for key in others if len(values[key]) == 2), None)
    rows = [key for key in others if key != pair] if len(others) == 2 else others
    if len(rows) != 1 or min(len(values[over]), len(values[rows[0]])) < _LEAST_FOR_A_MAP:
        return
    names = (short_path(over), short_path(rows[0]))
    if len(others) == 1:
        if any(point.get("tokens_per_s") for point in points):
            cells = {_place(point, over, rows[0]): point.get("tokens_per_s") if point["fits"] else None for point in points}
            words: dict[str, Any] = {"names": names, "metric": "tokens_per_s", "finding": finding(name, points, "tokens_per_s")}
            results.draw("map.png", partial(draw_map, columns=values[over], rows=values[rows[0]], values=cells, **words))
    elif pair is not None:
        ratios = _ratios(points, over, rows[0], pair, values[pair])
        known = [ratio for ratio in ratios.values() if ratio is not None]
        if known:
            first, second = values[pair]
            wins = sum(ratio < 1 for ratio in known)
            title = f"{name}: {second} beats {first} in {wins} of {len(known)} cells where both fit"
            words = {"names": names, "metric": f"time with {second} / with {first}", "finding": title, "is_ratio": True}
            results.draw("crossover.png", partial(draw_map, columns=values[over], rows=values[rows[0]], values=ratios, **words))


def _place(point: Point, column: str, row: str) -> tuple[object, object]:
    return point["parameters"].get(column), point["parameters"].get(row)


def _ratios(
    points: Sequence[Point], column: str, row: str, pair: str, choices: Sequence[object]
) -> Mapping[tuple[object, object], float | None]:
    """Time with the second choice over time with the first, by cell; None where one does not fit."""
    times = {(_place(point, column, row), point["parameters"].get(pair)): _seconds(point) for point in points}
    places = dict.fromkeys(_place(point, column, row) for point in points)
    found: dict[tuple[object, object], float | None] = {}
    for place in places:
        first, second = (times.get((place, choice)) for choice in choices)
        found[place] = second / first if first and second else None
    return found


def _seconds(point: Point) -> float | None:
    return (point.get("step_time_s") or point.get("time_per_output_token_s")) if point["fits"] else None


def _draw_pareto(study: Study, points: Sequence[Point], results: ResultsFolder) -> None:
    """Throughput against price where the scenario names prices, else against rated power, for a sweep over machines."""
    from sim.report.pareto import draw_pareto, pareto_front
    from sim.study.budget import budget_of
    from sim.study.sources import prices_of

    machines = [a for a in study.assignments() if any(path == "topology" or path.startswith("topology.") for path in a.overlay)]
    if not 2 < len(points) <= _MAX_PARETO or len(machines) != len(points) or not all("status" in point for point in points):
        return
    prices = prices_of(study.file)
    lacking: dict[str, None] = {}
    rows: list[tuple[str, float, float, str, bool]] = []
    for point, assignment in zip(points, machines, strict=True):
        if not point["fits"] or not point.get("tokens_per_s"):
            continue
        budget = budget_of(study.file.resolve(assignment.overlay, assignment.parameters), 1.0, prices)
        cost = budget.purchase if prices else budget.power_w
        lacking |= dict.fromkeys(budget.unpriced)
        if cost:
            label = ", ".join(str(value) for value in point["parameters"].values())
            rows.append((label, cost, point["tokens_per_s"], "", bool(point.get("hypothetical"))))
    if lacking:
        message = f"{study.file.prices} has no price of {', '.join(lacking)}: machines with these are left out of pareto.png"
        print(message, file=sys.stderr)  # noqa: T201 - messages go to standard error
    if len({row[1] for row in rows}) < _LEAST_FOR_A_MAP:
        return
    front = pareto_front([(row[1], row[2]) for row in rows])
    cost_label = f"price of the machine ({prices['currency']})" if prices else "rated power of the machine (W)"
    ends = f"from {rows[front[0]][0]} to {rows[front[-1]][0]}"
    title = f"{study.file.name}: {len(front)} of {len(rows)} machines are beaten by none, {ends}"
    words: dict[str, Any] = {"cost": cost_label, "gain": "throughput (tokens/s)", "finding": title}
    results.draw("pareto.png", partial(draw_pareto, points=rows, **words))


def _drawn(points: Iterator[Point]) -> list[Point]:
    """What pictures need of the first points: parameters and scalars."""
    kept = ("parameters", "fits", "status", "hypothetical")
    return [
        {key: value for key, value in point.items() if key in kept or isinstance(value, (int, float))} | _band(point)
        for point in islice(points, _MAX_DRAWN)
    ]


def _band(point: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Edges of a point's error band, as shares of its time."""
    band = point.get("uncertainty")
    if not band:
        return {}
    # an answer's band is around its whole time, and the same in shares for each of its tokens
    share = (band["high_s"] - band["low_s"]) / (band["high_s"] + band["low_s"])
    seconds = point.get("step_time_s")
    if seconds:
        return {"band": (band["low_s"] / seconds, band["high_s"] / seconds)}
    return {"band": (1.0 - share, 1.0 + share)}
