"""Placement policies: who decides in which tier a tensor class lives, and what moves later.

A policy is a pure function of what it is told: `place` answers an allocation, `decide` answers a scan. None holds the
clock, a machine or a past; the registry is in `sim.placement.registry`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import float_info
from typing import Protocol

from sim.errors import Fault, InputError
from sim.records import TensorClass

Shares = dict[TensorClass, dict[str, float]]
#: classes that CPU cores compute on, element by element: they feel latency and the cores' share of bandwidth. All others
#: of an offload plan are moved by copy engines, which see bandwidth only (arXiv 2507.03305, section on allocation)
CPU_TOUCHED = frozenset({TensorClass.OPTIMIZER_STATES, TensorClass.MASTER_WEIGHTS})


Pages = tuple[TensorClass, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """What a policy may know of a tier: room, and speed as seen from where the data is used.

    `way` is what a byte takes of each channel that it crosses, in seconds: tiers behind one link share it.
    """

    name: str
    free_bytes: float
    bandwidth_bytes_per_s: float
    latency_s: float
    capacity_bytes: float = 0.0
    way: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Bytes of one tensor class that need a home, and bytes of it that a step touches."""

    tensor_class: TensorClass
    size_bytes: float
    touched_bytes_per_step: float = 0.0

    @property
    def hotness(self) -> float:
        """Touches per byte and step."""
        return self.touched_bytes_per_step / self.size_bytes if self.size_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Bytes of a class to move from one tier to another; `group` of its items by heat, 0 the hottest."""

    tensor_class: TensorClass
    group: int = 0
    source: str
    target: str
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a scan sees: the time since the last one, sizes by pages and tier, touches by pages since the last scan.

    Pages are those of a class that are equally hot: a class and their place in its order of heat.
    """

    elapsed_s: float
    tiers: tuple[TierView, ...]  # fastest first
    resident_bytes: Mapping[Pages, Mapping[str, float]]
    touched_bytes: Mapping[Pages, float]
    state: Mapping[str, float] = field(default_factory=dict)  # the policy's own memory, returned with the decision


class Policy(Protocol):
    """`place` gives shares per class (each sums to 1); `decide` gives migrations, none for a static policy."""

    def place(self, demands: Sequence[Demand], tiers: Sequence[TierView], options: Mapping[str, object]) -> Shares:
        """Homes for all demands together; InputError when they do not fit."""
        ...

    def decide(self, seen: Observation, options: Mapping[str, object]) -> tuple[Migration, ...]:
        """Migrations after a scan."""
        ...


class _Static:
    """A policy that never moves anything."""

    def decide(self, seen: Observation, options: Mapping[str, object]) -> tuple[Migration, ...]:
        """Nothing moves: where a page was put is where it stays."""
        del seen, options
        return ()


def fill(demands: Sequence[Demand], tiers: Sequence[TierView]) -> Shares:
    """Give each demand, in order, the first tiers with room left. Raises InputError naming the shortfall."""
    free = {tier.name: tier.free_bytes for tier in tiers}
    shares: Shares = {}
    for demand in demands:
        left, parts = demand.size_bytes, {}
        for tier in tiers:
            taken = min(left, free[tier.name])
            if taken > 0:
                parts[tier.name] = taken
                free[tier.name] -= taken
                left -= taken
        if left > 1e-9 * demand.size_bytes:
            names = ", ".join(tier.name for tier in tiers)
            raise InputError(
                Fault(
                    what=f"{demand.tensor_class.value} need {demand.size_bytes / 2**30:.1f} GiB, "
                    f"{left / 2**30:.1f} GiB more than is free on {names}",
                    remedy="add a tier or capacity, or offload less",
                    path=f"placement.{demand.tensor_class.value}",
                )
            )
        size = sum(parts.values())
        first = tiers[0].name if tiers else "gpu"
        shares[demand.tensor_class] = {name: part / size for name, part in parts.items()} if size else {first: 1.0}
    return shares


class FastestFirst(_Static):
    """Everything in the fastest tier with room; the hottest classes first."""

    def place(self, demands: Sequence[Demand], tiers: Sequence[TierView], options: Mapping[str, object]) -> Shares:
        """Tiers by bandwidth, demands by hotness."""
        del options
        return fill(
            sorted(demands, key=lambda demand: -demand.hotness), sorted(tiers, key=lambda tier: -tier.bandwidth_bytes_per_s)
        )


class FirstTouch(_Static):
    """The nearest tier while it has room, then the next nearest, in the order of allocation (Linux default policy)."""

    def place(self, demands: Sequence[Demand], tiers: Sequence[TierView], options: Mapping[str, object]) -> Shares:
        """Tiers by latency, demands in the order given."""
        del options
        return fill(demands, sorted(tiers, key=lambda tier: tier.latency_s))


class LatencyCriticalFirst(_Static):
    """CXL-aware: what CPU cores compute on stays in the lowest-latency tier, what copy engines move goes to the far ones.

    Copies see a CXL card's bandwidth and hide its latency; the CPU optimizer does not (arXiv 2507.03305).
    """

    def place(self, demands: Sequence[Demand], tiers: Sequence[TierView], options: Mapping[str, object]) -> Shares:
        """CPU-touched classes from the nearest tier outwards, then the others from the farthest inwards."""
        del options
        near = sorted(tiers, key=lambda tier: tier.latency_s)
        critical = [demand for demand in demands if demand.tensor_class in CPU_TOUCHED]
        others = [demand for demand in demands if demand.tensor_class not in CPU_TOUCHED]
        shares = fill(critical, near)
        used = dict.fromkeys((tier.name for tier in tiers), 0.0)
        for demand in critical:
            for name, share in shares[demand.tensor_class].items():
                used[name] += share * demand.size_bytes
        rest = [
            TierView(
                name=tier.name,
                free_bytes=max(0.0, tier.free_bytes - used[tier.name]),
                bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s,
                latency_s=tier.latency_s,
            )
            for tier in reversed(near)
        ]
        return shares | fill(others, rest)


class BandwidthProportional(_Static):
    """Pages in proportion to what the ways to the tiers carry at once, so that all finish together.

    A full tier passes its part on.
    """

    def place(self, demands: Sequence[Demand], tiers: Sequence[TierView], options: Mapping[str, object]) -> Shares:
        """One set of shares for all classes: water-filling over the tiers' room."""
        del options
        total = sum(demand.size_bytes for demand in demands)
        parts = water_fill(total, joint_rates(tiers), {t.name: t.free_bytes for t in tiers})
        placed = sum(parts.values())
        if placed < total * (1 - 1e-9):
            return fill(demands, tiers)  # raises with the class that does not fit
        shares = {name: part / total for name, part in parts.items() if part > 0} if total else {tiers[0].name: 1.0}
        return {demand.tensor_class: dict(shares) for demand in demands}


def joint_rates(tiers: Sequence[TierView]) -> dict[str, float]:
    """Bytes/s of each tier when all are read at once: all grow alike, relative to their own rates, until a channel is full.

    Tiers that share no channel keep their own rates.
    """
    rates, load, level = dict.fromkeys((tier.name for tier in tiers), 0.0), dict[str, float](), 0.0
    growing = list(tiers)
    while growing and level < 1.0:
        slopes = dict[str, float]()
        for tier in growing:
            for channel, cost_s in tier.way.items():
                slopes[channel] = slopes.get(channel, 0.0) + tier.bandwidth_bytes_per_s * cost_s
        steps = {channel: max(0.0, 1.0 - load.get(channel, 0.0)) / slope for channel, slope in slopes.items() if slope > 0}
        step = min([1.0 - level, *steps.values()])
        level += step
        for tier in growing:
            rates[tier.name] += step * tier.bandwidth_bytes_per_s
        load |= {channel: load.get(channel, 0.0) + step * slope for channel, slope in slopes.items()}
        full = {channel for channel, size in load.items() if size >= 1.0 - 1e-9}
        growing = [tier for tier in growing if full.isdisjoint(tier.way)]
    return rates


def water_fill(total: float, weights: Mapping[str, float], room: Mapping[str, float]) -> dict[str, float]:
    """Split `total` in proportion to `weights`, none above its room; what overflows is split again among the rest."""
    parts = dict.fromkeys(weights, 0.0)
    open_names = [name for name in weights if weights[name] > 0 and room[name] > 0]
    left = total
    while left > max(1e-12 * total, float_info.min) and open_names:  # below, shares of it underflow
        scale = left / sum(weights[name] for name in open_names)
        full = [name for name in open_names if parts[name] + scale * weights[name] >= room[name]]
        for name in full or open_names:
            taken = room[name] - parts[name] if full else scale * weights[name]
            parts[name] += taken
            left -= taken
        open_names = [name for name in open_names if name not in full] if full else []
    return parts
