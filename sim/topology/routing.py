"""Finding ways through a machine: which links a copy, a load or a message crosses, and what a byte costs on each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sim.errors import Fault, InputError, MachineError
from sim.laws.links import serial
from sim.laws.memory import window
from sim.records import INFINITY
from sim.topology.graph import Edge, Media, Traffic
from sim.topology.route import Route, merged
from sim.topology.walk import hops, path, required_path

if TYPE_CHECKING:
    from sim.topology.machine import Device, Machine

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
GPU_LINKS = frozenset({"nvlink", "xgmi", "c2c"})


#: what people also call a role
_MEANT = {
    "cpu": "dram",
    "host": "dram",
    "memory": "dram",
    "system": "dram",
    "vram": "gpu",
    "device": "gpu",
    "cuda": "gpu",
    "ssd": "nvme",
    "disk": "nvme",
    "flash": "nvme",
    "optane": "pmem",
}


def unknown(word: str, name: str, known: Iterable[str], machine: str) -> Fault:
    """The fault for a name that the machine lacks."""
    known = list(known)
    meant = _MEANT.get(name.lower(), "") if word == "tier" else ""
    near = [meant] if meant in known else get_close_matches(name, known, n=1, cutoff=0.5)
    if word == "tier" and near == ["cxl"] and not any(tier.startswith("cxl") for tier in known if tier != "cxl"):
        remedy = "it has no CXL memory: add some, topology: {base, add: {cxl0: {part: cxl-expander-asic-x8, to: cpu0}}}"
        return Fault(what=f"unknown {word} {name!r} in machine {machine!r}", remedy=remedy)
    remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
    return Fault(what=f"unknown {word} {name!r} in machine {machine!r}", remedy=remedy)


# ------------------------------------------------------------------------------------------------------------- who is where


def _distance(machine: Machine, a: str, b: str) -> tuple[int, float]:
    edges = path(machine, a, b)
    if edges is None:
        return (1_000, 0.0)
    return (len(edges), -min((edge.bandwidth_bytes_per_s for edge in edges), default=INFINITY))


def host_of(machine: Machine, device: str) -> str:
    """The CPU nearest to the device; the first named on a tie."""
    if machine.devices[device].kind == "cpu":
        return device
    direct = [name for name in machine.devices[device].to if name in machine.devices and machine.devices[name].kind == "cpu"]
    if direct:
        return direct[0]
    cpus = [name for name, other in machine.devices.items() if other.kind == "cpu"]
    if not cpus:
        raise MachineError(Fault(what=f"machine {machine.name!r} has no CPU", remedy="add one under devices"))
    return min(cpus, key=lambda cpu: (_distance(machine, device, cpu), cpus.index(cpu)))


def memory_tier(machine: Machine, device: str) -> str:
    """The tier whose media hangs on the device; of a socket with HBM and DDR, the DDR."""
    own = [tier for tier, media in machine.media.items() if media.device == device]
    if not own:
        raise InputError(Fault(what=f"device {device!r} of machine {machine.name!r} has no memory of its own"))
    return min(own, key=lambda tier: (machine.tiers[tier].kind == "hbm", own.index(tier)))


def resolve(machine: Machine, role: str, device: str) -> str:
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
            return min(found, key=lambda tier: (_distance(machine, host, machine.media[tier].device), found.index(tier)))
    what = f"machine {machine.name!r} has no {role} tier"
    raise InputError(Fault(what=what, remedy=f"it has {', '.join(machine.tiers)}"))


def members(machine: Machine, role: str, device: str) -> tuple[str, ...]:
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


def _is_for(machine: Machine, tier: str, role: str) -> bool:
    """Host memory that happens to be HBM counts as DRAM only when a CPU shares or owns it."""
    if role != "dram" or machine.tiers[tier].kind != "hbm":
        return True
    device = machine.media[tier].device
    return machine.devices[device].kind == "cpu" or any(
        device in other.to for other in machine.devices.values() if other.kind == "cpu"
    )


# ------------------------------------------------------------------------------------------------------------------ copies

Uses = tuple[tuple[str, float], ...]


def _number(part: object, key: str, default: float = 0.0) -> float:
    value = part.get(key, default) if isinstance(part, dict) else default
    return float(value) if isinstance(value, (int, float)) else default


def _copied(edges: tuple[Edge, ...]) -> Uses:
    return tuple(use for edge in edges for use in edge.uses("copy"))


def copy(machine: Machine, source: str, target: str, initiator: str, *, is_pinned: bool, is_direct: bool) -> Route:
    """See `Machine.route`."""
    read, write = _media(machine, source), _media(machine, target)
    engine = machine.device(initiator)
    edges = required_path(machine, read.device, write.device)
    gpu = next((media.device for media in (read, write) if machine.devices[media.device].kind == "gpu"), "")
    is_bounced = not is_direct and bool(gpu) and machine.tiers[source if gpu == write.device else target].kind == "nvme"
    if is_bounced and resolve(machine, "dram", gpu) == memory_tier(machine, gpu):
        is_bounced = False  # the page cache is in the GPU's memory
    is_paged = not is_pinned and bool(gpu) and not machine.devices[gpu].part.get("pins_on_demand")
    staging: Uses = ()
    second = INFINITY
    cap, latency = _engine_limits(engine)
    if is_bounced or is_paged:
        buffer = machine.media[resolve(machine, "dram", gpu)]
        staging = (*buffer.uses(1.0), *buffer.uses(0.0))
    if is_bounced:  # the file is read into host memory first, then copied: the stages do not overlap
        drive = machine.channels[(read if gpu == write.device else write).channel].bandwidth_per_s
        drive /= 1.0 if gpu == write.device else write.cost(1.0)
        slot = min(machine.channels[edge.channels[0]].bandwidth_per_s for edge in edges if gpu in (edge.source, edge.target))
        if serial(drive, slot) <= cap:
            cap, second = serial(drive, slot), slot
    if is_paged and (staging_cap := staging_rate(machine.devices[host_of(machine, gpu)])) <= cap:
        cap = second = staging_cap  # one core fills the bounce buffer, wherever the pages lie
    uses = merged(read.uses(0.0, "copy"), staging, _copied(edges), write.uses(1.0, "copy"))
    latency += read.access_latency_s + write.access_latency_s
    return Route(
        uses=uses,
        rate_cap_bytes_per_s=cap,
        latency_s=latency,
        hops=hops(read.device, edges),
        is_staged=is_bounced or is_paged,
        second_stage_bytes_per_s=second,
    )


def _media(machine: Machine, tier: str) -> Media:
    if tier not in machine.media:
        raise InputError(unknown("tier", tier, machine.tiers, machine.name))
    return machine.media[tier]


def _engine_limits(engine: Device) -> tuple[float, float]:
    """Rate cap and start latency of who moves the bytes."""
    if engine.kind == "cpu":
        cores = int(_number(engine.part, "cores", 1))
        return cpu_cap(engine, cores, write_share=0.5) / 2, 0.0  # each byte is read and written
    cap = _number(engine.part, "copy_bandwidth") or INFINITY
    return cap, _number(engine.part, "copy_latency")


def staging_rate(cpu: Device) -> float:
    """Bytes/s at which one core fills or empties the driver's bounce buffer."""
    stated = _number(cpu.part, "staging_bandwidth")
    return stated or cpu_cap(cpu, 1, write_share=0.5) / 2


def cpu_cap(cpu: Device, num_cores: int, *, write_share: float) -> float:
    """Most bytes/s (read + written) that `num_cores` of a socket move, whatever the memory: core, chiplet, socket limits."""
    cap = _number(cpu.part, "socket_bandwidth") or INFINITY
    if per_core := _number(cpu.part, "core_bandwidth"):
        cap = min(cap, num_cores * per_core)
    chiplet = cpu.part.get("chiplet")
    if isinstance(chiplet, dict):
        num_chiplets = -(-num_cores // int(chiplet["cores"]))
        reads, writes = chiplet["read_bandwidth"], chiplet["write_bandwidth"]
        share = max((1 - write_share) / reads, write_share / writes)
        cap = min(cap, num_chiplets / share)
    return cap


# ------------------------------------------------------------------------------------------------------------ load and store


def access(machine: Machine, initiator: str, tier: str, *, write_share: float, num_cores: int | None, kernel: str) -> Route:
    """See `Machine.access`."""
    media, device = _media(machine, tier), machine.device(initiator)
    inward = required_path(machine, media.device, initiator)
    outward = required_path(machine, initiator, media.device)
    load: Traffic = "cpu_load" if device.kind == "cpu" else "load"
    store: Traffic = "cpu_store" if device.kind == "cpu" else "store"
    reads = 1.0 - write_share
    own = kernel if media.device == initiator else ""
    uses = merged(
        media.uses(write_share, own),
        *(edge.uses(load, reads + edge.request_cost * write_share) for edge in inward),
        *(edge.uses(store, write_share + edge.request_cost * reads) for edge in outward),
    )
    uses = tuple((channel, cost) for channel, cost in uses if cost > 0)
    cap, window_bytes = INFINITY, 0.0
    if device.kind == "cpu":
        cores = int(_number(device.part, "cores", 1)) if num_cores is None else num_cores
        cap = cpu_cap(device, cores, write_share=write_share)
        lines = _number(device.part, "lines_per_core")
        write_lines = _number(device.part, "write_lines_per_core") or lines
        window_bytes = window(cores, lines, write_lines, _number(device.part, "line", 64.0), write_share)
    idle_s = _mean_latency(machine, initiator, media, (inward, outward), write_share)
    # A flow that uses both directions meets both hop latencies, a byte only its own: scale the window to compensate.
    scale = _latency(machine, uses) / idle_s if idle_s else 1.0
    return Route(
        uses=uses,
        rate_cap_bytes_per_s=cap,
        latency_s=0.0,
        weight=max(window_bytes, 1.0),
        window_bytes=window_bytes * scale,
        idle_latency_s=idle_s,
        own_window_bytes=window_bytes,
        hops=hops(initiator, outward),
    )


def _latency(machine: Machine, uses: Uses) -> float:
    laws = (machine.channels[channel].latency for channel, _cost in uses)
    return sum(law.idle_latency_s for law in laws if law is not None)


def _mean_latency(
    machine: Machine, initiator: str, media: Media, ways: tuple[tuple[Edge, ...], tuple[Edge, ...]], write_share: float
) -> float:
    """The medium as its owner sees it (or the CPU of the same APU), and the hops: for reads those towards the initiator."""
    device, owner = machine.devices[initiator], machine.devices[media.device]
    law = device.part.get("latency") if owner.part.get("cpu") == device.part_name else None
    own = float(law["idle"]) if isinstance(law, Mapping) else _latency(machine, ((media.channel, 1.0),))
    back, there = (_latency(machine, tuple((name, 1.0) for edge in edges for name in edge.channels[:1])) for edges in ways)
    own += media.behind.latency_s if media.behind else 0.0
    return own + (1.0 - write_share) * back + write_share * there


def idle_latency(machine: Machine, initiator: str, tier: str) -> float:
    """Seconds of a dependent load: the memory as its owner sees it, and the hops that the data crosses."""
    media = _media(machine, tier)
    machine.device(initiator)
    inward = required_path(machine, media.device, initiator)
    return _mean_latency(machine, initiator, media, (inward, ()), 0.0)


# ----------------------------------------------------------------------------------------------------------------- messages


def peer(machine: Machine, gpu_a: str, gpu_b: str, *, by_collective: bool = False) -> Route:
    """See `Machine.peer`."""
    read, write = machine.media[memory_tier(machine, gpu_a)], machine.media[memory_tier(machine, gpu_b)]
    start: Uses = read.uses(0.0, "copy")
    end: Uses = write.uses(1.0, "copy")
    cap, latency = _engine_limits(machine.devices[gpu_a])
    edges = direct(machine, gpu_a, gpu_b)
    if edges is not None:
        is_pushed = by_collective and all(edge.link in GPU_LINKS for edge in edges)
        moved = tuple(use for edge in edges for use in edge.uses("collective")) if is_pushed else _copied(edges)
        return Route(uses=merged(start, moved, end), rate_cap_bytes_per_s=cap, latency_s=latency, hops=hops(gpu_a, edges))
    # No direct way: device to host memory, host memory to device, pipelined in chunks.
    host = host_of(machine, gpu_a)
    up, down = required_path(machine, gpu_a, host), required_path(machine, host, gpu_b)
    staging = machine.media[resolve(machine, "dram", gpu_a)]
    bounce: Uses = (*staging.uses(1.0), *staging.uses(0.0))
    uses = merged(start, _copied(up), bounce, _copied(down), end)
    return Route(uses=uses, rate_cap_bytes_per_s=cap, latency_s=2 * latency, hops=hops(gpu_a, up + down), is_staged=True)


def direct(machine: Machine, gpu_a: str, gpu_b: str) -> tuple[Edge, ...] | None:
    """Edges of a copy that does not touch host memory: GPU links, else PCIe where both drivers allow it; None = staged."""
    edges = path(machine, gpu_a, gpu_b, closed_kinds=frozenset({"cpu"}))
    if edges is not None and all(edge.link in GPU_LINKS for edge in edges):
        return edges
    allowed = all(machine.part(gpu).get("peer_over_pcie") for gpu in (gpu_a, gpu_b))
    return path(machine, gpu_a, gpu_b) if allowed else None


def adapters(machine: Machine, gpu: str) -> tuple[str, ...]:
    """Network adapters at the least distance from the GPU, in file order; InputError when the machine has none."""
    return machine.kept(gpu, lambda: _adapters(machine, gpu))


def _adapters(machine: Machine, gpu: str) -> tuple[str, ...]:
    nics = [name for name, device in machine.devices.items() if device.kind == "nic"]
    if not nics:
        raise InputError(
            Fault(what=f"machine {machine.name!r} has no network adapter", remedy="add a nic device to join nodes")
        )
    distances = {nic: _distance(machine, gpu, nic) for nic in nics}
    nearest = min(distances.values())
    return tuple(nic for nic in nics if distances[nic] == nearest)


def network(machine: Machine, gpu: str) -> Route:
    """See `Machine.network`."""
    near = adapters(machine, gpu)
    sharers = [name for name in machine.gpus() if adapters(machine, name) == near]
    nic = near[sharers.index(gpu) % len(near)]
    wire = next(edge for edge in machine.edges if edge.source == nic and edge.link == "network")
    edges = (*required_path(machine, gpu, nic), wire)
    media = machine.media[memory_tier(machine, gpu)]
    latency = sum(edge.message_latency_s for edge in edges)
    uses = merged(media.uses(0.0, "copy"), _copied(edges))
    return Route(uses=uses, rate_cap_bytes_per_s=INFINITY, latency_s=latency, hops=hops(gpu, edges))
