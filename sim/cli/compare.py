"""`tiersim compare`: a baseline against others."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sim.study.compare import Candidate, Comparison

#: more candidates than this are lines of a table, not columns
_MAX_COLUMNS = 5
_MAX_PARTS = 8


class Layout(StrEnum):
    """How the comparison is printed."""

    table = "table"
    markdown = "markdown"
    csv = "csv"


def command(
    sources: Annotated[
        list[str], typer.Argument(help="Scenarios, results folders; the first is the baseline.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the waterfall pictures.", show_default=False)] = None,
    layout: Annotated[Layout, typer.Option("--format", help="How to print it.")] = Layout.table,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    recording: Annotated[
        Path | None, typer.Option(help="A `tiersim record` file to lay over the prediction.", show_default=False)
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="A price overlay for all.", show_default=False)] = None,
) -> int:
    """Compare machines, placements or knobs: times, memory, price and power, and what accounts for the difference.

    A single scenario is compared with its own `compare: {baseline: ...}`, point by point; without it, the points of its
    sweep with the first.

    Example: tiersim compare a12-reference-box scenarios/examples/cxl-expander-13b.yaml
    """
    overlay = None
    if prices is not None:
        from sim.config.prices import load_prices

        overlay = load_prices(prices)
    if recording is not None:
        return _over_recording(sources, recording, out, is_json=is_json)
    comparison = _compared(sources, overlay)
    if is_json:
        import json

        typer.echo(json.dumps(comparison.to_json(), indent=2))
    elif layout is Layout.table:
        _print(comparison)
    else:
        from sim.study.compare_table import to_csv, to_markdown

        typer.echo(to_csv(comparison) if layout is Layout.csv else to_markdown(comparison), nl=False)
    if out is not None:
        print(f"{out}: {', '.join(_draw(comparison, out))}", file=sys.stderr)  # noqa: T201 - messages go to standard error
    return 0 if any(difference.baseline.fits and difference.candidate.fits for difference in comparison.differences) else 1


def _compared(sources: list[str], prices: dict[str, Any] | None) -> Comparison:
    from sim.config import load_scenario
    from sim.errors import Fault, InputError
    from sim.study.compare import compare, compare_pairs
    from sim.study.sources import candidates_from, pairs_from

    found: list[Candidate] = []
    if len(sources) == 1 and not Path(sources[0]).is_dir() and Path(sources[0]).name != "summary.json":
        pairs = pairs_from(load_scenario(sources[0]), prices)
        if pairs:
            return compare_pairs(pairs) if len(pairs) > 1 else compare(pairs[0])
    for source in sources:
        found += candidates_from(source, prices, is_alone=len(sources) == 1)
    if len(found) < 2:
        remedy = "name a second scenario, or write compare: {baseline: {path: value}} into the file"
        raise InputError(Fault(what="nothing to compare with", remedy=remedy))
    return compare(found)


def _print(comparison: Comparison) -> None:
    from rich.table import Table
    from rich.text import Text

    from sim.cli.terminal import console
    from sim.units import format_seconds

    out = console()
    if len(comparison.candidates) > _MAX_COLUMNS:
        _print_lines(comparison)
    else:
        _print_columns(comparison)
    for difference in comparison.differences:
        for title, parts in (("stage", difference.stages), ("resource", difference.resources)):
            changed = [part for part in parts if abs(part.difference_s) > 1e-9]
            if not changed:
                continue
            out.print()
            out.print(Text(f"{difference.candidate.name} against {difference.baseline.name}, by {title}", style="bold"))
            rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for name in (title, "baseline", "this", "difference"):
                rows.add_column(name, justify="left" if name == title else "right", header_style="dim")
            for part in changed[:_MAX_PARTS]:
                style = "red" if part.difference_s > 0 else "green"
                sign = "+" if part.difference_s > 0 else "-"
                rows.add_row(
                    Text(part.name),
                    format_seconds(part.baseline_s),
                    format_seconds(part.other_s),
                    Text(f"{sign}{format_seconds(abs(part.difference_s))}", style=style),
                )
            out.print(rows)


def _print_columns(comparison: Comparison) -> None:
    """A column for each candidate."""
    from rich.table import Table
    from rich.text import Text

    from sim.cli.terminal import console
    from sim.study.compare_table import comparison_rows, heads

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, name in enumerate(heads(comparison)):
        table.add_column(Text(name), justify="left" if index == 0 else "right", header_style="bold", overflow="fold")
    for row in comparison_rows(comparison):
        table.add_row(Text(row[0], style="dim"), *(Text(cell) for cell in row[1:]))
    console().print(table)


def _print_lines(comparison: Comparison) -> None:
    """A line for each of many candidates; memory by tier is left to CSV and Markdown."""
    from rich.table import Table
    from rich.text import Text

    from sim.cli.terminal import console, fitting_console
    from sim.study.compare_table import comparison_rows, heads

    rows = [row for row in comparison_rows(comparison) if not row[0].startswith("memory ")]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for name, *_cells in rows:
        table.add_column(Text(name), justify="right", header_style="dim", overflow="fold")
    for index, name in enumerate(heads(comparison)[1:]):
        table.add_row(Text(name, style="bold"), *(Text(row[1 + index]) for row in rows))
    (fitting_console(table) or console()).print(table)


def _draw(comparison: Comparison, folder: Path) -> list[str]:
    from sim.report.waterfall import draw_waterfall

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for index, difference in enumerate(comparison.differences, start=1):
        if difference.ratio != difference.ratio or not difference.stages:  # NaN: a side without a time
            continue
        base, other = difference.baseline, difference.candidate
        least_s = 1e-4 * max(base.seconds, other.seconds)  # what a bar can show
        parts = [(part.name, part.difference_s) for part in difference.stages if abs(part.difference_s) > least_s]
        name = f"waterfall-{index}.png"
        finding = f"{other.name} against {base.name}: {difference.verdict}"
        draw_waterfall((base.name, base.seconds), (other.name, other.seconds), parts, folder / name, finding=finding)
        written.append(name)
    return written


def _over_recording(sources: list[str], recording: Path, out: Path | None, *, is_json: bool) -> int:
    from sim.cli.terminal import console, plain_table
    from sim.config import load_scenario
    from sim.errors import Fault, InputError
    from sim.probe.record import read_recording
    from sim.study.recording import lay_over

    if len(sources) != 1:
        raise InputError(Fault(what="a recording is laid over one scenario", remedy="name exactly one"))
    rows = lay_over(load_scenario(sources[0]).resolve(), read_recording(recording))
    if is_json:
        import json

        typer.echo(
            json.dumps({"scenario": sources[0], "recording": str(recording), "rows": [row.to_json() for row in rows]}, indent=2)
        )
    else:
        table = plain_table("Quantity", "predicted", "recorded", "predicted / recorded")
        for row in rows:
            table.add_row(row.name, *row.cells())
        console().print(table)
    if out is not None:
        from sim.report.recording import draw_recording

        out.mkdir(parents=True, exist_ok=True)
        series = [(row.name, row.unit, row.samples, row.steps) for row in rows]
        draw_recording(series, out / "recording.png", finding=f"{Path(recording).name} against the prediction of {sources[0]}")
        print(f"{out}: recording.png", file=sys.stderr)  # noqa: T201 - messages go to standard error
    return 0
