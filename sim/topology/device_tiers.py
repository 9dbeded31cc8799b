"""Devices and the memory on them: DIMMs, soldered stacks, expanders and drives as tiers with a port each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace as with_fields

from sim.kept import Kept
from sim.laws.memory import peak, programmable
from sim.laws.power import clock_share
from sim.records import Channel, LatencyLaw
from sim.topology import parts as p
from sim.topology.assembly import Assembly
from sim.topology.description import DeviceEntry, Populated
from sim.topology.dimms import memory_transfers
from sim.topology.graph import Behind, Edge, Media
from sim.topology.inventory import Device
from sim.topology.wires import connection_of
from sim.units import format_bandwidth


def _gpu_share(entry: DeviceEntry, part: p.Part) -> float:
    """Share of one memory for CPU and GPU that the GPU may allocate: as given, in bytes too, or as the system gives it."""
    if not isinstance(part, p.Gpu):
        return 1.0
    if entry.gpu_limit is not None:
        return entry.gpu_limit / (entry.capacity or part.memory.capacity)
    return entry.gpu_share or part.gpu_share


def add_device(built: Assembly, name: str, entry: DeviceEntry) -> None:
    """The device with the memory that it brings: its tiers and their ports."""
    part = built.parts[entry.part]
    if entry.cores and isinstance(part, p.Cpu):
        part = dataclasses.replace(part, cores=entry.cores)
    above = [built.devices[up] for up in entry.to if up in built.devices]
    hosts = {device.host for device in above}
    num_cpus = sum(1 for device in built.devices.values() if device.kind == "cpu")
    built.devices[name] = Device(
        name=name,
        kind=part.kind,
        part_name=entry.part,
        part=_fields(built, part, entry),
        host=entry.host or (hosts.pop() if len(hosts) == 1 else "" if hosts else "host0"),
        numa_node=num_cpus if part.kind == "cpu" else above[0].numa_node if above else 0,
        to=entry.to,
        count=entry.count,
        gpu_share=_gpu_share(entry, part),
        grants=dict(entry.grants),
        is_movable=entry.zone == "movable",
        is_hypothetical=_is_hypothetical(built, name, part, entry),
    )
    if isinstance(part, p.Cpu):
        _cpu(built, name, entry, part)
    elif isinstance(part, p.Gpu):
        _attached(built, name, part.memory, entry)
        if part.cpu:
            _apu_cpu(built, name, part)
    elif isinstance(part, p.Expander):
        _expander(built, name, entry, part)
    elif isinstance(part, p.Storage):
        _storage(built, name, entry, part)


def _is_hypothetical(built: Assembly, name: str, part: p.Part, entry: DeviceEntry) -> bool:
    """A device does not exist yet if its part, its memory or the link that it hangs on does not."""
    link = connection_of(name, built.topology, built.parts) if entry.to else None
    attached = part.memory.part if isinstance(part, (p.Cpu, p.Gpu)) and part.memory else ""
    names = (entry.memory.part if entry.memory else "", attached, link.part if link else "")
    return part.hypothetical or any(built.parts[other].hypothetical for other in names if other)


def _fields(built: Assembly, part: p.Part, entry: DeviceEntry) -> Mapping[str, Any]:
    """The part by field name, with what its memory class says where it is silent, slowed to the device's speed.

    Equal devices of machines whose parts come from the same catalogue share the answer.
    """
    module = built.part(part.memory.part, p.Memory) if isinstance(part, p.Gpu) else None
    key = (id(part), id(module), entry.snoop_filter, entry.speed, entry.power_cap, entry.peer_over_pcie)
    return _FIELDS.get(key, lambda: (part, module, _written(part, module, entry)))[2]


#: fields of the devices of the last machines, with the parts that they are from
_FIELDS: Kept[tuple[p.Part, p.Memory | None, Mapping[str, Any]]] = Kept(256, lambda _: 1)


def _written(part: p.Part, module: p.Memory | None, entry: DeviceEntry) -> Mapping[str, Any]:
    fields = dataclasses.asdict(part)
    if entry.snoop_filter is not None:
        fields["snoop_filter"] = entry.snoop_filter
    if isinstance(part, p.Gpu) and module is not None:
        fields["memory"]["efficiency"] = part.memory.efficiency or module.efficiency
        fields["memory"]["bandwidth"] *= entry.speed
        fields["kernel_bandwidth"] = {**module.kernel_bandwidth, **part.kernel_bandwidth}
        fields |= _clocked(entry, part)
        if entry.peer_over_pcie is not None:
            fields["peer_over_pcie"] = entry.peer_over_pcie
    return fields


def _clocked(entry: DeviceEntry, part: p.Gpu) -> dict[str, Any]:
    """Compute of a GPU at the device's speed and power limit, and what it draws."""
    if not entry.power_cap:
        return {"compute": {key: value * entry.speed for key, value in part.compute.items()}}
    kept = clock_share(entry.power_cap, part.power)
    return {
        "compute": {key: value * entry.speed * kept for key, value in part.compute.items()},
        "power": entry.power_cap,
        "joules_per_flop": part.joules_per_flop * kept**2,  # so that power / joules falls as the clock
    }


def _cpu(built: Assembly, name: str, entry: DeviceEntry, part: p.Cpu) -> None:
    built.cores(name, part.cores * entry.speed)
    if entry.memory:
        _dimms(built, name, entry, entry.memory, part)
    if part.memory:
        _attached(built, name, part.memory, entry, part.latency)


def _dimms(built: Assembly, name: str, entry: DeviceEntry, memory: Populated, cpu: p.Cpu) -> None:
    module = built.part(memory.part, p.Memory)
    raw = peak(memory.channels, memory_transfers(memory, module, cpu), module.width_bits)
    bus = cpu.bus or module
    tier = f"{name}.{p.TIER_KINDS[module.type]}"
    built.channel(tier, raw * bus.efficiency * (1 - entry.taken), law=module.latency or cpu.latency, device=name)
    if module.efficiency_low and bus is module:
        built.ranges[tier] = (module.efficiency_low / bus.efficiency, module.efficiency_high / bus.efficiency)
        built.unmeasured.append(
            f"{tier}: assumed: no measurement of {memory.part} is known here: reads at {bus.efficiency:g} of the peak "
            f"({module.efficiency_low:g} to {module.efficiency_high:g}), {format_bandwidth(raw * bus.efficiency)} "
            f"({format_bandwidth(raw * module.efficiency_low)} to {format_bandwidth(raw * module.efficiency_high)})"
        )
    media = Media(tier=tier, device=name, channel=tier, turnaround=bus.turnaround, write_cost=bus.write_cost)
    built.tier(memory.capacity, p.TIER_KINDS[module.type], media)


def _attached(built: Assembly, name: str, memory: p.Attached, entry: DeviceEntry, law: p.Latency | None = None) -> None:
    module = built.part(memory.part, p.Memory)
    efficiency = memory.efficiency or module.efficiency
    part = built.parts[entry.part]
    kernels = {**module.kernel_bandwidth, **(part.kernel_bandwidth if isinstance(part, p.Gpu) else {})}
    tier = f"{name}.{p.TIER_KINDS[module.type]}"
    rate = memory.bandwidth * efficiency * entry.speed * (1 - entry.taken)
    built.channel(tier, rate, law=memory.latency or law or module.latency, device=name)
    media = Media(
        tier=tier,
        device=name,
        channel=tier,
        turnaround=module.turnaround,
        write_cost=module.write_cost,
        kernels={kind: efficiency / share for kind, share in kernels.items()},
    )
    built.tier(entry.capacity or _usable(part, memory, entry), p.TIER_KINDS[module.type], media)


def _usable(part: p.Part, memory: p.Attached, entry: DeviceEntry) -> float:
    """Bytes of soldered memory that programs can use; a memory that CPU and GPU share is the system's, less `reserved`."""
    if not isinstance(part, p.Gpu) or part.vendor != "nvidia" or part.cpu:
        return memory.capacity
    return programmable(memory.capacity, has_inband_ecc=memory.ecc if entry.ecc is None else entry.ecc)


def _apu_cpu(built: Assembly, name: str, gpu: p.Gpu) -> None:
    """The CPU side of an APU: a device of its own that loads from the shared memory."""
    part = built.part(gpu.cpu, p.Cpu)
    cpu = name.replace("gpu", "cpu", 1) if name.startswith("gpu") else f"{name}.cpu"
    if cpu in built.topology.devices:
        cpu = f"{name}.cpu"
    built.devices[cpu] = Device(
        name=cpu,
        kind="cpu",
        part_name=gpu.cpu,
        part=dataclasses.asdict(part),
        host=built.devices[name].host,
        numa_node=sum(1 for device in built.devices.values() if device.kind == "cpu"),
        to=(name,),
        is_hypothetical=part.hypothetical,
    )
    built.cores(cpu, part.cores)
    rate = part.socket_bandwidth or gpu.memory.bandwidth
    own = max(0.0, part.latency.idle - (gpu.memory.latency.idle if gpu.memory.latency else 0.0))
    for a, b in ((name, cpu), (cpu, name)):
        channel = f"{a}->{b}"
        law = LatencyLaw(idle_latency_s=own) if own and b == cpu else None
        built.channels[channel] = Channel(name=channel, bandwidth_per_s=rate, latency=law, device=cpu)
        built.edges.append(
            Edge(source=a, target=b, link="package", channels=(channel,), bandwidth_bytes_per_s=rate, raw_bytes_per_s=rate)
        )


def _expander(built: Assembly, name: str, entry: DeviceEntry, part: p.Expander) -> None:
    module = built.part(part.memory, p.Memory)
    raw = peak(part.channels * entry.count, module.transfers, module.width_bits)
    built.channel(name, raw * module.efficiency * part.media_efficiency * (1 - entry.taken), law=part.latency, device=name)
    media = Media(tier=name, device=name, channel=name, turnaround=module.turnaround, write_cost=module.write_cost)
    built.tier(entry.joined_capacity(part.capacity), "cxl", media)


def _storage(built: Assembly, name: str, entry: DeviceEntry, part: p.Storage) -> None:
    rate = part.read_bandwidth * part.efficiency * entry.count * (1 - entry.taken)
    built.channel(name, rate, law=p.Latency(idle=part.read_latency), device=name)
    factor = part.read_bandwidth / part.write_bandwidth
    media = Media(tier=name, device=name, channel=name, write_factor=factor, access_latency_s=part.read_latency)
    built.tier(entry.joined_capacity(part.capacity), part.kind, media)


def cache_by_dram(built: Assembly, name: str, entry: DeviceEntry) -> None:
    """Memory mode: the socket's DRAM is the cache of the modules, whose capacity is that of the tier."""
    media, far = built.media.pop(name), built.tiers.pop(name)
    (tier,) = (own.tier for own in built.media.values() if own.device == entry.to[0] and built.tiers[own.tier].kind == "dram")
    behind = Behind(
        channel=media.channel, idle_latency_s=media.access_latency_s, write_factor=media.write_factor,
        cache_bytes=built.tiers[tier].capacity_bytes, is_scattered=entry.page_layout == "scattered",
    )  # fmt: skip
    built.media[tier] = dataclasses.replace(built.media[tier], behind=behind)
    built.tiers[tier] = with_fields(built.tiers[tier], capacity_bytes=far.capacity_bytes)
