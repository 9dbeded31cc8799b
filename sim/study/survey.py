"""Many recordings at a glance: read or refused, what is in them, and how well a replay gives the recorded time back.

Up to three errors per recording, all |replayed / recorded - 1|: of a step's own replay (a smoke test), of the replay of the
step of median duration against the recorded time of every other step, and of one rank's replay alone against the recorded
time of every other rank, from when the last of them had started. The latter two are of runs that the replay has not seen.

A recording that leaves much of its step unexplained (`kept_share`) agrees with itself because that time is copied: its
errors are shown, and left out of the medians.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import permutations
from pathlib import Path

import msgspec

from sim import experiment
from sim.config import load_machine
from sim.config.locate import builtins
from sim.errors import InputError, TiersimError
from sim.interchange.load import Recorded, open_trace
from sim.interchange.statistics import statistics as statistics_of
from sim.records import Step
from sim.scenario import Job, Scenario
from sim.topology.machine import Machine

#: machine for recordings whose GPU is in no built-in topology: kernels keep their times, copies cross its PCIe 4 link
FALLBACK = "dgx-a100"
#: largest share of a step that may be kept as recorded for its errors to mean anything
MOST_KEPT = 0.1
#: a step shorter than this is a fixture, not a measurement
_SHORTEST_S = 1e-4


class SurveyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recording. Times in s, sizes in bytes, errors as fractions; None where there is nothing to compare."""

    file: str
    verdict: str  # "read", or "refused"
    message: str = ""  # why refused, or why there is no replay
    origin: str = ""
    source_part: str = ""
    num_ranks: int = 0
    num_operations: int = 0
    to_gpu_bytes: float = 0.0
    to_host_bytes: float = 0.0
    collective_bytes: float = 0.0
    num_steps: int = 0
    machine: str = ""
    recorded_s: float = 0.0
    kept_share: float = 0.0  # of the step: recorded time that nothing explains, replayed as it was
    replayed_s: float | None = None
    error: float | None = None  # median over steps
    other_step_error: float | None = None  # median over the steps other than the chosen one
    step_spread: float | None = None  # the chosen step's recorded time against the others': what no replay of one step can beat
    other_rank_error: float | None = None  # median over ordered pairs of ranks


def survey(paths: Iterable[str | Path], *, on: str = "") -> Iterator[SurveyRow]:
    """A row per file (a tar archive is one recording of several ranks).

    `on` names the machine for the replay; default: a built-in one with the recording's GPU, else `FALLBACK` with kernels
    as recorded. Never raises for what is wrong with a file.
    """
    for path in paths:
        try:
            yield _row(path, on)
        except InputError as error:
            yield SurveyRow(file=str(path), verdict="refused", message=str(error.faults[0] if error.faults else error))


def is_explained(row: SurveyRow) -> bool:
    """Whether the replay of a recording follows from its events rather than from time that it keeps."""
    return row.kept_share <= MOST_KEPT


def medians(rows: Sequence[SurveyRow]) -> dict[str, tuple[float, int]]:
    """Error by name -> (median over the explained recordings that have it, their number)."""
    found = {}
    for name in ("error", "other_step_error", "step_spread", "other_rank_error"):
        errors = [error for row in rows if is_explained(row) and (error := getattr(row, name)) is not None]
        if errors:
            found[name] = (statistics.median(errors), len(errors))
    return found


def _row(path: str | Path, on: str) -> SurveyRow:
    recorded = open_trace(path)
    step = recorded.step()
    found = statistics_of(step)
    moved = found.bytes_by_direction
    row = SurveyRow(
        file=str(path), verdict="read", origin=found.origin, source_part=found.source_part, num_ranks=found.num_ranks,
        num_operations=sum(found.num_operations.values()), num_steps=recorded.num_steps, recorded_s=step.source_step_s,
        kept_share=min(1.0, found.kept_s / step.source_step_s) if step.source_step_s else 0.0,
        to_gpu_bytes=sum(size for way, size in moved.items() if "-> gpu" in way),
        to_host_bytes=sum(size for way, size in moved.items() if way.startswith("gpu ->")),
        collective_bytes=sum(size for way, size in moved.items() if "->" not in way),
    )  # fmt: skip
    if step.source_step_s < _SHORTEST_S:
        return row
    try:
        return _replayed(row, recorded, on)
    except TiersimError as error:
        return msgspec.structs.replace(row, message=f"not replayed: {error}")


def _replayed(row: SurveyRow, recorded: Recorded, on: str) -> SurveyRow:
    times: list[tuple[float, float]] = []
    machine = _machine(recorded.step(), on)
    for number in range(recorded.num_steps):
        step = recorded.step(number)
        if step.source_step_s >= _SHORTEST_S:
            times.append((step.source_step_s, replay_s(step, machine)))
    chosen = min(range(len(times)), key=lambda index: abs(times[index][0] - row.recorded_s))
    others = [measured for index, (measured, _) in enumerate(times) if index != chosen]
    spread, other = ([abs(time / measured - 1.0) for measured in others] for time in times[chosen])
    return msgspec.structs.replace(
        row, machine=machine.name, replayed_s=times[chosen][1],
        error=statistics.median(abs(replayed / measured - 1.0) for measured, replayed in times),
        other_step_error=statistics.median(other) if other else None,
        step_spread=statistics.median(spread) if spread else None, other_rank_error=_between_ranks(recorded, machine),
    )  # fmt: skip


def _between_ranks(recorded: Recorded, machine: Machine) -> float | None:
    """Median error of predicting a rank's step from the trace of another rank of the job."""
    if len(recorded.readings) < 2:
        return None
    alone = [recorded.of_rank(number) for number in range(len(recorded.readings))]
    delays_s = recorded.start_delays_s()
    measured = [step.source_step_s + delay_s - max(delays_s) for step, delay_s in zip(alone, delays_s, strict=True)]
    replayed = [replay_s(step, machine) for step in alone]
    return statistics.median(abs(replayed[i] / measured[j] - 1.0) for i, j in permutations(range(len(alone)), 2))


def replay_s(step: Step, machine: Machine) -> float:
    """Seconds that a recorded step takes on a machine; kernels keep their times if the machine lacks the recording's part."""
    gpus = machine.gpus()
    parts = {machine.device(gpu).part_name for gpu in gpus}
    if step.source_part not in parts:
        step = msgspec.structs.replace(step, source_part=machine.device(gpus[0]).part_name)
    world = sum(item.num_ranks for item in step.rank_classes)
    nodes = -(-world // len(gpus))
    machine = dataclasses.replace(machine, num_nodes=max(machine.num_nodes, nodes))
    scenario = Scenario(name=step.name, machine=machine, jobs=(Job(workload=step),))
    return experiment.run(scenario, with_penalty=False).summary.step_time_s


def _machine(step: Step, on: str) -> Machine:
    world = sum(item.num_ranks for item in step.rank_classes)
    return load_machine(on or _holding(step.source_part, world) or FALLBACK)


@cache
def _holding(part: str, num_ranks: int) -> str:
    """Built-in topology with that GPU: the smallest with a GPU for each rank, else the largest; "" if there is none."""
    if not part:
        return ""
    named = re.compile(rf"part: {re.escape(part)}[,}}\s]")
    names = [name for name, path in builtins("topologies").items() if named.search(path.read_text(encoding="utf-8"))]
    machines = sorted((load_machine(name) for name in names), key=lambda machine: (len(machine.gpus()), machine.name))
    enough = [machine for machine in machines if len(machine.gpus()) >= num_ranks]
    joinable = [machine for machine in machines if any(device.kind == "nic" for device in machine.devices.values())]
    return enough[0].name if enough else joinable[-1].name if joinable else ""
