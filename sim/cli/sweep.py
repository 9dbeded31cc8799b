"""The sweep of a scenario as `tiersim run` shows it: a study, its table, its files."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from sim.config import ScenarioFile
    from sim.study.pool import Backend
    from sim.study.search import Search
    from sim.study.study import Study, Tally

_MAX_ROWS = 60
#: outcomes whose reason is told, the first point of each reason
_TROUBLES = {"failed": "failed", "lost": "was lost", "invalid": "is invalid"}
_MAX_REASONS = 5
#: columns of peaks, shown where points differ: title -> kinds of tiers
_PEAKS = {"GPU peak": (".hbm", ".gddr"), "host peak": (".dram", ".lpddr")}


def run_sweep(
    file: ScenarioFile, folder: Path, *, is_json: bool, has_plots: bool, workers: int = 0, cluster: str = ""
) -> tuple[dict[str, Any], int]:
    """Run what is not in the folder's study yet, print the table, export it; returns what `--json` prints and the exit code."""
    from sim.cli.progress import progress
    from sim.study.search import Search
    from sim.study.study import Study

    started = time.process_time(), time.perf_counter()
    study = Search(file, folder) if file.search else Study(file, folder)
    with progress(file.name, study.num_points) as advance:
        tally = study.run(_backend(workers, cluster), lambda done, _total: advance(done))
    seconds = {"cpu": time.process_time() - started[0], "wall": time.perf_counter() - started[1]}
    answer: dict[str, Any] = {"scenario": file.name}
    if is_json:
        answer["points"] = list(study.points())
    else:
        _print_table(study, tally)
    if file.measured:
        answer["measured"] = _measured(study, is_json=is_json)
    if isinstance(study, Search):
        answer["best"] = _best(study, is_json=is_json)
    if file.claim:
        answer["claim"] = _claim(study, is_json=is_json)
    written = _write(study, has_plots=has_plots, seconds=seconds)
    _report(study, tally, written)
    return answer, exit_code(tally)


def _measured(study: Study, *, is_json: bool) -> list[dict[str, Any]]:
    """What was measured at points of the sweep beside what they predict."""
    from sim.cli.printing import measured_words
    from sim.study.measured import beside_points

    compared = beside_points(study.file.measured, study.points())
    if not is_json:
        for item in compared:
            typer.echo(measured_words(item))
    return [item.to_json() | {"at": dict(item.entry.at)} for item in compared]


def _best(search: Search, *, is_json: bool) -> dict[str, Any] | None:
    """The best point of a search, printed unless machines read."""
    best, objective = search.best, search.file.search["objective"]
    if best is None:
        if not is_json:
            typer.echo(search.why_none())
        return None
    if not is_json:
        from sim.study.sources import name_of

        typer.echo(f"best {objective}: {best.value:.6g}, trial {best.trial + 1} ({name_of(search.file.name, best.parameters)})")
    return {"parameters": dict(best.parameters), "objective": objective, "value": best.value, "trial": best.trial}


def exit_code(tally: Tally) -> int:
    """0 if any point fits; else 3 if the simulator failed, 2 if every point is wrong input, 1."""
    if tally.has_fit:
        return 0
    if tally.counts.get("failed") or tally.counts.get("lost"):
        return 3
    return 2 if set(tally.counts) == {"invalid"} else 1


def _backend(workers: int, cluster: str) -> Backend | None:
    if cluster:
        from sim.study.cluster import Dask

        return Dask(cluster)
    if workers:
        from sim.study.pool import Processes, Serial

        return Serial() if workers == 1 else Processes(workers)
    return None


def _claim(study: Study, *, is_json: bool) -> dict[str, Any]:
    """What the points say about the claim of an article scenario."""
    from sim.metrics.claim import in_words, verdict_of_points

    claim = verdict_of_points(study.file.claim, list(study.points()))
    if not is_json:
        typer.echo(f"claim {claim['id']}: {claim['verdict']} (simulated {in_words(claim['simulated'], study.file.claim)})")
    return claim


def _print_table(study: Study, tally: Tally) -> None:
    from sim.cli.terminal import console, fitting_console

    points = list(islice(study.points(), _MAX_ROWS))
    table = points_table(study.file.name, points)
    out = fitting_console(table)
    if out is None:
        out, table = console(), points_table(study.file.name, points, has_peaks=False)
    out.print(table)
    if tally.num_points > _MAX_ROWS:
        out.print(f"and {tally.num_points - _MAX_ROWS} more points: see points.csv")


def points_table(title: str, points: list[dict[str, Any]], *, has_peaks: bool = True) -> Table:
    """Points as one table: parameters by their short names, peaks that differ, verdict, times, penalty, what binds."""
    from rich.table import Table
    from rich.text import Text

    from sim.report.findings import short_value
    from sim.report.tables import shortage
    from sim.study.names import short_names
    from sim.units import format_bytes, format_rate, format_seconds

    keys = list(dict.fromkeys(key for point in points for key in point["parameters"]))
    short = short_names(keys)
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", padding=(0, 2, 0, 0))
    for key in keys:
        table.add_column(short[key], justify="right", header_style="dim", overflow="fold", no_wrap=len(keys) <= 3)
    peaks = {title: [_peak(point, kinds) for point in points] for title, kinds in _PEAKS.items() if has_peaks}
    peaks = {title: values for title, values in peaks.items() if max(values) > 1.01 * min(values)}
    for title in peaks:
        table.add_column(title, justify="right", header_style="dim", no_wrap=True)
    is_answer = any("time_per_output_token_s" in point for point in points)
    times = ("first token", "per token") if is_answer else ("step time",)
    keys_of_times = ("time_to_first_token_s", "time_per_output_token_s") if is_answer else ("step_time_s",)
    for name in ("verdict", *times, "tokens/s", "penalty", "binds"):
        table.add_column(name, justify="left" if name in ("verdict", "binds") else "right", header_style="dim", no_wrap=True)
    for index, point in enumerate(points):
        cells = [short_value(point["parameters"].get(key, "")) for key in keys]
        cells += [format_bytes(values[index]) if values[index] else "" for values in peaks.values()]
        if not point.get("fits"):
            blanks = [""] * (len(times) + 2)
            table.add_row(*cells, Text(str(point["status"]).replace("_", " "), style="red"), *blanks, shortage(point))
            continue
        penalty = point.get("offload_penalty")
        table.add_row(
            *cells,
            Text("fits", style="green"),
            *(format_seconds(point[key]) if point.get(key) is not None else "" for key in keys_of_times),
            format_rate(point.get("tokens_per_s") or 0.0),
            f"{penalty:.3g} x" if penalty is not None else "",
            str(point.get("bound_by", "")),
        )
    return table


def _peak(point: Mapping[str, Any], suffixes: tuple[str, ...]) -> float:
    """Largest peak of the point's tiers of these kinds, bytes; 0 without any."""
    tiers = point.get("tiers") or {}
    return max((tier["peak_bytes"] for name, tier in tiers.items() if name.endswith(suffixes)), default=0.0)


def _nearest(study: Study) -> str:
    """The point that lacks least where none fits, and where to look next; "" if none was planned."""
    from sim.report.tables import nearest, shortage
    from sim.study.sources import name_of

    point = nearest(study.points())
    if point is None:
        return ""
    where = name_of("", point["parameters"])
    return (
        f"nothing fits; {where or 'it'} lacks least: {shortage(point)} (`tiersim fit` on one point says what would make it fit)"
    )


def _write(study: Study, *, has_plots: bool, seconds: dict[str, float]) -> list[str]:
    from sim.cli.outputs import manifest_of
    from sim.config.results_folder import ResultsFolder
    from sim.study.export import write_csv, write_summary
    from sim.study.head import head_of

    results = ResultsFolder(study.folder)
    results.draw("summary.json", lambda path: write_summary(head_of(study.file), study.outcomes, path))
    results.draw("points.csv", lambda path: write_csv(study.outcomes, path))
    if has_plots:
        from sim.cli.sweep_pictures import draw_pictures

        draw_pictures(study, results)
    results.finish(manifest_of(study.file, seconds))
    return results.written


def _report(study: Study, tally: Tally, written: list[str]) -> None:
    """What was done, on standard error."""
    from sim.study.sources import name_of

    if tally.counts.get("does_not_fit") and not tally.has_fit and (nearest := _nearest(study)):
        print(nearest, file=sys.stderr)  # noqa: T201 - messages go to standard error
    counts = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in sorted(tally.counts.items()))
    lines = [f"{tally.num_points} points: {counts}; {tally.num_run} run now in {tally.elapsed_s:.1f} s"]
    shown: dict[tuple[str, str], str] = {}
    for outcome in study.outcomes():
        if outcome.status in _TROUBLES and len(shown) < _MAX_REASONS:
            shown.setdefault((outcome.status, outcome.reason), name_of(study.file.name, outcome.parameters))
    lines += [f"{name} {_TROUBLES[status]}: {reason}" for (status, reason), name in shown.items()]
    lines.append(f"{study.folder}: {', '.join(written)}, study.sqlite")
    print("\n".join(lines), file=sys.stderr)  # noqa: T201 - messages go to standard error
