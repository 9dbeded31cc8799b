"""The wires: directed edges between devices, and the media of tiers. Plain data that routes are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sim.laws.memory import bus_cost
from sim.laws.memory_mode import TAG_LATENCY_S, hit_share, moved
from sim.records import Uses

#: who moves the bytes: a copy engine, a GPU's loads or stores, a CPU's, a collective (reduction: added by the switch)
Traffic = Literal["copy", "load", "store", "cpu_load", "cpu_store", "collective", "partial", "reduction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One direction of a link. `channels` are what a byte that crosses it uses; `costs` multiply by kind of traffic.

    The first channel's bandwidth is what the most efficient traffic reaches. A load's requests cost `request_cost`
    bytes against the data. `message_latency_s` is one hop of a message, software included.
    """

    source: str
    target: str
    link: str  # link type: pcie cxl nvlink c2c xgmi upi network io package
    channels: tuple[str, ...]
    bandwidth_bytes_per_s: float
    raw_bytes_per_s: float
    costs: tuple[tuple[Traffic, float], ...] = ()
    requested: str = ""  # channel of both directions that copies, loads and stores share: their requests travel the other way
    request_cost: float = 0.0
    message_latency_s: float = 0.0
    lanes: int = 1

    def __hash__(self) -> int:
        return hash((self.source, self.target, self.link))

    def uses(self, traffic: Traffic, share: float = 1.0) -> Uses:
        """Channel costs of `share` bytes of that traffic."""
        cost = dict(self.costs).get(traffic, 1.0) * share
        both = (self.requested,) if self.requested and traffic not in ("collective", "partial", "reduction") else ()
        return tuple((channel, cost) for channel in (*self.channels, *both))


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Persistent memory of which the tier's DRAM is a cache: its channel, and the share of the lines that miss."""

    channel: str
    idle_latency_s: float
    write_factor: float
    cache_bytes: float
    is_scattered: bool = True
    working_set_bytes: float = 0.0

    @property
    def miss_share(self) -> float:
        """Share of the tier's lines that are not in its DRAM."""
        return 1.0 - hit_share(self.working_set_bytes, self.cache_bytes, is_scattered=self.is_scattered)

    @property
    def latency_s(self) -> float:
        """Mean seconds that misses add to a load."""
        return self.miss_share * (TAG_LATENCY_S + self.idle_latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """How a tier hangs on its device: its port, what a byte costs there, and what bounds one user.

    `turnaround` and `write_cost` are the bus constants of `laws.memory`; `write_factor` is what a written byte costs
    on a medium that writes more slowly than it reads (storage); `kernels` scale by kind of GPU kernel.
    """

    tier: str
    device: str
    channel: str
    turnaround: float = 0.0
    write_cost: float = 0.0
    write_factor: float = 1.0
    access_latency_s: float = 0.0  # before the first byte of a bulk transfer (storage)
    kernels: Mapping[str, float] = field(default_factory=dict)
    behind: Behind | None = None  # the memory of which this DRAM is a cache

    def uses(self, write_share: float, kernel: str = "") -> Uses:
        """Channel costs of one byte of traffic at this write share, those of a memory behind this one included."""
        if self.behind is None or not self.behind.miss_share:
            return ((self.channel, self.cost(write_share, kernel)),)
        parts = moved(write_share, self.behind.miss_share)
        near = (parts.near_read + parts.near_written) * self.cost(parts.near_write_share, kernel)
        far = parts.far_read + parts.far_written * self.behind.write_factor
        return ((self.channel, near), (self.behind.channel, far))

    def filled(self, working_set_bytes: float) -> Media:
        """The same with so many bytes in use, where it is a cache."""
        if self.behind is None:
            return self
        return replace(self, behind=replace(self.behind, working_set_bytes=working_set_bytes))

    def cost(self, write_share: float, kernel: str = "") -> float:
        """Channel cost of one byte of traffic at this write share."""
        mixed = 1.0 - write_share + write_share * self.write_factor
        measured = self.kernels.get(kernel)  # at its own mix of reads and writes
        return mixed * (bus_cost(write_share, self.turnaround, self.write_cost) if measured is None else measured)

    def __hash__(self) -> int:
        return hash((self.tier, self.device))
