"""Turns entries that name a policy into entries with shares, on one machine, for one job's sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sim.errors import Fault, InputError
from sim.placement.access_counters import NAME as ACCESS_COUNTER
from sim.placement.access_counters import counted_views
from sim.placement.plan import Entry, Placement
from sim.placement.policies import Demand, TierView
from sim.placement.registry import EXPLICIT, MOVING, policy
from sim.records import INFINITY, TensorClass
from sim.topology.machine import Machine

#: tier kinds that a policy may use unless its options list tiers: memory that CPU and copy engines address
_MEMORY_KINDS = ("hbm", "gddr", "dram", "lpddr", "cxl", "pmem")
#: share of writes in the CPU optimizer's traffic (12 of 28 bytes per parameter): how a tier's bandwidth is judged
_WRITE_SHARE = 0.43


def needs_policy(placement: Placement) -> bool:
    """Whether any entry leaves its shares to a policy."""
    return any(entry.policy not in EXPLICIT for entry in placement.entries)


def resolve(
    placement: Placement,
    machine: Machine,
    demands: Mapping[TensorClass, Demand],
    device: str,
    reserved: Mapping[str, float] | None = None,
) -> Placement:
    """The placement with every policy answered.

    `demands` holds the bytes of all ranks on the host of `device` per class. Classes that share a policy and its options
    are placed together, in the order of the entries; explicit entries take their room first, or `reserved` bytes by tier
    name where the caller knows better. Raises InputError when a
    policy is unknown, names a tier that is not there, or finds no room.
    """
    taken = dict(reserved) if reserved is not None else _explicit_bytes(placement, machine, demands, device)
    done: dict[int, Entry] = {}
    for name, options, indices in _together(placement.entries):
        views = seen_by(name, machine, device, options, taken, by_role=name not in MOVING)
        wanted = [demands.get(placement.entries[i].tensor_class) for i in indices]
        asked = [demand for demand in wanted if demand is not None and demand.size_bytes > 0]
        shares = policy(name).place(asked, views, options)
        for demand in asked:
            for tier, share in shares[demand.tensor_class].items():
                taken[tier] = taken.get(tier, 0.0) + share * demand.size_bytes
        for i in indices:
            entry = placement.entries[i]
            found = shares.get(entry.tensor_class, {views[0].name: 1.0})
            done[i] = replace(entry, shares=found, policy="interleave")
    return replace(placement, entries=tuple(done.get(i, entry) for i, entry in enumerate(placement.entries)))


def tier_views(
    machine: Machine, device: str, options: Mapping[str, object], taken: Mapping[str, float] | None = None, *,
    by_role: bool = False,
) -> list[TierView]:  # fmt: skip
    """What a policy sees of the tiers near `device`, fastest first; `taken` bytes are no longer free.

    Options `tiers` (a list of names or roles) replaces the default: all DRAM, CXL and persistent memory of the host.
    `by_role` takes memory that each socket with ranks has for itself together under its role: each rank uses its own.
    """
    cpu = machine.host_of(device)
    groups = _candidates(machine, device, options, machine.device(cpu).host)
    if by_role and options.get("tiers") is None:
        groups = _by_role(machine, device, groups)
    views = [_view(machine, cpu, name, members, taken or {}) for name, members in groups.items()]
    return sorted(views, key=lambda view: (-view.bandwidth_bytes_per_s, view.name))


def _view(machine: Machine, cpu: str, name: str, members: Sequence[str], taken: Mapping[str, float]) -> TierView:
    """One tier, or the memory that a role stands for: as fast as the part near `cpu`, as large as that of all sockets."""
    way: dict[str, float] = {}
    cap = INFINITY
    near = machine.members(name, cpu)
    for tier, share in near.items():
        route = machine.access(cpu, tier, write_share=_WRITE_SHARE)
        cap = min(cap, route.rate_cap_bytes_per_s)
        for channel, cost in route.uses:
            way[channel] = way.get(channel, 0.0) + share * cost / machine.channels[channel].bandwidth_per_s
    capacity = sum(machine.tiers[tier].capacity_bytes * machine.tiers[tier].multiplicity for tier in members)
    used = sum(taken.get(tier, 0.0) for tier in dict.fromkeys((name, *members)))
    return TierView(
        name=name,
        free_bytes=max(0.0, capacity - used),
        bandwidth_bytes_per_s=min([cap, *(1.0 / cost_s for cost_s in way.values() if cost_s > 0)]),
        latency_s=max(machine.latency(cpu, tier) for tier in near),
        capacity_bytes=capacity,
        way=way,
    )


def _by_role(machine: Machine, device: str, names: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The tiers with those taken together of which every socket that ranks sit on has its own, as near as the others'."""
    host = machine.device(machine.host_of(device)).host
    homes = dict.fromkeys(home for seat in machine.seats() if machine.device(home := machine.host_of(seat)).host == host)
    kinds = {machine.tiers[name].kind for name in names}
    groups = dict(names)
    for role, of_role in (("dram", ("dram", "lpddr")), ("cxl", ("cxl",)), ("pmem", ("pmem",))):
        own = [name for name in names if machine.tiers[name].kind in of_role]
        if len(homes) < 2 or kinds.isdisjoint(of_role):
            continue
        parts = [tuple(machine.members(role, home)) for home in homes]
        if sorted(tier for part in parts for tier in part) == sorted(own):
            groups = {name: members for name, members in groups.items() if name not in own} | {role: own}
    return groups


def _candidates(machine: Machine, device: str, options: Mapping[str, object], host: str) -> dict[str, Sequence[str]]:
    listed = options.get("tiers")
    if listed is not None:
        if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
            what = f"option tiers is {listed!r}"
            raise InputError(Fault(what=what, remedy="write a list such as [dram, cxl0]", path="placement.options.tiers"))
        return {tier: (tier,) for name in listed for tier in machine.members(str(name), device)}
    own = {machine.memory_tier(gpu) for gpu in machine.gpus()}
    names = [
        name
        for name, tier in machine.tiers.items()
        if tier.kind in _MEMORY_KINDS and name not in own and machine.device(tier.device).host in ("", host)
    ]
    if not names:
        what = f"machine {machine.name} has no host memory for a placement policy"
        raise InputError(Fault(what=what, remedy="name the tiers in options.tiers", path="placement.policy"))
    return {name: (name,) for name in names}


def seen_by(
    policy_name: str, machine: Machine, device: str, options: Mapping[str, object], taken: Mapping[str, float], *,
    by_role: bool = False,
) -> list[TierView]:  # fmt: skip
    """The tiers among which a policy decides, the fastest first."""
    if policy_name == ACCESS_COUNTER:
        return counted_views(machine, device, taken)
    return tier_views(machine, device, options, taken, by_role=by_role)


def _explicit_bytes(
    placement: Placement, machine: Machine, demands: Mapping[TensorClass, Demand], device: str
) -> dict[str, float]:
    taken: dict[str, float] = {}
    for entry in placement.entries:
        demand = demands.get(entry.tensor_class)
        if entry.policy in EXPLICIT and demand is not None and entry.layers is None:
            for name, share in machine.tier_shares(entry.shares, device).items():
                taken[name] = taken.get(name, 0.0) + share * demand.size_bytes
    return taken


def _together(entries: Sequence[Entry]) -> Iterable[tuple[str, Mapping[str, object], list[int]]]:
    """Entries by policy and options, in order of first appearance."""
    groups: list[tuple[str, Mapping[str, object], list[int]]] = []
    for i, entry in enumerate(entries):
        if entry.policy in EXPLICIT:
            continue
        for name, options, indices in groups:
            if name == entry.policy and options == entry.options:
                indices.append(i)
                break
        else:
            groups.append((entry.policy, entry.options, [i]))
    return groups
