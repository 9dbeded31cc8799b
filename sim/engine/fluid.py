"""The state of all running flows: weighted max-min rates kept up to date by local repair, and when each flow ends.

The law is `laws.sharing.max_min`; this is the same unique allocation, reached from the previous one instead of from nothing.
Every flow is limited either by its own cap or by one saturated channel. The flows limited by channel c share one level
(rate / weight), so c keeps one level and one virtual clock (the integral of the level): a flow that joins gets a virtual finish
tag, its order of finishing within the class never changes, and a change of level moves one event instead of one per flow.

A change (flow in, flow out) leaves a few channels dirty. Settling a channel recomputes its level and moves flows in and out
of its class until the conditions of the definition hold on it: members whose cap is below the level go to their caps,
members that cross a channel of lower level go there, and faster flows from elsewhere come in. A changed level dirties the
channels that its members cross. Lower levels never depend on higher ones, so this ends (proof sketch in docs/model.md).

Channels whose users cannot fill it even at their upper bounds are not linked: they limit nobody and couple nobody.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from sim.engine.arrays import LINKED, Arrays
from sim.errors import InternalError
from sim.laws.sharing import TIE

INFINITY = float("inf")
IDLE, CAPPED = -2, -1  # values of `limit` that are not channels
FLOW, LEVEL, START = 0, 1, 2  # what an event (time, index << 2 | kind) is

#: a channel is over-full above this: flows at their caps within TIE of the level may add up to a few TIE too much
FULL = 1.0 + 4.0 * TIE


class Fluid:
    """Rates and ends of active flows. Times in s; index f is an operation, c a channel."""

    def __init__(self, arrays: Arrays, heap: list[tuple[float, int]]) -> None:
        num, num_channels = len(arrays.work), len(arrays.channels)
        self.heap = heap
        self.cap, self.weight = arrays.cap, arrays.weight
        self.bandwidth = arrays.bandwidths
        self.couplings = [arrays.paths[path].couplings for path in arrays.path]
        self.tight = [arrays.paths[path].tight for path in arrays.path]
        self.path_limit = [arrays.paths[path].limit for path in arrays.path]
        self.limit = [IDLE] * num
        self.finish = [0.0] * num  # seconds when capped, virtual time of the class when limited by a channel
        self.users: list[dict[int, float]] = [{} for _ in range(num_channels)]  # flow -> load per unit of rate
        self.potential = [0.0] * num_channels  # load if every user ran at its upper bound
        self.dirty: dict[int, None] = {}
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
        # seconds during which a channel limited some flow
        self.num_limited = [0] * num_channels
        self.full_s, self.full_since = [0.0] * num_channels, [0.0] * num_channels

    # ------------------------------------------------------------------------------------------------ in, out, when

    def join(self, flow: int, work: float, now: float) -> None:
        """Start `flow` with `work` left. Call `settle` when all changes of the batch are in."""
        cap, weight = self.cap[flow], self.weight[flow]
        couplings = self.couplings[flow]
        level, limit = cap / weight, CAPPED
        for channel, load in couplings:
            self.users[channel][flow] = load
            self.potential[channel] += load * cap
            self.dirty[channel] = None
            if self.level[channel] < level:
                level, limit = self.level[channel], channel
        self.limit[flow] = IDLE
        self._attach(flow, limit, work, now)
        self._note_limit(flow, limit, now, +1)

    def leave(self, flow: int, now: float) -> None:
        """Take `flow` out, ended or not."""
        limit = self.limit[flow]
        self._note_limit(flow, limit, now, -1)
        self._detach(flow, limit)
        self.limit[flow] = IDLE
        cap = self.cap[flow]
        for channel, load in self.couplings[flow]:
            users = self.users[channel]
            del users[flow]
            # an empty channel has exactly no load: 1e-17 left over by a difference would never go away
            self.potential[channel] = self.potential[channel] - load * cap if users else 0.0
            self.dirty[channel] = None

    def rate(self, flow: int) -> float:
        """Work per second of an active flow."""
        limit = self.limit[flow]
        return self.cap[flow] if limit < 0 else self.weight[flow] * self.level[limit]

    def remaining(self, flow: int, now: float) -> float:
        """Work that an active flow has left."""
        limit = self.limit[flow]
        if limit < 0:
            return max((self.finish[flow] - now) * self.cap[flow], 0.0)
        self._advance(limit, now)
        return max((self.finish[flow] - self.virtual[limit]) * self.weight[flow], 0.0)

    def collect(self, channel: int, until_s: float, ended: list[int]) -> None:
        """Append the members of the class of `channel` that end up to `until_s`: the first, whose event this is, always."""
        heap = self.by_finish[channel]
        bound = self.virtual[channel] + self.level[channel] * (until_s - self.clock[channel])
        self.due_s[channel] = INFINITY
        self.dirty[channel] = None
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
        cap, weight = self.cap[flow], self.weight[flow]
        self.limit[flow] = limit
        if limit < 0:
            self.finish[flow] = finish = now + work / cap
            heappush(self.heap, (finish, flow << 2))
        else:
            self._advance(limit, now)
            self.finish[flow] = finish = self.virtual[limit] + work / weight
            heappush(self.by_finish[limit], (finish, flow))
            heappush(self.by_cap[limit], (cap / weight, flow))
        for channel, load in self.couplings[flow]:
            if not self.is_linked[channel]:
                continue
            self.num_updates[channel] += 1
            if channel == limit:
                self.slope[channel] += load * weight
                self.num_members[channel] += 1
            elif limit < 0:
                self.other[channel] += load * cap
                heappush(self.capped[channel], (-cap / weight, flow))
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

    def _detach(self, flow: int, limit: int) -> None:
        cap, weight = self.cap[flow], self.weight[flow]
        for channel, load in self.couplings[flow]:
            if not self.is_linked[channel]:
                continue
            self.num_updates[channel] += 1
            if channel == limit:
                self.num_members[channel] -= 1
                self.slope[channel] -= load * weight
                if not self.num_members[channel]:
                    self._empty(channel)
            elif limit < 0:
                self.other[channel] -= load * cap
            else:
                self.other[channel] -= load * weight * self.level[limit]
                pair = self.crossing[limit][channel]
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
        old, work = self.limit[flow], self.remaining(flow, now)
        self._note_limit(flow, old, now, -1)
        self._detach(flow, old)
        self._attach(flow, limit, work, now)
        self._note_limit(flow, limit, now, +1)
        for channel, _ in self.couplings[flow]:
            self.dirty[channel] = None

    def _note_limit(self, flow: int, limit: int, now: float, change: int) -> None:
        if limit < 0:
            limit = self.tight[flow] if self.cap[flow] >= self.path_limit[flow] else -1
            if limit < 0:
                return
        num = self.num_limited[limit]
        if not num:
            self.full_since[limit] = now
        num += change
        self.num_limited[limit] = num
        if not num:
            self.full_s[limit] += now - self.full_since[limit]

    # ------------------------------------------------------------------------------------------------ settling

    def settle(self, now: float) -> None:
        """Restore the law on every dirty channel and what it reaches; set the pending events."""
        unlinked = []
        for channel in sorted(self.dirty):
            binds = len(self.users[channel]) > 1 and self.potential[channel] > self.bandwidth[channel] * LINKED
            if binds != self.is_linked[channel]:
                if binds:
                    self._link(channel, now)
                else:
                    unlinked.append(channel)
        settled: dict[int, None] = {}
        rounds = 0
        while self.dirty:
            # lowest level first: what is settled below is not changed by what is above
            queue, self.dirty = sorted(self.dirty, key=self.level.__getitem__), {}
            for channel in queue:
                if not self.is_linked[channel]:
                    continue
                settled[channel] = None
                if self.num_members[channel] or self.other[channel] > self.bandwidth[channel] * FULL:
                    self._settle(channel, now)
                    self.dirty.pop(channel, None)
                else:
                    self.level[channel] = INFINITY
            rounds += 1
            if rounds > 100 + len(self.users):
                raise InternalError(f"sharing did not settle at {now!r} s")
        for channel in unlinked:
            self._unlink(channel)
        for channel in settled:
            self._schedule(channel, now)

    def _settle(self, channel: int, now: float) -> None:
        bandwidth, by_cap, capped = self.bandwidth[channel], self.by_cap[channel], self.capped[channel]
        limit, level = self.limit, self.level
        self._advance(channel, now)
        if not self.num_members[channel]:
            level[channel] = 0.0  # the base that `_cross` and the change below refer to
        if self.num_updates[channel] > 16 + 2 * len(self.users[channel]):
            self._sum_anew(channel)
        fair = 0.0
        while True:
            if self.num_members[channel]:
                if self.num_updates[channel] and bandwidth - self.other[channel] < 1e-3 * bandwidth:
                    self._sum_anew(channel)
                # each move raises the level; `max` keeps rounding from undoing that, so no flow moves in twice
                fair = max((bandwidth - self.other[channel]) / self.slope[channel], fair)
                low, high = fair * (1.0 - TIE), fair * (1.0 + TIE)
                # out: members whose own cap is below the level
                while by_cap and limit[by_cap[0][1]] != channel:
                    heappop(by_cap)
                if by_cap and by_cap[0][0] <= high:
                    self._move(heappop(by_cap)[1], CAPPED, now)
                    continue
                # out: members that cross a channel of lower level
                lower = [other for other in self.crossing[channel] if level[other] < low and self.num_members[other]]
                if lower:
                    other = min(lower, key=level.__getitem__)
                    for flow in [flow for flow in self.users[other] if limit[flow] == channel]:
                        self._move(flow, other, now)
                    continue
            elif self.other[channel] <= bandwidth * FULL:
                break
            else:
                high = 0.0
            # in: the fastest of the others
            while capped and limit[capped[0][1]] != CAPPED:
                heappop(capped)
            fastest = -capped[0][0] if capped else 0.0
            source = max(self.crossed_by[channel], key=level.__getitem__, default=-1)
            if source >= 0 and level[source] >= fastest and level[source] > high:
                for flow in [flow for flow in self.users[channel] if limit[flow] == source]:
                    self._move(flow, channel, now)
                continue
            if fastest > high:
                self._move(heappop(capped)[1], channel, now)
                continue
            break
        old = level[channel]
        if not self.num_members[channel]:
            level[channel] = INFINITY
            return
        level[channel] = fair
        if fair != old:
            for other, pair in self.crossing[channel].items():
                self.other[other] += pair[0] * (fair - old)
                self.num_updates[other] += 1
                self.dirty[other] = None

    def _schedule(self, channel: int, now: float) -> None:
        """The one pending event of the class: its first member ends."""
        heap = self.by_finish[channel]
        while heap and (self.limit[heap[0][1]] != channel or self.finish[heap[0][1]] != heap[0][0]):
            heappop(heap)
        if not heap:
            self.due_s[channel] = INFINITY
            return
        due = now + max((heap[0][0] - self.virtual[channel]) / self.level[channel], 0.0)
        if due != self.due_s[channel]:
            self.due_s[channel] = due
            heappush(self.heap, (due, channel << 2 | LEVEL))

    # ------------------------------------------------------------------------------------------------ linking, sums

    def _link(self, channel: int, now: float) -> None:
        self.is_linked[channel] = True
        self.level[channel], self.clock[channel] = INFINITY, now
        self.other[channel] = self.slope[channel] = self.virtual[channel] = 0.0
        self.num_updates[channel] = 0
        capped = self.capped[channel] = []
        for flow, load in self.users[channel].items():
            source = self.limit[flow]
            if source < 0:
                self.other[channel] += load * self.cap[flow]
                capped.append((-self.cap[flow] / self.weight[flow], flow))
            else:
                self._cross(source, channel, load * self.weight[flow])
        heapify(capped)

    def _unlink(self, channel: int) -> None:
        if self.num_members[channel]:
            raise InternalError("a channel that cannot bind still limits flows")
        self.is_linked[channel] = False
        self.level[channel] = INFINITY
        for source in self.crossed_by[channel]:
            del self.crossing[source][channel]
        self.crossed_by[channel] = {}

    def _sum_anew(self, channel: int) -> None:
        """Running sums of `channel` from its users: bounds the drift of adding and subtracting."""
        self.num_updates[channel] = 0
        slope = other = 0.0
        for flow, load in self.users[channel].items():
            source = self.limit[flow]
            if source == channel:
                slope += load * self.weight[flow]
            else:
                other += load * self.rate(flow)
        self.slope[channel], self.other[channel] = slope, other
        for pair in self.crossing[channel].values():
            pair[0] = 0.0
        for flow in self.users[channel]:
            if self.limit[flow] == channel:
                for other_channel, load in self.couplings[flow]:
                    if other_channel != channel and self.is_linked[other_channel]:
                        self.crossing[channel][other_channel][0] += load * self.weight[flow]
