"""The machine as the rest of the simulator sees it: devices, tiers, channels, and the routes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sim.errors import InputError
from sim.records import Channel, Tier
from sim.topology import routing
from sim.topology.graph import Edge, Media
from sim.topology.route import Route

__all__ = ["Device", "Machine", "Route"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A thing with compute or memory. `part` holds its datasheet and class constants by name, in SI.

    The keys of `part` are the fields of the part's kind in `sim.topology.parts` (nested parts are mappings too);
    `to` are the devices that it hangs on.
    """

    name: str
    kind: str  # cpu gpu cxl nvme pmem switch nic
    part_name: str
    part: Mapping[str, object]
    host: str = ""
    numa_node: int = 0
    to: tuple[str, ...] = ()
    count: int = 1
    gpu_share: float = 1.0  # of one memory for CPU and GPU: what the GPU may allocate
    grants: Mapping[str, float] = field(default_factory=dict)  # of a pool: bytes per host at the start
    is_movable: bool = False  # its memory is online as ZONE_MOVABLE: nothing page-locked, nothing of the kernel's
    is_hypothetical: bool = False

    @property
    def is_divided(self) -> bool:
        """A pool of which each host has its own part: granted at the start, or on request."""
        return bool(self.grants or self.part.get("dynamic_capacity"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine (or cluster: `num_nodes` identical nodes of which one is described).

    `edges` are directed links, `media` how each tier hangs on its device: from them the methods below find the
    channels that a flow crosses and what a byte costs on each. All methods are pure.
    """

    name: str
    devices: Mapping[str, Device]
    tiers: Mapping[str, Tier]
    channels: Mapping[str, Channel]
    num_nodes: int = 1
    reserved_bytes: float = 0.0  # of each host: held by system, services and other jobs
    limits: Mapping[str, float] = field(default_factory=dict)  # of each host: "memory_limit" and so on -> bytes
    title: str = ""
    edges: tuple[Edge, ...] = ()
    media: Mapping[str, Media] = field(default_factory=dict)  # by tier name
    #: tiers whose bandwidth nobody has measured -> (least, most) over what is taken
    bandwidth_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # facts that cost bandwidth
    advice: tuple[str, ...] = ()  # rules of thumb that it breaks
    sources: Mapping[str, str] = field(default_factory=dict)  # "gpu0.memory.bandwidth" -> citation
    #: paths and routes that were walked, kept because a big node asks for the same ones thousands of times
    walked: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def kept(self, key: object, make: Callable[[], Value]) -> Value:
        """What was found of this machine under this key before, made now if nothing was; equal for equal machines."""
        if key not in self.walked:
            self.walked[key] = make()
        found: Value = self.walked[key]
        return found

    # ---- what there is

    def gpus(self) -> tuple[str, ...]:
        """Names of the devices that train, in rank order, of one node (all nodes are identical)."""
        return tuple(name for name, device in self.devices.items() if device.kind == "gpu")

    def seats(self) -> tuple[str, ...]:
        """Names of the devices that ranks sit on, in rank order, of one node: its GPUs, or its sockets if it has none."""
        return self.gpus() or tuple(name for name, device in self.devices.items() if device.kind == "cpu")

    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts (coherent systems) of one node, in file order."""
        return tuple(dict.fromkeys(device.host for device in self.devices.values() if device.kind == "cpu"))

    def device(self, name: str) -> Device:
        """The device; InputError with a suggestion when there is none of that name."""
        if name not in self.devices:
            raise InputError(routing.unknown("device", name, self.devices, self.name))
        return self.devices[name]

    def part(self, device: str) -> Mapping[str, object]:
        """Datasheet and class constants of the device's part, in SI; keys as in `sim.topology.parts`."""
        return self.device(device).part

    def host_of(self, device: str) -> str:
        """The CPU device nearest to `device` (itself for a CPU): where its host code runs and its DRAM hangs."""
        return routing.host_of(self, self.device(device).name)

    def memory_tier(self, device: str) -> str:
        """Name of the device's own memory tier (a socket with HBM and DDR: the DDR)."""
        return routing.memory_tier(self, self.device(device).name)

    def resolve(self, tier_role_or_name: str, device: str) -> str:
        """Tier name of a role as seen from `device`: "gpu" own memory, "dram" / "cxl" / "nvme" / "pmem" / "hbm" the nearest.

        A tier name is returned as it is. Raises InputError with suggestions for what the machine lacks.
        """
        return routing.resolve(self, tier_role_or_name, self.device(device).name)

    def members(self, tier_role_or_name: str, device: str) -> dict[str, float]:
        """Tiers that a role means and the share of pages on each: "cxl" and "pmem" mean all cards that are equally near.

        Pages alternate over them in proportion to their bandwidth, as Linux's weighted interleave does by default (since
        6.16, from the firmware's HMAT); any other role is one tier.
        """
        names = routing.members(self, tier_role_or_name, self.device(device).name)
        rates = {name: self.channels[self.media[name].channel].bandwidth_per_s for name in names}
        return {name: rate / sum(rates.values()) for name, rate in rates.items()}

    def tier_shares(self, shares: Mapping[str, float], device: str) -> dict[str, float]:
        """Shares by role or tier name as shares by tier name, as seen from `device`."""
        found: dict[str, float] = {}
        for role, share in shares.items():
            for name, part in self.members(role, device).items():
                found[name] = found.get(name, 0.0) + share * part
        return found

    # ---- how bytes move

    def route(
        self, source_tier: str, target_tier: str, *, initiator: str, is_pinned: bool = True, is_direct: bool = False
    ) -> Route:
        """A bulk copy by the initiator's copy engine (a GPU), its DMA (a drive) or its cores (a CPU).

        Uses the source's media at its read cost, each link direction on the way, the target's media at its write cost.
        `is_pinned=False` stages through a bounce buffer filled by one core. Storage to GPU memory goes through host
        memory unless `is_direct` (GPUDirect Storage).
        """
        return self.kept(
            (source_tier, target_tier, initiator, is_pinned, is_direct),
            lambda: routing.copy(self, source_tier, target_tier, initiator, is_pinned=is_pinned, is_direct=is_direct),
        )

    def access(
        self, initiator: str, tier: str, *, write_share: float = 0.0, num_cores: int | None = None, kernel: str = "triad"
    ) -> Route:
        """Load/store traffic of the initiator's compute to a tier; one unit of work is one byte, read or written.

        A GPU kernel on its own memory, a GPU on host memory over a coherent link, a CPU on DRAM or CXL.
        `window_bytes` is what the initiator keeps in flight; `num_cores` (CPU) defaults to all of the socket; `kernel`
        (GPU on its own memory) is triad, copy, read or init.
        """
        return routing.access(self, initiator, tier, write_share=write_share, num_cores=num_cores, kernel=kernel)

    def peer(self, gpu_a: str, gpu_b: str, *, by_collective: bool = False) -> Route:
        """Copy from the memory of `gpu_a` to that of `gpu_b`: GPU links, else PCIe peer-to-peer, else host memory.

        `by_collective`: kernels of a collective library push it over the GPU links, at what its rings reach there.
        """
        return routing.peer(self, self.device(gpu_a).name, self.device(gpu_b).name, by_collective=by_collective)

    def network(self, gpu: str) -> Route:
        """From the memory of `gpu` out to another node through the nearest network adapter; InputError without one."""
        return routing.network(self, self.device(gpu).name)

    def latency(self, initiator: str, tier: str) -> float:
        """Idle latency of a dependent load, seconds."""
        return routing.idle_latency(self, initiator, tier)
