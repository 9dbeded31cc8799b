"""`tiersim calibrate`: this machine as a part file, a topology and a table of measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Option(help="Name of the machine; default its host name.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for the three files.")] = Path("results/calibration"),
    has_gpu: Annotated[bool, typer.Option("--gpu/--no-gpu", help="Measure the accelerator too, if PyTorch sees one.")] = True,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Measure this machine in about three minutes and write it as a topology; validate reads the measurements.

    Example: tiersim calibrate --name my-box --out my-box
    """
    from sim.probe.calibrate import measure_host
    from sim.probe.calibrate_gpu import has_accelerator, measure_gpu
    from sim.study.calibration import write_calibration
    from sim.units import format_bandwidth, format_seconds

    def say(text: str) -> None:
        print(f"measuring {text}", file=sys.stderr)  # noqa: T201 - messages go to standard error

    host = measure_host(say=say)
    gpu = measure_gpu(say=say) if has_gpu and has_accelerator() else None
    if has_gpu and gpu is None:
        print("no accelerator that PyTorch sees: host only", file=sys.stderr)  # noqa: T201
    paths = write_calibration(out, name or host.name, host, gpu)
    if is_json:
        import json

        from sim.study.calibration import parts_of

        typer.echo(json.dumps({"parts": parts_of(host, gpu), "files": [str(path) for path in paths]}, indent=2))
        return
    triad = format_bandwidth(0.75 * host.stream_bytes_per_s["triad"])
    as_stream = {"triad": f", {triad} as STREAM counts (without the lines that stores read first)"}
    for kernel, rate in host.stream_bytes_per_s.items():
        typer.echo(f"host {kernel:<8} {format_bandwidth(rate)} on {host.cores} cores{as_stream.get(kernel, '')}")
    typer.echo(f"host latency  {format_seconds(host.latency_s)}")
    for count, seconds in host.adam_s.items():
        typer.echo(f"CPU Adam      {format_seconds(seconds)} for {count:,} elements ({host.adam_by})")
    if gpu is not None:
        for way in ("h2d", "d2h"):
            start, rate = gpu.copy_law(way)
            typer.echo(f"copy {way}      {format_bandwidth(rate)} after {format_seconds(start)}")
        for variant, seconds in gpu.steps_s.items():
            typer.echo(f"step {variant:<13} {format_seconds(seconds)}")
    typer.echo(f"notes: {'; '.join(host.notes)}")
    typer.echo(f"files: {', '.join(str(path) for path in paths)}")
    typer.echo(f"check them with: tiersim validate {paths[-1]}")
