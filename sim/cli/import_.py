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


@app.command()
def machine(
    output: Annotated[Path, typer.Option("-o", "--output", help="topology file to write")] = Path("machine.yaml"),
    name: Annotated[str, typer.Option(help="name of the machine; default the output's")] = "",
    gpu: Annotated[str, typer.Option(help="part of the GPUs where no file names it; see `tiersim list parts`")] = "",
    hwloc: Annotated[list[Path] | None, typer.Option(help="lstopo FILE.xml (hwloc 2 or 3)", show_default=False)] = None,
    topo: Annotated[list[Path] | None, typer.Option(help="nvidia-smi topo -m", show_default=False)] = None,
    mlc: Annotated[list[Path] | None, typer.Option(help="Intel Memory Latency Checker", show_default=False)] = None,
    stream: Annotated[list[Path] | None, typer.Option(help="STREAM, or SuperBench's gpu-stream", show_default=False)] = None,
    nvbandwidth: Annotated[list[Path] | None, typer.Option(help="nvbandwidth, text or -j", show_default=False)] = None,
    copies: Annotated[
        list[Path] | None, typer.Option(help="bandwidthTest, rocm-bandwidth-test, gpu-copy", show_default=False)
    ] = None,
    nccl: Annotated[list[Path] | None, typer.Option(help="nccl-tests or rccl-tests, text or -J", show_default=False)] = None,
    fio: Annotated[list[Path] | None, typer.Option(help="fio --output-format=json", show_default=False)] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Combine what tools say about a machine into a topology file; each option may be given several times.

    Example: tiersim import machine --hwloc host.xml --topo topo.txt --mlc mlc.txt --nvbandwidth nvb.txt -o my-box.yaml
    """
    from sim.interchange.machines import read_figures, read_layout
    from sim.study.machine_import import document_of, machine_document, write_machine

    layouts = [read_layout(path, kind) for kind, paths in (("hwloc", hwloc), ("topo", topo)) for path in paths or ()]
    measured = {"mlc": mlc, "stream": stream, "nvbandwidth": nvbandwidth, "copies": copies, "nccl": nccl, "fio": fio}
    figures = [figure for kind, paths in measured.items() for path in paths or () for figure in read_figures(path, kind)]
    draft = machine_document(layouts, figures, gpu=gpu)
    name = name or output.stem
    write_machine(draft, name, output)
    if is_json:
        import json

        typer.echo(json.dumps(document_of(draft, name) | {"calibrated": draft.used, "file": str(output)}, indent=2))
        return
    typer.echo(f"devices     {', '.join(draft.devices)}")
    for line in draft.used:
        typer.echo(f"calibrated  {line}")
    for line in draft.assumptions:
        typer.echo(f"assumed     {line}")
    typer.echo(f"{output}: check it with `tiersim check {output}`; use it with `topology: {output}`")
