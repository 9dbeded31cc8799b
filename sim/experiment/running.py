"""Runs: one job, several jobs in one simulation, and the twin with everything in the fastest tier."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Protocol

import msgspec

from sim.config.reference import validation_errors
from sim.experiment.memory_mode import with_working_sets
from sim.experiment.neighbours import pool_latencies
from sim.experiment.number_formats import stand_in_formats
from sim.experiment.overflow import cache_notes, locked_notes, page_cached, spill_notes
from sim.experiment.peaks import limited, overflows, peaks
from sim.experiment.preparing import loaded, on_system_memory, placed
from sim.experiment.recorded_placement import idle_placements
from sim.experiment.repeated import met
from sim.experiment.result import Result
from sim.experiment.solving import Solved, solve, step_seconds, summarised
from sim.experiment.tiering import TieringStep, moves, settle, settling_note
from sim.experiment.together import all_tiers, on_host
from sim.experiment.unmeasured import ends_of
from sim.metrics import Summary, TierUse
from sim.metrics.uncertainty import band_of
from sim.placement.capacity import plan_footprint, used_gpus
from sim.placement.notes import placement_notes
from sim.placement.plan import Entry, Placement
from sim.placement.resolve import tier_views
from sim.placement.zones import zone_notes
from sim.program.life import step_ends
from sim.records import Step, TensorClass
from sim.scenario import Job, Scenario, Trace
from sim.topology.machine import Machine
from sim.workload.inference import Inference
from sim.workload.training import Training


class Twins(Protocol):
    """Remembers runs with everything in the fastest tier: many points of a sweep share one."""

    def recall(self, twin: Scenario, solve: Callable[[], tuple[float, bool]]) -> tuple[float, bool]:
        """(seconds, fits) of the twin: remembered, or solved now."""


def run(scenario: Scenario, *, with_penalty: bool = True, twins: Twins | None = None) -> Result:
    """Simulate one scenario.

    `with_penalty` also replays the same job with everything in the fastest tier, for the offload penalty; with `twins`
    its seconds are remembered and the result has no `fastest`. Raises InputError for a scenario that no machine can
    run, InternalError for an impossible result.
    """
    asked = tuple(on_system_memory(loaded(job), _seen_by(scenario, job)) for job in scenario.jobs)
    scenario = dataclasses.replace(scenario, jobs=tuple(placed(job, _seen_by(scenario, job)) for job in asked))
    scenario = with_working_sets(scenario)
    if len(scenario.jobs) > 1 or scenario.job.steps > 1:
        return _run_together(scenario, asked)
    if scenario.job.host or scenario.job.gpus:
        scenario = on_host(scenario, scenario.job)
    scenario, solved, tiering = _solved(scenario, asked[0])
    summary = msgspec.structs.replace(solved.summary, tiers=peaks(scenario, solved.summary.tiers))
    reasons = _misfits(scenario, summary)
    penalty, base, fastest = _penalty(scenario, summary.step_time_s, twins) if with_penalty else (1.0, "", None)
    ends = ends_of(scenario, summary.step_time_s) if with_penalty else None
    band = band_of(scenario.job.workload, scenario.job.placement, validation_errors())
    return Result(
        scenario=scenario,
        step=solved.step,
        program=solved.program,
        replay=solved.replay,
        summary=summary,
        fits=not reasons,
        reason="; ".join(reasons),
        offload_penalty=penalty,
        penalty_base=base,
        fastest=fastest,
        inference=solved.times,
        band=band.over(summary.step_time_s, *ends) if ends else band,
        assumptions=(*((f"step time: assumed: {ends.note}",) if ends else ()), *_assumed(scenario, asked[0], solved, tiering)),
        warnings=_warnings(scenario, solved.step),
        shown=solved.note,
        tiering=tiering,
    )


def _solved(scenario: Scenario, asked: Job) -> tuple[Scenario, Solved, tuple[TieringStep, ...]]:
    """The only job replayed, once the pages that its placement may move have settled: with their moves, if any."""
    if not moves(asked):
        return scenario, solve(scenario), ()
    settled = settle(scenario, asked, scenario.job.placement)
    scenario = dataclasses.replace(scenario, jobs=(settled.job,))
    summary, times = summarised(scenario, settled.program, settled.replay)
    solved = Solved(step=settled.step, program=settled.program, replay=settled.replay, summary=summary, times=times)
    return scenario, solved, settled.steps


def _misfits(scenario: Scenario, summary: Summary) -> list[str]:
    """Why the job does not fit, in words; none where it does."""
    reasons = overflows(summary.tiers) + limited(scenario.job, scenario.machine)
    if reasons:
        reasons += (*zone_notes(scenario.job.workload, scenario.machine), *locked_notes(scenario.job, scenario.machine))
    return reasons


def _assumed(scenario: Scenario, asked: Job, solved: Solved, tiering: Sequence[TieringStep]) -> tuple[str, ...]:
    """What scenario, machine, step and program had to assume, and what became of the placement that was asked for."""
    job, machine = scenario.job, scenario.machine
    return (
        *scenario.assumptions,
        *machine.assumptions,
        *solved.step.notes,
        *solved.program.notes,
        *settling_note(tiering, "answer" if isinstance(job.workload, Inference) else "step"),
        *placement_notes(job.workload, job.placement, machine),
        *spill_notes(asked.placement, job),
        *cache_notes(asked, page_cached(job, machine)),
    )


def _warnings(scenario: Scenario, step: Step) -> tuple[str, ...]:
    """What of the machine, the placement and the number formats the reader should look at."""
    return (
        *scenario.machine.warnings,
        *idle_placements(step, scenario.job.placement),
        *(stand_in_formats(step, scenario.machine) if isinstance(scenario.job.workload, Training) else ()),
    )


def _seen_by(scenario: Scenario, job: Job) -> Machine:
    """The machine that a job's policies may use: its host's, where the scenario tells hosts apart."""
    return on_host(scenario, job).machine if job.host or job.gpus or len(scenario.jobs) > 1 else scenario.machine


def _run_together(scenario: Scenario, asked: Sequence[Job]) -> Result:
    """All jobs of the scenario in one simulation, as placed and as asked for; the result holds one result per job."""
    scenario, together, met_notes = met(scenario)
    hosts = [job.host or scenario.machine.hosts()[0] for job in scenario.jobs]
    latencies = pool_latencies(scenario, tuple(together.pools), together.spans_s)
    results = []
    for job, item, solved, host in zip(scenario.jobs, together.alone, together.jobs, hosts, strict=True):
        single = run(dataclasses.replace(item, jobs=(dataclasses.replace(item.job, steps=1),)))
        contention = solved.summary.step_time_s / single.summary.step_time_s
        summary = msgspec.structs.replace(solved.summary, tiers=single.summary.tiers)
        results.append(
            dataclasses.replace(
                single, step=solved.step, program=solved.program, replay=solved.replay, summary=summary,
                inference=solved.times, contention=contention, steps_s=_step_times(solved, job),
                pool_latency=latencies.get(job.name, {}),
                offload_penalty=single.offload_penalty * contention,
                scenario=dataclasses.replace(item, jobs=(dataclasses.replace(item.job, name=job.name, host=host),)),
            )
        )  # fmt: skip
    tiers = all_tiers(together, [result.summary.tiers for result in results])
    whole = msgspec.structs.replace(together.summary, tiers=tiers)
    still = tuple(
        f"{job.name}: pages stay where first touch puts them; scans for hot pages are simulated for a job alone"
        for job in asked
        if moves(job)
    )
    still += tuple(_shared_gpus(scenario))
    reasons = overflows(whole.tiers) + ([together.reason] if together.reason else [])
    for job, result in zip(scenario.jobs, results, strict=True):
        own = [reason for reason in result.reason.split("; ") if reason and reason not in reasons]
        reasons += [f"{job.name}: {'; '.join(own)}"] if own else []
    return dataclasses.replace(
        results[0], scenario=scenario, program=together.program, replay=together.replay, summary=whole, inference=None,
        fits=not reasons, reason="; ".join(reasons), offload_penalty=max(result.offload_penalty for result in results),
        penalty_base="everything in the fastest tier, of the job that loses most", jobs=tuple(results),
        contention=max(result.contention for result in results),
        pools=together.pools, assumptions=(*results[0].assumptions, *still, *met_notes),
    )  # fmt: skip


def _shared_gpus(scenario: Scenario) -> Iterator[str]:
    """Pairs of jobs that run on the same GPUs, in words; jobs after one another are none."""
    used = {job.name: _gpus_of(scenario, job) for job in scenario.jobs}
    for one, other in combinations(scenario.jobs, 2):
        common = used[one.name] & used[other.name]
        if common and not one.after and not other.after:
            names = ", ".join(sorted(common))
            yield f"{one.name} and {other.name} run on the same GPUs ({names}): `gpus` of a job gives it its own"


def _gpus_of(scenario: Scenario, job: Job) -> set[str]:
    """GPUs on which a job's ranks sit; none of a recording's are told here."""
    if not isinstance(job.workload, (Training, Inference)):
        return set()
    machine = on_host(scenario, job).machine
    seats = used_gpus(machine, plan_footprint(job.workload, job.placement, machine).ranks_per_host)
    return {name for name in seats if machine.devices[name].kind == "gpu"}


def _step_times(solved: Solved, job: Job) -> tuple[float, ...]:
    """How long each step of a job took, from its start on."""
    ends = step_ends(solved.replay, job.steps)
    return tuple(end - begin for begin, end in pairwise((0.0, *ends)))


def _penalty(scenario: Scenario, seconds: float, twins: Twins | None) -> tuple[float, str, Summary | None]:
    """Offload penalty of a job that takes `seconds`, what it is measured against, and that run."""
    twin = fastest_twin(scenario)
    if twin is None:
        return 1.0, "this placement is the fastest tier", None
    twin = dataclasses.replace(twin, options=dataclasses.replace(scenario.options, level="summary"))
    fastest: Summary | None = None
    if twins is not None:
        fast_s, fits = twins.recall(twin, lambda: _seconds(twin))
    else:
        solved = solve(twin)
        fast_s, fits, fastest = solved.summary.step_time_s, _fits(twin, solved.summary.tiers), solved.summary
    is_recorded = isinstance(scenario.job.workload, Step)  # what a generated step would do otherwise is not known
    base = "the same operations with every tensor in the fastest tier" if is_recorded else "everything in the fastest tier"
    if not fits:
        base += ", which does not fit: unbounded capacity is assumed"
    return seconds / fast_s, base, fastest


def _seconds(scenario: Scenario) -> tuple[float, bool]:
    """Seconds of a scenario's job, and whether it fits."""
    seconds, tiers = step_seconds(scenario)
    return seconds, _fits(scenario, tiers)


def _fits(scenario: Scenario, tiers: Mapping[str, TierUse]) -> bool:
    return not overflows(peaks(scenario, tiers))


def fastest_twin(scenario: Scenario) -> Scenario | None:
    """The scenario with every tensor in the fastest tier; None if it already is."""
    jobs = tuple(
        dataclasses.replace(job, placement=_fastest(job, scenario.machine), workload=_without_offload(job.workload))
        for job in scenario.jobs
    )
    if jobs == scenario.jobs and not scenario.machine.lent_bytes:
        return None
    return dataclasses.replace(scenario, jobs=jobs, machine=dataclasses.replace(scenario.machine, lent_bytes=0.0))


def _fastest(job: Job, machine: Machine) -> Placement:
    """Everything in the fastest tier: a GPU's own memory, or of a socket that computes by itself the fastest that it has."""
    if not isinstance(job.workload, Inference) or job.workload.device != "cpu" or machine.gpus():
        return Placement()
    seat = machine.seats()[0]
    own = [view.name for view in tier_views(machine, seat, {}) if machine.media[view.name].device == machine.host_of(seat)]
    best = own[0] if own else machine.resolve("dram", seat)
    if best == machine.resolve("dram", seat):
        return Placement()
    return Placement(
        entries=tuple(Entry(tensor_class=name, shares={best: 1.0}) for name in (TensorClass.WEIGHTS, TensorClass.KV_CACHE))
    )


def _without_offload(workload: Training | Inference | Step | Trace) -> Training | Inference | Step | Trace:
    if isinstance(workload, Inference):
        return dataclasses.replace(
            workload, gpu_layers=None, cpu_moe_layers=0, is_managed=False, is_system=False, managed_advice=(), reuse_tier=""
        )
    if not isinstance(workload, Training):
        return workload
    optimizer = workload.optimizer
    if optimizer.type == "paged_adamw_8bit":  # where all fits, nothing is paged
        optimizer = dataclasses.replace(optimizer, type="adamw_8bit")
    optimizer = dataclasses.replace(optimizer, offload=False, swap_through_gpu=False, gpu_fraction=0.0)
    return dataclasses.replace(
        workload,
        optimizer=optimizer,
        checkpointing=dataclasses.replace(workload.checkpointing, offload=False),
        offload=dataclasses.replace(workload.offload, activation_layers=None),
    )
