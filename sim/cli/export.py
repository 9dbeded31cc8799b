"""`tiersim export`: what tiersim simulated, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sim.experiment import Result

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Write what was simulated for other tools.

    Example: tiersim export timeline a12-reference-box -o step.json.gz
    """


@app.command()
def timeline(
    scenario: Annotated[str, typer.Argument(help="scenario file or built-in name", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write; .gz is compressed")] = Path("timeline.json.gz"),
) -> None:
    """Write the simulated step as a timeline that ui.perfetto.dev opens.

    Example: tiersim export timeline a12-reference-box -o step.json.gz
    """
    from sim.interchange.perfetto import write_timeline

    result = _run(scenario)
    written = write_timeline(result.program, result.replay, output)
    if written.summarised:
        typer.echo(f"summarised: {written.summarised}", err=True)
    typer.echo(f"{output}: {written.num_events:,} events; open it at https://ui.perfetto.dev")


@app.command()
def chakra(
    scenario: Annotated[str, typer.Argument(help="scenario file or built-in name", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write")] = Path("chakra"),
    ranks: Annotated[int, typer.Option(min=1, help="write only the first N ranks", show_default="all")] = 2**31,
) -> None:
    """Write a MLCommons Chakra trace per rank, with MEM_LOAD and MEM_STORE nodes between memory tiers.

    Example: tiersim export chakra a12-reference-box -o traces
    """
    import msgspec

    from sim.interchange.chakra import write_trace
    from sim.interchange.chakra.write import traces_of
    from sim.interchange.one_rank import groups_of

    result = _run(scenario)
    _, seconds = _times(result)
    step = result.step
    world = sum(item.num_ranks for item in step.rank_classes)
    output.mkdir(parents=True, exist_ok=True)
    total = 0
    for rank, trace in traces_of(step, result.scenario.job.placement, seconds=seconds, ranks=range(min(ranks, world))).items():
        (output / f"{result.scenario.name}.{rank}.et").write_bytes(write_trace(trace))
        total += len(trace.nodes)
    named = {f"{name}{index}": item for name, lists in groups_of(step).items() for index, item in enumerate(lists)}
    (output / "comm_groups.json").write_bytes(msgspec.json.encode(named))
    typer.echo(f"{output}: {min(ranks, world)} of {world} ranks, {total:,} nodes, comm_groups.json")


@app.command(name="pytorch-et")
def pytorch_et(
    scenario: Annotated[str, typer.Argument(help="scenario file or built-in name", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder to write")] = Path("pytorch-et"),
    ranks: Annotated[int, typer.Option(min=1, help="write only the first N ranks")] = 1,
) -> None:
    """Write a PyTorch execution trace (JSON) per rank, with the simulated times that Chakra's converter reads.

    Example: tiersim export pytorch-et a12-reference-box -o traces
    """
    from sim.interchange.pytorch_et.write import documents_of, encoded

    result = _run(scenario)
    starts, seconds = _times(result)
    world = sum(item.num_ranks for item in result.step.rank_classes)
    count = min(ranks, world)
    found = documents_of(result.step, result.scenario.job.placement, starts, seconds, range(count))
    output.mkdir(parents=True, exist_ok=True)
    for rank, document in found.items():
        (output / f"{result.scenario.name}.{rank}.json").write_bytes(encoded(document))
    total = sum(len(document["nodes"]) for document in found.values())
    typer.echo(f"{output}: {count} of {world} ranks, {total:,} nodes")


@app.command()
def points(
    scenario: Annotated[str, typer.Argument(help="scenario file or built-in name whose sweep was run", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write: .csv or .parquet")] = Path("points.parquet"),
    folder: Annotated[Path | None, typer.Option(help="folder of its results", show_default="results/NAME")] = None,
) -> None:
    """Write the table of a sweep's points that `tiersim run` left in its folder, as CSV or Parquet (extra `table`).

    Example: tiersim export points ram-cliff -o points.parquet
    """
    from sim.errors import Fault, InputError
    from sim.study.export import write_csv, write_parquet
    from sim.study.study import Study

    writers = {".csv": write_csv, ".parquet": write_parquet}
    if output.suffix not in writers:
        raise InputError(Fault(what=f"cannot write {str(output)!r}", remedy="name a file that ends in .csv or .parquet"))
    study = Study(scenario, folder)
    num_points = sum(1 for _ in study.outcomes())
    output.parent.mkdir(parents=True, exist_ok=True)
    writers[output.suffix](study.outcomes, output)
    typer.echo(f"{output}: {num_points:,} points")


def _times(result: Result) -> tuple[dict[str, float], dict[str, float]]:
    """(start, duration) of each operation in s; its own latency comes before the start of its work: it is part of both."""
    latency_s = {operation.id: operation.latency_s for operation in result.program.operations}
    starts = {record.id: record.start_s - latency_s[record.id] for record in result.replay.operations}
    return starts, {record.id: record.end_s - starts[record.id] for record in result.replay.operations}


def _run(scenario: str) -> Result:
    """The only point of a scenario, replayed with all records."""
    import dataclasses

    from sim import experiment
    from sim.config import load_scenario
    from sim.errors import Fault, InputError

    points = list(load_scenario(scenario).expand())
    if len(points) != 1:
        what = f"the scenario has {len(points)} points"
        raise InputError(Fault(what=what, remedy="export one point: remove 'sweep'", file=scenario))
    point = dataclasses.replace(points[0], options=dataclasses.replace(points[0].options, level="full"))
    return experiment.run(point, with_penalty=False)
