"""Several jobs in one simulation: their hosts' parts of pools, what they share, and what each meets of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sim.errors import DeadlockError, InputError
from sim.experiment.preparing import prepare, step_of
from sim.experiment.solving import Solved, replayed, summarised
from sim.metrics import Summary, TierUse, summarise
from sim.metrics.pooling import PoolUse, pool_use
from sim.placement.demand import demands
from sim.placement.plan import Entry
from sim.program.coherence import Coherence, Region
from sim.program.merge import Part, merge, of_job
from sim.records import INFINITY, Pool, Program, Replay, Step, TensorClass
from sim.scenario import Job, Scenario
from sim.topology import routing
from sim.topology.machine import Machine
from sim.topology.view import host_view
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
    """The scenario of one job alone on its own host's view of the machine."""
    hosts = scenario.machine.hosts()
    host = job.host or hosts[0]
    machine = host_view(scenario.machine, host) if len(hosts) > 1 or job.host else scenario.machine
    return dataclasses.replace(scenario, machine=machine, jobs=(dataclasses.replace(job, host="", start_s=0.0),))


def simulate(scenario: Scenario) -> Together:
    """All jobs of the scenario in one simulation. Raises InputError for a job that cannot be lowered on its host."""
    machine = scenario.machine
    alone = [on_host(scenario, job) for job in scenario.jobs]
    steps = [step_of(item.job, item.machine) for item in alone]
    shared = _shared(scenario, steps)

    weights = _weights(scenario)

    def parts(prepared: Sequence[tuple[Step, Program]]) -> list[Part]:
        rows = zip(scenario.jobs, prepared, strict=True)
        return [
            Part(
                name=job.name, program=program, start_s=job.start_s, tiers=_own_parts(machine, _host(machine, job)),
                kept=_kept(scenario, job), weight=weights[job.name],
            )
            for job, (_, program) in rows
        ]  # fmt: skip

    written = [_whole(item) for item in alone]
    prepared = [prepare(item, coherence=own) for item, own in zip(written, shared, strict=True)]
    try:
        program = merge(parts(prepared), scenario.name)
    except InputError:  # ranks that share a channel with another job are no longer alike: write each by itself
        unfolded = dataclasses.replace(scenario.options, is_folded=False)
        apart = [dataclasses.replace(item, options=dataclasses.replace(unfolded, is_whole=True)) for item in alone]
        prepared = [prepare(item, coherence=own) for item, own in zip(apart, shared, strict=True)]
        program = merge(parts(prepared), scenario.name)
    pools = _pools(machine, program)
    replay, reason = _replayed(program, scenario, pools)
    jobs = []
    for part, item, (step, own) in zip(parts(prepared), alone, prepared, strict=True):
        seen = of_job(part, replay)
        summary, times = summarised(item, own, seen)
        jobs.append(Solved(step=step, program=own, replay=seen, summary=summary, times=times))
    elsewhere = _shared_elsewhere(parts(prepared))
    uses = {name: pool_use(replay, _capacity(machine, name), _tiers_of(name, program), elsewhere) for name in _divided(machine)}
    return Together(
        program=program, replay=replay, summary=summarise(program, replay), jobs=tuple(jobs), alone=tuple(alone),
        pools={name: use for name, use in uses.items() if use.hosts}, reason=reason,
        spans_s=tuple(
            (job.start_s, job.start_s + solved.replay.makespan_s) for job, solved in zip(scenario.jobs, jobs, strict=True)
        ),
    )  # fmt: skip


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


def _host(machine: Machine, job: Job) -> str:
    return job.host or machine.hosts()[0]


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


# ---------------------------------------------------------------------------------------------------- what jobs do together


def _outstanding_bytes(machine: Machine, job: Job) -> float:
    """Bytes that the threads of one rank keep in flight: by them, hosts share a saturated device."""
    part, view = machine.part(_cpu(machine, _host(machine, job))), _view(machine, job)
    cores = float(part["cores"]) / max(1, len(view.gpus()))  # type: ignore[arg-type]
    if isinstance(job.workload, Training) and job.workload.offload.cores_per_rank:
        cores = float(job.workload.offload.cores_per_rank)
    return cores * float(part["lines_per_core"]) * float(part["line"])  # type: ignore[arg-type]


def _weights(scenario: Scenario) -> dict[str, float]:
    """Sharing weight of each job's flows: what it keeps in flight against the job that keeps most, in 1/256."""
    held = {job.name: _outstanding_bytes(scenario.machine, job) for job in scenario.jobs}
    return {name: max(1, round(256 * size / max(held.values()))) / 256 for name, size in held.items()}


def _view(machine: Machine, job: Job) -> Machine:
    return host_view(machine, _host(machine, job)) if len(machine.hosts()) > 1 else machine


def _shares(machine: Machine, job: Job, entry: Entry) -> dict[str, float]:
    """Shares of an entry by the name of the tier."""
    view = _view(machine, job)
    return {view.resolve(tier, view.gpus()[0]): share for tier, share in entry.shares.items()}


def _sharers(scenario: Scenario, tensor_class: TensorClass, tier: str) -> list[Job]:
    """Jobs whose entry for the class says that part of it in the tier is shared, in order."""
    return [
        job
        for job in scenario.jobs
        if any(
            entry.tensor_class == tensor_class and entry.shared > 0 and tier in _shares(scenario.machine, job, entry)
            for entry in job.placement.entries
        )
    ]


def _kept(scenario: Scenario, job: Job) -> dict[tuple[str, str], float]:
    """What of a shared class is the job's own: all of it for the first that shares it, the unshared part for the others."""
    kept = {}
    for entry in job.placement.entries:
        for tier in _shares(scenario.machine, job, entry) if entry.shared else ():
            if _sharers(scenario, entry.tensor_class, tier)[0] is not job:
                kept[tier, entry.tensor_class.value] = 1.0 - entry.shared
    return kept


def _shared_elsewhere(parts: Sequence[Part]) -> dict[str, float]:
    """Bytes by tier that jobs hold throughout and share with the job that holds them."""
    found: dict[str, float] = {}
    for part in parts:
        for item, num in part.program.resident:
            gone = 1.0 - part.kept.get((item.tier, item.tensor_class), 1.0)
            if gone > 0.0:
                tier = part.tiers.get(item.tier, item.tier)
                found[tier] = found.get(tier, 0.0) + gone * item.size_bytes * num
    return found


def _shared(scenario: Scenario, steps: Sequence[Step]) -> list[Coherence]:
    """The shared regions of every job."""
    return [_coherence(scenario, job, step) for job, step in zip(scenario.jobs, steps, strict=True)]


def _coherence(scenario: Scenario, job: Job, step: Step) -> Coherence:
    machine, regions = scenario.machine, {}
    host = _host(machine, job)
    view = _view(machine, job)
    sizes = demands(step, len(view.gpus()))
    for entry in job.placement.entries:
        for tier, part in _shares(machine, job, entry).items() if entry.shared else ():
            hosts = dict.fromkeys(_host(machine, other) for other in _sharers(scenario, entry.tensor_class, tier))
            device = machine.tiers[tier].device
            others = [_cpu(machine, name) for name in hosts if name != host]
            size = sizes[entry.tensor_class].size_bytes if entry.tensor_class in sizes else 0.0
            region_bytes = size * part * entry.shared
            cache = float(machine.part(_cpu(machine, host)).get("last_level_cache", 0.0) or 0.0)  # type: ignore[arg-type]
            regions[tier, entry.tensor_class] = Region(
                share=entry.shared,
                num_hosts=len(hosts),
                cached_share=min(1.0, cache / region_bytes) if cache and region_bytes else 1.0,
                to_hosts=tuple(edge for cpu in others for edge in routing.path(machine, device, cpu) or ()),
                from_hosts=tuple(edge for cpu in others for edge in routing.path(machine, cpu, device) or ()),
                media=machine.media[tier],
            )
    return Coherence(regions=regions)


def _cpu(machine: Machine, host: str) -> str:
    return next(name for name, device in machine.devices.items() if device.kind == "cpu" and device.host == host)
