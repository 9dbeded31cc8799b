"""What there is in a machine: its devices, tiers and channels by name, and the wires and media that join them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

from sim.errors import Fault, InputError
from sim.records import Channel, Tier
from sim.topology.graph import Edge, Media

Value = TypeVar("Value")
#: what people also call a role
_MEANT = {
    "cpu": "dram",
    "host": "dram",
    "memory": "dram",
    "system": "dram",
    "vram": "gpu",
    "device": "gpu",
    "cuda": "gpu",
    "ssd": "nvme",
    "disk": "nvme",
    "flash": "nvme",
    "optane": "pmem",
}


def unknown(word: str, name: str, known: Iterable[str], machine: str) -> Fault:
    """The fault for a name that the machine lacks: `word` says of what kind, `known` are the names that it has."""
    known = list(known)
    meant = _MEANT.get(name.lower(), "") if word == "tier" else ""
    near = [meant] if meant in known else get_close_matches(name, known, n=1, cutoff=0.5)
    if word == "tier" and near == ["cxl"] and not any(tier.startswith("cxl") for tier in known if tier != "cxl"):
        remedy = "it has no CXL memory: add some, topology: {base, add: {cxl0: {part: cxl-expander-asic-x8, to: cpu0}}}"
        return Fault(what=f"unknown {word} {name!r} in machine {machine!r}", remedy=remedy)
    remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
    return Fault(what=f"unknown {word} {name!r} in machine {machine!r}", remedy=remedy)


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
class Inventory:
    """One machine, or a cluster: `num_nodes` identical nodes of which one is described.

    `edges` are directed links, `media` how each tier hangs on its device. `sim.topology.machine` adds the questions about
    ways: which channels a flow crosses, and what a byte costs on each.
    """

    name: str
    devices: Mapping[str, Device]
    tiers: Mapping[str, Tier]
    channels: Mapping[str, Channel]
    num_nodes: int = 1
    reserved_bytes: float = 0.0  # of each host: held by system, services and other jobs
    limits: Mapping[str, float] = field(default_factory=dict)  # of each host: "memory_limit" and so on -> bytes
    lent_bytes: float = 0.0  # of each host: what the driver lends to full GPUs
    lent_shares: Mapping[str, float] = field(default_factory=dict)  # GPU -> share of its allocations that lies there
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
            raise InputError(unknown("device", name, self.devices, self.name))
        return self.devices[name]

    def part(self, device: str) -> Mapping[str, object]:
        """Datasheet and class constants of the device's part, in SI; keys as in `sim.topology.parts`."""
        return self.device(device).part
