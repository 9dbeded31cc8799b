"""The capacity plan: what a workload needs of each tier of a machine, at its peak, against what the tier has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sim.kept import Kept
from sim.placement.effective import class_shares, effective_placement
from sim.placement.plan import Placement
from sim.placement.zones import descriptor_bytes
from sim.topology.machine import Machine
from sim.units import format_bytes
from sim.workload.footprint import Footprint, Peak, Term, footprint, phase_of
from sim.workload.inference import Inference
from sim.workload.training import Training

#: from this share of its capacity on a tier is tight: runs of the same configuration differ by some percent
TIGHT = 0.90
#: what a host's memory holds for full GPUs, as a class of its own
SPILLED = "spilled_gpu_memory"
Verdict = Literal["fits", "tight", "does_not_fit"]

#: footprints of the workloads that were asked for last: points of a sweep that differ in the machine share them
_FOOTPRINTS: Kept[Footprint] = Kept(1_000, lambda _: 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierNeed:
    """Peak of one member of a tier: bytes, the phase in which it occurs, and what it consists of."""

    tier: str
    capacity_bytes: float
    peak_bytes: float
    phase: str
    by_class: Mapping[str, float] = field(default_factory=dict)
    largest: tuple[Term, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether the tier holds it, with the margin in which runs differ."""
        return verdict(self.peak_bytes, self.capacity_bytes)

    def sentence(self) -> str:
        """What is needed, in words; see :func:`needs_sentence`."""
        return needs_sentence(self.tier, self.peak_bytes, self.capacity_bytes, self.phase, self.by_class)


def verdict(peak_bytes: float, capacity_bytes: float) -> Verdict:
    """fits up to 90 % of the capacity, tight up to all of it, does_not_fit one byte above."""
    if peak_bytes > capacity_bytes:
        return "does_not_fit"
    return "tight" if peak_bytes > TIGHT * capacity_bytes else "fits"


def needs_sentence(
    tier: str, peak_bytes: float, capacity_bytes: float, phase: str = "", by_class: Mapping[str, float] | None = None
) -> str:
    """``gpu0.gddr needs 26.1 GiB of 24 GiB in phase backward, 2.1 GiB too much (largest: weights 12 GiB, ...)``."""
    text = f"{tier} needs {format_bytes(peak_bytes)} of {format_bytes(capacity_bytes)}"
    text += f" in phase {phase}" if phase else ""
    text += f", {format_bytes(peak_bytes - capacity_bytes)} too much" if peak_bytes > capacity_bytes else ""
    largest = sorted((by_class or {}).items(), key=lambda item: -item[1])[:3]
    classes = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in largest)
    return f"{text} (largest: {classes})" if classes else text


def capacity_plan(workload: Training | Inference, placement: Placement, machine: Machine) -> dict[str, TierNeed]:
    """Need of every tier that the workload touches, by tier name; ranks of one host share its memory.

    GPU tiers are those of the rank that needs most, on the smallest GPU. Host memory is counted per NUMA node: every
    rank uses the node nearest to its GPU; what a node cannot hold goes to the others of its kind, as Linux does, unless
    ranks are bound to their node. Raises InputError for a tier that the machine lacks.
    """
    found = plan_footprint(workload, placement, machine)
    gpus = used_gpus(machine, found.ranks_per_host)
    if not any(machine.memory_tier(gpu) == machine.resolve("dram", gpu) for gpu in gpus):
        return _needs(found, workload, machine)
    fullest: dict[str, TierNeed] = {}  # one memory holds both parts: what adds up is what they need at one moment
    for moment in found.moments:
        for name, need in _needs(found, workload, machine, (moment,)).items():
            known = fullest.get(name)
            if known is None or need.peak_bytes - need.capacity_bytes > known.peak_bytes - known.capacity_bytes:
                fullest[name] = need
    return fullest


def phase_plan(workload: Training | Inference, placement: Placement, machine: Machine) -> dict[str, dict[str, float]]:
    """Bytes that each tier must hold in each phase: phase -> tier name -> bytes, as :func:`capacity_plan` counts them."""
    found = plan_footprint(workload, placement, machine)
    phases: dict[str, dict[str, float]] = {}
    for moment in found.moments:
        row = phases.setdefault(phase_of(moment), {})
        for name, need in _needs(found, workload, machine, (moment,)).items():
            row[name] = max(row.get(name, 0.0), need.peak_bytes)
    return phases


def _needs(
    found: Footprint, workload: Training | Inference, machine: Machine, moments: tuple[str, ...] = ()
) -> dict[str, TierNeed]:
    gpus = used_gpus(machine, found.ranks_per_host)
    needs: dict[str, TierNeed] = {}
    usable = workload.memory_utilisation if isinstance(workload, Inference) else 1.0
    of_gpus: dict[str, float] = {}
    for role in found.tiers():
        peak = found.peak(role, moments)
        if role == "gpu" and gpus:
            own = [machine.memory_tier(gpu) for gpu in gpus]
            smallest = min(own, key=lambda name: machine.tiers[name].capacity_bytes)
            shown = dict.fromkeys(own) if machine.resolve("dram", gpus[0]) in own else (smallest,)  # host terms join them
            parts = {name: peak.size_bytes * own.count(name) for name in shown}  # ranks on one shared memory add up
            of_gpus = parts
        else:
            parts = _spread(role, peak.size_bytes, machine, gpus, is_bound=_is_bound(workload))
        for name, size in parts.items():
            whole = machine.tiers[name].capacity_bytes
            _add(needs, name, whole * usable if role == "gpu" else whole, peak, size)
    for name, size in of_gpus.items():
        needs[name] = _limited(needs[name], size, machine)
    return _lent(needs, gpus, machine) if machine.lent_bytes else needs


def _lent(needs: dict[str, TierNeed], gpus: tuple[str, ...], machine: Machine) -> dict[str, TierNeed]:
    """The needs once what the driver lends to full GPUs has taken what they lack."""
    spilled = {gpu: _spilled(need, machine, len(gpus)) for gpu, need in _needs_of(needs, gpus, machine).items()}
    taken: dict[str, float] = {}
    for gpu, size in spilled.items():
        own, home = machine.memory_tier(gpu), machine.resolve("dram", gpu)
        taken[own] = size
        taken[home] = taken.get(home, 0.0) - size
    found = dict(needs)
    for name, size in taken.items():
        if size and (need := found.get(name)) is not None:
            parts = dict(need.by_class) if size > 0 else {**need.by_class, SPILLED: -size}
            found[name] = replace(need, peak_bytes=need.peak_bytes - size, by_class=parts)
    return found


def _spilled(need: TierNeed, machine: Machine, num_gpus: int) -> float:
    """What of one GPU's peak lies in host memory: the excess, up to its part of what the driver lends."""
    return min(max(0.0, need.peak_bytes - need.capacity_bytes), machine.lent_bytes / max(1, num_gpus))


def _needs_of(needs: Mapping[str, TierNeed], gpus: tuple[str, ...], machine: Machine) -> dict[str, TierNeed]:
    """GPUs with memory of their own and their needs; all need what the fullest one does."""
    own = {gpu: machine.memory_tier(gpu) for gpu in gpus}
    shown = next((needs[name] for name in own.values() if name in needs), None)
    if shown is None or any(machine.resolve("dram", gpu) == name for gpu, name in own.items()):
        return {}
    return dict.fromkeys(gpus, shown)


def spilled_by_gpu(workload: Training | Inference, placement: Placement, machine: Machine) -> dict[str, tuple[float, float]]:
    """GPU -> (bytes that lie in memory lent by the host, all bytes that it needs); only GPUs that lack memory."""
    plain = replace(machine, lent_bytes=0.0)
    found = plan_footprint(workload, placement, machine)
    gpus = used_gpus(machine, found.ranks_per_host)
    needs = _needs_of(_needs(found, workload, plain), gpus, machine)
    spilled = {gpu: (_spilled(need, machine, len(gpus)), need.peak_bytes) for gpu, need in needs.items()}
    return {gpu: sizes for gpu, sizes in spilled.items() if sizes[0] > 0}


def _limited(need: TierNeed, gpu_bytes: float, machine: Machine) -> TierNeed:
    """The need of a memory of which the GPU may allocate a share only: its capacity is that share and what the host uses."""
    tier = machine.tiers[need.tier]
    share = machine.devices[tier.device].gpu_share
    allowed = share * tier.capacity_bytes + need.peak_bytes - gpu_bytes
    return need if share == 1.0 or allowed >= need.capacity_bytes else replace(need, capacity_bytes=allowed)


def plan_footprint(workload: Training | Inference, placement: Placement, machine: Machine) -> Footprint:
    """The footprint of the workload as this placement and this machine leave it."""
    homes = class_shares(effective_placement(placement, workload), workload.model.layers)
    per_host = max(1, len(machine.seats()) // max(1, len(machine.hosts())))
    reserved = machine.reserved_bytes + descriptor_bytes(machine)
    key = (workload, tuple((name, tuple(shares.items())) for name, shares in homes.items()), per_host, reserved)
    return _FOOTPRINTS.get(key, lambda: footprint(workload, homes, ranks_per_host=per_host, reserved_bytes=reserved))


def used_gpus(machine: Machine, num_ranks: int) -> tuple[str, ...]:
    """The GPUs (sockets, if there are none) of one host that the ranks on it run on."""
    return machine.seats()[:num_ranks]


def _spread(role: str, size_bytes: float, machine: Machine, gpus: tuple[str, ...], *, is_bound: bool) -> dict[str, float]:
    """Bytes of a host role by tier name: each rank's part on its own node, the excess on the others of that kind."""
    users = gpus or ("",)
    homes = [machine.resolve(role, gpu) for gpu in users]
    parts: dict[str, float] = {}
    for gpu in users:
        for name, share in machine.members(role, gpu).items():
            parts[name] = parts.get(name, 0.0) + size_bytes * share / len(users)
    kind = machine.tiers[homes[0]].kind
    if is_bound or role in machine.tiers or kind == "nvme":  # files do not spill to another drive
        return parts
    peers = [name for name, tier in machine.tiers.items() if tier.kind == kind and _is_near(machine, name, homes[0])]
    room = {name: machine.tiers[name].capacity_bytes - parts.get(name, 0.0) for name in peers}
    excess = sum(-free for free in room.values() if free < 0)
    if excess <= 0:
        return parts
    total = sum(machine.tiers[name].capacity_bytes for name in peers)
    if size_bytes >= total:  # more than all of them: shown in proportion to what they have
        return {name: size_bytes * machine.tiers[name].capacity_bytes / total for name in peers}
    free = sum(amount for amount in room.values() if amount > 0)
    filled = {name: parts.get(name, 0.0) + min(0.0, room[name]) + max(0.0, room[name]) * excess / free for name in peers}
    return {name: size for name, size in filled.items() if size > 0}


def _is_near(machine: Machine, name: str, other: str) -> bool:
    """Whether two tiers hang on devices of one host."""
    hosts = [machine.devices[device].host if device in machine.devices else "" for device in _devices(machine, name, other)]
    return hosts[0] == hosts[1]


def _devices(machine: Machine, *tiers: str) -> list[str]:
    return [machine.media[name].device if name in machine.media else machine.tiers[name].device for name in tiers]


def _is_bound(workload: Training | Inference) -> bool:
    return isinstance(workload, Training) and bool(workload.offload.cores_bound)


def _add(needs: dict[str, TierNeed], name: str, capacity: float, peak: Peak, size: float) -> None:
    """Put a role's bytes on a tier; two roles that are one tier (unified memory) add up.

    The GPU's part of unified memory may have a limit of its own: where that binds first, it is what is told.
    """
    scale = size / peak.size_bytes if peak.size_bytes else 0.0
    parts = {kind: part * scale for kind, part in peak.by_class.items()}
    before = needs.get(name)
    if before is not None:
        parts = {kind: parts.get(kind, 0.0) + before.by_class.get(kind, 0.0) for kind in {**before.by_class, **parts}}
        size += before.peak_bytes
    if before is not None and before.peak_bytes / before.capacity_bytes > size / capacity:
        return
    needs[name] = TierNeed(
        tier=name,
        capacity_bytes=capacity,
        peak_bytes=size,
        phase=before.phase if before is not None and before.peak_bytes > size / 2 else peak.phase,
        by_class=parts,
        largest=(before.largest if before is not None else ()) + peak.largest,
    )
