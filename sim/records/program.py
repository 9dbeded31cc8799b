"""A step lowered onto one machine: the engine's input."""

from __future__ import annotations

from typing import Literal

from sim.records.words import INFINITY, Category, Kind, Struct, Uses


class LatencyLaw(Struct, frozen=True, kw_only=True):
    """Loaded latency of a channel: L0 * (1 + (a + c*w) * u / (1 - k*u)); u utilisation 0..1, w write share 0..0.5."""

    idle_latency_s: float
    a: float = 0.0
    c: float = 0.0
    k: float = 0.0


class Channel(Struct, frozen=True, kw_only=True):
    """What flows share: one direction of a link, a tier's own port, a copy engine, or cores ("work" = core-seconds).

    `multiplicity` > 1 = that many identical channels, of which a flow of the representative rank crosses one.
    """

    name: str
    bandwidth_per_s: float  # bytes/s, or units/s for cores
    latency: LatencyLaw | None = None
    multiplicity: int = 1
    is_server: bool = False  # exclusive: serves one operation at a time, in arrival order
    unit: Literal["bytes", "cores"] = "bytes"
    device: str = ""


class Tier(Struct, frozen=True, kw_only=True):
    """Memory with one capacity. `multiplicity` as in Channel."""

    name: str
    capacity_bytes: float
    multiplicity: int = 1
    device: str = ""
    kind: str = ""  # hbm gddr dram lpddr cxl pmem nvme


class Stream(Struct, frozen=True, kw_only=True):
    """An in-order queue of operations; `multiplicity` identical ranks own one each."""

    name: str
    device: str = ""
    role: str = ""
    multiplicity: int = 1


class Allocation(Struct, frozen=True, kw_only=True):
    """Bytes of a tensor class put into (or taken out of) a named tier, per stream member."""

    tier: str
    tensor_class: str
    size_bytes: float


class Operation(Struct, frozen=True, kw_only=True):
    """One flow: `work` in bytes, or in solo seconds when it moves none; see docs/model.md, chapter Sharing.

    Its rate r obeys r <= rate_cap, and on each channel the sum over flows of r * cost * (stream multiplicity /
    channel multiplicity) <= bandwidth. If `window_bytes` > 0 the flow is latency-bound: r <= window_bytes / loaded
    latency of its path. It starts `latency_s` after it is ready, and ends when `work` is done.
    """

    id: str
    kind: Kind
    stream: str
    sequence: int
    name: str = ""
    after: tuple[str, ...] = ()
    work: float = 0.0
    uses: Uses = ()  # (channel, cost per unit of work)
    rate_cap: float = INFINITY
    latency_s: float = 0.0
    window_bytes: float = 0.0
    write_share: float = 0.0
    weight: float = 1.0  # outstanding bytes, relative
    allocates: tuple[Allocation, ...] = ()  # applied when it starts
    frees: tuple[Allocation, ...] = ()  # applied when it ends
    # attribution
    phase: str = ""
    category: Category = "compute"
    layer: int = -1
    micro_batch: int = -1
    flops: float = 0.0
    arithmetic_s: float = 0.0  # compute: of the solo time work / rate_cap, what arithmetic takes (the rest is memory)
    launch_s: float = 0.0  # compute: of the solo time, launches and dispatch
    size_bytes: float = 0.0  # payload, for people


class Program(Struct, frozen=True, kw_only=True):
    """A step on one machine: everything the engine needs and nothing else."""

    name: str
    channels: tuple[Channel, ...]
    tiers: tuple[Tier, ...]
    streams: tuple[Stream, ...]
    operations: tuple[Operation, ...]
    resident: tuple[tuple[Allocation, int], ...] = ()  # static bytes, with the multiplicity of the owner
    model_flops: float = 0.0
    num_tokens: float = 0.0
    peak_flops_per_s: float = 0.0  # all ranks together, dense: the denominator of MFU
    notes: tuple[str, ...] = ()
