"""How much of a pool is in use at once, against what its hosts need each for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sim.metrics.summary import TierUse
from sim.records import Replay, Struct


class PoolUse(Struct, frozen=True, kw_only=True):
    """One pool over a simulation; bytes.

    `hosts` holds the peak of each host's part, whenever it occurs, with what it shares with others counted at each.
    """

    capacity_bytes: float
    peak_bytes: float  # of all hosts together, at one instant
    peak_s: float
    hosts: dict[str, float]
    by_class: dict[str, float]  # at the peak
    num_grants: int = 0
    num_releases: int = 0

    @property
    def own_peaks_bytes(self) -> float:
        """What the hosts would need in all if each had its own device."""
        return sum(self.hosts.values())


class HostMemory(Struct, frozen=True, kw_only=True):
    """Memory of all hosts together, bytes: if each has all it needs for itself, and with what pools save."""

    own_bytes: float
    pooled_bytes: float

    @property
    def saved(self) -> float:
        """Share of the hosts' memory that pools make unnecessary."""
        return 1.0 - self.pooled_bytes / self.own_bytes if self.own_bytes else 0.0


def host_memory(tiers: Mapping[str, TierUse], local: Iterable[str], pools: Mapping[str, PoolUse]) -> HostMemory:
    """What hosts need in all: the peaks of their `local` tiers, and of their parts of pools apart or at once."""
    at_home = sum(tiers[name].peak_bytes * tiers[name].multiplicity for name in local if name in tiers)
    return HostMemory(
        own_bytes=at_home + sum(pool.own_peaks_bytes for pool in pools.values()),
        pooled_bytes=at_home + sum(pool.peak_bytes for pool in pools.values()),
    )


def pool_use(replay: Replay, capacity_bytes: float, tiers: Sequence[str], elsewhere: Mapping[str, float]) -> PoolUse:
    """Use of the pool whose parts are `tiers` (``pool0@host0``); needs a replay of level full.

    `elsewhere` are bytes by tier that its host uses and that are there once, held by another.

    Frees of one instant come before its allocations in the replay's rows, so a sum over them is what was really there.
    """
    names = set(tiers)
    held: dict[tuple[str, str], float] = {}
    peak_bytes, peak_s, by_class = 0.0, 0.0, dict[str, float]()
    rows = [row for row in replay.occupancy if row.tier in names]
    total = 0.0
    for row in rows:
        key = (row.tier, row.tensor_class)
        total += row.size_bytes - held.get(key, 0.0)
        held[key] = row.size_bytes
        if total > peak_bytes * (1.0 + 1e-12):
            peak_bytes, peak_s = total, row.time_s
            by_class = {}
            for (_, name), size in held.items():
                by_class[name] = by_class.get(name, 0.0) + size
    peaks = {
        peak.name.partition("@")[2]: peak.peak_bytes + elsewhere.get(peak.name, 0.0)
        for peak in replay.tiers
        if peak.name in names
    }
    words = [event.split(" s: ", 1)[1] for event in replay.events if any(event.endswith(f": {name}") for name in names)]
    return PoolUse(
        capacity_bytes=capacity_bytes,
        peak_bytes=peak_bytes,
        peak_s=peak_s,
        hosts=peaks,
        by_class={name: size for name, size in by_class.items() if size > 0},
        num_grants=sum(" grants " in text for text in words),
        num_releases=sum(" takes back " in text for text in words),
    )
