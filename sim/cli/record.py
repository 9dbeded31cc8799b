"""`tiersim record`: sample this machine while a real command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sim.probe.record import HostSample


def command(
    words: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The command to run.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File for the samples (JSON Lines).")] = Path("recording.jsonl"),
    interval: Annotated[str, typer.Option(help="Time between samples.")] = "1 s",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no samples.")] = False,
) -> int:
    """Run a command and sample CPU, memory, disk and GPUs beside it, as top, free and nvidia-smi would show them.

    The exit code is the command's. Lay the file over a prediction with: tiersim compare SCENARIO --recording FILE

    Example: tiersim record --out run.jsonl -- python train.py
    """
    from sim.errors import Fault, InputError
    from sim.probe.record import record
    from sim.units import parse

    try:
        interval_s = parse(interval, "time")
    except ValueError as error:
        raise InputError(Fault(what=str(error), path="--interval")) from None
    code = record(words, out, interval_s=interval_s, on_sample=None if quiet else _show)
    print(f"{out}: samples every {interval}", file=sys.stderr)  # noqa: T201 - messages go to standard error
    return code


def _show(sample: HostSample) -> None:
    """One line per sample on standard error, so that the command's own output stays clean."""
    from sim.units import format_bytes, format_seconds

    cells = [f"{format_seconds(sample.time_s):>9}", f"CPU {100 * sample.cpu_busy:3.0f} %"]
    cells.append(f"command {sample.process_cores:4.1f} cores {format_bytes(sample.process_bytes):>9}")
    cells += [f"GPU{gpu.index} {100 * gpu.busy:3.0f} % {format_bytes(gpu.memory_used_bytes):>9}" for gpu in sample.gpus]
    print("  ".join(cells), file=sys.stderr)  # noqa: T201 - messages go to standard error
