"""The picture of a pool: what it saves of all hosts' memory, and what that costs each job, alone and beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sim.report.findings import short_path
from sim.report.style import MARKERS, SERIES, figure, legend_below, plain, save, titled

Point = Mapping[str, Any]
#: share of an axis within which marks lie on each other
_NEAR = 0.06
#: share of an axis that a letter of a mark's name takes
_LETTER = 0.014
#: behind a text that a line may cross
_HALO = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
#: per cent of the hosts' memory below which a pool saves nothing
_LEAST_SAVED = 0.5
#: share of a load's latency below which a wait is none
_LEAST_WAIT = 0.05


def has_pool(points: Sequence[Point]) -> bool:
    """Whether these points of a sweep show a pool at several sizes."""
    return sum(bool(point.get("fits") and point.get("pools")) for point in points) > 1


def draw_pool(name: str, points: Sequence[Point], path: Path) -> Path:
    """Slowdown of the jobs, and contention, over the memory that the pool saves; one line per other parameter."""
    fig = figure(11.0, 5.0)
    left, right = fig.subplots(1, 2)
    over, lines = _lines(points)
    best: tuple[float, float, str] | None = None
    handles, labels, places = [], [], list[tuple[float, float, str]]()
    for index, (label, members) in enumerate(lines.items()):
        style = {
            "color": SERIES[index % len(SERIES)],
            "marker": MARKERS[index % len(MARKERS)],
            "markersize": 5,
            "linewidth": 1.8,
        }
        saved = [_saved(point) for point in members]
        slower = [_slowdown(point, members[0]) for point in members]
        (line,) = left.plot(saved, slower, **style)
        names = [str(point["parameters"].get(over)) for point in members]
        right.plot(names, [_worst(point) for point in members], **style)
        right.plot(names, [worst_wait(point) for point in members], **style | {"linestyle": "--", "linewidth": 1.2})
        places += list(zip(saved, slower, names, strict=True))
        if max(saved) > (best[0] if best else 0.0):
            most = saved.index(max(saved))
            best = (saved[most], slower[most], label)
        handles.append(line)
        labels.append(label or "jobs")
    _name_marks(left, places)
    left.set_xlabel("memory of all hosts that the pool saves (%)")
    left.set_ylabel(f"mean job time / that at {places[0][2]} (x)")
    what = short_path(over).rpartition(".")[2].replace("_", " ")
    right.set_xlabel(f"{what} in the pool" if "placement" in over else f"{what} of the pool")
    right.set_ylabel("beside the others / alone (x)")
    left.set_ylim(0, 1.12 * max(y for _, y, _ in places))
    right.set_ylim(bottom=0)
    plain(left, grid="both")
    plain(right, grid="both")
    titled(fig, f"{name}: {_finding(places, best)}{_waiting(points)}", f"marks are named by {what}")
    told = "noisy neighbours: the slowest job (solid), a load from the pool (dashed)"
    right.set_title(told, loc="left", fontsize=9, color="#555555")
    legend_below(fig, handles, labels)
    return save(fig, path)


def _finding(places: Sequence[tuple[float, float, str]], best: tuple[float, float, str] | None) -> str:
    """What the picture shows: the most that is saved and its price, or the price where all marks save the same."""
    if best is None or best[0] <= _LEAST_SAVED:
        return "the pool saves nothing"
    if max(x for x, _, _ in places) - min(x for x, _, _ in places) <= _LEAST_SAVED:
        slowest = max(places, key=lambda place: place[1])
        return f"the pool saves {best[0]:.0f} % of the hosts' memory, jobs take up to {slowest[1]:.3g}x as long ({slowest[2]})"
    label = f" ({best[2]})" if best[2] else ""
    return f"the pool saves {best[0]:.0f} % of the hosts' memory, jobs then take {best[1]:.3g}x as long{label}"


def _name_marks(axes: Any, places: Sequence[tuple[float, float, str]]) -> None:
    """Write what each mark stands for where there is room: above it, else below; marks on each other share one text."""
    wide, high = max(x for x, _, _ in places) or 1.0, max(y for _, y, _ in places) or 1.0
    near: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for x, y, name in places:
        near.setdefault((round(x / wide / _NEAR), round(y / high / _NEAR)), []).append((x, y, name))
    taken = [(x / wide - _NEAR / 6, y / high - _NEAR / 6, _NEAR / 3) for x, y, _ in places]
    for marks in sorted(near.values(), reverse=True):
        text = ", ".join(dict.fromkeys(name for _, _, name in marks))
        x, y, _ = marks[0]
        width = _LETTER * len(text)
        for below, lift in ((7, 0.02), (-15, -0.065)):
            left, bottom = x / wide + 0.01, y / high + lift
            if all(
                left + width < a or a + length < left or abs(bottom + _NEAR / 4 - b) > _NEAR * 0.7 for a, b, length in taken
            ):
                axes.annotate(text, (x, y), xytext=(5, below), textcoords="offset points", fontsize=8, bbox=_HALO)
                taken.append((left, bottom, width))
                break


def _lines(points: Sequence[Point]) -> tuple[str, dict[str, list[Point]]]:
    """The parameter that changes what is in the pool, and the points of each combination of the others."""
    drawn = [point for point in points if point.get("fits")]
    keys = list(drawn[0]["parameters"])
    over = max(keys, key=lambda key: len({str(point["parameters"].get(key)) for point in points}))
    lines: dict[str, list[Point]] = {}
    for point in drawn:
        label = ", ".join(f"{short_path(key)} {point['parameters'].get(key)}" for key in keys if key != over)
        lines.setdefault(label, []).append(point)
    return over, lines


def _saved(point: Point) -> float:
    """Per cent of all hosts' memory; none where no job uses a pool."""
    return 100 * point["host_memory"]["saved"] if point.get("host_memory") else 0.0


def _slowdown(point: Point, base: Point) -> float:
    """Mean over the jobs of a step's time, or a token's, over that at another point."""
    return fmean(_seconds(job) / _seconds(base["jobs"][name]) for name, job in point["jobs"].items())


def _seconds(job: Mapping[str, Any]) -> float:
    return float(job.get("step_time_s") or job.get("time_per_output_token_s") or job["time_to_first_token_s"])


def _worst(point: Point) -> float:
    return max(float(job["contention"]) for job in point["jobs"].values())


def worst_wait(point: Point) -> float:
    """Longest load from a pool beside the neighbours' updates, against the same load alone."""
    rows = [row for job in point["jobs"].values() for row in job.get("pool_latency", {}).values()]
    return max((row["beside_s"] / row["idle_s"] for row in rows), default=1.0)


def _waiting(points: Sequence[Point]) -> str:
    worst = max(worst_wait(point) for point in points if point.get("fits"))
    return f"; a load from it takes up to {worst:.2g}x as long" if worst > 1.0 + _LEAST_WAIT else ""
