"""`tiersim trace`: look into trace files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sim.study.survey import SurveyRow

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Look into trace files.

    Example: tiersim trace stat rank0.pt.trace.json.gz
    """


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


@app.command()
def survey(
    files: Annotated[list[Path], typer.Argument(help="recordings; a tar = the ranks of one job", show_default=False)],
    on: Annotated[str, typer.Option("--on", help="machine for the replay; default: a built-in one with the same GPU")] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Tabulate recordings: read or refused, operations, bytes, and how well a replay gives the recorded time back.

    Example: tiersim trace survey recordings/*.json.gz
    """
    from sim.errors import Fault, InputError
    from sim.study.survey import MOST_KEPT, is_explained, medians
    from sim.study.survey import survey as survey_of

    if missing := [Fault(what="no such file", file=str(file)) for file in files if not file.exists()]:
        raise InputError(missing)
    rows = []
    if not is_json:
        typer.echo(_SURVEY_HEAD)
    for row in survey_of(files, on=on):
        rows.append(row)
        if not is_json:
            typer.echo(_survey_line(row))
    if is_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    for name, (error, count) in medians(rows).items():
        typer.echo(f"median {name.replace('_', ' '):<17} {error:.1%} over {count} recordings")
    left_out = sum(not is_explained(row) for row in rows)
    if left_out:
        typer.echo(f"left out of the medians: {left_out} that keep more than {MOST_KEPT:.0%} of their step as recorded")


_SURVEY_HEAD = (
    f"{'recording':<44} {'ranks':>5} {'operations':>10} {'to GPU':>9} {'to host':>9} {'collective':>10} "
    f"{'steps':>5} {'recorded':>9} {'kept':>5} {'error':>6} {'step':>6} {'rank':>6}  replayed on"
)


def _survey_line(row: SurveyRow) -> str:
    from sim.units import format_bytes, format_seconds

    name = Path(row.file).name
    name = name if len(name) <= 44 else name[:43] + "…"
    if row.verdict != "read":
        return f"{name:<44} refused: {row.message.removeprefix(row.file).lstrip(': ')}"
    sizes = (format_bytes(size) if size else "-" for size in (row.to_gpu_bytes, row.to_host_bytes, row.collective_bytes))
    to_gpu, to_host, collective = sizes
    errors = [f"{error:.1%}" if error is not None else "-" for error in (row.error, row.other_step_error, row.other_rank_error)]
    time = format_seconds(row.recorded_s) if row.recorded_s else "-"
    counts = f"{name:<44} {row.num_ranks:>5} {row.num_operations:>10,} {to_gpu:>9} {to_host:>9} {collective:>10}"
    own, step, rank = errors
    kept = f"{row.kept_share:.0%}" if row.kept_share >= 0.005 else "-"
    return f"{counts} {row.num_steps:>5} {time:>9} {kept:>5} {own:>6} {step:>6} {rank:>6}  {row.machine or row.message or '-'}"


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
    if found.kept_s:
        lines.append(f"kept as recorded   {format_seconds(found.kept_s):>10}  (nothing in the recording explains it)")
    lines += [f"inferred           {note}" for note in found.notes]
    return lines
