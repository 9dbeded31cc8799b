"""Latency-bound flows in the replay: their caps follow the loaded latency of their path.

A channel with a latency law couples its latency-bound users to everyone else on it even when it is not full: load changes
latency, latency changes caps. So the caps of a connected set of flows are solved together, by `laws.latency.bound_caps`.
The solution is a pure function of *which kinds* of flows run together (path, cap, weight, window), and a step repeats
the same few sets thousands of times, so solutions are kept by that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.engine.arrays import Arrays
from sim.engine.fluid import Fluid
from sim.laws.latency import Window, bound_caps
from sim.laws.sharing import Demand
from sim.records import LatencyLaw

Kind = tuple[int, float, float, float, float]  # path, largest cap, weight, window bytes, write share


class BoundFluid(Fluid):
    """A Fluid with latency-bound flows. `most` holds the caps at idle latency, `cap` those of the moment."""

    def __init__(self, arrays: Arrays, heap: list[tuple[float, int]]) -> None:
        super().__init__(arrays, heap)
        self.arrays = arrays
        self.cap, self.own_limit = list(arrays.cap), list(arrays.own_limit)
        self.running: dict[int, None] = {}  # latency-bound flows
        self.laws = laws_of(arrays)
        self.solutions: dict[tuple[Kind, ...], dict[Kind, float]] = {}

    def join(self, flow: int, work: float, now: float) -> None:
        """Start `flow`, at first at the cap of an idle path."""
        if flow in self.arrays.windows:
            self.running[flow] = None
            self.cap[flow] = self.most[flow]
        super().join(flow, work, now)
        self.is_touched = True

    def leave(self, flow: int, now: float) -> None:
        """Take `flow` out."""
        self.running.pop(flow, None)
        super().leave(flow, now)
        self.is_touched = True

    def set_bandwidth(self, channel: int, bandwidth_per_s: float) -> None:
        """Change a bandwidth, and with it every solution."""
        super().set_bandwidth(channel, bandwidth_per_s)
        self.solutions.clear()

    def settle(self, now: float) -> None:
        """Set the caps of latency-bound flows, then restore the law."""
        arrays = self.arrays
        seen: set[int] = set()
        for seed in sorted(self.running):
            if seed in seen:
                continue
            flows = self._component(seed)
            seen.update(flows)
            kinds = {flow: kind_of(arrays, flow) for flow in flows}
            key = tuple(sorted(kinds.values()))
            if key not in self.solutions:
                self.solutions[key] = dict(zip(key, solve(arrays, self.bandwidth, self.laws, key), strict=True))
            caps = self.solutions[key]
            for flow in flows:
                cap = caps[kinds[flow]]
                if flow in self.running and cap != self.cap[flow]:
                    # below its largest cap it is latency that limits it, no channel
                    self.recap(flow, cap, self.most_limit[flow] if cap >= self.most[flow] else -1, now)
        super().settle(now)

    def _component(self, seed: int) -> list[int]:
        flows, found, channels = [seed], {seed}, set()
        for flow in flows:
            for channel, _ in self.couplings[flow]:
                users = self.users[channel]
                is_full = len(users) > 1 and self.potential[channel] > self.threshold[channel]
                if channel in channels or not (is_full or (channel in self.laws and not self.running.keys().isdisjoint(users))):
                    continue
                channels.add(channel)
                fresh = [other for other in users if other not in found]
                found.update(fresh)
                flows += fresh
        return flows


def laws_of(arrays: Arrays) -> dict[int, LatencyLaw]:
    """The channels whose latency depends on their load."""
    return {c: channel.latency for c, channel in enumerate(arrays.channels) if channel.latency is not None}


def kind_of(arrays: Arrays, flow: int) -> Kind:
    """All of a flow that caps depend on."""
    window_bytes, write_share = arrays.windows.get(flow, (0.0, arrays.operations[flow].write_share))
    return (arrays.path[flow], arrays.cap[flow], arrays.weight[flow], window_bytes, write_share)


def solve(arrays: Arrays, bandwidths: Sequence[float], laws: Mapping[int, LatencyLaw], kinds: tuple[Kind, ...]) -> list[float]:
    """Caps of flows of these kinds that run together, in their order."""
    paths = arrays.paths
    channels = sorted({channel for kind in kinds for channel, _ in paths[kind[0]].couplings})
    local = {channel: i for i, channel in enumerate(channels)}
    demands = [
        Demand(uses=tuple((local[c], load) for c, load in paths[path].couplings), cap=cap, weight=weight)
        for path, cap, weight, _, _ in kinds
    ]
    windows = []
    for path, _, _, window_bytes, write_share in kinds:
        costs = tuple((local[c], cost) for c, cost in zip(paths[path].channels, paths[path].costs, strict=True) if c in local)
        windows.append(Window(window_bytes=window_bytes, write_share=write_share, shares=costs))
    own_laws = {local[channel]: laws[channel] for channel in channels if channel in laws}
    return bound_caps([bandwidths[channel] for channel in channels], own_laws, demands, windows)
