"""Replay on another machine against published measurements of one program on two machines.

No pair of recordings of one program on two machines is public, so the recording is a simulated one: what the profiler would
have written on the source machine (`tests/kineto_recording.py`). What is compared with measurements is the ratio of times
that the replay predicts, which rests on the importer, on the laws of scaling kernels, and on collectives simulated anew; once
with the operators' shapes recorded, once with the names of kernels alone.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sim import experiment
from sim.config import scenario_of
from sim.study.row_files import read_rows
from sim.study.validation_rows import Row
from tests.kineto_recording import recording_of

TABLES = Path(__file__).parents[2] / "scenarios" / "validation"
#: what is recorded of a decode: tokens after the prompt
TOKENS = 6
TRAINING = ("tokens_per_s_per_gpu", "samples_per_s")
#: programs of the quick test
QUICK = ("llm-foundry/h100-bf16/1b-s4096", "llm-foundry/h100-bf16/3b-s16384", "nvidia-megatron-bridge/gb200/llama-3-8b",
         "gpu-benchmarks-llm/decode/3090-7b-q4_0")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Pair:
    """One program on two machines: ratios of times, of the second to the first."""

    name: str
    measured: float
    simulated: float  # both machines simulated directly
    replayed: dict[bool, float]  # by whether shapes were recorded
    own: dict[bool, float]  # replay on the source over its recorded time

    def error(self, has_shapes: bool) -> float:
        return abs(self.replayed[has_shapes] / self.measured - 1.0)


def programs(*metrics: str) -> list[list[Row]]:
    """Measured rows with equal inputs but for the machine."""
    rows = read_rows([TABLES / family for family in ("training_no_offload", "training_moe", "inference")])
    alike: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.metric in metrics and row.kind == "scenario" and not row.missing and not row.doubtful:
            rest = {key: value for key, value in row.inputs.items() if key != "topology"}
            machine = json.dumps(row.inputs.get("topology"), sort_keys=True)
            if "apple" not in machine and "mac-" not in machine:
                alike[json.dumps([row.publication, row.metric, rest], sort_keys=True)].setdefault(machine, row)
    return [list(found.values()) for found in alike.values() if len(found) > 1]


def simulated(row: Row) -> experiment.Result:
    inputs: Any = copy.deepcopy(dict(row.inputs))
    if "inference" in inputs["workload"]:
        inputs["workload"]["inference"]["output_length"] = TOKENS
    scenario = scenario_of({**inputs, "name": "source"}, file=row.file).resolve()
    options = dataclasses.replace(scenario.options, level="full", is_whole=True)
    return experiment.run(dataclasses.replace(scenario, options=options), with_penalty=False)


def replay_s(file: Path, part: str, row: Row) -> float:
    block = {
        "name": "replay",
        "topology": row.inputs["topology"],
        "workload": {"trace": {"file": str(file), "source_part": part}},
    }
    return experiment.run(scenario_of(block, file=row.file).resolve(), with_penalty=False).summary.step_time_s


def pairs(rows: list[Row], folder: Path) -> Iterator[Pair]:
    results = {row.id: simulated(row) for row in rows}
    is_decode = rows[0].metric == "decode_tokens_per_s"
    for source, target in itertools.permutations(rows, 2):
        here, there = results[source.id], results[target.id]
        machine = here.scenario.machine
        part = machine.device(machine.gpus()[0]).part_name
        spent = [r.inference.time_per_output_token_s if r.inference else r.summary.step_time_s for r in (here, there)]
        replayed, own = {}, {}
        for has_shapes in (True, False):
            file = folder / "recording.json"
            file.write_bytes(recording_of(here, part, has_shapes=has_shapes, phase="decode" if is_decode else ""))
            first_s = replay_s(file, part, source)
            replayed[has_shapes] = replay_s(file, part, target) / first_s
            own[has_shapes] = 1.0 if is_decode else first_s / here.summary.step_time_s
        # every metric is a rate: its inverse is a time
        yield Pair(f"{source.id} -> {target.id}", source.measured / target.measured, spent[1] / spent[0], replayed, own)


def median_errors(found: list[Pair]) -> dict[bool, float]:
    return {has_shapes: statistics.median(pair.error(has_shapes) for pair in found) for has_shapes in (True, False)}


def test_a_replay_on_another_machine_is_near_the_measured_ratio(tmp_path: Path) -> None:
    wanted = [rows for rows in programs(*TRAINING, "decode_tokens_per_s") if any(r.id.startswith(QUICK) for r in rows)]
    found = [pair for rows in wanted for pair in pairs(rows[:2], tmp_path)]
    assert len(found) == 8
    errors = median_errors(found)
    assert errors[True] < 0.10
    assert errors[False] < 0.12
    # the replay on the source gives the recorded time back, elsewhere about what the direct simulation says
    assert max(abs(own - 1.0) for pair in found for own in pair.own.values()) < 0.02
    assert statistics.median(abs(pair.replayed[True] / pair.simulated - 1.0) for pair in found) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize(("metrics", "least", "limit"), [(TRAINING, 50, 0.06), (("decode_tokens_per_s",), 100, 0.15)])
def test_replays_of_all_published_pairs_meet_the_bar(
    metrics: tuple[str, ...], least: int, limit: float, tmp_path: Path
) -> None:
    found = [pair for rows in programs(*metrics) for pair in pairs(rows, tmp_path)]
    for pair in found:
        errors = ", ".join(f"{pair.replayed[has_shapes] / pair.measured - 1.0:+.1%}" for has_shapes in (True, False))
        print(f"{pair.name}: measured {pair.measured:.3f}, with shapes and by names {errors}")  # shown with -s
    assert len(found) >= least
    assert all(error < limit for error in median_errors(found).values())
