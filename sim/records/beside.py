"""What processes beside the kernel see, ask and answer: monitors, pool managers, capacity policies, tier scans."""

from __future__ import annotations

from typing import Literal

from sim.records.program import Allocation
from sim.records.words import INFINITY, Struct, Uses


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a process beside the kernel sees at one instant; bytes of one member of each tier, by tensor class."""

    time_s: float
    utilisation: dict[str, float]  # channel -> 0..1
    occupancy_bytes: dict[str, dict[str, float]]  # tier -> tensor class -> bytes
    capacity_bytes: dict[str, float]


class Transfer(Struct, frozen=True, kw_only=True):
    """Bytes that a daemon moves on a stream of its own: they appear in `target` when it starts, leave `source` when it ends."""

    stream: str  # in order of injection; not a stream of the program
    size_bytes: float
    uses: Uses = ()  # (channel, cost per byte)
    rate_cap_bytes_per_s: float = INFINITY
    latency_s: float = 0.0
    weight: float = 1.0
    source: str = ""  # tier; "" = no bytes leave
    target: str = ""
    tensor_class: str = "buffers"
    name: str = ""


class Pool(Struct, frozen=True, kw_only=True):
    """Memory of a device whose capacity is granted to hosts while they run; each host sees its part as a tier of its own."""

    name: str
    capacity_bytes: float
    granted_bytes: dict[str, float]  # tier of each host -> bytes at the start
    extent_bytes: float  # granted and released in whole extents
    grant_latency_s: float  # from a request to the first access
    release_bytes_per_s: float  # at which a host gives capacity back


class Overflow(Struct, frozen=True, kw_only=True):
    """An allocation that does not fit: what a capacity policy is asked about."""

    operation: str
    stream: str
    phase: str
    tier: str
    missing_bytes: float
    allocations: tuple[Allocation, ...]  # per member of each tier
    seen: Snapshot
    num_asked: int = 1  # how often this allocation has been asked about


class Answer(Struct, frozen=True, kw_only=True):
    """What a capacity policy answers.

    fail: MisfitError. wait: until others free enough. spill: allocate `allocations` instead. move: run `transfers` that make
    room (evict, page out); the allocation waits until it fits.
    """

    kind: Literal["fail", "wait", "spill", "move"]
    allocations: tuple[Allocation, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    note: str = ""
