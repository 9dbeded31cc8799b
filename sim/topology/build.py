"""From a described topology and its parts to a Machine: devices, tiers with their ports, links with two directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace as with_fields

from sim.errors import Fault, MachineError
from sim.laws.memory import peak, programmable
from sim.records import INFINITY, Channel, LatencyLaw, Tier
from sim.topology import parts as p
from sim.topology.description import DeviceEntry, Populated, Topology
from sim.topology.graph import Behind, Edge, Media
from sim.topology.limits import check, memory_transfers
from sim.topology.lint import Setup, advice_of, warnings_of
from sim.topology.machine import Device, Machine
from sim.topology.wires import connection_of, connections, join
from sim.units import format_bandwidth

PartKind = TypeVar("PartKind", bound=p.Part)

#: memory type -> kind of its tier
TIER_KINDS = {
    "ddr4": "dram", "ddr5": "dram", "mrdimm": "dram", "lpddr5x": "lpddr", "hbm2": "hbm", "hbm2e": "hbm", "hbm3": "hbm",
    "hbm3e": "hbm", "hbm4": "hbm", "gddr6": "gddr", "gddr6x": "gddr", "gddr7": "gddr",
}  # fmt: skip


def build(topology: Topology, parts: Mapping[str, p.Part], sources: Mapping[str, Mapping[str, str]], file: str = "") -> Machine:
    """The machine that a topology describes.

    `parts` holds every part that is named (transitively), `sources` part name -> field path -> citation. Raises
    MachineError with all faults when the machine cannot exist.
    """
    faults = [dataclasses.replace(fault, file=file) for fault in check(topology, parts)]
    if faults:
        raise MachineError(faults)
    builder = _Builder(topology, parts)
    builder.run()
    devices = builder.devices
    cited = {
        f"{name}.{path}": citation
        for name, device in devices.items()
        for path, citation in sources.get(device.part_name, {}).items()
    }
    assumed = tuple(f"{path}: {citation}" for path, citation in cited.items() if citation.startswith("assumed"))
    setup = Setup(topology=topology, parts=parts, devices=devices, edges=tuple(builder.edges))
    return Machine(
        name=topology.name,
        title=topology.title or topology.name,
        devices=devices,
        tiers=builder.tiers,
        channels=builder.channels,
        num_nodes=topology.nodes,
        reserved_bytes=topology.reserved,
        limits=topology.limits,
        lent_bytes=topology.shared_gpu_memory or 0.0,
        edges=tuple(builder.edges),
        media=builder.media,
        bandwidth_ranges=builder.ranges,
        assumptions=(*topology.assumptions, *builder.unmeasured, *assumed),
        warnings=warnings_of(setup),
        advice=advice_of(setup),
        sources=cited,
    )


class _Builder:
    """Collects devices, tiers, channels and edges; one use."""

    def __init__(self, topology: Topology, parts: Mapping[str, p.Part]) -> None:
        self.topology = topology
        self.parts = parts
        self.devices: dict[str, Device] = {}
        self.tiers: dict[str, Tier] = {}
        self.channels: dict[str, Channel] = {}
        self.media: dict[str, Media] = {}
        self.ranges: dict[str, tuple[float, float]] = {}
        self.unmeasured: list[str] = []
        self.edges: list[Edge] = []

    def run(self) -> None:
        entries = self.topology.devices
        for name, entry in entries.items():
            self._device(name, entry)
        for name, entry in entries.items():
            if entry.mode == "memory":
                self._cached_by_dram(name, entry)
        for name, entry in entries.items():
            self._attach(name, entry)
        for group in self.topology.links.values():
            link = self._part(group.part, p.Link)
            for a, b in connections(group, entries):
                self._join(a, b, link, group.lanes)

    def _part(self, name: str, kind: type[PartKind]) -> PartKind:
        part = self.parts[name]
        if not isinstance(part, kind):
            raise MachineError(Fault(what=f"part {name!r} is a {part.kind}, expected a {kind.__name__.lower()}"))
        return part

    # ---- devices and their tiers

    def _device(self, name: str, entry: DeviceEntry) -> None:
        part = self.parts[entry.part]
        if entry.cores and isinstance(part, p.Cpu):
            part = dataclasses.replace(part, cores=entry.cores)
        above = [self.devices[up] for up in entry.to if up in self.devices]
        hosts = {device.host for device in above}
        num_cpus = sum(1 for device in self.devices.values() if device.kind == "cpu")
        self.devices[name] = Device(
            name=name,
            kind=part.kind,
            part_name=entry.part,
            part=self._fields(part, entry),
            host=entry.host or (hosts.pop() if len(hosts) == 1 else "" if hosts else "host0"),
            numa_node=num_cpus if part.kind == "cpu" else above[0].numa_node if above else 0,
            to=entry.to,
            count=entry.count,
            gpu_share=entry.gpu_share or (part.gpu_share if isinstance(part, p.Gpu) else 1.0),
            grants=dict(entry.grants),
            is_movable=entry.zone == "movable",
            is_hypothetical=self._is_hypothetical(name, part, entry),
        )
        if isinstance(part, p.Cpu):
            self._cpu(name, entry, part)
        elif isinstance(part, p.Gpu):
            self._attached(name, part.memory, entry)
            if part.cpu:
                self._apu_cpu(name, part)
        elif isinstance(part, p.Expander):
            self._expander(name, entry, part)
        elif isinstance(part, p.Storage):
            self._storage(name, entry, part)

    def _is_hypothetical(self, name: str, part: p.Part, entry: DeviceEntry) -> bool:
        """A device does not exist yet if its part, its memory or the link that it hangs on does not."""
        link = connection_of(name, self.topology, self.parts) if entry.to else None
        attached = part.memory.part if isinstance(part, (p.Cpu, p.Gpu)) and part.memory else ""
        names = (entry.memory.part if entry.memory else "", attached, link.part if link else "")
        return part.hypothetical or any(self.parts[other].hypothetical for other in names if other)

    def _fields(self, part: p.Part, entry: DeviceEntry) -> dict[str, Any]:
        """The part by field name, with what its memory class says where it is silent, slowed to the device's speed."""
        fields = dataclasses.asdict(part)
        if entry.snoop_filter is not None:
            fields["snoop_filter"] = entry.snoop_filter
        if isinstance(part, p.Gpu):
            module = self._part(part.memory.part, p.Memory)
            fields["memory"]["efficiency"] = part.memory.efficiency or module.efficiency
            fields["memory"]["bandwidth"] *= entry.speed
            fields["kernel_bandwidth"] = {**module.kernel_bandwidth, **part.kernel_bandwidth}
            fields["compute"] = {key: value * entry.speed for key, value in part.compute.items()}
            if entry.peer_over_pcie is not None:
                fields["peer_over_pcie"] = entry.peer_over_pcie
        return fields

    def _channel(self, name: str, bandwidth: float, *, law: p.Latency | None = None, device: str = "") -> str:
        latency = LatencyLaw(idle_latency_s=law.idle, a=law.a, c=law.c, k=law.k) if law else None
        self.channels[name] = Channel(name=name, bandwidth_per_s=bandwidth, latency=latency, device=device)
        return name

    def _tier(self, capacity: float, kind: str, media: Media) -> None:
        self.tiers[media.tier] = Tier(name=media.tier, capacity_bytes=capacity, device=media.device, kind=kind)
        self.media[media.tier] = media

    def _cpu(self, name: str, entry: DeviceEntry, part: p.Cpu) -> None:
        cores = f"{name}.cores"
        self.channels[cores] = Channel(name=cores, bandwidth_per_s=part.cores * entry.speed, unit="cores", device=name)
        if entry.memory:
            self._dimms(name, entry, entry.memory, part)
        if part.memory:
            self._attached(name, part.memory, entry, part.latency)

    def _dimms(self, name: str, entry: DeviceEntry, memory: Populated, cpu: p.Cpu) -> None:
        module = self._part(memory.part, p.Memory)
        raw = peak(memory.channels, memory_transfers(memory, module, cpu), module.width_bits)
        bus = cpu.bus or module
        tier = f"{name}.{TIER_KINDS[module.type]}"
        self._channel(tier, raw * bus.efficiency * (1 - entry.taken), law=module.latency or cpu.latency, device=name)
        if module.efficiency_low and bus is module:
            self.ranges[tier] = (module.efficiency_low / bus.efficiency, module.efficiency_high / bus.efficiency)
            self.unmeasured.append(
                f"{tier}: assumed: no measurement of {memory.part} is known here: reads at {bus.efficiency:g} of the peak "
                f"({module.efficiency_low:g} to {module.efficiency_high:g}), {format_bandwidth(raw * bus.efficiency)} "
                f"({format_bandwidth(raw * module.efficiency_low)} to {format_bandwidth(raw * module.efficiency_high)})"
            )
        media = Media(tier=tier, device=name, channel=tier, turnaround=bus.turnaround, write_cost=bus.write_cost)
        self._tier(memory.capacity, TIER_KINDS[module.type], media)

    def _attached(self, name: str, memory: p.Attached, entry: DeviceEntry, law: p.Latency | None = None) -> None:
        module = self._part(memory.part, p.Memory)
        efficiency = memory.efficiency or module.efficiency
        part = self.parts[entry.part]
        kernels = {**module.kernel_bandwidth, **(part.kernel_bandwidth if isinstance(part, p.Gpu) else {})}
        tier = f"{name}.{TIER_KINDS[module.type]}"
        rate = memory.bandwidth * efficiency * entry.speed * (1 - entry.taken)
        self._channel(tier, rate, law=memory.latency or law or module.latency, device=name)
        media = Media(
            tier=tier,
            device=name,
            channel=tier,
            turnaround=module.turnaround,
            write_cost=module.write_cost,
            kernels={kind: efficiency / share for kind, share in kernels.items()},
        )
        self._tier(entry.capacity or _usable(part, memory, entry), TIER_KINDS[module.type], media)

    def _apu_cpu(self, name: str, gpu: p.Gpu) -> None:
        """The CPU side of an APU: a device of its own that loads from the shared memory."""
        part = self._part(gpu.cpu, p.Cpu)
        cpu = name.replace("gpu", "cpu", 1) if name.startswith("gpu") else f"{name}.cpu"
        if cpu in self.topology.devices:
            cpu = f"{name}.cpu"
        self.devices[cpu] = Device(
            name=cpu,
            kind="cpu",
            part_name=gpu.cpu,
            part=dataclasses.asdict(part),
            host=self.devices[name].host,
            numa_node=sum(1 for device in self.devices.values() if device.kind == "cpu"),
            to=(name,),
            is_hypothetical=part.hypothetical,
        )
        cores = f"{cpu}.cores"
        self.channels[cores] = Channel(name=cores, bandwidth_per_s=part.cores, unit="cores", device=cpu)
        rate = part.socket_bandwidth or gpu.memory.bandwidth
        own = max(0.0, part.latency.idle - (gpu.memory.latency.idle if gpu.memory.latency else 0.0))
        for a, b in ((name, cpu), (cpu, name)):
            channel = f"{a}->{b}"
            law = LatencyLaw(idle_latency_s=own) if own and b == cpu else None
            self.channels[channel] = Channel(name=channel, bandwidth_per_s=rate, latency=law, device=cpu)
            self.edges.append(
                Edge(source=a, target=b, link="package", channels=(channel,), bandwidth_bytes_per_s=rate, raw_bytes_per_s=rate)
            )

    def _expander(self, name: str, entry: DeviceEntry, part: p.Expander) -> None:
        module = self._part(part.memory, p.Memory)
        raw = peak(part.channels * entry.count, module.transfers, module.width_bits)
        self._channel(name, raw * module.efficiency * part.media_efficiency * (1 - entry.taken), law=part.latency, device=name)
        media = Media(tier=name, device=name, channel=name, turnaround=module.turnaround, write_cost=module.write_cost)
        self._tier(entry.capacity or part.capacity * entry.count, "cxl", media)

    def _storage(self, name: str, entry: DeviceEntry, part: p.Storage) -> None:
        rate = part.read_bandwidth * part.efficiency * entry.count * (1 - entry.taken)
        self._channel(name, rate, law=p.Latency(idle=part.read_latency), device=name)
        factor = part.read_bandwidth / part.write_bandwidth
        media = Media(tier=name, device=name, channel=name, write_factor=factor, access_latency_s=part.read_latency)
        self._tier(entry.capacity or part.capacity * entry.count, part.kind, media)

    def _cached_by_dram(self, name: str, entry: DeviceEntry) -> None:
        """Memory mode: the socket's DRAM is the cache of the modules, whose capacity is that of the tier."""
        media, far = self.media.pop(name), self.tiers.pop(name)
        (tier,) = (own.tier for own in self.media.values() if own.device == entry.to[0] and self.tiers[own.tier].kind == "dram")
        behind = Behind(
            channel=media.channel, idle_latency_s=media.access_latency_s, write_factor=media.write_factor,
            cache_bytes=self.tiers[tier].capacity_bytes, is_scattered=entry.page_layout == "scattered",
        )  # fmt: skip
        self.media[tier] = dataclasses.replace(self.media[tier], behind=behind)
        self.tiers[tier] = with_fields(self.tiers[tier], capacity_bytes=far.capacity_bytes)

    # ---- links

    def _attach(self, name: str, entry: DeviceEntry) -> None:
        part = self.parts[entry.part]
        if isinstance(part, p.Nic):
            self._network(name, part, entry.count)
        choice = connection_of(name, self.topology, self.parts)
        if choice is None:
            if isinstance(part, p.Storage):  # on the memory bus
                self.edges += [_bus(a, b) for up in entry.to for a, b in ((up, name), (name, up))]
            return
        link = self._part(choice.part, p.Link)
        for up in entry.to:
            self._join(up, name, link, choice.lanes * entry.count)

    def _join(self, a: str, b: str, link: p.Link, lanes: int) -> None:
        ends = (self.parts[self.topology.devices[a].part], self.parts[self.topology.devices[b].part])
        limits = (0.0, 0.0)
        if isinstance(ends[1], p.Expander):
            count = self.topology.devices[b].count
            limits = (ends[1].write_bandwidth * count, ends[1].read_bandwidth * count)
        channels, edges = join(a, b, link, lanes, ends=ends, limits=limits)
        self.channels |= {channel.name: channel for channel in channels}
        parts = {a: ends[0], b: ends[1]}
        self.edges += [self._crossing(edge, parts[edge.source], parts[edge.target]) for edge in edges]

    def _crossing(self, edge: Edge, source: p.Part, target: p.Part) -> Edge:
        """The edge with what it shares inside its ends: a switch's internal limit, a socket's limit of all its devices.

        What leaves a switch has crossed it once; a socket's devices share one channel per direction.
        """
        shared = {}
        if isinstance(source, p.Switch) and source.bandwidth:
            shared[f"{edge.source}.crossing"] = (source.bandwidth, edge.source)
        if edge.link in ("pcie", "cxl"):
            for part, name, way in ((source, edge.source, "out"), (target, edge.target, "in")):
                if isinstance(part, p.Cpu) and part.io_bandwidth:
                    shared[f"{name}.io.{way}"] = (part.io_bandwidth, name)
        if not shared:
            return edge
        for name, (rate, device) in shared.items():
            self.channels[name] = Channel(name=name, bandwidth_per_s=rate, device=device)
        return dataclasses.replace(edge, channels=(*edge.channels, *shared))

    def _network(self, name: str, nic: p.Nic, count: int) -> None:
        link = self._part(nic.port.part, p.Link)
        channels, edges = join(name, "network", link, nic.port.lanes * count, ends=(nic, None))
        self.channels |= {channel.name: channel for channel in channels}
        self.edges += edges


def _bus(source: str, target: str) -> Edge:
    """A way that costs nothing: a module in a socket's own memory slots."""
    return Edge(
        source=source, target=target, link="package", channels=(), bandwidth_bytes_per_s=INFINITY, raw_bytes_per_s=INFINITY
    )


def _usable(part: p.Part, memory: p.Attached, entry: DeviceEntry) -> float:
    """Bytes of soldered memory that programs can use; a memory that CPU and GPU share is the system's, less `reserved`."""
    if not isinstance(part, p.Gpu) or part.vendor != "nvidia" or part.cpu:
        return memory.capacity
    return programmable(memory.capacity, has_inband_ecc=memory.ecc if entry.ecc is None else entry.ecc)
