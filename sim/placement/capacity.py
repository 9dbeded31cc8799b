"""The capacity plan: what a workload needs of each tier of a machine, at its peak, against what the tier has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sim.placement.effective import class_shares, effective_placement
from sim.placement.plan import Placement
from sim.topology.machine import Machine
from sim.units import format_bytes
from sim.workload.footprint import Peak, footprint
from sim.workload.inference import Inference
from sim.workload.training import Training

#: from this share of its capacity on a tier is tight: runs of the same configuration differ by some percent
TIGHT = 0.90
Verdict = Literal["fits", "tight", "does_not_fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierNeed:
    """Peak of one member of a tier: bytes, the phase in which it occurs, and what it consists of."""

    tier: str
    capacity_bytes: float
    peak_bytes: float
    phase: str
    by_class: Mapping[str, float] = field(default_factory=dict)

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

    GPU tiers are those of the rank that needs most. Raises InputError for a tier that the machine lacks.
    """
    effective = effective_placement(placement, workload)
    layers = workload.model.layers
    gpus = machine.gpus()
    per_host = max(1, len(gpus) // max(1, len(machine.hosts())))
    found = footprint(workload, class_shares(effective, layers), ranks_per_host=per_host)
    needs: dict[str, TierNeed] = {}
    for role in found.tiers():
        name = machine.resolve(role, gpus[0]) if gpus else role
        needs[name] = _need(name, machine, found.peak(role))
    return needs


def _need(name: str, machine: Machine, peak: Peak) -> TierNeed:
    return TierNeed(
        tier=name,
        capacity_bytes=machine.tiers[name].capacity_bytes,
        peak_bytes=peak.size_bytes,
        phase=peak.phase,
        by_class=peak.by_class,
    )
