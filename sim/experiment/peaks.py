"""What a job holds at most in each tier over its whole life, and which capacities and limits that exceeds."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sim.experiment.overflow import Swap, swap_of
from sim.metrics import TierUse
from sim.placement.capacity import capacity_plan, needs_sentence
from sim.placement.host_limits import limit_needs
from sim.scenario import Job, Scenario
from sim.topology.machine import Machine
from sim.workload.inference import Inference
from sim.workload.training import Training


def limited(job: Job, machine: Machine) -> list[str]:
    """One sentence per limit of the host that the job exceeds."""
    if not isinstance(job.workload, (Training, Inference)):
        return []
    needs = limit_needs(job.workload, job.placement, machine).values()
    return [need.sentence() for need in needs if need.verdict == "does_not_fit"]


def peaks(scenario: Scenario, seen_in_step: Mapping[str, TierUse]) -> dict[str, TierUse]:
    """Peak of every tier over the whole life of the job: the capacity plan, or the replayed step where that is more."""
    tiers = dict(seen_in_step)
    job = scenario.job
    if not isinstance(job.workload, (Training, Inference)):
        return tiers
    machine = scenario.machine
    for name, need in capacity_plan(job.workload, job.placement, machine).items():
        name = name if name in tiers else _stand_in(name, seen_in_step, machine)
        seen = tiers.get(name)
        if seen is None or machine.lent_bytes or need.peak_bytes > seen.peak_bytes:
            tiers[name] = TierUse(
                capacity_bytes=need.capacity_bytes,
                peak_bytes=need.peak_bytes,
                peak_phase=need.phase,
                by_class=dict(need.by_class),
                multiplicity=seen.multiplicity if seen else 1,
            )
        if isinstance(job.workload, Training) and job.workload.parallelism.pipeline == 1:
            tiers |= _same_need(name, tiers, machine)
    if swap := swap_of(job, scenario.machine):
        tiers |= _swapped(tiers, swap, scenario)
    return tiers


def _likeness(machine: Machine, tier: str) -> tuple[str, str, float]:
    own = machine.tiers[tier.rpartition(":")[2]]
    return machine.devices[own.device].part_name, own.kind, own.capacity_bytes


def _same_need(planned: str, tiers: Mapping[str, TierUse], machine: Machine) -> dict[str, TierUse]:
    """The other GPUs in use, all of which need what the capacity plan says of one of them."""
    own = machine.tiers[planned.rpartition(":")[2]]
    if machine.devices[own.device].kind != "gpu":
        return {}
    need, likeness = tiers[planned], _likeness(machine, planned)
    return {
        name: msgspec.structs.replace(need, multiplicity=use.multiplicity)
        for name, use in tiers.items()
        if 0 < use.peak_bytes < need.peak_bytes and _likeness(machine, name) == likeness
    }


def _stand_in(name: str, seen: Mapping[str, TierUse], machine: Machine) -> str:
    """The folded tier that stands for a tier which the replay does not name; the tier itself where none does."""
    alike = [tier for tier in machine.tiers if _likeness(machine, tier) == _likeness(machine, name)]
    folded = [tier for tier in seen if tier.rpartition(":")[2] in alike]
    num_seen = sum(seen[tier].multiplicity for tier in folded)
    return folded[0] if num_seen >= len(alike) * machine.num_nodes else name


def _swapped(tiers: dict[str, TierUse], swap: Swap, scenario: Scenario) -> dict[str, TierUse]:
    """The full tier and the storage that took the rest."""
    full, storage = tiers[swap.tier], tiers.get(swap.storage)
    used = storage.peak_bytes if storage else 0.0
    capacity = storage.capacity_bytes if storage else scenario.machine.tiers[swap.storage].capacity_bytes
    return {
        swap.tier: msgspec.structs.replace(full, peak_bytes=full.peak_bytes - swap.moved_bytes),
        swap.storage: TierUse(
            capacity_bytes=capacity, peak_bytes=used + swap.moved_bytes, peak_phase="update",
            by_class=dict(storage.by_class if storage else {}) | {"swap": swap.moved_bytes},
        ),
    }  # fmt: skip


def overflows(tiers: Mapping[str, TierUse]) -> list[str]:
    """One sentence per tier whose peak exceeds its capacity."""
    return [
        needs_sentence(name, tier.peak_bytes, tier.capacity_bytes, tier.peak_phase, tier.by_class)
        for name, tier in tiers.items()
        if tier.peak_bytes > tier.capacity_bytes
    ]
