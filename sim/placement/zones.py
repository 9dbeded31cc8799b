"""Memory that Linux puts online as ZONE_MOVABLE: pages there can be moved away again, so nothing that must stay may lie there.

Page-locked buffers (cudaHostAlloc, io_uring, RDMA: FOLL_LONGTERM) are moved out of the zone before they are locked, into
ordinary memory. Nothing of the kernel's is allowed in either: the descriptors of the zone's own pages (64 bytes of struct page
for each 4096) lie in ordinary memory too. So DRAM can run out while an expander is nearly empty. Source: Linux
admin-guide/mm/memory-hotplug.rst (ZONE_MOVABLE, vmemmap); ndctl issue 110 is a report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from sim.placement.effective import effective_placement
from sim.placement.plan import Entry, Placement
from sim.records import TensorClass
from sim.topology.machine import Machine
from sim.units import format_bytes
from sim.workload.footprint.pinned import pinned_classes
from sim.workload.inference import Inference
from sim.workload.training import Training

#: struct page per page of 4 KiB
DESCRIPTOR_SHARE = 64.0 / 4096.0


def movable_tiers(machine: Machine) -> tuple[str, ...]:
    """Tiers that are online as movable memory."""
    return tuple(name for name, tier in machine.tiers.items() if tier.device and machine.devices[tier.device].is_movable)


def descriptor_bytes(machine: Machine) -> float:
    """Ordinary memory that the descriptors of movable pages take."""
    return DESCRIPTOR_SHARE * sum(machine.tiers[name].capacity_bytes for name in movable_tiers(machine))


def without_pinned(placement: Placement, workload: object, machine: Machine) -> Placement:
    """The placement as the kernel leaves it: page-locked classes that were to lie in movable memory lie in DRAM."""
    movable = movable_tiers(machine)
    if not movable or not machine.seats() or not isinstance(workload, (Training, Inference)):
        return placement
    pinned, gpu = pinned_classes(workload), machine.seats()[0]

    def moved(shares: Mapping[str, float]) -> dict[str, float]:
        found: dict[str, float] = {}
        for tier, share in shares.items():
            parts = machine.members(tier, gpu)
            stuck = sum(part for name, part in parts.items() if name in movable)
            if stuck:
                found["dram"] = found.get("dram", 0.0) + share * stuck
            for name, part in {tier: 1.0}.items() if not stuck else parts.items():
                if name not in movable:
                    found[name] = found.get(name, 0.0) + share * part
        return found

    changed = [
        dataclasses.replace(entry, shares=moved(entry.shares))
        for entry in effective_placement(placement, workload).entries
        if entry.tensor_class in pinned and entry.shares and moved(entry.shares) != dict(entry.shares)
    ]
    kept = tuple(entry for entry in placement.entries if not _is_replaced(entry, changed))
    return dataclasses.replace(placement, entries=(*kept, *changed)) if changed else placement


def _is_replaced(entry: Entry, changed: list[Entry]) -> bool:
    return any(other.tensor_class == entry.tensor_class and other.layers == entry.layers for other in changed)


def zone_notes(workload: object, machine: Machine) -> tuple[str, ...]:
    """What movable memory cannot hold of this job, in words; none where there is no such memory."""
    movable = movable_tiers(machine)
    if not movable or not isinstance(workload, (Training, Inference)):
        return ()
    pinned = sorted(pinned_classes(workload), key=list(TensorClass).index)
    classes = ", ".join(name.value.replace("_", " ") for name in pinned)
    what = f"page-locked {classes} lie in DRAM, and so do" if pinned else "in DRAM lie"
    size = format_bytes(descriptor_bytes(machine))
    return (f"{', '.join(movable)}: online as movable memory (ZONE_MOVABLE): {what} {size} of its page descriptors",)
