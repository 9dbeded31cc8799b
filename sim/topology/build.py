"""From a described topology and its parts to a Machine: tiers with their ports, links with two directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import combinations
from typing import TypeVar

from sim.errors import Fault, MachineError
from sim.records import Channel, LatencyLaw, Tier
from sim.topology import parts as p
from sim.topology.description import Connection, DeviceEntry, LinkEntry, Populated, Topology
from sim.topology.graph import Edge, Media
from sim.topology.limits import check, memory_transfers
from sim.topology.machine import Device, Machine

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
    return Machine(
        name=topology.name,
        title=topology.title or topology.name,
        devices=devices,
        tiers=builder.tiers,
        channels=builder.channels,
        num_nodes=topology.nodes,
        edges=tuple(builder.edges),
        media=builder.media,
        assumptions=(*topology.assumptions, *assumed),
        sources=cited,
    )


def expand(pattern: str, names: Mapping[str, object]) -> list[str]:
    """Device names that a pattern such as 'gpu*' means, in file order."""
    return [name for name in names if fnmatchcase(name, pattern)]


def connections(entry: LinkEntry, names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The pairs of devices that a link entry joins, each once."""
    if entry.between:
        seen = set()
        for a in expand(entry.between[0], names):
            for b in expand(entry.between[1], names):
                if a != b and frozenset((a, b)) not in seen:
                    seen.add(frozenset((a, b)))
                    yield a, b
    members = [name for pattern in entry.mesh for name in expand(pattern, names)]
    yield from combinations(members, 2)
    yield from entry.pairs


def connection_of(entry: DeviceEntry, part: p.Part) -> Connection | None:
    """The link by which a device hangs on `to`: as written, else the part's own port."""
    if entry.link:
        return entry.link
    port = getattr(part, "link", None) or getattr(part, "pcie", None)
    if isinstance(part, p.Switch):
        port = p.Port(part=part.port.part, lanes=16)  # one uplink
    return Connection(part=port.part, lanes=port.lanes) if port else None


class _Builder:
    """Collects devices, tiers, channels and edges; one use."""

    def __init__(self, topology: Topology, parts: Mapping[str, p.Part]) -> None:
        self.topology = topology
        self.parts = parts
        self.devices: dict[str, Device] = {}
        self.tiers: dict[str, Tier] = {}
        self.channels: dict[str, Channel] = {}
        self.media: dict[str, Media] = {}
        self.edges: list[Edge] = []

    def run(self) -> None:
        entries = self.topology.devices
        for name, entry in entries.items():
            self._device(name, entry)
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
        to = entry.to
        host = entry.host or next((self.devices[up].host for up in to if up in self.devices), "host0")
        numa = sum(1 for device in self.devices.values() if device.kind == "cpu")
        if part.kind != "cpu":
            numa = next((self.devices[up].numa_node for up in to if up in self.devices), 0)
        fields = dataclasses.asdict(part)
        if isinstance(part, p.Gpu) and entry.speed < 1.0:
            fields["compute"] = {key: value * entry.speed for key, value in part.compute.items()}
        self.devices[name] = Device(
            name=name, kind=part.kind, part_name=entry.part, part=fields, host=host, numa_node=numa, to=to, count=entry.count,
            is_hypothetical=part.hypothetical,
        )  # fmt: skip
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
        elif isinstance(part, p.Switch) and part.bandwidth:
            self._channel(f"{name}.fabric", part.bandwidth, device=name)

    def _channel(
        self, name: str, bandwidth: float, *, law: p.Latency | None = None, idle_s: float = 0.0, device: str = ""
    ) -> str:
        latency = LatencyLaw(idle_latency_s=law.idle, a=law.a, c=law.c, k=law.k) if law else None
        if latency is None and idle_s > 0:
            latency = LatencyLaw(idle_latency_s=idle_s)
        self.channels[name] = Channel(name=name, bandwidth_per_s=bandwidth, latency=latency, device=device)
        return name

    def _tier(self, name: str, capacity: float, kind: str, media: Media) -> None:
        self.tiers[name] = Tier(name=name, capacity_bytes=capacity, device=media.device, kind=kind)
        self.media[name] = media

    def _cpu(self, name: str, entry: DeviceEntry, part: p.Cpu) -> None:
        self.channels[f"{name}.cores"] = Channel(
            name=f"{name}.cores", bandwidth_per_s=part.cores * entry.speed, unit="cores", device=name
        )
        if entry.memory:
            self._dimms(name, entry, entry.memory, part)
        if part.memory:
            self._attached(name, part.memory, entry, part.latency)
        if part.io_bandwidth:
            inner, outer = name, f"{name}.io"
            for a, b in ((inner, outer), (outer, inner)):
                channel = self._channel(f"{a}->{b}", part.io_bandwidth, device=name)
                self.edges.append(
                    Edge(source=a, target=b, link="io", channels=((channel, 1.0),), bandwidth_bytes_per_s=part.io_bandwidth)
                )

    def _dimms(self, name: str, entry: DeviceEntry, memory: Populated, cpu: p.Cpu) -> None:
        module = self._part(memory.part, p.Memory)
        peak = memory.channels * memory_transfers(memory, module, cpu) * module.width_bits / 8
        efficiency, write_cost = module.efficiency, module.write_cost
        if cpu.bus:
            efficiency, write_cost = cpu.bus.efficiency, cpu.bus.write_cost
        kind = TIER_KINDS[module.type]
        tier = f"{name}.{kind}"
        self._channel(tier, peak * efficiency * (1 - entry.taken), law=module.latency or cpu.latency, device=name)
        stream = write_cost if module.streaming_write_cost is None else module.streaming_write_cost
        media = Media(tier=tier, device=name, channel=tier, write_cost=1 + write_cost, stream_write_cost=1 + stream)
        self._tier(tier, memory.capacity, kind, media)

    def _attached(self, name: str, memory: p.Attached, entry: DeviceEntry, law: p.Latency | None = None) -> None:
        module = self._part(memory.part, p.Memory)
        efficiency = memory.efficiency or module.efficiency
        write_cost = module.write_cost if memory.write_cost is None else memory.write_cost
        kind = TIER_KINDS[module.type]
        tier = f"{name}.{kind}"
        rate = memory.bandwidth * efficiency * entry.speed * (1 - entry.taken)
        self._channel(tier, rate, law=memory.latency or law or module.latency, device=name)
        media = Media(tier=tier, device=name, channel=tier, write_cost=1 + write_cost, stream_write_cost=1 + write_cost)
        self._tier(tier, entry.capacity or memory.capacity, kind, media)

    def _apu_cpu(self, name: str, gpu: p.Gpu) -> None:
        """The CPU side of an APU: a device of its own that loads from the shared memory."""
        part = self._part(gpu.cpu, p.Cpu)
        cpu = f"{name}.cpu"
        numa = sum(1 for device in self.devices.values() if device.kind == "cpu")
        self.devices[cpu] = Device(
            name=cpu, kind="cpu", part_name=gpu.cpu, part=dataclasses.asdict(part), host=self.devices[name].host,
            numa_node=numa, to=(name,), is_hypothetical=part.hypothetical,
        )  # fmt: skip
        self.channels[f"{cpu}.cores"] = Channel(name=f"{cpu}.cores", bandwidth_per_s=part.cores, unit="cores", device=cpu)
        rate = part.socket_bandwidth or gpu.memory.bandwidth
        for a, b in ((name, cpu), (cpu, name)):
            channel = self._channel(f"{a}->{b}", rate, device=cpu)
            self.edges.append(Edge(source=a, target=b, link="package", channels=((channel, 1.0),), bandwidth_bytes_per_s=rate))

    def _expander(self, name: str, entry: DeviceEntry, part: p.Expander) -> None:
        module = self._part(part.memory, p.Memory)
        peak = part.channels * module.transfers * module.width_bits / 8
        rate = peak * module.efficiency * part.media_efficiency * entry.count * (1 - entry.taken)
        self._channel(name, rate, law=part.latency, device=name)
        cost = 1 + module.write_cost
        capacity = entry.capacity or part.capacity * entry.count
        self._tier(name, capacity, "cxl", Media(tier=name, device=name, channel=name, write_cost=cost, stream_write_cost=cost))

    def _storage(self, name: str, entry: DeviceEntry, part: p.Storage) -> None:
        rate = part.read_bandwidth * part.efficiency * entry.count
        self._channel(name, rate, idle_s=part.read_latency, device=name)
        cost = part.read_bandwidth / part.write_bandwidth
        media = Media(
            tier=name, device=name, channel=name, write_cost=cost, stream_write_cost=cost, access_latency_s=part.read_latency
        )
        self._tier(name, entry.capacity or part.capacity * entry.count, part.kind, media)

    # ---- links

    def _attach(self, name: str, entry: DeviceEntry) -> None:
        part = self.parts[entry.part]
        if isinstance(part, p.Nic):
            self._network(name, part)
        choice = connection_of(entry, part)
        if choice is None:
            return
        link = self._part(choice.part, p.Link)
        for up in self.devices[name].to:
            outer = f"{up}.io" if f"{up}->{up}.io" in self.channels else up
            self._join(outer, name, link, choice.lanes * entry.count)

    def _join(self, a: str, b: str, link: p.Link, lanes: int) -> None:
        """Two directed edges; `a` is the side of the host."""
        ends = [self.parts[self.topology.devices[end].part] for end in (a, b) if end in self.topology.devices]
        switches = [part for part in ends if isinstance(part, p.Switch)]
        kept = min((switch.efficiency for switch in switches), default=1.0)
        raw = link.lane_bandwidth * lanes
        shared: tuple[tuple[str, float], ...] = ()
        if link.duplex_efficiency < 1.0:
            both = raw * link.efficiency * kept * 2 * link.duplex_efficiency
            shared = ((self._channel(f"{a}<->{b}.{link.type}", both), 1.0),)
        hop_s = (
            link.latency + sum(switch.latency for switch in switches) / 2
        ) / 2  # half on each direction, half of a switch per link
        for source, target, efficiency in ((a, b, link.write_efficiency or link.efficiency), (b, a, link.efficiency)):
            rate = raw * efficiency * kept
            channel = self._channel(f"{source}->{target}.{link.type}", rate, idle_s=hop_s)
            self.edges.append(
                Edge(
                    source=source,
                    target=target,
                    link=link.type,
                    channels=((channel, 1.0), *shared),
                    bandwidth_bytes_per_s=rate,
                    message_latency_s=link.message_latency,
                    request_cost=link.request_cost,
                    lanes=lanes,
                )
            )

    def _network(self, name: str, nic: p.Nic) -> None:
        link = self._part(nic.port.part, p.Link)
        rate = link.lane_bandwidth * nic.port.lanes * link.efficiency
        for source, target in ((name, "network"), ("network", name)):
            channel = self._channel(f"{source}->{target}", rate, device=name)
            self.edges.append(
                Edge(
                    source=source,
                    target=target,
                    link="network",
                    channels=((channel, 1.0),),
                    bandwidth_bytes_per_s=rate,
                    message_latency_s=link.message_latency,
                    lanes=nic.port.lanes,
                )
            )
