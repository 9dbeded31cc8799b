"""Hardware lint: machines that can exist and are seldom meant, and the rules of thumb that they break.

Warnings state a fact of the machine that costs bandwidth, with the scenario that shows what it costs. Advice repeats rules
of thumb (the article's A06), each with the scenario that judges it: several do not hold in simulation, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sim.topology import parts as p
from sim.topology.description import DeviceEntry, Topology
from sim.topology.dimms import memory_transfers
from sim.topology.graph import Edge
from sim.topology.machine import Device
from sim.topology.wires import connection_of, raw_rate
from sim.units import format_bandwidth, format_bytes

#: A06: host memory per GPU memory, physical cores per GPU, drives in one stripe
MEMORY_PER_GPU_MEMORY = 1.5
CORES_PER_GPU = 16
NUM_DRIVES = 4
#: below this share of the port a link counts as narrow (PCIe 4.0 on a 4.0 card rounds to one)
_NARROW = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A machine that can exist, as described and as built."""

    topology: Topology
    parts: Mapping[str, p.Part]
    devices: Mapping[str, Device]
    edges: tuple[Edge, ...]

    def entries(self, kind: type[p.Part]) -> Iterator[tuple[str, DeviceEntry, p.Part]]:
        """Devices whose part is of that kind, in file order."""
        for name, entry in self.topology.devices.items():
            if isinstance(part := self.parts[entry.part], kind):
                yield name, entry, part

    def on_host(self, host: str, kind: str) -> list[str]:
        """Devices of a kind that belong to a host."""
        return [name for name, device in self.devices.items() if device.kind == kind and device.host == host]

    def socket_of(self, name: str) -> str:
        """The socket that a device hangs on, through switches; empty where it hangs on several or none."""
        while name and self.devices[name].kind != "cpu":
            above = self.devices[name].to
            name = above[0] if len(above) == 1 else ""
        return name


def warnings_of(setup: Setup) -> tuple[str, ...]:
    """Facts that cost bandwidth (empty channels, slow DIMMs, narrow links, shared uplinks, far sockets) or are seldom meant;
    equal ones once."""
    devices: dict[str, list[str]] = {}
    for rule in (_channels, _speeds, _capacities, _narrow_links, _uplinks, _unjoined, _far_sockets):
        for name, text in rule(setup):
            devices.setdefault(text, []).append(name)
    return tuple(f"{_first(names)}: {text}" for text, names in devices.items())


def _first(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} like it"


def advice_of(setup: Setup) -> tuple[str, ...]:
    """Rules of thumb for training hosts that the machine breaks; none where GPUs share the host's memory."""
    hosts = dict.fromkeys(device.host for device in setup.devices.values() if device.kind == "cpu")
    return tuple(text for host in hosts for text in _rules(setup, host))


# ---------------------------------------------------------------------------------------------------------------- warnings


#: a device, and what is the matter with it
Finding = tuple[str, str]


def _channels(setup: Setup) -> Iterator[Finding]:
    for name, entry, part in setup.entries(p.Cpu):
        memory = entry.memory
        if memory and isinstance(part, p.Cpu) and memory.channels < part.memory_channels:
            share = memory.channels / part.memory_channels
            yield (
                name,
                f"{memory.channels} of {part.memory_channels} memory channels populated: {100 * share:.0f} % of the socket's "
                "bandwidth, which the CPU optimizer and every copy of the host share (scenario a06-channels)",
            )


def _speeds(setup: Setup) -> Iterator[Finding]:
    for name, entry, part in setup.entries(p.Cpu):
        memory = entry.memory
        module = setup.parts[memory.part] if memory else None
        if memory is None or not isinstance(module, p.Memory) or not isinstance(part, p.Cpu):
            continue
        runs, one = memory_transfers(memory, module, part), min(module.transfers, part.memory_transfers or module.transfers)
        if memory.dimms_per_channel == 2 and runs < _NARROW * one:
            yield (
                name,
                f"two DIMMs per channel run at {runs / 1e6:.0f} MT/s, one would run at {one / 1e6:.0f}: "
                f"{100 * (1 - runs / one):.0f} % less bandwidth for twice the capacity (scenario two-dimms-per-channel)",
            )


def _capacities(setup: Setup) -> Iterator[Finding]:
    for name, entry, part in setup.entries(p.Gpu):
        if isinstance(part, p.Gpu) and entry.capacity and entry.capacity > part.memory.capacity:
            has, sold = format_bytes(entry.capacity), format_bytes(part.memory.capacity)
            what = "a modified card, or a what-if: room alone, no speed (scenario modified-card)"
            yield name, f"{has} of memory, {entry.part} is sold with {sold}: {what}"


def _unjoined(setup: Setup) -> Iterator[Finding]:
    """Sockets of one host without a link between them."""
    for host in dict.fromkeys(device.host for device in setup.devices.values() if device.kind == "cpu"):
        sockets = [name for name in setup.on_host(host, "cpu") if name in setup.topology.devices]
        linked = {end for edge in setup.edges for end in (edge.source, edge.target) if {edge.source, edge.target} <= {*sockets}}
        alone = [name for name in sockets if name not in linked]
        if len(sockets) > 1 and alone:
            what = "what hangs on one reaches nothing of the other (scenario unjoined-socket)"
            yield alone[0], f"no link to the other sockets of {host}: {what}"


def _narrow_links(setup: Setup) -> Iterator[Finding]:
    for name, entry in setup.topology.devices.items():
        part = setup.parts[entry.part]
        port = part.pcie if isinstance(part, p.Gpu) else part.link if isinstance(part, p.Expander) else None
        link = connection_of(name, setup.topology, setup.parts)
        if port is None or link is None or not entry.to:
            continue
        has, could = _raw(setup, link.part) * link.lanes, _raw(setup, port.part) * port.lanes
        if could and has < _NARROW * could:
            yield (
                name,
                f"{link.part} x{link.lanes} where {entry.part} has {port.part} x{port.lanes}: "
                f"{100 * has / could:.0f} % of its raw rate (scenario narrow-link)",
            )


def _uplinks(setup: Setup) -> Iterator[Finding]:
    """PCIe and CXL switches with more below than above; adapters do not count, their traffic stays below the switch."""
    for name, entry, _part in setup.entries(p.Switch):
        up = connection_of(name, setup.topology, setup.parts)
        if up is None or not entry.to:
            continue
        above = _raw(setup, up.part) * up.lanes * len(entry.to)
        below = [_raw_below(setup, other) for other, item in setup.topology.devices.items() if name in item.to]
        if above and (total := sum(below)) > above / _NARROW:
            yield (
                name,
                f"{format_bandwidth(total)} below an uplink of {format_bandwidth(above)} ({total / above:.3g} : 1): what hangs "
                "below shares it when it copies with the host at once (scenario shared-uplink)",
            )


def _raw_below(setup: Setup, name: str) -> float:
    entry = setup.topology.devices[name]
    part = setup.parts[entry.part]
    link = connection_of(name, setup.topology, setup.parts)
    if link is None or isinstance(part, p.Nic):
        return 0.0
    return _raw(setup, link.part) * link.lanes * entry.count


def _raw(setup: Setup, part: str) -> float:
    link = setup.parts.get(part)
    return raw_rate(link) if isinstance(link, p.Link) else 0.0


def _far_sockets(setup: Setup) -> Iterator[Finding]:
    """GPUs whose socket has no memory, memory whose socket has no GPU, drives away from every GPU."""
    hosts = dict.fromkeys(device.host for device in setup.devices.values() if device.kind == "cpu")
    for host in hosts:
        sockets = [name for name in setup.on_host(host, "cpu") if name in setup.topology.devices]
        gpus = {name: setup.socket_of(name) for name in setup.on_host(host, "gpu")}
        if len(sockets) < 2 or not gpus or not all(gpus.values()):
            continue
        filled = [name for name in sockets if setup.topology.devices[name].memory or _has_own_memory(setup, name)]
        over = f"over the socket link{_between(setup, sockets)} (scenario far-socket)"
        for gpu, socket in gpus.items():
            if socket not in filled:
                yield gpu, f"hangs on {socket}, which has no memory: every copy with the host goes {over}"
        for socket in filled:
            if socket not in gpus.values():
                yield socket, f"memory without a GPU on its socket: what is kept there reaches the GPUs {over}"
        for drive in setup.on_host(host, "nvme"):
            if (socket := setup.socket_of(drive)) and socket not in gpus.values():
                yield drive, f"hangs on {socket}, every GPU on another socket: reads reach them {over}"


def _has_own_memory(setup: Setup, name: str) -> bool:
    part = setup.parts[setup.topology.devices[name].part]
    return isinstance(part, p.Cpu) and part.memory is not None


def _between(setup: Setup, sockets: list[str]) -> str:
    rates = [edge.bandwidth_bytes_per_s for edge in setup.edges if edge.source in sockets and edge.target in sockets]
    return f", {format_bandwidth(min(rates))}" if rates else ""


# ---------------------------------------------------------------------------------------------------------- rules of thumb


def _rules(setup: Setup, host: str) -> Iterator[str]:
    gpus = setup.on_host(host, "gpu")
    own = [gpu for gpu in gpus if not _is_shared(setup, gpu)]
    if not own:
        return
    memory, gpu_memory = _host_memory(setup, host), sum(_gpu_memory(setup, gpu) for gpu in own)
    if 0 < memory < MEMORY_PER_GPU_MEMORY * gpu_memory:
        yield (
            f"{host}: {format_bytes(memory)} of host memory for {format_bytes(gpu_memory)} of GPU memory "
            f"({memory / gpu_memory:.2f}x, rule of thumb {MEMORY_PER_GPU_MEMORY}x). Simulation: with offload the parameters "
            "decide, not the GPUs; ask `tiersim fit` (scenario a06-host-memory)"
        )
    cores = sum(_cores(setup, cpu) for cpu in setup.on_host(host, "cpu"))
    if cores < CORES_PER_GPU * len(gpus):
        yield (
            f"{host}: {cores} cores for {len(gpus)} GPUs ({cores / len(gpus):.3g} each, rule of thumb {CORES_PER_GPU}). "
            "Simulation: fewer do for the CPU optimizer, which memory binds first; a data pipeline may need them "
            "(scenarios a06-cores, a05-data-pipeline)"
        )
    drives = sum(setup.devices[name].count for name in setup.on_host(host, "nvme"))
    if drives < NUM_DRIVES:
        yield (
            f"{host}: {drives} NVMe drive{'' if drives == 1 else 's'} (rule of thumb {NUM_DRIVES} in RAID0). Simulation: they "
            "matter with states on NVMe only, and less than fourfold then (scenario a06-drives)"
        )


def _is_shared(setup: Setup, gpu: str) -> bool:
    part = setup.parts[setup.topology.devices[gpu].part]
    return isinstance(part, p.Gpu) and bool(part.cpu)


def _host_memory(setup: Setup, host: str) -> float:
    total = 0.0
    for name, entry, part in setup.entries(p.Cpu):
        if setup.devices[name].host == host and isinstance(part, p.Cpu):
            total += entry.memory.capacity if entry.memory else 0.0
            total += (entry.capacity or part.memory.capacity) if part.memory else 0.0
    for name, entry, part in setup.entries(p.Expander):
        if setup.devices[name].host == host and isinstance(part, p.Expander):
            total += entry.joined_capacity(part.capacity)
    return total


def _gpu_memory(setup: Setup, gpu: str) -> float:
    entry = setup.topology.devices[gpu]
    part = setup.parts[entry.part]
    return entry.capacity or (part.memory.capacity if isinstance(part, p.Gpu) else 0.0)


def _cores(setup: Setup, cpu: str) -> int:
    cores = setup.devices[cpu].part["cores"]
    return cores if isinstance(cores, int) else 0
