"""Error of the training step against the published tables: python -m tests.benchmarks.training_accuracy [options] [PATTERN...]

Reads scenarios/validation/training_*/ and predicts every row with times. PATTERN selects publications or row ids by a
part of their name. --every N takes each N-th row, --rows prints every row, --phases the phases too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.config import scenario_of
from sim.engine import replay
from sim.errors import TiersimError
from sim.experiment import prepare
from sim.metrics.phases import phase_seconds
from sim.study.row_files import read_rows
from sim.study.validation_rows import Row
from sim.workload.training import Training

FOLDER = Path(__file__).parents[2] / "scenarios" / "validation"
FAMILIES = ("training_no_offload", "training_moe", "training_offload")
PHASES = ("forward", "backward", "update")
#: metrics of which a larger value means a shorter step
RATES = ("tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "hardware_tflops_per_gpu", "samples_per_s")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Predicted / measured seconds of one row, minus 1."""

    row: Row
    error: float
    predicted_s: float


def predicted(row: Row) -> tuple[float, dict[str, float], Training, float]:
    """Step time, seconds by phase, the job, and the model FLOPs of the step."""
    scenario = scenario_of({**row.inputs, "name": "row"}, file=row.file).resolve()
    step, program = prepare(scenario)
    replayed = replay(program, capacity="observe")
    workload = scenario.job.workload
    assert isinstance(workload, Training)
    return replayed.makespan_s, dict(phase_seconds(program, replayed)), workload, step.model_flops


def measured_seconds(row: Row, training: Training, model_flops: float) -> float:
    """The published value as seconds of a step (or phase)."""
    split = training.parallelism
    ranks = split.data * split.tensor * split.pipeline * split.context
    tokens = training.batch_size * training.sequence_length * training.gradient_accumulation * split.data
    recompute = 4 / 3 if training.checkpointing.active and training.checkpointing.mode == "full" else 1.0
    match row.metric:
        case "tokens_per_s":
            return tokens / row.measured
        case "tokens_per_s_per_gpu":
            return tokens / ranks / row.measured
        case "samples_per_s":
            return tokens / training.sequence_length / row.measured
        case "tflops_per_gpu":
            return model_flops / ranks / row.measured
        case "hardware_tflops_per_gpu":
            return recompute * model_flops / ranks / row.measured
    return row.measured


def outcomes(rows: Iterable[Row], *, is_loud: bool = False) -> list[Outcome]:
    """Predict rows that share inputs once."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.metric in ("step_time", *PHASES, *RATES) and not row.missing:
            groups.setdefault(row.run_key, []).append(row)
    found = []
    for group in groups.values():
        try:
            step_s, phases, training, flops = predicted(group[0])
        except TiersimError as error:
            print(f"{group[0].id}: {type(error).__name__}: {str(error)[:160]}")
            continue
        for row in group:
            value = phases.get(row.metric, 0.0) if row.metric in PHASES else step_s
            found.append(Outcome(row, value / measured_seconds(row, training, flops) - 1, value))
        if is_loud:
            line = " ".join(f"{item.row.metric}={item.predicted_s:.3g}s {item.error:+.1%}" for item in found[-len(group) :])
            print(f"{group[0].id[:70]:70s} {line}{'  DOUBTFUL' if group[0].doubtful else ''}")
    return found


def line_of(name: str, errors: Sequence[float]) -> str:
    """One row of the error table."""
    size = sorted(abs(error) for error in errors)
    return (
        f"{name:44s} {len(size):4d} {statistics.median(size):7.1%} {size[int(0.9 * (len(size) - 1))]:7.1%} "
        f"{statistics.mean(size):7.1%} {statistics.mean(errors):+7.1%} {size[-1]:7.1%}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--phases", action="store_true")
    options = parser.parse_args()
    rows = [row for row in read_rows([FOLDER / family for family in FAMILIES]) if row.kind == "scenario"]
    if options.patterns:
        rows = [row for row in rows if any(pattern in f"{row.family}/{row.id}" for pattern in options.patterns)]
    keys = list(dict.fromkeys(row.run_key for row in rows))
    chosen = set(keys[:: options.every])
    start = time.perf_counter()
    found = outcomes((row for row in rows if row.run_key in chosen), is_loud=options.rows)
    print(f"{'publication':44s} {'n':>4s} {'median':>7s} {'p90':>7s} {'mean':>7s} {'bias':>7s} {'worst':>7s}   (step time)")
    table: dict[str, list[float]] = {}
    for item in found:
        if item.row.doubtful:
            continue
        key = item.row.metric if item.row.metric in PHASES else "step"
        if key == "step" or options.phases:
            suffix = "" if key == "step" else f" {key}"
            table.setdefault(f"{item.row.family.removeprefix('training_')}/{item.row.publication}{suffix}", []).append(
                item.error
            )
            table.setdefault(f"{item.row.family.removeprefix('training_')} ALL{suffix}", []).append(item.error)
    for name, errors in sorted(table.items()):
        print(line_of(name, errors))
    print(f"{len(chosen)} runs in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
