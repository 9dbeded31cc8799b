"""Machines that cannot exist: every rule of a part that a topology can break, each with what was got and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.errors import Fault
from sim.topology import parts as p
from sim.topology.description import DeviceEntry, Topology
from sim.topology.dimms import ROUNDING, check_dimms, check_memory_mode, gib
from sim.topology.ports import check_connected, check_ports
from sim.topology.wires import connection_of, connections, expand, raw_rate
from sim.units import format_bytes


def check(topology: Topology, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """Faults of a machine, in file order; empty for a possible one."""
    for name, entry in topology.devices.items():
        part = parts[entry.part]
        if isinstance(part, (p.Memory, p.Link)):
            kind = "a memory technology" if isinstance(part, p.Memory) else "a link"
            yield Fault(
                path=f"devices.{name}.part", what=f"{entry.part} is {kind}, not a device", remedy="name a device's part"
            )
            return  # nothing else can be said of it
        yield from _device(name, entry, part, topology, parts)
    yield from _sockets(topology, parts)
    yield from _links(topology, parts)
    yield from check_connected(topology, parts)
    yield from check_ports(topology, parts)


def _device(name: str, entry: DeviceEntry, part: p.Part, topology: Topology, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """Faults of one device, as far as its own entry and what it hangs on show them."""
    path = f"devices.{name}"
    for up in entry.to:
        if up not in topology.devices:
            yield Fault(path=f"{path}.to", what=f"no device {up!r}", remedy=f"devices are {', '.join(topology.devices)}")
    yield from _numbers(path, entry, part)
    if isinstance(part, p.Cpu) and entry.memory:
        yield from check_dimms(f"{path}.memory", entry.memory, parts, part, entry.part)
    if part.hypothetical and not part.basis:
        yield Fault(
            path=f"parts.{entry.part}",
            what="a hypothetical part has no basis",
            remedy="say why it is believed possible: basis: ...",
        )
    yield from _rates(path, entry, part, parts)
    yield from _attachment(path, entry, part, topology, parts)
    yield from _power_cap(f"{path}.power_cap", entry, part)
    yield from _misplaced(path, entry, part, parts)
    yield from check_memory_mode(path, entry, part, topology)
    yield from _grants(f"{path}.grants", entry, part, topology)
    if isinstance(part, p.Expander) and len(entry.to) > part.heads:
        yield Fault(
            path=f"{path}.to", what=f"hangs on {len(entry.to)} devices, {entry.part} has {part.heads} heads",
            remedy=f"use at most {part.heads}, or put a switch in between",
        )  # fmt: skip


def _numbers(path: str, entry: DeviceEntry, part: p.Part) -> Iterator[Fault]:
    """How many there are, and what of them: processors one by one, cores that the socket has, DIMMs in a socket."""
    if entry.count > 1 and isinstance(part, (p.Cpu, p.Gpu)):
        yield Fault(
            path=f"{path}.count",
            what=f"{entry.count} {part.kind}s as one device; count joins drives, memory modules or adapters",
            remedy=f"name each: {path.removeprefix('devices.').rstrip('0123456789')}[0-{entry.count - 1}]",
        )
    if entry.cores and not (isinstance(part, p.Cpu) and entry.cores <= part.cores):
        has = f"has {part.cores}" if isinstance(part, p.Cpu) else "is no CPU"
        yield Fault(path=f"{path}.cores", what=f"{entry.cores} cores, {entry.part} {has}", remedy="leave it out to use all")
    if entry.memory and not isinstance(part, p.Cpu):
        yield Fault(path=f"{path}.memory", what=f"{entry.part} has no DIMM slots", remedy="write capacity: on the device")


def _power_cap(path: str, entry: DeviceEntry, part: p.Part) -> Iterator[Fault]:
    """A limit below the rated power of a GPU; a board given more than that is not described."""
    if not entry.power_cap:
        return
    if not isinstance(part, p.Gpu):
        yield Fault(path=path, what=f"{entry.part} is no GPU", remedy="write it on the GPUs that are held back")
    elif not part.power:
        yield Fault(path=path, what=f"{entry.part} states no rated power", remedy="write speed: 90% instead")
    elif entry.power_cap > part.power:
        what = f"{entry.power_cap:g} W, {entry.part} is rated {part.power:g} W"
        yield Fault(path=path, what=what, remedy=f"use at most {part.power:g} W, or leave it out")


def _misplaced(path: str, entry: DeviceEntry, part: p.Part, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """Keys of an entry that only some kinds of device have."""
    is_one_memory = isinstance(part, p.Gpu) and part.cpu
    apart = ("shares its memory with no CPU", "write it on a GPU with one memory for both")
    is_wrong: Mapping[str, tuple[bool, str, str]] = {  # key -> whether, what, remedy
        "gpu_share": ((entry.gpu_share or 1.0) < 1.0 and not is_one_memory, *apart),
        "gpu_limit": (entry.gpu_limit is not None and not is_one_memory, *apart),
        "ecc": (
            entry.ecc is not None and not _has_gddr6(part, parts),
            "keeps no check bits among its data", "leave it out: only NVIDIA's boards with GDDR6 can turn it on or off",
        ),
        "peer_over_pcie": (
            entry.peer_over_pcie is not None and not isinstance(part, p.Gpu), "is no GPU", "write it on the GPUs that copy",
        ),
        "zone": (
            entry.zone == "movable" and not (isinstance(part, p.Expander) or part.kind == "pmem"),
            "is not memory that Linux puts online later", "write it on a CXL expander or on persistent memory",
        ),
        "snoop_filter": (
            entry.snoop_filter is not None and not (isinstance(part, p.Expander) and part.back_invalidate),
            "keeps no hosts coherent", "write it on a CXL 3 pool device (back_invalidate: true)",
        ),
    }  # fmt: skip
    if isinstance(part, p.Gpu) and part.cpu and entry.gpu_limit is not None:
        whole = entry.capacity or part.memory.capacity
        if entry.gpu_share is not None:
            yield Fault(path=f"{path}.gpu_limit", what="given beside gpu_share", remedy="leave one of the two out")
        elif entry.gpu_limit > whole:
            what = f"{format_bytes(entry.gpu_limit)} of {format_bytes(whole)}"
            yield Fault(path=f"{path}.gpu_limit", what=what, remedy="give the GPU at most all of the memory")
    for key, (is_fault, what, remedy) in is_wrong.items():
        if is_fault:
            yield Fault(path=f"{path}.{key}", what=f"{entry.part} {what}", remedy=remedy)


def _has_gddr6(part: p.Part, parts: Mapping[str, p.Part]) -> bool:
    if not isinstance(part, p.Gpu) or part.vendor != "nvidia" or part.memory.part not in parts:
        return False
    module = parts[part.memory.part]
    return isinstance(module, p.Memory) and module.type in ("gddr6", "gddr6x")


def _rates(path: str, entry: DeviceEntry, part: p.Part, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """No device moves more than the raw rate of the widest link that it can have."""
    if not isinstance(part, (p.Expander, p.Storage, p.Gpu)):
        return
    port = part.pcie if isinstance(part, p.Gpu) else part.link
    link = parts.get(port.part) if port else None
    if port is None or not isinstance(link, p.Link):
        return
    raw = raw_rate(link) * port.lanes
    if isinstance(part, p.Gpu):  # one engine may also drive the GPU's other links, which are faster
        stated = {} if part.c2c or part.cpu or part.fabric else {"copy_bandwidth": part.copy_bandwidth}
    else:
        stated = {"read_bandwidth": part.read_bandwidth, "write_bandwidth": part.write_bandwidth}
    for key, rate in stated.items():
        if rate > raw * ROUNDING:
            yield Fault(
                path=f"{path}.part",
                what=f"{key} of {entry.part} is {_gb(rate)}, its {port.part} x{port.lanes} carries {_gb(raw)}",
                remedy="lower it, or give the part a wider link",
            )


def _attachment(
    path: str, entry: DeviceEntry, part: p.Part, topology: Topology, parts: Mapping[str, p.Part]
) -> Iterator[Fault]:
    """Lane counts that exist, expanders that hold what they claim, persistent memory on sockets that drive it."""
    link = parts.get(up.part) if entry.to and (up := connection_of(path.removeprefix("devices."), topology, parts)) else None
    widths = link.widths if isinstance(link, p.Link) else ()
    written = entry.link.lanes if entry.link else None
    if written and widths and written not in widths and written <= max(widths):  # more than the port has is another fault
        known = ", ".join(f"x{width}" for width in widths)
        yield Fault(path=f"{path}.link.lanes", what=f"no link of {written} lanes exists", remedy=f"use {known}")
    if isinstance(part, p.Expander) and entry.capacity and entry.capacity > part.capacity * entry.count:
        holds = f"{entry.part} holds {gib(part.capacity)}" + (f", {entry.count} of them" if entry.count > 1 else "")
        yield Fault(path=f"{path}.capacity", what=f"{gib(entry.capacity)}, {holds}", remedy="use a larger part, or more: count")
    if isinstance(part, p.Storage) and part.link is None:
        for name in entry.to:
            socket = parts[topology.devices[name].part] if name in topology.devices else None
            if isinstance(socket, p.Cpu) and not socket.persistent_memory:
                what = f"{topology.devices[name].part} ({name}) does not drive persistent memory"
                yield Fault(path=f"{path}.to", what=what, remedy="hang it on a Xeon of the second or third generation")


def _sockets(topology: Topology, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """No more sockets in one coherent system than the CPU allows: as many as links join, directly or in a chain."""
    joined = {name: {name} for name, entry in topology.devices.items() if isinstance(parts[entry.part], p.Cpu)}
    for group in topology.links.values():
        for a, b in connections(group, topology.devices):
            if a in joined and b in joined and joined[a] is not joined[b]:
                joined[a] |= joined[b]
                for name in joined[a]:
                    joined[name] = joined[a]
    for name, system in joined.items():
        cpu = parts[topology.devices[name].part]
        if isinstance(cpu, p.Cpu) and len(system) > cpu.max_sockets:
            what = f"{len(system)} sockets in one system, {topology.devices[name].part} runs in systems of {cpu.max_sockets}"
            yield Fault(path=f"devices.{name}.part", what=what, remedy="use a part for more sockets, or fewer sockets")
            return  # once for the machine


def _links(topology: Topology, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """Ends of links name devices, and a link has two of them."""
    for key, group in topology.links.items():
        ends = {"between": group.between or (), "matched": group.matched or (), "mesh": group.mesh}
        ends["pairs"] = tuple(name for pair in group.pairs for name in pair)
        for word, patterns in ends.items():
            for pattern in dict.fromkeys(patterns):
                if not expand(pattern, topology.devices):
                    known = ", ".join(topology.devices)
                    yield Fault(path=f"links.{key}.{word}", what=f"no device {pattern!r}", remedy=f"devices are {known}")
        if not any(ends.values()):
            yield Fault(
                path=f"links.{key}", what="the link has no ends", remedy="write between: [a, b], mesh, matched or pairs"
            )
        if not isinstance(part := parts[group.part], p.Link):
            yield Fault(path=f"links.{key}.part", what=f"{group.part!r} is a {part.kind}, expected a link part")


def _grants(path: str, entry: DeviceEntry, part: p.Part, topology: Topology) -> Iterator[Fault]:
    """A pool grants what it has, to hosts that exist."""
    if not entry.grants:
        return
    hosts = {other.host for other in topology.devices.values()} - {""}
    for host in entry.grants:
        if host not in hosts:
            yield Fault(
                path=f"{path}.{host}", what=f"no host {host!r}", remedy=f"hosts are {', '.join(sorted(hosts)) or 'none'}"
            )
    if isinstance(part, p.Expander):
        capacity = entry.joined_capacity(part.capacity)
        if (granted := sum(entry.grants.values())) > capacity:
            yield Fault(
                path=path, what=f"{gib(granted)} granted, the pool holds {gib(capacity)}",
                remedy="grant less, or add capacity",
            )  # fmt: skip


def _gb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.4g} GB/s"
