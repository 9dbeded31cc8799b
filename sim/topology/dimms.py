"""Memory slots of a socket: how fast their modules run, and what they and persistent memory beside them cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.errors import Fault
from sim.topology import parts as p
from sim.topology.description import DeviceEntry, Populated, Topology
from sim.units import format_bytes

#: headroom of a stated speed: data sheets round (4800 MT/s, 31.5 GB/s)
ROUNDING = 1.01


def memory_transfers(memory: Populated, module: p.Memory, cpu: p.Cpu) -> float:
    """Transfers/s that the DIMMs run at: what part and socket allow with this many DIMMs per channel."""
    rated = module.transfers if memory.overclocked else min(module.transfers, _fastest(memory, module, cpu))
    return memory.transfers or rated


def _fastest(memory: Populated, module: p.Memory, cpu: p.Cpu) -> float:
    """Fastest speed of the socket for this type of module and population."""
    if module.type == "mrdimm":
        return cpu.memory_transfers_mrdimm
    if memory.dimms_per_channel == 2 and cpu.memory_transfers_2dpc:
        return cpu.memory_transfers_2dpc
    return cpu.memory_transfers


def check_dimms(path: str, memory: Populated, parts: Mapping[str, p.Part], cpu: p.Cpu, cpu_name: str) -> Iterator[Fault]:
    """Faults of DIMMs that the socket has no channels, slots, type, speed or capacity for."""
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
            what=f"{gib(memory.capacity)} of DRAM, {cpu_name} addresses {gib(cpu.memory_capacity)}",
            remedy=f"use at most {gib(cpu.memory_capacity)}",
        )


def _speed(path: str, memory: Populated, module: p.Memory, cpu: p.Cpu, cpu_name: str) -> Iterator[Fault]:
    """DIMMs run at what the socket allows; only a written speed can be impossible, and only at stock."""
    if memory.transfers is None or memory.overclocked:
        return
    if memory.transfers > module.transfers * ROUNDING:
        yield Fault(
            path=path, what=f"{_mt(memory.transfers)}, {memory.part} is made for {_mt(module.transfers)}",
            remedy=f"use at most {_mt(module.transfers)}",
        )  # fmt: skip
    elif memory.transfers > (most := _fastest(memory, module, cpu)) * ROUNDING:
        yield Fault(
            path=path,
            what=f"{_mt(memory.transfers)}, {cpu_name} drives {memory.dimms_per_channel} DIMM per channel at {_mt(most)}",
            remedy=f"use at most {_mt(most)}, or say overclocked: true",
        )


def check_memory_mode(path: str, entry: DeviceEntry, part: p.Part, topology: Topology) -> Iterator[Fault]:
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
    whole = entry.joined_capacity(part.capacity)
    if memory is not None and memory.capacity >= whole:
        what = f"{format_bytes(memory.capacity)} of DRAM as a cache of {format_bytes(whole)}"
        yield Fault(
            path=f"{path}.mode", what=what, remedy="more modules (DRAM is a fourth to a sixteenth), or mode: app_direct"
        )


def _mt(transfers_per_s: float) -> str:
    return f"{transfers_per_s / 1e6:.6g} MT/s"


def gib(size_bytes: float) -> str:
    """A capacity with four figures: a fault names both sides of a boundary."""
    return f"{size_bytes / 2**30:.4g} GiB" if size_bytes < 2**40 else f"{size_bytes / 2**40:.4g} TiB"
