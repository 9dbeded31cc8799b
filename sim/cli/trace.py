"""`tiersim trace`: look into trace files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Look into trace files.")


@app.callback()
def _group() -> None:
    """Look into trace files."""


@app.command()
def stat(
    files: Annotated[list[Path], typer.Argument(help="trace of any kind; several = the ranks of one job", show_default=False)],
    step: Annotated[int | None, typer.Option(help="recorded step, from 0; default: the one of median duration")] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Print operations, bytes by direction, busy times and what was inferred.

    Example: tiersim trace stat rank0.pt.trace.json.gz
    """
    from sim.interchange.load import load_trace
    from sim.interchange.statistics import statistics

    found = statistics(load_trace(list(files), step=step))
    if is_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    for line in lines_of(found):
        typer.echo(line)


def lines_of(found: object) -> list[str]:
    """The statistics as text, one fact a line."""
    from sim.interchange.statistics import TraceStatistics
    from sim.units import format_bytes, format_flops, format_seconds

    assert isinstance(found, TraceStatistics)
    lines = [f"{found.name}: {found.origin}, {found.num_ranks} rank(s), recorded on {found.source_part or 'an unnamed part'}"]
    if found.source_step_s:
        lines.append(f"recorded step      {format_seconds(found.source_step_s)}")
    listed = ", ".join(f"{count:,} {kind}" for kind, count in found.num_operations.items())
    lines.append(
        f"operations         {sum(found.num_operations.values()):,} ({listed}), {found.num_dependencies:,} dependencies"
    )
    for direction, size in found.bytes_by_direction.items():
        lines.append(
            f"moved              {format_bytes(size):>10}  {direction}, {found.num_by_direction[direction]:,} operations"
        )
    for kind, seconds in found.kernel_s.items():
        lines.append(f"kernels            {format_seconds(seconds):>10}  {kind}")
    if found.flops:
        lines.append(f"FLOPs from shapes  {format_flops(found.flops).replace('FLOP/s', 'FLOP')}")
    lines += [f"busy               {format_seconds(seconds):>10}  {stream}" for stream, seconds in found.busy_s.items()]
    lines += [f"inferred           {note}" for note in found.notes]
    return lines
