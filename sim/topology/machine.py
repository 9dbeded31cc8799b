"""The machine as the rest of the simulator sees it: devices, tiers, channels, and the routes between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.records import Channel, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How bytes get from one place to another: what a flow uses per byte, and what bounds it.

    uses: (channel, cost per byte); rate_cap in bytes/s (copy engine, cores, pageable staging);
    latency_s: time before the first byte (t0 of the ramp T = t0 + S/B); weight: outstanding bytes.
    """

    uses: tuple[tuple[str, float], ...]
    rate_cap_bytes_per_s: float
    latency_s: float
    weight: float = 1.0
    window_bytes: float = 0.0
    hops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A thing with compute or memory. `part` holds its datasheet and class constants by name, in SI."""

    name: str
    kind: str  # cpu gpu apu cxl nvme pmem switch nic pool
    part_name: str
    part: Mapping[str, object]
    host: str = ""
    numa_node: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine (or cluster: `num_nodes` identical nodes of which one is described)."""

    name: str
    devices: Mapping[str, Device]
    tiers: Mapping[str, Tier]
    channels: Mapping[str, Channel]
    num_nodes: int = 1
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)  # "gpu0.part.bandwidth" -> citation
