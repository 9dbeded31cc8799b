"""What jobs of several hosts share and how they meet: regions of a pool that are there once, and the weight of each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.placement.demand import demands
from sim.placement.plan import Entry
from sim.program.coherence import Coherence, Region
from sim.program.merge import Part
from sim.records import Step, TensorClass
from sim.scenario import Job, Scenario
from sim.topology import walk
from sim.topology.machine import Machine
from sim.topology.view import job_view
from sim.workload.training import Training


def host_name(machine: Machine, job: Job) -> str:
    """The host that a job runs on: its own, or the first of the machine."""
    return job.host or machine.hosts()[0]


def outstanding_bytes(machine: Machine, job: Job) -> float:
    """Bytes that the threads of one rank keep in flight: by them, hosts share a saturated device."""
    part, view = machine.part(cpu_of_host(machine, host_name(machine, job))), _view(machine, job)
    cores = float(part["cores"]) / max(1, len(view.gpus()))  # type: ignore[arg-type]
    if isinstance(job.workload, Training) and job.workload.offload.cores_per_rank:
        cores = float(job.workload.offload.cores_per_rank)
    return cores * float(part["lines_per_core"]) * float(part["line"])  # type: ignore[arg-type]


def weights_of(scenario: Scenario) -> dict[str, float]:
    """Sharing weight of each job's flows: what it keeps in flight against the job that keeps most."""
    held = {job.name: outstanding_bytes(scenario.machine, job) for job in scenario.jobs}
    return {name: size / max(held.values()) for name, size in held.items()}


def _view(machine: Machine, job: Job) -> Machine:
    return job_view(machine, job.host, job.gpus)


def tier_shares_of(machine: Machine, job: Job, entry: Entry) -> dict[str, float]:
    """Shares of an entry by the name of the tier."""
    view = _view(machine, job)
    return view.tier_shares(entry.shares, view.seats()[0])


def _sharers(scenario: Scenario, tensor_class: TensorClass, tier: str) -> list[Job]:
    """Jobs whose entry for the class says that part of it in the tier is shared, in order."""
    return [
        job
        for job in scenario.jobs
        if any(
            entry.tensor_class == tensor_class and entry.shared > 0 and tier in tier_shares_of(scenario.machine, job, entry)
            for entry in job.placement.entries
        )
    ]


def kept_by(scenario: Scenario, job: Job) -> dict[tuple[str, str], float]:
    """What of a shared class is the job's own: all of it for the first that shares it, the unshared part for the others."""
    kept = {}
    for entry in job.placement.entries:
        for tier in tier_shares_of(scenario.machine, job, entry) if entry.shared else ():
            if _sharers(scenario, entry.tensor_class, tier)[0] is not job:
                kept[tier, entry.tensor_class.value] = 1.0 - entry.shared
    return kept


def shared_elsewhere(parts: Sequence[Part]) -> dict[str, float]:
    """Bytes by tier that jobs hold throughout and share with the job that holds them."""
    found: dict[str, float] = {}
    for part in parts:
        for item, num in part.program.resident:
            gone = 1.0 - part.kept.get((item.tier, item.tensor_class), 1.0)
            if gone > 0.0:
                tier = part.tiers.get(item.tier, item.tier)
                found[tier] = found.get(tier, 0.0) + gone * item.size_bytes * num
    return found


def shared_regions(scenario: Scenario, steps: Sequence[Step]) -> list[Coherence]:
    """The shared regions of every job."""
    return [_coherence(scenario, job, step) for job, step in zip(scenario.jobs, steps, strict=True)]


def _coherence(scenario: Scenario, job: Job, step: Step) -> Coherence:
    machine, regions = scenario.machine, {}
    host = host_name(machine, job)
    own, view = cpu_of_host(machine, host), _view(machine, job)
    sizes = demands(step, len(view.seats()))
    region_sizes = _region_bytes(machine, job, {name: demand.size_bytes for name, demand in sizes.items()})
    for entry in job.placement.entries:
        for tier in tier_shares_of(machine, job, entry) if entry.shared else ():
            hosts = dict.fromkeys(host_name(machine, other) for other in _sharers(scenario, entry.tensor_class, tier))
            device = machine.tiers[tier].device
            others = [cpu_of_host(machine, name) for name in hosts if name != host]
            region_bytes = region_sizes[tier, entry.tensor_class]
            tracked = float(machine.devices[device].part.get("snoop_filter", 0.0) or 0.0)  # type: ignore[arg-type]
            in_device = sum(size for (name, _), size in region_sizes.items() if name == tier)
            cache = float(machine.part(cpu_of_host(machine, host)).get("last_level_cache", 0.0) or 0.0)  # type: ignore[arg-type]
            regions[tier, entry.tensor_class] = Region(
                share=entry.shared,
                num_hosts=len(hosts),
                cached_share=min(1.0, cache / region_bytes) if cache and region_bytes else 1.0,
                tracked_share=min(1.0, tracked / in_device) if tracked and in_device else 1.0,
                to_hosts=tuple(edge for cpu in others for edge in walk.path(machine, device, cpu) or ()),
                from_hosts=tuple(edge for cpu in others for edge in walk.path(machine, cpu, device) or ()),
                to_self=tuple(walk.path(machine, device, own) or ()),
                from_self=tuple(walk.path(machine, own, device) or ()),
                media=machine.media[tier],
            )
    return Coherence(regions=regions)


def _region_bytes(machine: Machine, job: Job, sizes: Mapping[TensorClass, float]) -> dict[tuple[str, TensorClass], float]:
    """Bytes of each shared region of the job by tier and class: lines of all of them compete for the device's snoop filter."""
    return {
        (tier, entry.tensor_class): sizes.get(entry.tensor_class, 0.0) * part * entry.shared
        for entry in job.placement.entries
        if entry.shared
        for tier, part in tier_shares_of(machine, job, entry).items()
    }


def cpu_of_host(machine: Machine, host: str) -> str:
    """The first socket of a host."""
    return next(name for name, device in machine.devices.items() if device.kind == "cpu" and device.host == host)
