"""What a part is: each input declared once with unit, bound, default and meaning; held in SI.

`config/` turns these dataclasses into strict validators of `topologies/parts/*.yaml`. A part says what one component
is (datasheet) and to which class it belongs (a few measured constants per class); a topology says how many there are
and what they are joined by.
"""

from __future__ import annotations

from sim.topology.parts.capacity import Expander, Storage
from sim.topology.parts.described import STRICT, Count, Latency, Port
from sim.topology.parts.links import Link, Nic, Switch
from sim.topology.parts.memory import TIER_KINDS, Attached, Memory
from sim.topology.parts.processors import Cpu, Gpu

__all__ = [
    "KINDS", "STRICT", "TIER_KINDS", "Attached", "Count", "Cpu", "Expander", "Gpu", "Latency", "Link", "Memory", "Nic", "Part",
    "Port", "Storage", "Switch",
]  # fmt: skip

Part = Memory | Cpu | Gpu | Link | Switch | Expander | Storage | Nic
KINDS: dict[str, type[Part]] = {
    "memory": Memory, "cpu": Cpu, "gpu": Gpu, "link": Link, "switch": Switch, "cxl": Expander, "nvme": Storage, "pmem": Storage,
    "nic": Nic,
}  # fmt: skip
