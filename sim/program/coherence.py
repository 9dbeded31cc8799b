"""Shared regions of a pool: the messages and write-backs that a host's accesses cause on the links of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sim.laws.coherence import invalidation
from sim.records import TensorClass, Uses
from sim.topology.graph import Edge, Media
from sim.topology.route import merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What one job shares of a tensor class in a tier: which part, among how many hosts, and the ways to the others."""

    share: float  # of the class's bytes in the tier
    num_hosts: int
    cached_share: float
    tracked_share: float  # of the region, by the device's snoop filter
    to_hosts: tuple[Edge, ...]  # from the device to every other host
    from_hosts: tuple[Edge, ...]
    to_self: tuple[Edge, ...]
    from_self: tuple[Edge, ...]
    media: Media

    def uses(self, write_share: float) -> Uses:
        """Channel costs beside those of the access itself, per byte of the class that is accessed in the tier."""
        if self.num_hosts < 2:
            return ()
        traffic = invalidation(self.num_hosts, write_share, self.cached_share, self.tracked_share)
        each = self.share / (self.num_hosts - 1)
        groups = [edge.uses("load", traffic.to_hosts * each) for edge in self.to_hosts]
        groups += [edge.uses("store", traffic.from_hosts * each) for edge in self.from_hosts]
        evicted = self.share * traffic.evicted / self.num_hosts
        groups += [edge.uses("load", evicted) for edge in (*self.to_hosts, *self.to_self)]
        groups += [edge.uses("store", evicted) for edge in (*self.from_hosts, *self.from_self)]
        groups.append(((self.media.channel, self.share * traffic.written_back * self.media.cost(1.0)),))
        return tuple((channel, cost) for channel, cost in merged(*groups) if cost > 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coherence:
    """All shared regions of one job, by tier and tensor class."""

    regions: Mapping[tuple[str, TensorClass], Region] = field(default_factory=dict)

    def uses(self, accesses: Iterable[tuple[str, TensorClass, float, float]]) -> Uses:
        """Costs per byte of work of (tier, class, bytes per byte of work, write share) accesses together."""
        groups: list[Uses] = []
        for tier, tensor_class, size, write_share in accesses:
            region = self.regions.get((tier, tensor_class))
            if region is not None and size > 0.0:
                groups.append(tuple((channel, cost * size) for channel, cost in region.uses(write_share)))
        return merged(*groups)
