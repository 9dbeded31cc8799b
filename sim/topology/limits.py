"""Machines that cannot exist: every rule of a part that a topology can break, each with what was got and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.errors import Fault
from sim.topology import parts as p
from sim.topology.description import Populated, Topology
from sim.topology.ports import check_connected, check_ports


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
        for up in entry.to:
            if up not in topology.devices:
                yield Fault(
                    path=f"devices.{name}.to", what=f"no device {up!r}", remedy=f"devices are {', '.join(topology.devices)}"
                )
        if isinstance(part, p.Cpu) and entry.memory:
            yield from _dimms(f"devices.{name}.memory", entry.memory, parts, part, entry.part)
    yield from check_connected(topology, parts)
    yield from check_ports(topology, parts)


def _dimms(path: str, memory: Populated, parts: Mapping[str, p.Part], cpu: p.Cpu, cpu_name: str) -> Iterator[Fault]:
    module = parts[memory.part]
    if not isinstance(module, p.Memory):
        yield Fault(path=f"{path}.part", what=f"{memory.part!r} is a {module.kind}, expected a memory part")
        return
    if memory.channels > cpu.memory_channels:
        yield Fault(
            path=f"{path}.channels",
            what=f"{memory.channels} channels populated, {cpu_name} has {cpu.memory_channels}",
            remedy=f"populate at most {cpu.memory_channels}",
        )
