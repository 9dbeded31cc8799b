"""`tiersim sensitivity`: what each resource is worth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sim.study.sensitivity import Sensitivity, SensitivityStudy

_MAX_ROWS = 20
_SHOWN = 0.0005


def command(
    scenario: Annotated[str, typer.Argument(help="A scenario file or built-in name.", show_default=False)],
    step: Annotated[float, typer.Option(help="Less and more of each resource; 0.1 is 10 %.", min=0.001, max=0.9)] = 0.1,
    break_even: Annotated[bool, typer.Option("--break-even", help="Find where each resource stops binding.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the tornado picture.", show_default=False)] = None,
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> int:
    """Scale every channel, tier and device of the machine, past the lint, and see what the step time does.

    Of a sweep, the first point is taken.

    Example: tiersim sensitivity a12-reference-box --break-even
    """
    from sim.cli.progress import progress
    from sim.config import load_scenario
    from sim.study.pool import Processes, Serial
    from sim.study.sensitivity import sensitivity

    file = load_scenario(scenario)
    first = next(iter(file.plan), None) if file.plan else None
    with progress(file.name, 100) as advance:
        study = sensitivity(
            file,
            first.overlay if first else None,
            step=step,
            with_break_even=break_even,
            backend=Serial() if workers == 1 else Processes(workers),
            on_progress=lambda done, total: advance(round(100 * done / total)),
        )
    if is_json:
        import json

        typer.echo(json.dumps(study.to_json(), indent=2))
    else:
        _print(study)
    if out is not None:
        from sim.report.tornado import draw_tornado

        out.mkdir(parents=True, exist_ok=True)
        bars = [(row.knob.name, row.low, row.high) for row in study.rows if row.reach > _SHOWN]
        draw_tornado(bars, out / "tornado.png", step_share=step, finding=f"{study.scenario}: {study.finding}")
        print(f"{out}: tornado.png", file=sys.stderr)  # noqa: T201 - messages go to standard error
    return 0


def _print(study: SensitivityStudy) -> None:
    from rich.text import Text

    from sim.cli.terminal import console, plain_table
    from sim.units import format_seconds

    out = console()
    share = f"{100 * study.step:.3g} %"
    verdict = "" if study.fits else " (does not fit: as if it did)"
    out.print(Text(f"{study.scenario}: {format_seconds(study.step_time_s)}{verdict}; {study.finding}", style="bold"))
    has_edges = any(row.break_even for row in study.rows)
    table = plain_table(
        "Resource", "has", f"{share} less", f"{share} more", "double", *(["stops binding at"] if has_edges else [])
    )
    shown = [row for row in study.rows if row.reach > _SHOWN or row.break_even][:_MAX_ROWS]
    for row in shown:
        cells = [_quantity(row, 1.0), *(f"{100 * change:+.1f} %" for change in (row.low, row.high, row.double))]
        mark = "" if row.is_monotone else "  (not monotone)"
        table.add_row(row.knob.name + mark, *cells, *([_edge(row)] if has_edges else []))
    out.print(table)
    if len(shown) < len(study.rows):
        out.print(f"{len(study.rows) - len(shown)} more resources change the step by less than {100 * _SHOWN:.2g} %")


def _edge(row: Sensitivity) -> str:
    edge = row.break_even
    if edge is None:
        return ""
    if edge.factor is None:
        return "beyond 64x"
    mark = "" if edge.is_single else " (crosses more than once)"
    below = "below " if edge.factor <= 1 / 64 else ""
    return f"{below}{_quantity(row, edge.factor)}  ({edge.factor:.3g}x){mark}"


def _quantity(row: Sensitivity, factor: float) -> str:
    from sim.units import format_bandwidth, format_bytes, format_flops, format_seconds

    value = row.knob.value * factor
    formats = {"bandwidth": format_bandwidth, "capacity": format_bytes, "compute": format_flops, "latency": format_seconds}
    return formats[row.knob.quantity](value) if row.knob.quantity in formats else f"{value:.3g} cores"
