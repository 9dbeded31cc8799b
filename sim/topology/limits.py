"""Machines that cannot exist: every rule of a part that a topology can break, each with what was got and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.errors import Fault
from sim.topology import parts as p
from sim.topology.description import DeviceEntry, Populated, Topology
from sim.topology.ports import check_connected, check_ports
from sim.topology.wires import connection_of, connections, expand, raw_rate
from sim.units import format_bytes

#: headroom of a stated speed: data sheets round (4800 MT/s, 31.5 GB/s)
_ROUNDING = 1.01


def memory_transfers(memory: Populated, module: p.Memory, cpu: p.Cpu) -> float:
    """Transfers/s that the DIMMs run at: what part and socket allow with this many DIMMs per channel."""
    rated = module.transfers if memory.overclocked else min(module.transfers, fastest(memory, module, cpu))
    return memory.transfers or rated


def fastest(memory: Populated, module: p.Memory, cpu: p.Cpu) -> float:
    """Fastest speed of the socket for this type of module and population."""
    if module.type == "mrdimm":
        return cpu.memory_transfers_mrdimm
    if memory.dimms_per_channel == 2 and cpu.memory_transfers_2dpc:
        return cpu.memory_transfers_2dpc
    return cpu.memory_transfers


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
        for up in entry.to:
            if up not in topology.devices:
                yield Fault(
                    path=f"devices.{name}.to", what=f"no device {up!r}", remedy=f"devices are {', '.join(topology.devices)}"
                )
        if entry.count > 1 and isinstance(part, (p.Cpu, p.Gpu)):
            yield Fault(
                path=f"devices.{name}.count",
                what=f"{entry.count} {part.kind}s as one device; count joins drives, memory modules or adapters",
                remedy=f"name each: {name.rstrip('0123456789')}[0-{entry.count - 1}]",
            )
        if entry.cores and not (isinstance(part, p.Cpu) and entry.cores <= part.cores):
            has = f"has {part.cores}" if isinstance(part, p.Cpu) else "is no CPU"
            yield Fault(
                path=f"devices.{name}.cores", what=f"{entry.cores} cores, {entry.part} {has}", remedy="leave it out to use all"
            )
        if entry.memory and not isinstance(part, p.Cpu):
            yield Fault(
                path=f"devices.{name}.memory", what=f"{entry.part} has no DIMM slots", remedy="write capacity: on the device"
            )
        if isinstance(part, p.Cpu) and entry.memory:
            yield from _dimms(f"devices.{name}.memory", entry.memory, parts, part, entry.part)
        if part.hypothetical and not part.basis:
            yield Fault(
                path=f"parts.{entry.part}",
                what="a hypothetical part has no basis",
                remedy="say why it is believed possible: basis: ...",
            )
        yield from _rates(f"devices.{name}", entry, part, parts)
        yield from _attachment(f"devices.{name}", entry, part, topology, parts)
        if (entry.gpu_share or 1.0) < 1.0 and not (isinstance(part, p.Gpu) and part.cpu):
            yield Fault(
                path=f"devices.{name}.gpu_share", what=f"{entry.part} shares its memory with no CPU",
                remedy="write it on a GPU with one memory for both",
            )  # fmt: skip
        if entry.ecc is not None and not _has_gddr6(part, parts):
            yield Fault(
                path=f"devices.{name}.ecc", what=f"{entry.part} keeps no check bits among its data",
                remedy="leave it out: only NVIDIA's boards with GDDR6 can turn it on or off",
            )  # fmt: skip
        if entry.peer_over_pcie is not None and not isinstance(part, p.Gpu):
            yield Fault(
                path=f"devices.{name}.peer_over_pcie", what=f"{entry.part} is no GPU", remedy="write it on the GPUs that copy",
            )  # fmt: skip
        yield from _memory_mode(f"devices.{name}", entry, part, topology)
        if entry.zone == "movable" and not (isinstance(part, p.Expander) or part.kind == "pmem"):
            yield Fault(
                path=f"devices.{name}.zone", what=f"{entry.part} is not memory that Linux puts online later",
                remedy="write it on a CXL expander or on persistent memory",
            )  # fmt: skip
        if entry.snoop_filter is not None and not (isinstance(part, p.Expander) and part.back_invalidate):
            yield Fault(
                path=f"devices.{name}.snoop_filter", what=f"{entry.part} keeps no hosts coherent",
                remedy="write it on a CXL 3 pool device (back_invalidate: true)",
            )  # fmt: skip
        yield from _grants(f"devices.{name}.grants", entry, part, topology)
        if isinstance(part, p.Expander) and len(entry.to) > part.heads:
            yield Fault(
                path=f"devices.{name}.to", what=f"hangs on {len(entry.to)} devices, {entry.part} has {part.heads} heads",
                remedy=f"use at most {part.heads}, or put a switch in between",
            )  # fmt: skip
    yield from _sockets(topology, parts)
    yield from _links(topology, parts)
    yield from check_connected(topology, parts)
    yield from check_ports(topology, parts)


def _memory_mode(path: str, entry: DeviceEntry, part: p.Part, topology: Topology) -> Iterator[Fault]:
    """What persistent memory needs to have DRAM as its cache: one socket, with less DRAM, and no second set of modules."""
    if entry.mode == "app_direct":
        if entry.page_layout != "scattered":
            yield Fault(path=f"{path}.page_layout", what="no DRAM caches this device", remedy="write mode: memory")
        return
    if not isinstance(part, p.Storage) or part.kind != "pmem":
        remedy = "write it on modules in a socket's slots"
        yield Fault(path=f"{path}.mode", what=f"{entry.part} is not persistent memory", remedy=remedy)
        return
    sockets = [up for up in entry.to if up in topology.devices and topology.devices[up].memory]
    if len(entry.to) != 1 or not sockets:
        what = "memory mode needs DIMMs in the slots of the one socket that the modules hang on"
        yield Fault(path=f"{path}.mode", what=what, remedy="give that socket memory:")
        return
    others = [name for name, other in topology.devices.items() if other.mode == "memory" and other.to == entry.to]
    if len(others) > 1:
        what = f"{' and '.join(others)} both are behind the DRAM of {sockets[0]}"
        yield Fault(path=f"{path}.mode", what=what, remedy="write them as one device with count:")
    memory = topology.devices[sockets[0]].memory
    whole = entry.capacity or part.capacity * entry.count
    if memory is not None and memory.capacity >= whole:
        what = f"{format_bytes(memory.capacity)} of DRAM as a cache of {format_bytes(whole)}"
        yield Fault(
            path=f"{path}.mode", what=what, remedy="more modules (DRAM is a fourth to a sixteenth), or mode: app_direct"
        )


def _has_gddr6(part: p.Part, parts: Mapping[str, p.Part]) -> bool:
    if not isinstance(part, p.Gpu) or part.vendor != "nvidia" or part.memory.part not in parts:
        return False
    module = parts[part.memory.part]
    return isinstance(module, p.Memory) and module.type in ("gddr6", "gddr6x")


def _dimms(path: str, memory: Populated, parts: Mapping[str, p.Part], cpu: p.Cpu, cpu_name: str) -> Iterator[Fault]:
    module = parts[memory.part]
    if not isinstance(module, p.Memory):
        yield Fault(path=f"{path}.part", what=f"{memory.part!r} is a {module.kind}, expected a memory part")
        return
    if not cpu.memory_channels:
        yield Fault(path=path, what=f"{cpu_name} has no DIMM slots, its memory is soldered", remedy="remove memory:")
        return
    if memory.channels > cpu.memory_channels:
        yield Fault(
            path=f"{path}.channels",
            what=f"{memory.channels} channels populated, {cpu_name} has {cpu.memory_channels}",
            remedy=f"populate at most {cpu.memory_channels}",
        )
    if cpu.memory_types and module.type not in cpu.memory_types:
        kinds = ", ".join(cpu.memory_types)
        yield Fault(path=f"{path}.part", what=f"{cpu_name} does not drive {module.type}", remedy=f"use a part of type {kinds}")
        return
    if memory.dimms_per_channel > cpu.max_dimms_per_channel:
        yield Fault(
            path=f"{path}.dimms_per_channel",
            what=f"{memory.dimms_per_channel} DIMMs per channel, {cpu_name} drives {cpu.max_dimms_per_channel}",
            remedy=f"use {cpu.max_dimms_per_channel}",
        )
    yield from _speed(f"{path}.transfers", memory, module, cpu, cpu_name)
    if cpu.memory_capacity and memory.capacity > cpu.memory_capacity:
        yield Fault(
            path=f"{path}.capacity",
            what=f"{_gib(memory.capacity)} of DRAM, {cpu_name} addresses {_gib(cpu.memory_capacity)}",
            remedy=f"use at most {_gib(cpu.memory_capacity)}",
        )


def _speed(path: str, memory: Populated, module: p.Memory, cpu: p.Cpu, cpu_name: str) -> Iterator[Fault]:
    """DIMMs run at what the socket allows; only a written speed can be impossible, and only at stock."""
    if memory.transfers is None or memory.overclocked:
        return
    if memory.transfers > module.transfers * _ROUNDING:
        yield Fault(
            path=path, what=f"{_mt(memory.transfers)}, {memory.part} is made for {_mt(module.transfers)}",
            remedy=f"use at most {_mt(module.transfers)}",
        )  # fmt: skip
    elif memory.transfers > (most := fastest(memory, module, cpu)) * _ROUNDING:
        yield Fault(
            path=path,
            what=f"{_mt(memory.transfers)}, {cpu_name} drives {memory.dimms_per_channel} DIMM per channel at {_mt(most)}",
            remedy=f"use at most {_mt(most)}, or say overclocked: true",
        )


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
        if rate > raw * _ROUNDING:
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
        holds = f"{entry.part} holds {_gib(part.capacity)}" + (f", {entry.count} of them" if entry.count > 1 else "")
        yield Fault(
            path=f"{path}.capacity", what=f"{_gib(entry.capacity)}, {holds}", remedy="use a larger part, or more: count"
        )
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
        capacity = entry.capacity or part.capacity * entry.count
        if (granted := sum(entry.grants.values())) > capacity:
            yield Fault(
                path=path, what=f"{_gib(granted)} granted, the pool holds {_gib(capacity)}",
                remedy="grant less, or add capacity",
            )  # fmt: skip


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.4g} GiB" if size_bytes < 2**40 else f"{size_bytes / 2**40:.4g} TiB"


def _gb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.4g} GB/s"


def _mt(transfers_per_s: float) -> str:
    return f"{transfers_per_s / 1e6:.6g} MT/s"
