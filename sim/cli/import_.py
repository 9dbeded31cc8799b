"""`tiersim import`: foreign files in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Read foreign files: recordings, machines, measurements.")


@app.callback()
def _group() -> None:
    """Read foreign files: recordings, machines, measurements."""


@app.command()
def trace(
    files: Annotated[
        list[Path], typer.Argument(help="recording; several, or a tar = the ranks of one job", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="trace file to write; default: beside the input")
    ] = None,
    step: Annotated[int | None, typer.Option(help="recorded step, from 0; default: the one of median duration")] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="tensor class of recorded copies: 'h2d phase=update min=1MB = optimizer_states'", show_default=False),
    ] = None,
    source_part: Annotated[str, typer.Option(help="GPU it was recorded on, if the file does not say")] = "",
    ranks: Annotated[int, typer.Option(min=0, help="ranks of the job, where the file does not say")] = 0,
    element_bytes: Annotated[
        float, typer.Option(min=0, help="bytes per element, for Chakra files that count elements (STAGE)")
    ] = 1.0,
) -> None:
    """Turn a PyTorch profiler trace, a PyTorch execution trace or a Chakra file into a tiersim trace.

    Example: tiersim import trace rank0.pt.trace.json.gz -o step.jsonl
    """
    from sim.cli.trace import lines_of
    from sim.interchange.load import load_trace
    from sim.interchange.rules import parse_rules
    from sim.interchange.statistics import statistics
    from sim.interchange.step_file import write_step

    loaded = load_trace(
        list(files),
        step=step,
        rules=parse_rules(rule or ()),
        source_part=source_part,
        num_ranks=ranks,
        element_bytes=element_bytes,
    )
    target = output or files[0].with_name(files[0].name.split(".")[0] + ".step.jsonl")
    write_step(loaded, target)
    for line in lines_of(statistics(loaded)):
        typer.echo(line, err=True)
    typer.echo(str(target))
