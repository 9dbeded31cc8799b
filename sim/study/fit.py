"""Does it fit? The plan of one scenario against its machine, the verdict, and the largest value that still fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.errors import Fault, InputError
from sim.experiment.preparing import placed
from sim.experiment.together import on_host
from sim.placement.capacity import TierNeed, Verdict, capacity_plan, phase_plan, plan_footprint
from sim.placement.host_limits import limit_needs, limit_phases
from sim.placement.notes import placement_notes
from sim.placement.plan import Placement
from sim.scenario import Job, Scenario
from sim.study.fit_changes import Suggestion, suggestions
from sim.topology.machine import Machine
from sim.workload.footprint import Footprint
from sim.workload.inference import Inference
from sim.workload.training import Training

_ORDER: tuple[Verdict, ...] = ("fits", "tight", "does_not_fit")
#: what `--max` may search: name -> the largest value tried
LIMITS = {"batch_size": 1 << 20, "sequence_length": 1 << 24, "layers": 1 << 14, "gpu_layers": 1 << 14}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The answer to "does it fit" for one point: needs by tier, the worst verdict, and what would make it fit.

    `phases` holds what each tier needs in each phase; `footprint` every term with its arithmetic; `suggestions`
    were each verified by planning again.
    """

    scenario: str
    parameters: Mapping[str, object]
    verdict: Verdict
    tiers: Mapping[str, TierNeed]
    footprint: Footprint
    phases: Mapping[str, Mapping[str, float]]  # phase -> tier -> bytes
    suggestions: tuple[Suggestion, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def misfits(self) -> tuple[TierNeed, ...]:
        """Tiers that cannot hold their peak, the largest shortfall first."""
        short = [need for need in self.tiers.values() if need.verdict == "does_not_fit"]
        return tuple(sorted(short, key=lambda need: need.capacity_bytes - need.peak_bytes))

    @property
    def tightest(self) -> TierNeed | None:
        """The tier with the smallest share of its capacity left."""
        return max(self.tiers.values(), key=lambda need: need.peak_bytes / need.capacity_bytes, default=None)

    def point(self) -> dict[str, Any]:
        """As `--json` shows it: stable names, bytes."""
        return {
            "scenario": self.scenario,
            "parameters": dict(self.parameters),
            "verdict": self.verdict,
            "tiers": {
                name: {
                    "capacity_bytes": need.capacity_bytes,
                    "peak_bytes": need.peak_bytes,
                    "peak_phase": need.phase,
                    "verdict": need.verdict,
                    "shortfall_bytes": max(0.0, need.peak_bytes - need.capacity_bytes),
                    "by_class": dict(need.by_class),
                    "by_phase": {phase: row[name] for phase, row in self.phases.items() if row.get(name)},
                }
                for name, need in self.tiers.items()
            },
            "allocated_bytes": {
                role: {"peak_bytes": peak.size_bytes, "peak_phase": peak.phase, "by_phase": self.footprint.phases(role)}
                for role in self.footprint.tiers()
                for peak in (self.footprint.allocated_peak(role),)
            },
            "suggestions": [suggestion.point() for suggestion in self.suggestions],
        }


def planned(job: Job) -> Training | Inference:
    """The workload whose memory can be planned; InputError for a recorded trace."""
    if isinstance(job.workload, (Training, Inference)):
        return job.workload
    what = "a trace does not say what it keeps in memory"
    raise InputError(Fault(what=what, path="workload", remedy="describe the job as workload.training or workload.inference"))


def assess(scenario: Scenario, *, with_suggestions: bool = True) -> Fit:
    """Plan the scenario's only job and compare each tier with its capacity.

    The verdict is the worst over the tiers: fits up to 90 % of a capacity, tight up to all of it, does_not_fit above.
    Suggestions are the smallest single changes (or pairs, if none suffices) that make it fit.
    """
    machine = scenario.machine
    planned(scenario.job)  # refuses a trace before anything is placed
    job = placed(scenario.job, machine)
    workload = planned(job)
    needs = capacity_plan(workload, job.placement, machine) | limit_needs(workload, job.placement, machine)
    found = plan_footprint(workload, job.placement, machine)
    worst: Verdict = max((need.verdict for need in needs.values()), key=_ORDER.index, default=_ORDER[0])
    changes = suggestions(workload, job.placement, machine) if with_suggestions and worst == "does_not_fit" else ()
    return Fit(
        scenario=scenario.name,
        parameters=scenario.parameters,
        verdict=worst,
        tiers=needs,
        footprint=found,
        phases=_phases(workload, job.placement, machine),
        suggestions=changes,
        notes=(
            *found.notes,
            *scenario.assumptions,
            *placement_notes(workload, job.placement, machine),
            *_answers(job),
        ),
    )


def _phases(workload: Training | Inference, placement: Placement, machine: Machine) -> dict[str, dict[str, float]]:
    """Needs of tiers and of the host's limits in each phase."""
    limits = limit_phases(workload, placement, machine)
    return {phase: row | limits.get(phase, {}) for phase, row in phase_plan(workload, placement, machine).items()}


def each_job(scenario: Scenario) -> tuple[Scenario, ...]:
    """The scenario of each of its jobs alone, on its own host's view of the machine."""
    if len(scenario.jobs) == 1 and not (scenario.job.host or scenario.job.gpus):
        return (scenario,)
    return tuple(
        dataclasses.replace(on_host(scenario, job), name=f"{scenario.name}: {job.name}" if job.name else scenario.name)
        for job in scenario.jobs
    )


def _answers(job: Job) -> tuple[str, ...]:
    """What a run does about a host tier that is too small, where the placement says so."""
    if job.placement.overflow == "swap":
        return ("placement.overflow is swap: a run pages what host memory lacks to storage",)
    return ("placement.overflow is spill: what spills is planned where it goes",) if job.placement.overflow == "spill" else ()


def is_fitting(workload: Training | Inference, placement: Placement, machine: Machine) -> bool:
    """Whether every tier holds its peak (tight counts)."""
    needs = capacity_plan(workload, placement, machine) | limit_needs(workload, placement, machine)
    return all(need.verdict != "does_not_fit" for need in needs.values())


def with_value(workload: Training | Inference, name: str, value: int) -> Training | Inference:
    """The workload with a batch size, sequence length, number of layers, or of layers on the GPU (inference) changed."""
    if name == "layers":
        return dataclasses.replace(workload, model=dataclasses.replace(workload.model, layers=value, moe_layers=None))
    if name == "batch_size":
        return dataclasses.replace(workload, batch_size=value)
    if isinstance(workload, Inference):
        if name == "gpu_layers":
            return dataclasses.replace(workload, gpu_layers=value)
        return dataclasses.replace(workload, prompt_length=max(1, value - workload.output_length))
    return dataclasses.replace(workload, sequence_length=value)


def largest(scenario: Scenario, name: str) -> int:
    """The largest `batch_size`, `sequence_length`, `layers` or `gpu_layers` that still fits; 0 when not even 1 does.

    Memory grows with each of them, so a bisection between the last that fits and the first that does not is exact.
    """
    if name not in LIMITS:
        raise InputError(Fault(what=f"cannot search {name!r}", path="--max", remedy=f"use one of {', '.join(LIMITS)}"))
    job = scenario.job
    workload = planned(job)
    smallest, limit = 1, LIMITS[name]
    if name == "gpu_layers":
        if isinstance(workload, Training):
            raise InputError(Fault(what="training has no gpu_layers", path="--max", remedy="search batch_size or layers"))
        limit = workload.model.layers
    if name == "layers" and isinstance(workload, Training):
        smallest = workload.parallelism.pipeline * workload.parallelism.interleave

    def fits(value: int) -> bool:
        return is_fitting(with_value(workload, name, value), job.placement, scenario.machine)

    return largest_that(fits, smallest, limit)


def largest_that(holds: Callable[[int], bool], smallest: int, limit: int) -> int:
    """Largest whole number from `smallest` to `limit` for which a monotone condition holds; 0 if none."""
    if not holds(smallest):
        return 0
    low, high = smallest, smallest * 2
    while high <= limit and holds(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
