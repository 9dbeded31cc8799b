"""Several jobs in one simulation: their hosts' parts of pools, what they share, and what each meets of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sim.errors import DeadlockError, InputError
from sim.experiment.preparing import prepare, step_of
from sim.experiment.shared import host_name, kept_by, shared_elsewhere, shared_regions, weights_of
from sim.experiment.solving import Solved, replayed, summarised
from sim.metrics import Summary, TierUse, summarise
from sim.metrics.pooling import PoolUse, pool_use
from sim.metrics.steady import per_step
from sim.program.life import lived
from sim.program.merge import Part, merge, of_job, start_of
from sim.records import INFINITY, Pool, Program, Replay, Step, TensorClass
from sim.scenario import Job, Scenario
from sim.topology.machine import Machine
from sim.topology.view import job_view
from sim.workload.footprint import behaviour
from sim.workload.training import Training

#: between a pool and the host whose part of it is meant
_PART_OF = "@"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """The merged simulation, and each job as it went in it."""

    program: Program
    replay: Replay
    summary: Summary
    jobs: tuple[Solved, ...]
    alone: tuple[Scenario, ...]
    pools: Mapping[str, PoolUse]
    spans_s: tuple[tuple[float, float], ...]  # start and end of each job
    reason: str = ""  # why the pools could not serve all jobs; then the replay is what it were if they could


def on_host(scenario: Scenario, job: Job) -> Scenario:
    """The scenario of one job alone on its own host's view of the machine, with its own GPUs."""
    machine = job_view(scenario.machine, job.host, job.gpus)
    alone = dataclasses.replace(job, host="", gpus=(), start_s=0.0, after="")
    return dataclasses.replace(scenario, machine=machine, jobs=(alone,))


def simulate(scenario: Scenario) -> Together:
    """All jobs of the scenario in one simulation. Raises InputError for a job that cannot be lowered on its host."""
    machine = scenario.machine
    alone = [on_host(scenario, job) for job in scenario.jobs]
    steps = [step_of(item.job, item.machine) for item in alone]
    shared = shared_regions(scenario, steps)

    weights = weights_of(scenario)

    def parts(prepared: Sequence[tuple[Step, Program]]) -> list[Part]:
        rows = zip(scenario.jobs, prepared, strict=True)
        return [
            Part(
                name=job.name, program=program, start_s=job.start_s, after=job.after,
                tiers=_own_parts(machine, host_name(machine, job)),
                kept=kept_by(scenario, job), weight=weights[job.name],
            )
            for job, (_, program) in rows
        ]  # fmt: skip

    written = [_whole(item) for item in alone]
    prepared = [_lived(item, prepare(item, coherence=own)) for item, own in zip(written, shared, strict=True)]
    try:
        program = merge(parts(prepared), scenario.name)
    except InputError:  # ranks that share a channel with another job are no longer alike: write each by itself
        unfolded = dataclasses.replace(scenario.options, is_folded=False)
        apart = [dataclasses.replace(item, options=dataclasses.replace(unfolded, is_whole=True)) for item in alone]
        prepared = [_lived(item, prepare(item, coherence=own)) for item, own in zip(apart, shared, strict=True)]
        program = merge(parts(prepared), scenario.name)
    pools = _pools(machine, program)
    replay, reason = _replayed(program, scenario, pools)
    jobs = []
    for part, item, (step, own) in zip(parts(prepared), alone, prepared, strict=True):
        seen = of_job(part, replay)
        summary, times = summarised(item, own, seen)
        if item.job.steps > 1:
            summary = per_step(summary, item.job.steps)
        jobs.append(Solved(step=step, program=own, replay=seen, summary=summary, times=times))
    elsewhere = shared_elsewhere(parts(prepared))
    uses = {name: pool_use(replay, _capacity(machine, name), _tiers_of(name, program), elsewhere) for name in _divided(machine)}
    return Together(
        program=program, replay=replay, summary=summarise(program, replay), jobs=tuple(jobs), alone=tuple(alone),
        pools={name: use for name, use in uses.items() if use.hosts}, reason=reason,
        spans_s=tuple(
            (begin_s, begin_s + solved.replay.makespan_s)
            for begin_s, solved in zip((start_of(part, replay) for part in parts(prepared)), jobs, strict=True)
        ),
    )  # fmt: skip


def _lived(scenario: Scenario, prepared: tuple[Step, Program]) -> tuple[Step, Program]:
    """The program of all steps of the job; what its framework makes in the first update appears there."""
    step, program = prepared
    job = scenario.job
    if job.steps == 1:
        return prepared
    is_lazy = isinstance(job.workload, Training) and behaviour(job.workload).has_lazy_states
    return step, lived(program, job.steps, {TensorClass.OPTIMIZER_STATES} if is_lazy else ())


def _whole(scenario: Scenario) -> Scenario:
    """The scenario with every token of an answer written out: jobs meet in time, which samples of it do not tell."""
    return dataclasses.replace(scenario, options=dataclasses.replace(scenario.options, is_whole=True))


def all_tiers(together: Together, plans: Sequence[Mapping[str, TierUse]]) -> dict[str, TierUse]:
    """Peaks of the whole simulation.

    What jobs that run at once plan for a host's memory adds up; pools count what was there at once.
    """
    tiers: dict[str, TierUse] = {}
    rows = [_written_out(plan, job.program) for plan, job in zip(plans, together.jobs, strict=True)]
    for begin_s, _ in together.spans_s:  # the sum is largest when a job has just begun
        at_once = [row for row, (start_s, end_s) in zip(rows, together.spans_s, strict=True) if start_s <= begin_s < end_s]
        for name in dict.fromkeys(name for row in at_once for name in row if name not in together.pools):
            use = _added([row[name] for row in at_once if name in row])
            if name not in tiers or use.peak_bytes > tiers[name].peak_bytes:
                tiers[name] = use
    for name, seen in together.summary.tiers.items():  # undivided pools: in the plan of each job, and shared by hosts
        if name.partition(_PART_OF)[0] not in together.pools and name not in tiers:
            tiers[name] = seen
    for name, pool in together.pools.items():
        tiers[name] = TierUse(capacity_bytes=pool.capacity_bytes, peak_bytes=pool.peak_bytes, by_class=dict(pool.by_class))
    return dict(sorted(tiers.items()))


def _written_out(plan: Mapping[str, TierUse], program: Program) -> dict[str, TierUse]:
    """The plan with a row for each tier that one stands for, where the program has them apart."""
    found = dict(plan)
    for name, use in plan.items():
        twins = [tier.name for tier in program.tiers if tier.name.rpartition(".")[2] == name.rpartition(".")[2]]
        if use.multiplicity > 1 and len(twins) == use.multiplicity:
            found |= {twin: replace(use, multiplicity=1) for twin in twins}
    return found


def _added(uses: Sequence[TierUse]) -> TierUse:
    """Several jobs' use of one tier at the same time."""
    largest = max(uses, key=lambda use: use.peak_bytes)
    classes: dict[str, float] = {}
    for use in uses:
        for name, size in use.by_class.items():
            classes[name] = classes.get(name, 0.0) + size
    return replace(largest, peak_bytes=sum(use.peak_bytes for use in uses), by_class=classes)


# ------------------------------------------------------------------------------------------------------------------ pools


def _divided(machine: Machine) -> list[str]:
    """Tiers of pools of which every host has its own part."""
    return [name for name, tier in machine.tiers.items() if tier.device and machine.devices[tier.device].is_divided]


def _own_parts(machine: Machine, host: str) -> dict[str, str]:
    return {name: f"{name}{_PART_OF}{host}" for name in _divided(machine)}


def _tiers_of(pool: str, program: Program) -> tuple[str, ...]:
    return tuple(tier.name for tier in program.tiers if tier.name.startswith(pool + _PART_OF))


def _capacity(machine: Machine, tier: str) -> float:
    return machine.tiers[tier].capacity_bytes * machine.tiers[tier].multiplicity


def _pools(machine: Machine, program: Program) -> list[Pool]:
    """Pools with dynamic capacity, and what the hosts of the jobs are granted at the start."""
    found = []
    for name in _divided(machine):
        device = machine.devices[machine.tiers[name].device]
        tiers = _tiers_of(name, program)
        if not device.part.get("dynamic_capacity") or not tiers:
            continue
        hosts = {tier: tier.partition(_PART_OF)[2] for tier in tiers}
        elsewhere = sum(size for host, size in device.grants.items() if host not in hosts.values())
        found.append(
            Pool(
                name=name,
                capacity_bytes=_capacity(machine, name) - elsewhere,
                granted_bytes={tier: device.grants.get(host, 0.0) for tier, host in hosts.items()},
                extent_bytes=float(device.part["extent"]),  # type: ignore[arg-type]
                grant_latency_s=float(device.part["grant_latency"]),  # type: ignore[arg-type]
                release_bytes_per_s=float(device.part["release_bandwidth"]),  # type: ignore[arg-type]
            )
        )
    return found


def is_granted(together: Together, scenario: Scenario) -> bool:
    """Whether a pool with dynamic capacity grants what the jobs allocate."""
    return bool(_pools(scenario.machine, together.program))


def _replayed(program: Program, scenario: Scenario, pools: Sequence[Pool]) -> tuple[Replay, str]:
    """The replay, with pool managers beside it where pools are dynamic; and why they failed if they did."""
    from sim.engine import replay, run_checked
    from sim.engine.pools import PoolManager, answering

    if not pools:
        has_parts = any(_PART_OF in tier.name for tier in program.tiers)
        level = "full" if has_parts else scenario.options.level
        return replayed(program, dataclasses.replace(scenario, options=dataclasses.replace(scenario.options, level=level))), ""
    granted = {tier: size for pool in pools for tier, size in pool.granted_bytes.items()}
    tiers = tuple(replace(tier, capacity_bytes=granted.get(tier.name, INFINITY)) for tier in program.tiers)
    managed = replace(program, tiers=tiers)
    managers = [
        PoolManager(pool, [item.id for item in program.operations if any(row.tier in pool.granted_bytes for row in item.frees)])
        for pool in pools
    ]
    beside: dict[str, Any] = {"policy": answering(managers), "processes": tuple(manager.serve for manager in managers)}
    try:
        if scenario.options.verify:
            return run_checked(managed, **beside), ""
        return replay(managed, level="full", **beside), ""
    except DeadlockError:
        waits = ", ".join(
            f"{tier} waits for capacity beside {manager.granted_in_words()}"
            for manager in managers
            for _, tier, _ in manager.requests[:1]
        )
        return replay(program, level="full", capacity="observe"), f"the pool is exhausted and nobody frees: {waits}"
