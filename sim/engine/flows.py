"""The state of all running flows: which class each is in, what that puts on channels, and when each flow ends.

Every flow is limited either by its own cap or by one saturated channel. The flows limited by channel c share one level
(rate / weight), so c keeps one level and one virtual clock (the integral of the level): a flow that joins gets a virtual finish
tag, its order of finishing within the class never changes, and a change of level moves one event instead of one per flow.
`engine.fluid` decides which class a flow belongs to; here it is only put in and taken out.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.engine.arrays import LINKED, Arrays

INFINITY = float("inf")
IDLE, CAPPED = -2, -1  # values of `limit` that are not channels
FLOW, LEVEL, START = 0, 1, 2  # what an event (time, index << 2 | kind) is

#: a sum of which less than this share is left after one step has lost digits: it is summed anew before it is used,
SMALL = 0.25
#: and so is a load that was this many times the bandwidth for a moment, while levels were not yet what they will be;
LARGE = 16.0
#: so many more updates bring that about
STALE = 1 << 40


class Flows:
    """Rates and ends of active flows. Times in s; index f is an operation, c a channel."""

    def __init__(self, arrays: Arrays, heap: list[tuple[float, int]]) -> None:
        num, num_channels = len(arrays.work), len(arrays.channels)
        self.heap = heap
        self.cap, self.weight, self.own_limit = arrays.cap, arrays.weight, arrays.own_limit
        self.most, self.most_limit = arrays.cap, arrays.own_limit  # at the largest cap that the flow can have
        self.bandwidth = arrays.bandwidths
        self.couplings = [arrays.paths[path].couplings for path in arrays.path]
        self.limit = [IDLE] * num
        self.finish = [0.0] * num  # seconds when capped, virtual time of the class when limited by a channel
        self.users: list[dict[int, float]] = [{} for _ in range(num_channels)]  # flow -> load per unit of rate
        self.potential = [0.0] * num_channels  # load if every user ran at its upper bound
        self.threshold = [bandwidth * LINKED for bandwidth in self.bandwidth]
        # what the next `settle` has to look at
        self.fresh: list[int] = []  # joined, not yet in a class
        self.fresh_work: list[float] = []
        self.relink: dict[int, None] = {}  # channels that start or stop being linked
        self.dirty: dict[int, None] = {}  # linked channels whose law may be broken
        self.is_touched = False
        # linked channels only
        self.is_linked = [False] * num_channels
        self.level = [INFINITY] * num_channels  # rate / weight of the class; infinite: the class is empty
        self.num_members = [0] * num_channels
        self.slope = [0.0] * num_channels  # load of the class per unit of level
        self.other = [0.0] * num_channels  # load of users that something else limits
        self.virtual, self.clock = [0.0] * num_channels, [0.0] * num_channels
        self.due_s = [INFINITY] * num_channels
        self.by_finish: list[list[tuple[float, int]]] = [[] for _ in range(num_channels)]  # members
        self.by_cap: list[list[tuple[float, int]]] = [[] for _ in range(num_channels)]  # members, (cap / weight, flow)
        self.capped: list[list[tuple[float, int]]] = [[] for _ in range(num_channels)]  # capped users, (-cap / weight, flow)
        #: load per unit of the level of c that members of c put on linked channel d, and how many they are
        self.crossing: list[dict[int, list[float]]] = [{} for _ in range(num_channels)]
        self.crossed_by: list[dict[int, None]] = [{} for _ in range(num_channels)]
        self.num_updates = [0] * num_channels
        # intervals during which a channel limited some flow: as a class, or as the cap of one flow
        self.is_limiting = [False] * num_channels
        self.limited_from: list[list[float]] = [[] for _ in range(num_channels)]
        self.limited_to: list[list[float]] = [[] for _ in range(num_channels)]

    def rate(self, flow: int) -> float:
        """Work per second of an active flow."""
        limit = self.limit[flow]
        return self.cap[flow] if limit < 0 else self.weight[flow] * self.level[limit]

    def remaining(self, flow: int, now: float) -> float:
        """Work that an active flow has left."""
        limit = self.limit[flow]
        if limit < 0:
            return max((self.finish[flow] - now) * self.cap[flow], 0.0)
        virtual = self.virtual[limit] + self.level[limit] * (now - self.clock[limit])
        return max((self.finish[flow] - virtual) * self.weight[flow], 0.0)

    def collect(self, channel: int, until_s: float, ended: list[int]) -> None:
        """Append the members of the class of `channel` that end up to `until_s`: the first, whose event this is, always."""
        heap = self.by_finish[channel]
        bound = self.virtual[channel] + self.level[channel] * (until_s - self.clock[channel])
        self.due_s[channel] = INFINITY
        is_first = True
        while heap:
            finish, flow = heap[0]
            if self.limit[flow] == channel and self.finish[flow] == finish:
                if not is_first and finish > bound:
                    return
                ended.append(flow)
                self.finish[flow] = -1.0  # a second entry of the same flow is stale from now on
                is_first = False
            heappop(heap)

    # ------------------------------------------------------------------------------------------------ class membership

    def _advance(self, channel: int, now: float) -> None:
        if self.num_members[channel]:
            self.virtual[channel] += self.level[channel] * (now - self.clock[channel])
        else:
            self.virtual[channel] = 0.0
        self.clock[channel] = now

    def _attach(self, flow: int, limit: int, work: float, now: float) -> None:
        cap = self.cap[flow]
        self.limit[flow] = limit
        if limit < 0:
            self.finish[flow] = finish = now + work / cap
            heappush(self.heap, (finish, flow << 2))
            if self.own_limit[flow] >= 0:
                self.limited_from[self.own_limit[flow]].append(now)
            for channel, load in self.couplings[flow]:
                if self.is_linked[channel]:
                    self.num_updates[channel] += 1
                    self.other[channel] += load * cap
                    heappush(self.capped[channel], (-cap / self.weight[flow], flow))
            return
        weight = self.weight[flow]
        self._advance(limit, now)
        self.finish[flow] = finish = self.virtual[limit] + work / weight
        heappush(self.by_finish[limit], (finish, flow))
        heappush(self.by_cap[limit], (cap / weight, flow))
        for channel, load in self.couplings[flow]:
            if self.is_linked[channel]:
                self.num_updates[channel] += 1
                if channel == limit:
                    self.slope[channel] += load * weight
                    self.num_members[channel] += 1
                else:
                    self._cross(limit, channel, load * weight)

    def _cross(self, source: int, channel: int, load: float) -> None:
        self.other[channel] += load * self.level[source]
        pair = self.crossing[source].get(channel)
        if pair is None:
            self.crossing[source][channel] = [load, 1]
            self.crossed_by[channel][source] = None
        else:
            pair[0] += load
            pair[1] += 1

    def _detach(self, flow: int, limit: int, now: float) -> None:
        if limit < 0:
            if self.own_limit[flow] >= 0:
                self.limited_to[self.own_limit[flow]].append(now)
            cap = self.cap[flow]
            for channel, load in self.couplings[flow]:
                if self.is_linked[channel]:
                    self.num_updates[channel] += 1
                    self.other[channel] -= load * cap
            return
        weight = self.weight[flow]
        for channel, load in self.couplings[flow]:
            if self.is_linked[channel]:
                self.num_updates[channel] += 1
                if channel == limit:
                    self.num_members[channel] -= 1
                    slope = self.slope[channel]
                    self.slope[channel] = left = slope - load * weight
                    if not self.num_members[channel]:
                        self._empty(channel)
                    elif left < SMALL * slope:
                        self.num_updates[channel] += STALE
                else:
                    if self.other[channel] > LARGE * self.bandwidth[channel]:
                        self.num_updates[channel] += STALE
                    self.other[channel] -= load * weight * self.level[limit]
                    pair = self.crossing[limit][channel]
                    if load * weight > (1.0 - SMALL) * pair[0]:
                        self.num_updates[limit] += STALE
                    pair[0] -= load * weight
                    pair[1] -= 1
                    if not pair[1]:
                        del self.crossing[limit][channel]
                        del self.crossed_by[channel][limit]

    def _empty(self, channel: int) -> None:
        self.slope[channel] = self.virtual[channel] = 0.0
        self.by_finish[channel].clear()
        self.by_cap[channel].clear()
        self.due_s[channel] = INFINITY

    def _move(self, flow: int, limit: int, now: float) -> None:
        """Let `limit` limit the active `flow` from now on."""
        work = self.remaining(flow, now)
        self._detach(flow, self.limit[flow], now)
        self._attach(flow, limit, work, now)
        for channel, _ in self.couplings[flow]:
            if self.is_linked[channel]:
                self.dirty[channel] = None

    def _sum_anew(self, channel: int) -> None:
        """Running sums of `channel` from its users: bounds the drift of adding and subtracting."""
        self.num_updates[channel] = 0
        limits, weight, cap, level = self.limit, self.weight, self.cap, self.level
        slope = other = 0.0
        for flow, load in self.users[channel].items():
            limit = limits[flow]
            if limit == channel:
                slope += load * weight[flow]
            else:
                other += load * (cap[flow] if limit < 0 else weight[flow] * level[limit])
        self.slope[channel], self.other[channel] = slope, other
        crossing = self.crossing[channel]
        if not crossing:
            return
        for pair in crossing.values():
            pair[0] = 0.0
        for flow in self.users[channel]:
            if limits[flow] == channel:
                for other_channel, load in self.couplings[flow]:
                    if other_channel in crossing:
                        crossing[other_channel][0] += load * weight[flow]
