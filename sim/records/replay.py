"""What happened in a replay. Every statistic is a pure function of Program and Replay."""

from __future__ import annotations

from sim.records.words import Struct


class OperationRecord(Struct, frozen=True, kw_only=False):
    """When one operation was ready (dependencies and stream order met), started its work, and ended."""

    id: str
    ready_s: float
    start_s: float
    end_s: float


class ChannelTotal(Struct, frozen=True, kw_only=True):
    """Bytes (or core-seconds) carried by one member of a channel, and the seconds it carried any / was saturated."""

    name: str
    amount: float
    busy_s: float
    saturated_s: float
    peak_rate_per_s: float


class ChannelSegment(Struct, frozen=True, kw_only=True):
    """A constant rate on a channel from `start_s` to `end_s` (level full)."""

    name: str
    start_s: float
    end_s: float
    rate_per_s: float


class Occupancy(Struct, frozen=True, kw_only=True):
    """Bytes of a tensor class in a tier from `time_s` on (level full)."""

    time_s: float
    tier: str
    tensor_class: str
    size_bytes: float


class TierPeak(Struct, frozen=True, kw_only=True):
    """The largest occupancy of one member of a tier, when, during which operation, and what it consisted of."""

    name: str
    peak_bytes: float
    time_s: float
    operation: str
    by_class: dict[str, float]


class Sample(Struct, frozen=True, kw_only=True):
    """What a monitor saw at a fixed simulated interval: utilisation per channel, bytes per tier."""

    time_s: float
    utilisation: dict[str, float]
    occupancy_bytes: dict[str, float]


class Replay(Struct, frozen=True, kw_only=True):
    """Everything the engine observed; it computes no statistic."""

    makespan_s: float
    operations: tuple[OperationRecord, ...]
    channels: tuple[ChannelTotal, ...]
    tiers: tuple[TierPeak, ...]
    segments: tuple[ChannelSegment, ...] = ()
    occupancy: tuple[Occupancy, ...] = ()
    samples: tuple[Sample, ...] = ()
    backend: str = "python"
    num_batches: int = 0
    events: tuple[str, ...] = ()  # spills, evictions, grants: what policies answered, in order
