"""A machine under construction: what has been built so far, and how a channel or a tier is added to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sim.errors import Fault, MachineError
from sim.records import Channel, LatencyLaw, Tier
from sim.topology import parts as p
from sim.topology.description import Topology
from sim.topology.graph import Edge, Media
from sim.topology.inventory import Device

PartKind = TypeVar("PartKind", bound=p.Part)


@dataclass(slots=True)
class Assembly:
    """Collects devices, tiers, channels and edges of one topology; one use.

    `ranges` and `unmeasured` tell of memories whose bandwidth nobody has measured: least and most over what is taken, and
    the sentence for people.
    """

    topology: Topology
    parts: Mapping[str, p.Part]
    devices: dict[str, Device] = field(default_factory=dict)
    tiers: dict[str, Tier] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    media: dict[str, Media] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    unmeasured: list[str] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def part(self, name: str, kind: type[PartKind]) -> PartKind:
        """The part of that name; MachineError when it is of another kind."""
        part = self.parts[name]
        if not isinstance(part, kind):
            raise MachineError(Fault(what=f"part {name!r} is a {part.kind}, expected a {kind.__name__.lower()}"))
        return part

    def channel(self, name: str, bandwidth: float, *, law: p.Latency | None = None, device: str = "") -> str:
        """A channel of that many bytes/s, loaded by the law where one is given; its name."""
        latency = LatencyLaw(idle_latency_s=law.idle, a=law.a, c=law.c, k=law.k) if law else None
        self.channels[name] = Channel(name=name, bandwidth_per_s=bandwidth, latency=latency, device=device)
        return name

    def cores(self, device: str, number: float) -> None:
        """The channel of a socket's cores, in core-seconds per second."""
        name = f"{device}.cores"
        self.channels[name] = Channel(name=name, bandwidth_per_s=number, unit="cores", device=device)

    def tier(self, capacity: float, kind: str, media: Media) -> None:
        """A tier of so many bytes on its medium."""
        self.tiers[media.tier] = Tier(name=media.tier, capacity_bytes=capacity, device=media.device, kind=kind)
        self.media[media.tier] = media
