"""Hot pages up, cold pages down: what a scan of memory decides, as Linux tiering with TPP does (arXiv 2206.02878)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.placement.policies import Demand, FirstTouch, Migration, Observation, Pages, Shares, TierView

#: Linux defaults: numa_balancing_scan_period_min_ms 1000, numa_balancing_promote_rate_limit_MBps 65536; TPP keeps 2 % free
DEFAULTS: Mapping[str, float] = {
    "scan_period_s": 1.0,
    "promotion_bandwidth_bytes_per_s": 65_536e6,
    "hysteresis": 2.0,
    "free_share": 0.02,
    "steps": 64.0,
}


def option(options: Mapping[str, object], name: str) -> float:
    """A numeric option in SI, or its default."""
    value = options.get(name, DEFAULTS[name])
    assert isinstance(value, (int, float))
    return float(value)


class HotCold:
    """First touch, then at every scan: demote the coldest until `free_share` of the fast tier is free, promote the hottest.

    Pages of a class that is accessed unevenly are ranked by their own heat. Options: scan_period_s;
    promotion_bandwidth_bytes_per_s (rate limit of promotions); hysteresis (pages are promoted over others only if that many
    times hotter); free_share (headroom for new allocations); steps simulated at most.
    """

    def place(self, demands: Sequence[Demand], tiers: Sequence[TierView], options: Mapping[str, object]) -> Shares:
        """Pages land by first touch."""
        return FirstTouch().place(demands, tiers, options)

    def decide(self, seen: Observation, options: Mapping[str, object]) -> tuple[Migration, ...]:
        """Migrations after a scan; none on a machine whose memory is all in one tier."""
        if len(seen.tiers) < 2:
            return ()
        scan = Scan(seen, option(options, "hysteresis"))
        reserve = option(options, "free_share") * seen.tiers[0].capacity_bytes
        scan.make_room(reserve)
        scan.promote(option(options, "promotion_bandwidth_bytes_per_s") * seen.elapsed_s, reserve)
        return tuple(scan.moves)


@dataclass(slots=True)
class _Place:
    name: str
    free: float


class Scan:
    """One scan: heat of pages, what lies where, what was decided so far."""

    def __init__(self, seen: Observation, hysteresis: float) -> None:
        self.seen, self.hysteresis = seen, hysteresis
        self.fast, *self.slow = (_Place(tier.name, tier.free_bytes) for tier in seen.tiers)
        self.held = {name: dict(parts) for name, parts in seen.resident_bytes.items()}
        self.heat = {name: self._heat(name) for name in self.held}
        self.moves: list[Migration] = []

    def _heat(self, name: Pages) -> float:
        size = sum(self.held[name].values())
        return self.seen.touched_bytes.get(name, 0.0) / size if size else 0.0

    def _cold(self) -> list[Pages]:
        inside = [name for name, parts in self.held.items() if parts.get(self.fast.name, 0.0) > 0]
        return sorted(inside, key=lambda name: (self.heat[name], *_order(name)))

    def make_room(self, free_bytes: float) -> None:
        """Demote the coldest classes until `free_bytes` of the fast tier are free, while slower tiers have room."""
        for name in self._cold():
            if self.fast.free >= free_bytes:
                return
            self._demote(name, free_bytes - self.fast.free)

    def promote(self, budget: float, reserve: float) -> None:
        """Promote the hottest of the slower tiers, swapping out what is colder by the hysteresis, within the rate limit."""
        candidates = [(name, place) for name in self.held for place in self.slow if self.held[name].get(place.name, 0.0) > 0]
        for name, place in sorted(candidates, key=lambda item: (-self.heat[item[0]], *_order(item[0]), item[1].name)):
            if self.heat[name] <= 0:
                continue
            wanted = min(self.held[name][place.name], budget)
            short = wanted - max(0.0, self.fast.free - reserve)
            for victim in self._cold():
                if short <= 0 or self.heat[victim] * self.hysteresis >= self.heat[name]:
                    break
                short -= self._demote(victim, short)
            size = min(wanted, max(0.0, self.fast.free - reserve))
            if size > 0:
                self._move(name, place, self.fast, size)
                budget -= size

    def _demote(self, name: Pages, size: float) -> float:
        """Move up to `size` bytes of a class to the fastest slower tiers with room; bytes moved."""
        done = 0.0
        for place in self.slow:
            part = min(size - done, self.held[name].get(self.fast.name, 0.0), place.free)
            if part > 0:
                self._move(name, self.fast, place, part)
                done += part
        return done

    def _move(self, name: Pages, source: _Place, target: _Place, size: float) -> None:
        tensor_class, group = name
        self.moves.append(
            Migration(tensor_class=tensor_class, group=group, source=source.name, target=target.name, size_bytes=size)
        )
        own = self.held[name]
        own[source.name] -= size
        own[target.name] = own.get(target.name, 0.0) + size
        source.free += size
        target.free -= size


def _order(name: Pages) -> tuple[str, int]:
    """Pages of equal heat in a fixed order."""
    return name[0].value, name[1]
