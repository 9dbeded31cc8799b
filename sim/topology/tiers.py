"""Which memory is meant: the tier of a role as a device sees it, and the CPU that a device hangs on."""

from __future__ import annotations

from sim.errors import Fault, InputError, MachineError
from sim.records import INFINITY
from sim.topology.graph import Media
from sim.topology.inventory import Inventory, unknown
from sim.topology.walk import path

#: tier kinds that a role means, best first
_ROLES = {
    "dram": ("dram", "lpddr", "hbm"),
    "hbm": ("hbm",),
    "cxl": ("cxl",),
    "nvme": ("nvme",),
    "storage": ("nvme", "pmem"),
    "pmem": ("pmem",),
}
#: roles that mean all cards which are equally near: pages alternate over them. Drives are joined by `count` only (RAID0)
_SETS = frozenset({"cxl", "pmem"})


def distance(machine: Inventory, a: str, b: str) -> tuple[int, float]:
    """How far two devices are apart, for comparison: hops, then the narrowest link (wider is nearer)."""
    edges = path(machine, a, b)
    if edges is None:
        return (1_000, 0.0)
    return (len(edges), -min((edge.bandwidth_bytes_per_s for edge in edges), default=INFINITY))


def host_of(machine: Inventory, device: str) -> str:
    """The CPU nearest to the device; the first named on a tie."""
    if machine.devices[device].kind == "cpu":
        return device
    direct = [name for name in machine.devices[device].to if name in machine.devices and machine.devices[name].kind == "cpu"]
    if direct:
        return direct[0]
    cpus = [name for name, other in machine.devices.items() if other.kind == "cpu"]
    if not cpus:
        raise MachineError(Fault(what=f"machine {machine.name!r} has no CPU", remedy="add one under devices"))
    return min(cpus, key=lambda cpu: (distance(machine, device, cpu), cpus.index(cpu)))


def memory_tier(machine: Inventory, device: str) -> str:
    """The tier whose media hangs on the device; of a socket with HBM and DDR, the DDR."""
    own = [tier for tier, media in machine.media.items() if media.device == device]
    if not own:
        raise InputError(Fault(what=f"device {device!r} of machine {machine.name!r} has no memory of its own"))
    return min(own, key=lambda tier: (machine.tiers[tier].kind == "hbm", own.index(tier)))


def resolve(machine: Inventory, role: str, device: str) -> str:
    """See `Machine.resolve`."""
    if role in machine.tiers:
        return role
    owner, _, kind = role.rpartition(".")
    if owner in machine.devices and kind in _ROLES:  # "cpu0.dram" on a socket whose memory is LPDDR
        own = [tier for tier in machine.media if machine.media[tier].device == owner]
        role = next((tier for tier in own if machine.tiers[tier].kind in _ROLES[kind]), role)
        if role in machine.tiers:
            return role
    if role == "gpu":
        return memory_tier(machine, device)
    kinds = {tier.kind for tier in machine.tiers.values()}
    if role not in _ROLES and role not in kinds:
        raise InputError(unknown("tier", role, [*_ROLES, "gpu", *machine.tiers], machine.name))
    for kind in _ROLES.get(role, (role,)):
        found = [name for name, tier in machine.tiers.items() if tier.kind == kind and _is_for(machine, name, role)]
        if found:
            host = host_of(machine, device)
            return min(found, key=lambda tier: (distance(machine, host, machine.media[tier].device), found.index(tier)))
    what = f"machine {machine.name!r} has no {role} tier"
    raise InputError(Fault(what=what, remedy=f"it has {', '.join(machine.tiers)}"))


def members(machine: Inventory, role: str, device: str) -> tuple[str, ...]:
    """See `Machine.members`."""
    first = resolve(machine, role, device)
    if role not in _SETS or role in machine.tiers:
        return (first,)
    host, kind = host_of(machine, device), machine.tiers[first].kind
    near = len(path(machine, host, machine.media[first].device) or ())
    return tuple(
        name
        for name, tier in machine.tiers.items()
        if tier.kind == kind and len(path(machine, host, machine.media[name].device) or (None,) * 1_000) == near
    )


def media_of(machine: Inventory, tier: str) -> Media:
    """How the tier hangs on its device; InputError with a suggestion when there is none of that name."""
    if tier not in machine.media:
        raise InputError(unknown("tier", tier, machine.tiers, machine.name))
    return machine.media[tier]


def _is_for(machine: Inventory, tier: str, role: str) -> bool:
    """Host memory that happens to be HBM counts as DRAM only when a CPU shares or owns it."""
    if role != "dram" or machine.tiers[tier].kind != "hbm":
        return True
    device = machine.media[tier].device
    return machine.devices[device].kind == "cpu" or any(
        device in other.to for other in machine.devices.values() if other.kind == "cpu"
    )
