"""`tiersim bench`: the standard microbenchmarks on a simulated machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sim.study.bench_panels import Axis, Curve, Matrix, Panel, Suite

_MOST_ROWS = 16
_MOST_COLUMNS = 5


def command(
    topology: Annotated[str, typer.Argument(help="Built-in name or topology file.", show_default=False)],
    only: Annotated[
        list[str] | None, typer.Option(help="Run this benchmark only; may be repeated.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder; the pictures go to bench/<machine> in it.")] = Path("results"),
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Write no picture and no table.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Run the standard microbenchmarks on a simulated machine, next to what was measured on the real one.

    Names for --only: bandwidth_matrix, latency_matrix, bandwidth_by_write_share, loaded_latency, host_device_copy,
    host_copies_at_once, gpu_copy, collectives, cpu_adam, storage.

    Example: tiersim bench gh200-quad --only latency_matrix
    """
    from sim.cli.progress import progress
    from sim.config import load_machine
    from sim.config.locate import builtins
    from sim.config.results_folder import ResultsFolder
    from sim.study.bench_measured import rows_of_machine
    from sim.study.bench_panels import to_json
    from sim.study.bench_suite import run_suite

    names = _chosen(only or [])
    machine = load_machine(topology)
    folder = None if no_plots else ResultsFolder(out / "bench" / machine.name)
    rows = rows_of_machine(topology) if topology in builtins("topologies") else []
    with progress(f"bench {machine.name}", len(names)) as advance:
        suite = run_suite(machine, rows, only=names, on_progress=advance)
    if is_json:
        import json

        typer.echo(json.dumps(to_json(suite), indent=2))
    else:
        _print(suite)
        for line in machine.assumptions:
            if line.partition(":")[0] in machine.bandwidth_ranges:
                typer.echo(line)
    if folder is not None:
        _write(suite, folder, topology)
        print(f"{folder.path}: {', '.join(folder.written)}", file=sys.stderr)  # noqa: T201 - messages go to standard error


def _chosen(only: list[str]) -> list[str]:
    from sim.config.validation import suggestion
    from sim.errors import Fault, InputError
    from sim.study.bench_suite import PANELS

    faults = [
        Fault(path="--only", what=f"unknown benchmark {name!r}", remedy=suggestion(name, PANELS))
        for name in only
        if name not in PANELS
    ]
    if faults:
        raise InputError(faults)
    return [name for name in PANELS if name in only or not only]


def _write(suite: Suite, folder: Any, topology: str) -> None:
    """Pictures, the suite as JSON, one CSV of every number, and the manifest."""
    from sim.config.results_folder import versions
    from sim.study.bench_panels import to_json

    for panel in suite.panels:
        folder.draw(f"{panel.name}.png", lambda path, panel=panel: draw(panel, path, suite.machine))
    folder.json("bench.json", to_json(suite))
    folder.rows("points.csv", _COLUMNS, [row for panel in suite.panels for row in _rows(panel)])
    folder.finish({"topology": topology, "machine": suite.machine, "versions": versions()})


_COLUMNS = ("benchmark", "line", "x", "predicted", "measured", "row")


def _rows(panel: Panel) -> list[tuple[object, ...]]:
    from sim.study.bench_panels import Matrix

    if isinstance(panel, Matrix):
        found: list[tuple[object, ...]] = []
        for (row, column), value in panel.cells.items():
            item = panel.measured.get((row, column))
            found.append((panel.name, row, column, value, item.measured if item else "", item.row if item else ""))
        return found
    simulated = [(panel.name, line.name, x, y, "", "") for line in panel.lines for x, y in line.points]
    measured = [
        (panel.name, line.name, item.x, item.predicted, item.measured, item.row)
        for line in panel.lines
        for item in line.measured
    ]
    return [*simulated, *measured]


def draw(panel: Panel, path: Path, machine: str) -> Path:
    """The picture of one panel."""
    from sim.report.bench import Drawn, Scale, draw_curves, draw_matrix
    from sim.study.bench_findings import beside, finding
    from sim.study.bench_panels import Matrix

    def scale(axis: Axis) -> Scale:
        return Scale(label=axis.label, dimension=axis.dimension, is_log=axis.is_log)

    title, known = f"{machine}: {finding(panel)}", beside(panel)
    if isinstance(panel, Matrix):
        measured = {at: item.measured for at, item in panel.measured.items()}
        notes = [
            f"in brackets: measured ({known})" if known else "",
            "'-': no coherent way" if _has_gaps(panel) else "",
            panel.note,
        ]
        return draw_matrix(
            panel.rows, panel.columns, panel.cells, measured, scale(panel.value), path, axes_names=panel.axes,
            finding=title, detail="; ".join(filter(None, notes)),
        )  # fmt: skip
    lines = [
        Drawn(
            name=line.name,
            points=[*line.points, *((item.x, item.predicted) for item in line.measured)],
            measured=[(item.x, item.measured) for item in line.measured],
        )
        for line in panel.lines
    ]
    detail = f"lines: simulated; open markers: {known}" if known else "simulated"
    return draw_curves(lines, scale(panel.x), scale(panel.y), path, finding=title, detail=detail)


def _has_gaps(panel: Matrix) -> bool:
    return len(panel.cells) < len(panel.rows) * len(panel.columns)


def _print(suite: Suite) -> None:
    from rich.text import Text

    from sim.cli.terminal import console
    from sim.study.bench_findings import beside, finding
    from sim.study.bench_panels import Matrix

    out = console()
    out.print(Text.assemble((suite.machine, "bold"), f"  {suite.title}"))
    for panel in suite.panels:
        out.print()
        out.print(Text(finding(panel), style="bold"))
        out.print(_matrix_table(panel) if isinstance(panel, Matrix) else _curve_table(panel))
        _print_measured(panel, beside(panel), out)
    if suite.skipped:
        out.print()
    for name, reason in suite.skipped.items():
        out.print(Text(f"{name.replace('_', ' ')}: not run, {reason}", style="dim"))


def _print_measured(panel: Panel, known: str, out: Console) -> None:
    from rich.text import Text

    if not known:
        return
    worst = max(panel.measurements, key=lambda item: abs(item.error))
    out.print(Text(f"beside it: {known}; worst {100 * worst.error:+.1f} % ({worst.row})", style="cyan"))


def _matrix_table(panel: Matrix) -> Table:
    from sim.cli.terminal import plain_table

    columns = [column.replace(".", "\n") for column in panel.columns]
    table = plain_table(f"{_unit(panel.value)}, {panel.axes[0]}\nby {panel.axes[1]}", *columns)
    for row in panel.rows:
        values = [panel.cells.get((row, column)) for column in panel.columns]
        table.add_row(row, *("-" if value is None else _number(value, panel.value) for value in values))
        known = [panel.measured.get((row, column)) for column in panel.columns]
        if any(known):
            table.add_row("  measured", *(_number(item.measured, panel.value) if item else "" for item in known), style="cyan")
    return table


def _curve_table(panel: Curve) -> Table:
    from sim.cli.terminal import plain_table

    unit = _unit(panel.y)
    has_own = len({tuple(x for x, _y in line.points) for line in panel.lines}) > 1
    if has_own or len(panel.lines) > _MOST_COLUMNS:  # a row per line; its own values of the knob stand as shares of the last
        shown = _thinned(panel.lines[0].points)
        heads = [f"{100 * x / shown[-1][0]:.0f} %" if has_own else _knob(x, panel.x) for x, _y in shown]
        table = plain_table(f"{panel.y.label} ({unit})", *heads)
        for line in panel.lines:
            table.add_row(line.name, *(_number(y, panel.y) for _x, y in _thinned(line.points)))
        return table
    table = plain_table(f"{unit} by\n{panel.x.label}", *(_folded(line.name) for line in panel.lines))
    for index, (x, _y) in enumerate(panel.lines[0].points):
        if len(panel.lines[0].points) <= _MOST_ROWS or index % 2 == 0:
            table.add_row(_knob(x, panel.x), *(_number(line.points[index][1], panel.y) for line in panel.lines))
    return table


def _folded(name: str) -> str:
    """A column's name over several lines, so that eight of them stand beside each other."""
    return name.replace(", ", ",\n").replace(" on ", "\non ").replace(" in ", "\nin ").replace(" : ", " :\n")


def _thinned(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    return [point for index, point in enumerate(points) if index % 2 == 0 or index >= len(points) - 2]


def _unit(axis: Axis) -> str:
    from sim.report.bench import SCALES

    return SCALES[axis.dimension][1]


def _number(value: float, axis: Axis) -> str:
    from sim.report.bench import SCALES
    from sim.report.style import readable

    return readable(SCALES[axis.dimension][0] * value)


def _knob(value: float, axis: Axis) -> str:
    from sim.report.bench import in_words

    return in_words(value, axis.dimension)
