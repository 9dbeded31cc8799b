"""How often each job of a scenario runs its step, so that an answer meets every phase of the jobs beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sim.experiment.together import Together, is_granted, simulate
from sim.metrics.steady import per_step
from sim.scenario import Scenario
from sim.workload.inference import Inference

#: steps of the longest job among which the number is sought after which all end at once, and the relative gap accepted
_MOST_ROUNDS, _GAP = 8, 0.05
#: operations up to which jobs are repeated; 150,000 take about 10 s
_MOST_OPERATIONS = 150_000
#: times that the numbers of steps are corrected for what the jobs cost each other
_CORRECTIONS = 2


def met(scenario: Scenario) -> tuple[Scenario, Together, tuple[str, ...]]:
    """The scenario as it was simulated, all its jobs in one simulation, and what to say about it.

    Beside an answer all jobs begin anew until they end together, unless the scenario tells their life (`steps`, `start`,
    `after`) or a pool grants what they allocate: then each runs as told.
    """
    together = simulate(scenario)
    if len(scenario.jobs) == 1 or not any(isinstance(job.workload, Inference) for job in scenario.jobs):
        return scenario, together, ()
    if any(job.steps > 1 or job.after or job.start_s > 0 for job in scenario.jobs) or is_granted(together, scenario):
        return scenario, together, (_once("as `steps`, `start`, `after` or a pool's grants tell it"),)
    sizes = [len(job.program.operations) for job in together.jobs]
    once = scenario, together
    for _ in range(1 + _CORRECTIONS):
        seconds = [job.summary.step_time_s for job in together.jobs]
        if _gap([num.steps * value for num, value in zip(scenario.jobs, seconds, strict=True)]) <= _GAP:
            break
        steps = steps_of(seconds)
        if sum(num * size for num, size in zip(steps, sizes, strict=True)) > _MOST_OPERATIONS:
            return *once, (_once(f"as repeating them takes more than {_MOST_OPERATIONS:,} operations"),)
        jobs = tuple(dataclasses.replace(job, steps=num) for job, num in zip(scenario.jobs, steps, strict=True))
        scenario = dataclasses.replace(scenario, jobs=jobs)
        together = simulate(scenario)
    rounds = min(job.steps for job in scenario.jobs)  # of the longest job, whose step the whole stands for
    if rounds > 1:
        together = dataclasses.replace(together, summary=per_step(together.summary, rounds))
    return scenario, together, _told(scenario)


def steps_of(seconds: Sequence[float]) -> tuple[int, ...]:
    """Steps of jobs that take `seconds` each, so that they end together within a twentieth, or as nearly as 8 steps of the
    longest allow."""
    longest = max(seconds)

    def steps(rounds: int) -> tuple[int, ...]:
        return tuple(max(1, round(rounds * longest / value)) for value in seconds)

    def gap(rounds: int) -> float:
        return _gap([num * value for num, value in zip(steps(rounds), seconds, strict=True)])

    candidates = range(1, _MOST_ROUNDS + 1)
    return steps(next((num for num in candidates if gap(num) <= _GAP), min(candidates, key=gap)))


def _gap(ends_s: Sequence[float]) -> float:
    """Share of the time of the last job to end that the first one does not run."""
    return 1 - min(ends_s) / max(ends_s)


def _told(scenario: Scenario) -> tuple[str, ...]:
    if all(job.steps == 1 for job in scenario.jobs):
        return ()
    runs = ", ".join(f"{job.name} {job.steps} x" for job in scenario.jobs)
    return (f"jobs begin anew until they end together, so that each meets all phases of the others: {runs}; times are means",)


def _once(why: str) -> str:
    return f"an answer beside other jobs meets only the phases that they are in while it runs: each runs {why}"
