"""One job from scenario to statistics: the whole step, or where its micro-batches only repeat, two shorter ones."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sim.experiment.overflow import swap_of
from sim.experiment.preparing import homes, prepare
from sim.kept import Kept
from sim.metrics import Summary, TierUse, summarise
from sim.metrics.inference import InferenceTimes, inference_times, mean_times
from sim.metrics.steady import extrapolated, repeats
from sim.metrics.summary import tier_uses
from sim.program.life import first_step, step_replays
from sim.records import Program, Replay, Step, TierPeak
from sim.scenario import Options, Scenario, Trace
from sim.workload.inference import Inference
from sim.workload.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What a job's replay came to; `note` says so where `program` and `replay` hold fewer micro-batches than the step."""

    step: Step
    program: Program
    replay: Replay
    summary: Summary
    times: InferenceTimes | None = None
    note: str = ""


def solve(scenario: Scenario) -> Solved:
    """Prepare, replay and sum up the only job of a scenario."""
    if (found := _repeated(scenario)) is not None:
        return found
    step, program = prepare(scenario)
    replay = replayed(program, scenario)
    summary, times = summarised(scenario, program, replay)
    return Solved(step=step, program=program, replay=replay, summary=summary, times=times)


#: (seconds, peaks of tiers) of programs that were replayed only for these, by what decides them
_TIMES: Kept[tuple[float, tuple[TierPeak, ...]]] = Kept(100_000, lambda _: 1)


def step_seconds(scenario: Scenario) -> tuple[float, dict[str, TierUse]]:
    """Seconds of the step of a scenario's only job, and the tiers at their peaks: those of :func:`solve`, bit for bit.

    Scenarios whose programs agree in what decides these share one replay.
    """
    if not isinstance(scenario.job.workload, Training) or scenario.options.verify or _shortened(scenario) is not None:
        summary = solve(scenario).summary
        return summary.step_time_s, summary.tiers
    from sim.engine.fingerprint import fingerprint

    program = prepare(scenario)[1]

    def times() -> tuple[float, tuple[TierPeak, ...]]:
        replay = replayed(program, scenario)
        return summarised(scenario, program, replay)[0].step_time_s, replay.tiers

    seconds, peaks = _TIMES.get((fingerprint(program), scenario.options.backend), times)
    return seconds, tier_uses(program, peaks)


def _repeated(scenario: Scenario) -> Solved | None:
    """The answer for a step with many micro-batches from two short replays, if they prove that the rest repeats."""
    if (shortened := _shortened(scenario)) is None:
        return None
    first, period, missing = shortened
    short_program, short = _replay_of(scenario, first)[1:]
    step, program, replay = _replay_of(scenario, first + period)
    if not repeats((short_program, short), (program, replay)):
        return None
    pairs = ((short_program, short), (program, replay))
    before, after = (summarise(msgspec.structs.replace(part, model_flops=0.0), seen) for part, seen in pairs)
    summary = extrapolated(before, after, missing / period, program)
    note = (
        f"the timeline, the records and the pictures over time show {first + period} of the step's "
        f"{first + period + missing} micro-batches: the others repeat; all totals are of the whole step"
    )
    return Solved(step=step, program=program, replay=replay, summary=summary, note=note)


def _shortened(scenario: Scenario) -> tuple[int, int, int] | None:
    """Micro-batches of the shorter replay, of one period, and of the rest; None for steps that are replayed as they are."""
    job, options = scenario.job, scenario.options
    workload = job.workload
    if options.is_whole or options.verify or not isinstance(workload, Training) or swap_of(job, scenario.machine):
        return None
    if "storage" in homes(job.placement, scenario.machine).values():  # equal paths through a drive: who owns them would differ
        return None
    first, period = _shortest(workload)
    missing = workload.gradient_accumulation - (first + period)
    return (first, period, missing) if missing >= first + period else None  # else nothing is gained


def _shortest(training: Training) -> tuple[int, int]:
    """Micro-batches of the shorter replay, and how many come with each period."""
    split = training.parallelism
    period = split.pipeline if split.interleave > 1 else 1
    rest = training.gradient_accumulation % period
    first = 4 if split.pipeline == 1 else 2 * split.pipeline + (split.pipeline if split.interleave > 1 else 2)
    return first + rest, period


def _replay_of(scenario: Scenario, num_micro_batches: int) -> tuple[Step, Program, Replay]:
    step, program = prepare(scenario, num_micro_batches)
    return step, program, replayed(program, scenario)


def replayed(program: Program, scenario: Scenario) -> Replay:
    """The program in time, checked where the scenario asks for it; equal ranks that are written out are replayed as one."""
    from sim.program.folding import fold

    folding = fold(program) if scenario.options.is_folded and _writes_ranks_out(scenario) else None
    return (
        _in_time(program, scenario.options) if folding is None else folding.unfold(_in_time(folding.program, scenario.options))
    )


def _writes_ranks_out(scenario: Scenario) -> bool:
    """Recordings of several ranks, and jobs that may equal each other: a generated step is folded when it is lowered."""
    return len(scenario.jobs) > 1 or isinstance(scenario.jobs[0].workload, (Step, Trace))


def _in_time(program: Program, options: Options) -> Replay:
    from sim.engine import replay, run_checked

    if options.verify:
        return run_checked(program, capacity="observe", backend=options.backend)
    return replay(program, level=options.level, backend=options.backend, capacity="observe")


def summarised(scenario: Scenario, program: Program, replay: Replay) -> tuple[Summary, InferenceTimes | None]:
    """Statistics of the replay; those of an inference cover the whole answer, not just the sampled tokens."""
    times = _inference(scenario, program, replay)
    is_sampled = times is not None and scenario.job.steps == 1  # several answers are written out whole
    return summarise(program, replay, stretch=times.stretch(replay) if times and is_sampled else None), times


def _inference(scenario: Scenario, program: Program, replay: Replay) -> InferenceTimes | None:
    workload = scenario.job.workload
    if not isinstance(workload, Inference):
        return None
    num_sequences, length = workload.batch_size * workload.num_batches, workload.output_length
    one = first_step(program) if scenario.job.steps > 1 else program
    answers = [
        inference_times(one, seen, output_length=length, num_sequences=num_sequences)
        for seen in step_replays(replay, scenario.job.steps)
    ]
    return mean_times(answers) if len(answers) > 1 else answers[0]
