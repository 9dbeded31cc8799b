"""The replay kernel in plain Python: operations as state, batches of simultaneous changes, components re-solved.

What happens in one batch, always in this order (docs/model.md, chapter Sharing, latency, replay and folding):
1. every flow that ends now ends, every start latency that is over starts its flow;
2. in waves until nothing more moves: frees of the ended, release of their dependents, then (only when no wave of
   operations without work is left) allocations of the released, their starts; operations without work end in the next wave;
3. the connected components of flows that the batch touched are re-solved; each component keeps one pending event.
Within a wave the order is the canonical number of the operation. A flow ends by its event, never by its remaining work.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.engine.arrays import Arrays
from sim.engine.ledger import Ledger
from sim.errors import MisfitError
from sim.laws.sharing import TIE
from sim.records import ChannelSegment, ChannelTotal
from sim.units import format_bytes, format_seconds

#: a channel couples its flows when their upper bounds together exceed this share of its bandwidth; below 1 so that the
#: rounding of a running sum can only couple too much, which costs time and changes nothing
COUPLING = 1.0 - 1e-9


class Kernel:
    """State of one replay. `advance` runs batches up to a horizon."""

    def __init__(self, arrays: Arrays, *, is_full: bool = False, is_enforced: bool = True) -> None:
        num, num_channels = len(arrays.work), len(arrays.channels)
        self.arrays = arrays
        self.bandwidth = arrays.bandwidths
        self.ledger = Ledger(arrays, is_logged=is_full)
        self.is_full, self.is_enforced = is_full, is_enforced
        self.now = 0.0
        self.num_batches = self.num_done = self.num_groups = 0
        self.heap: list[tuple[float, int]] = []  # (time, group) or (time, ~operation that starts)
        self.groups: dict[int, list[int]] = {}
        self.group_of = [-1] * num
        self.waits = list(arrays.waits)
        self.ready, self.start, self.end = [-1.0] * num, [-1.0] * num, [-1.0] * num
        self.remaining, self.rate, self.updated, self.finish = list(arrays.work), [0.0] * num, [0.0] * num, [0.0] * num
        self.bottleneck = [-1] * num  # the channel that limits the flow; -1: its own cap
        self.stamp = [-1] * num
        self.users: list[dict[int, float]] = [{} for _ in range(num_channels)]  # active flow -> load per unit of rate
        self.potential = [0.0] * num_channels  # load if every user ran at its upper bound
        self.binding = [False] * num_channels
        self.limiting = [0] * num_channels  # flows limited by the channel
        self.busy, self.busy_since = [0.0] * num_channels, [0.0] * num_channels
        self.full_s, self.full_since = [0.0] * num_channels, [0.0] * num_channels
        self.load, self.since, self.peak_rate = [0.0] * num_channels, [0.0] * num_channels, [0.0] * num_channels
        self.segments: list[ChannelSegment] = []

    @property
    def is_done(self) -> bool:
        """All operations have ended."""
        return self.num_done == len(self.end)

    def begin(self) -> None:
        """The batch at time zero: whatever waits for nothing."""
        self._batch(0.0, [], [], [i for i, waits in enumerate(self.waits) if waits == 0])

    def advance(self, horizon_s: float) -> None:
        """Run every batch that lies before `horizon_s` (equal times belong to whoever waits there)."""
        heap, groups, finish = self.heap, self.groups, self.finish
        while heap:
            time_s = heap[0][0]
            if time_s >= horizon_s:
                return
            limit = time_s + TIE * time_s
            ended: list[int] = []
            started: list[int] = []
            while heap and heap[0][0] <= limit:
                code = heappop(heap)[1]
                if code < 0:
                    started.append(~code)
                elif code in groups:
                    ended += [flow for flow in groups[code] if finish[flow] <= limit]
            if ended or started:
                self._batch(time_s, ended, started, [])

    def _batch(self, now: float, ended: list[int], started: list[int], released: list[int]) -> None:
        self.now = now
        self.num_batches += 1
        arrays, waits, ledger = self.arrays, self.waits, self.ledger
        latency_s, successors, allocates, frees = arrays.latency_s, arrays.successors, arrays.allocates, arrays.frees
        touched: dict[int, None] = {}
        ended.sort()
        for flow in ended:
            self._leave(flow, touched)
        fresh: list[int] = []
        starting = sorted(started)
        queued: list[int] = []
        while ended or starting or released or queued:
            for flow in ended:
                self.end[flow] = now
                self.num_done += 1
                if flow in frees:
                    ledger.free(frees[flow], flow, now)
                for successor in successors[flow]:
                    waits[successor] -= 1
                    if not waits[successor]:
                        released.append(successor)
            ended = []
            if not released and not starting:
                # no wave of operations without work is left: every free of this batch is applied
                for flow in sorted(queued):
                    self._admit(flow)
                starting, queued = sorted(queued), []
            released.sort()
            for flow in released:
                self.ready[flow] = now
                if flow in allocates:
                    queued.append(flow)
                else:
                    starting.append(flow)
            released = []
            for flow in starting:
                if self.start[flow] < 0.0 and now + latency_s[flow] > now:
                    self.start[flow] = now + latency_s[flow]
                    heappush(self.heap, (now + latency_s[flow], ~flow))
                    continue
                self.start[flow] = now
                if self.remaining[flow] <= 0.0:
                    ended.append(flow)
                else:
                    fresh.append(flow)
                    self._enter(flow, touched)
            starting = []
        self._resolve(now, fresh, touched)
        if self.is_full:
            self._observe(now)

    def _admit(self, flow: int) -> None:
        rows = self.arrays.allocates[flow]
        if self.is_enforced:
            tier, missing = self.ledger.shortfall(rows)
            if tier >= 0:
                raise self._misfit(flow, tier, missing)
        self.ledger.allocate(rows, flow, self.now)

    def _misfit(self, flow: int, tier: int, missing: float) -> MisfitError:
        operation, place = self.arrays.operations[flow], self.arrays.tiers[tier]
        largest = sorted(self.ledger.classes[tier].items(), key=lambda item: (-item[1], item[0]))[:4]
        held = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest if size > 0.0) or "nothing"
        return MisfitError(
            f"{place.name} overflows at {format_seconds(self.now)} in phase {operation.phase or '?'}: "
            f"operation {operation.id!r} is short of {format_bytes(missing)} of {format_bytes(place.capacity_bytes)}; "
            f"held: {held}",
            tier=place.name,
            phase=operation.phase,
            shortfall_bytes=missing,
        )

    def _enter(self, flow: int, touched: dict[int, None]) -> None:
        path, cap = self.arrays.paths[self.arrays.path[flow]], self.arrays.cap[flow]
        self.updated[flow] = self.now
        for channel, load in zip(path.channels, path.loads, strict=True):
            users = self.users[channel]
            if not users:
                self.busy_since[channel] = self.now
            users[flow] = load
            self.potential[channel] += load * cap
            touched[channel] = None

    def _leave(self, flow: int, touched: dict[int, None]) -> None:
        path, cap = self.arrays.paths[self.arrays.path[flow]], self.arrays.cap[flow]
        self._limit(flow, -1)
        self.groups.pop(self.group_of[flow], None)
        self.rate[flow] = 0.0
        for channel, load in zip(path.channels, path.loads, strict=True):
            users = self.users[channel]
            del users[flow]
            if users:
                self.potential[channel] -= load * cap
            else:
                self.potential[channel] = 0.0  # not a difference: 1e-17 of load left over would never go away
                self.busy[channel] += self.now - self.busy_since[channel]
            touched[channel] = None

    def _limit(self, flow: int, channel: int) -> None:
        """Note that `channel` limits `flow` from now on."""
        old = self.bottleneck[flow]
        if old == channel:
            return
        self.bottleneck[flow] = channel
        limiting = self.limiting
        if channel >= 0:
            if not limiting[channel]:
                self.full_since[channel] = self.now
            limiting[channel] += 1
        if old >= 0:
            limiting[old] -= 1
            if not limiting[old]:
                self.full_s[old] += self.now - self.full_since[old]

    def _resolve(self, now: float, fresh: list[int], touched: dict[int, None]) -> None:
        seeds = list(fresh)
        for channel in touched:
            users = self.users[channel]
            binds = len(users) > 1 and self.potential[channel] > self.bandwidth[channel] * COUPLING
            if binds or self.binding[channel]:
                seeds += users
            self.binding[channel] = binds
        stamp, batch, binding, users_of = self.stamp, self.num_batches, self.binding, self.users
        paths, path = self.arrays.paths, self.arrays.path
        for seed in seeds:
            if stamp[seed] == batch:
                continue
            stamp[seed] = batch
            flows, channels = [seed], []
            seen = set()
            for flow in flows:
                for channel in paths[path[flow]].channels:
                    if binding[channel] and channel not in seen:
                        seen.add(channel)
                        channels.append(channel)
                        for other in users_of[channel]:
                            if stamp[other] != batch:
                                stamp[other] = batch
                                flows.append(other)
            self._solve(now, flows, channels)

    def _solve(self, now: float, flows: list[int], channels: list[int]) -> None:
        """Rates of one connected component, and its next event."""
        cap = self.arrays.cap
        for flow in flows:
            self.groups.pop(self.group_of[flow], None)
            self.remaining[flow] -= self.rate[flow] * (now - self.updated[flow])
            self.updated[flow] = now
        if channels:
            self._fill(flows, channels)
        else:
            for flow in flows:
                self.rate[flow] = cap[flow]
                self._limit(flow, self._own_limit(flow))
        group = self.num_groups
        self.num_groups += 1
        soonest = float("inf")
        for flow in flows:
            self.group_of[flow] = group
            rate, left = self.rate[flow], self.remaining[flow]
            self.finish[flow] = end = now + left / rate if left > 0.0 else now
            soonest = min(soonest, end)
        self.groups[group] = flows
        heappush(self.heap, (soonest, group))

    def _own_limit(self, flow: int) -> int:
        path = self.arrays.paths[self.arrays.path[flow]]
        return path.tight if self.arrays.cap[flow] >= path.limit else -1

    def _fill(self, flows: list[int], channels: list[int]) -> None:
        """Progressive filling, as `laws.sharing.max_min`, over the users of the component's channels."""
        cap, weight, rate = self.arrays.cap, self.arrays.weight, self.rate
        paths, path = self.arrays.paths, self.arrays.path
        room = {channel: self.bandwidth[channel] for channel in channels}
        slope = {channel: sum([load * weight[flow] for flow, load in self.users[channel].items()]) for channel in channels}
        whole = dict(slope)
        count = {channel: len(self.users[channel]) for channel in channels}
        order = sorted(flows, key=lambda flow: cap[flow] / weight[flow])
        frozen: set[int] = set()
        position, total = 0, len(order)
        while len(frozen) < total:
            level = min([room[channel] / slope[channel] for channel in count], default=float("inf"))
            batch: list[tuple[int, float, int]] = []
            while position < total:
                flow = order[position]
                if flow not in frozen:
                    if cap[flow] > level * (1.0 + TIE) * weight[flow]:
                        break
                    batch.append((flow, cap[flow], self._own_limit(flow)))
                    frozen.add(flow)
                position += 1
            if not batch:
                for channel in [channel for channel in count if room[channel] / slope[channel] <= level * (1.0 + TIE)]:
                    for flow in self.users[channel]:
                        if flow not in frozen:
                            frozen.add(flow)
                            batch.append((flow, level * weight[flow], channel))
            thin: set[int] = set()
            for flow, value, limit in batch:
                rate[flow] = value
                self._limit(flow, limit)
                for channel, load in zip(paths[path[flow]].channels, paths[path[flow]].loads, strict=True):
                    if channel not in count:
                        continue
                    room[channel] = max(room[channel] - value * load, 0.0)
                    slope[channel] -= load * weight[flow]
                    count[channel] -= 1
                    if not count[channel]:
                        del count[channel]
                    elif slope[channel] < 1e-3 * whole[channel]:
                        thin.add(channel)
            for channel in thin & count.keys():
                # cancellation: a weight of 1e15 leaves nothing of one of 1e-12, so the rest is summed anew
                rest = [use * weight[other] for other, use in self.users[channel].items() if other not in frozen]
                slope[channel] = whole[channel] = sum(rest)

    def _observe(self, now: float) -> None:
        for channel, users in enumerate(self.users):
            load = sum([use * self.rate[flow] for flow, use in users.items()])
            if load != self.load[channel]:
                self._close(channel, now)
                self.load[channel] = load
                self.peak_rate[channel] = max(self.peak_rate[channel], load)

    def _close(self, channel: int, now: float) -> None:
        if self.load[channel] > 0.0 and now > self.since[channel]:
            name = self.arrays.channels[channel].name
            segment = ChannelSegment(name=name, start_s=self.since[channel], end_s=now, rate_per_s=self.load[channel])
            self.segments.append(segment)
        self.since[channel] = now

    def totals(self) -> tuple[ChannelTotal, ...]:
        """What each channel carried: summed over operations, so exact whatever the rates were."""
        amount = [0.0] * len(self.users)
        paths = self.arrays.paths
        work_on_path = [0.0] * len(paths)
        for path, work in zip(self.arrays.path, self.arrays.work, strict=True):
            work_on_path[path] += work
        for path, work in enumerate(work_on_path):
            for channel, load in zip(paths[path].channels, paths[path].loads, strict=True):
                amount[channel] += work * load
        return tuple(
            ChannelTotal(
                name=channel.name,
                amount=amount[i],
                busy_s=self.busy[i],
                saturated_s=self.full_s[i],
                peak_rate_per_s=self.peak_rate[i],
            )
            for i, channel in enumerate(self.arrays.channels)
        )
