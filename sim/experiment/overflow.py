"""Memory that runs out: what spills to other memory, what a host swaps, what its page cache still holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from sim.laws.paging import cache_hit_share
from sim.placement.capacity import TierNeed, capacity_plan
from sim.placement.effective import class_shares, effective_placement
from sim.placement.plan import Entry, Placement
from sim.placement.resolve import tier_views
from sim.placement.zones import movable_tiers
from sim.records import Step, TensorClass
from sim.scenario import Job
from sim.topology.machine import Machine
from sim.units import format_bytes
from sim.workload.decode.generate import sampled_tokens
from sim.workload.footprint.inference import weight_bytes
from sim.workload.footprint.pinned import pinned_classes
from sim.workload.frameworks.inference import inference_profile
from sim.workload.inference import Inference
from sim.workload.training import Training

#: classes that a host holds in ordinary memory; page-locked buffers cannot be swapped
_PAGEABLE = (TensorClass.OPTIMIZER_STATES, TensorClass.MASTER_WEIGHTS)
#: page-locked unless the job says otherwise (`offload.pin_memory: false`)
_USUALLY_PINNED = (TensorClass.GRADIENTS, TensorClass.WEIGHTS)
_PAGED_KINDS = ("dram", "lpddr")
#: rounds of moving what is too much, each judged by a new capacity plan (page-locked buffers shrink in steps)
_ROUNDS = 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A host tier that is too small, what of it may be paged, and to where.

    `updated_bytes` are swept by the CPU (optimizer, or layers that it computes), `copied_bytes` by copies to and from the
    GPU, `num_sweeps` times in what is simulated.
    """

    tier: str
    storage: str
    updated_bytes: float
    copied_bytes: float
    room_bytes: float
    num_sweeps: int = 1

    @property
    def pageable_bytes(self) -> float:
        """All that may be paged."""
        return self.updated_bytes + self.copied_bytes

    @property
    def moved_bytes(self) -> float:
        """Bytes that do not fit beside the rest."""
        return self.pageable_bytes - self.room_bytes


def swap_of(job: Job, machine: Machine) -> Swap | None:
    """What a job with `overflow: swap` pages; None when it fits, may not page, or cannot: pinned memory stays where it is."""
    if job.placement.overflow != "swap" or not isinstance(job.workload, (Training, Inference)):
        return None
    num_sweeps = 1
    if isinstance(job.workload, Inference):  # the model's file is mapped: every token sweeps its pages
        num_sweeps += len(sampled_tokens(job.workload.output_length))
    for name, need in capacity_plan(job.workload, job.placement, machine).items():
        if machine.tiers[name].kind not in _PAGED_KINDS or need.peak_bytes <= need.capacity_bytes:
            continue
        by_cpu, by_copies = _swept(job.workload)
        updated = sum(need.by_class.get(item.value, 0.0) for item in by_cpu)
        copied = sum(need.by_class.get(item.value, 0.0) for item in by_copies)
        room = need.capacity_bytes - (need.peak_bytes - updated - copied)
        if room >= 0:
            storage = machine.resolve("nvme", machine.tiers[name].device)
            return Swap(
                tier=name, storage=storage, updated_bytes=updated, copied_bytes=copied, room_bytes=room, num_sweeps=num_sweeps
            )
    return None


def locked_notes(job: Job, machine: Machine) -> tuple[str, ...]:
    """Why a job that may swap does not fit: what is page-locked is too much by itself. Nothing where paging answers."""
    if job.placement.overflow != "swap" or not isinstance(job.workload, (Training, Inference)):
        return ()
    swept = [item.value for classes in _swept(job.workload) for item in classes]
    notes = []
    for name, need in capacity_plan(job.workload, job.placement, machine).items():
        locked = need.peak_bytes - sum(need.by_class.get(item, 0.0) for item in swept)
        if machine.tiers[name].kind in _PAGED_KINDS and locked > need.capacity_bytes:
            remedy = "; offload.pin_memory: false lets gradients and weights swap too" if _is_locking(job.workload) else ""
            notes.append(
                f"{format_bytes(locked)} of it cannot be swapped: page-locked buffers, or in use by the system{remedy}"
            )
    return tuple(notes)


def _is_locking(workload: Training | Inference) -> bool:
    return isinstance(workload, Training) and workload.offload.pin_memory is not False


def _swept(workload: Training | Inference) -> tuple[tuple[TensorClass, ...], tuple[TensorClass, ...]]:
    """Classes in ordinary memory that the CPU sweeps, and those that copies sweep."""
    if isinstance(workload, Training):
        return _PAGEABLE, _USUALLY_PINNED if workload.offload.pin_memory is False else ()
    if workload.splits_weights:
        return (TensorClass.WEIGHTS,), ()
    return (), () if inference_profile(workload.framework).is_pinned else (TensorClass.WEIGHTS,)


# ------------------------------------------------------------------------------------------------------------------ spill


def spilled(job: Job, machine: Machine, step: Step) -> Job:
    """With `overflow: spill`, the job with what a full host tier cannot hold moved to the next nearest memory with room.

    The coldest class goes first (touches per byte and step), then the next; memory tiers are filled from the lowest latency
    on. What fits nowhere stays, and the job does not fit.
    """
    from sim.placement.demand import demands

    if job.placement.overflow != "spill" or not isinstance(job.workload, (Training, Inference)) or not machine.seats():
        return job
    heat = {name: demand.hotness for name, demand in demands(step, len(machine.seats())).items()}
    for _ in range(_ROUNDS):
        plan = capacity_plan(job.workload, job.placement, machine)
        full = next((need for need in plan.values() if _is_full_host(need, machine)), None)
        moved = _moved(job, machine, full, plan, heat) if full is not None else None
        if moved is None:
            return job
        job = dataclasses.replace(job, placement=moved)
    return job


def spill_notes(asked: Placement, job: Job) -> tuple[str, ...]:
    """What was spilled, in words."""
    if asked.overflow != "spill" or not isinstance(job.workload, (Training, Inference)):
        return ()
    layers = job.workload.model.layers
    before = class_shares(effective_placement(asked, job.workload), layers)
    after = class_shares(effective_placement(job.placement, job.workload), layers)
    return tuple(
        f"{name.value.replace('_', ' ')} spill: {100 * share:.3g} % lies on {tier}"
        for name, shares in after.items()
        for tier, share in shares.items()
        if tier not in before.get(name, {}) and shares != before.get(name)
    )


def _is_full_host(need: TierNeed, machine: Machine) -> bool:
    return machine.tiers[need.tier].kind in _PAGED_KINDS and need.peak_bytes > need.capacity_bytes


def _moved(
    job: Job, machine: Machine, full: TierNeed, plan: Mapping[str, TierNeed], heat: Mapping[TensorClass, float]
) -> Placement | None:
    """The placement with part of the coldest class on the next tier with room; None when nothing can move."""
    assert isinstance(job.workload, (Training, Inference))
    gpu = machine.seats()[0]
    taken = {name: need.peak_bytes for name, need in plan.items()}
    views = sorted(tier_views(machine, gpu, {}, taken), key=lambda view: view.latency_s)
    target = next((view for view in views if view.name != full.tier and view.free_bytes > 0), None)
    excess = full.peak_bytes - full.capacity_bytes
    homes = class_shares(effective_placement(job.placement, job.workload), job.workload.model.layers)
    here = {
        name: share
        for name, shares in homes.items()
        for tier, share in shares.items()
        if machine.resolve(tier, gpu) == full.tier and full.by_class.get(name.value, 0.0) > 0
    }
    if target is not None and target.name in movable_tiers(machine):
        here = {name: share for name, share in here.items() if name not in pinned_classes(job.workload)}
    if target is None or not here:
        return None
    coldest = min(here, key=lambda name: (heat.get(name, 0.0), name.value))
    held = full.by_class[coldest.value]
    size = min(excess, held, target.free_bytes)
    shares = machine.tier_shares(homes[coldest], gpu)
    part = here[coldest] * size / held
    shares[full.tier] -= part
    shares[target.name] = shares.get(target.name, 0.0) + part
    kept = {tier: share for tier, share in shares.items() if share > 1e-9}
    entries = tuple(entry for entry in job.placement.entries if entry.tensor_class != coldest)
    return dataclasses.replace(job.placement, entries=(*entries, Entry(tensor_class=coldest, shares=kept)))


# ------------------------------------------------------------------------------------------------------------- page cache


def page_cached(job: Job, machine: Machine) -> Job:
    """The job reading from storage only what its page cache does not hold: nothing after the first epoch if the data set fits.

    A training run reads its data set cyclically, so a cache that is too small misses everything.
    """
    workload = job.workload
    if not isinstance(workload, Training) or workload.data is None or workload.dataset is None or not machine.gpus():
        return job
    home = machine.resolve("dram", machine.gpus()[0])
    need = capacity_plan(workload, job.placement, machine).get(home)
    room = need.capacity_bytes - need.peak_bytes if need is not None else machine.tiers[home].capacity_bytes
    size = workload.dataset.samples * workload.data.bytes_per_sample
    hits = cache_hit_share(size, room, workload.dataset.epochs)
    if hits == 0.0:
        return job
    read, file = workload.data.bytes_per_sample, workload.data.bytes_per_file
    data = dataclasses.replace(workload.data, bytes_per_sample=read * (1.0 - hits), bytes_per_file=file or read)
    return dataclasses.replace(job, workload=dataclasses.replace(workload, data=data))


def cache_notes(asked: Job, job: Job) -> tuple[str, ...]:
    """What the page cache saves, in words."""
    before, after = asked.workload, job.workload
    if not isinstance(before, Training) or not isinstance(after, Training) or before.data is None or after.data is None:
        return ()
    if after.data == before.data or before.dataset is None:
        return ()
    size = format_bytes(before.dataset.samples * before.data.bytes_per_sample)
    return (f"the page cache holds the data set ({size}): it is read from storage in the first of its epochs only",)


def file_cache_bytes(job: Job, machine: Machine) -> float:
    """Bytes of a model's file that the page cache holds beside the weights in use, once they are loaded; reclaimable.

    Where CPU and GPU have one memory, the runtime maps the file: its cached pages *are* the weights (zero copy). A discrete GPU
    has its own copy, and the host keeps the file as far as it has room.
    """
    workload = job.workload
    if not isinstance(workload, Inference) or not machine.gpus():
        return 0.0
    gpu = machine.gpus()[0]
    home = machine.resolve("dram", gpu)
    if home == machine.memory_tier(gpu):
        return 0.0
    need = capacity_plan(workload, job.placement, machine).get(home)
    room = machine.tiers[home].capacity_bytes - (need.peak_bytes if need else 0.0)
    return max(0.0, min(weight_bytes(workload), room))
