"""Classes that are accessed unevenly: which share of the accesses each tier answers, and groups of items by heat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.laws.skew import accesses_by_tier, heat_groups
from sim.placement.plan import Entry, Placement
from sim.placement.policies import Demand
from sim.placement.resolve import tier_views
from sim.records import TensorClass
from sim.topology.machine import Machine


def is_uneven(placement: Placement) -> bool:
    """Whether any class is accessed unevenly."""
    return any(entry.skew > 0.0 for entry in placement.entries)


def num_items(entry: Entry, size_bytes: float) -> float:
    """Items of a class of `size_bytes`; at least one."""
    return max(1.0, size_bytes / entry.granule_bytes)


def groups_of(entry: Entry, size_bytes: float) -> list[tuple[float, float]]:
    """(share of the bytes, share of the accesses) of the class's items by heat, hottest first."""
    return heat_groups(entry.skew, num_items(entry, size_bytes))


def with_accesses(placement: Placement, machine: Machine, demands: Mapping[TensorClass, Demand]) -> Placement:
    """The placement with the accesses that each tier answers, where a hint says which items the fastest tiers hold."""

    def answered(entry: Entry) -> Entry:
        demand = demands.get(entry.tensor_class)
        if entry.skew <= 0.0 or entry.hint == "none" or demand is None or not entry.shares:
            return entry
        order = fastest_first(entry.shares, machine)
        found = accesses_by_tier(entry.shares, order, entry.hint, entry.skew, num_items(entry, demand.size_bytes))
        return replace(entry, accesses=found)

    return replace(placement, entries=tuple(answered(entry) for entry in placement.entries))


def fastest_first(shares: Mapping[str, float], machine: Machine) -> list[str]:
    """The tiers (roles or names) of an entry by the bandwidth that the host's CPU sees; the GPU's own memory before them."""
    gpu = machine.seats()[0]
    own = [name for name in shares if machine.gpus() and machine.resolve(name, gpu) == machine.memory_tier(gpu)]
    others = [name for name in shares if name not in own]
    tiers = [tier for name in others for tier in machine.members(name, gpu)]
    rates = {view.name: view.bandwidth_bytes_per_s for view in tier_views(machine, gpu, {"tiers": tiers})} if tiers else {}
    return own + sorted(others, key=lambda name: -max(rates[tier] for tier in machine.members(name, gpu)))
