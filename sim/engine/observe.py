"""Rates over time: channel segments and peak rates (level full), loads of the moment (monitor, daemons)."""

from __future__ import annotations

from collections.abc import Sequence

from sim.engine.arrays import Arrays
from sim.engine.flows import Flows
from sim.engine.ledger import Ledger
from sim.records import ChannelSegment, Sample, Snapshot


class Observer:
    """Loads of all channels from the flows that run; `is_logged` keeps a segment per constant rate."""

    def __init__(self, arrays: Arrays, fluid: Flows, *, is_logged: bool) -> None:
        num_channels = len(arrays.channels)
        self.arrays, self.fluid, self.is_logged = arrays, fluid, is_logged
        self.active: dict[int, None] = {}
        self.load, self.since, self.peak_rate = [0.0] * num_channels, [0.0] * num_channels, [0.0] * num_channels
        self.segments: list[ChannelSegment] = []

    def loads(self) -> list[float]:
        """Load of one member of each channel, now."""
        paths, path = self.arrays.paths, self.arrays.path
        loads = [0.0] * len(self.load)
        for flow in sorted(self.active):
            rate, row = self.fluid.rate(flow), paths[path[flow]]
            for channel, load in zip(row.channels, row.loads, strict=True):
                loads[channel] += rate * load
        return loads

    def observe(self, now: float) -> None:
        """Close the segments of the channels whose load has changed."""
        if not self.is_logged:
            return
        for channel, load in enumerate(self.loads()):
            old = self.load[channel]
            if load == old:
                continue
            if old > 0.0 and now > self.since[channel]:
                name = self.arrays.channels[channel].name
                segment = ChannelSegment(name=name, start_s=self.since[channel], end_s=now, rate_per_s=old)
                self.segments.append(segment)
            self.since[channel], self.load[channel] = now, load
            self.peak_rate[channel] = max(self.peak_rate[channel], load)

    def close(self, now: float) -> None:
        """End the segments that are open."""
        self.active.clear()
        self.observe(now)


def snapshot(arrays: Arrays, ledger: Ledger, loads: Sequence[float], bandwidths: Sequence[float], time_s: float) -> Snapshot:
    """What a process beside the kernel sees at `time_s`: utilisation of all channels, occupancy of all tiers."""
    return Snapshot(
        time_s=time_s,
        utilisation={channel.name: loads[i] / bandwidths[i] for i, channel in enumerate(arrays.channels)},
        occupancy_bytes={tier.name: dict(ledger.classes[i]) for i, tier in enumerate(arrays.tiers)},
        capacity_bytes={tier.name: tier.capacity_bytes for tier in arrays.tiers},
    )


def sample(seen: Snapshot) -> Sample:
    """What a monitor keeps of it."""
    occupancy = {tier: sum(classes.values()) for tier, classes in seen.occupancy_bytes.items()}
    return Sample(time_s=seen.time_s, utilisation=seen.utilisation, occupancy_bytes=occupancy)
