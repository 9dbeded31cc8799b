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

    # ------------------------------------------------------------------------------------------------ in, out, when

    def join(self, flow: int, work: float, now: float) -> None:
        """Start `flow` with `work` left. Call `settle` when all changes of the batch are in."""
        is_free = True
        cap = self.most[flow]
        for channel, load in self.couplings[flow]:
            users = self.users[channel]
            users[flow] = load
            potential = self.potential[channel] + load * cap
            self.potential[channel] = potential
            if self.is_linked[channel]:
                is_free = False
            elif potential > self.threshold[channel] and len(users) > 1:
                self.relink[channel] = None
                is_free = False
        if is_free:
            self._attach(flow, CAPPED, work, now)
        else:
            self.is_touched = True
            self.fresh.append(flow)
            self.fresh_work.append(work)

    def leave(self, flow: int, now: float) -> None:
        """Take `flow` out, ended or not."""
        self._detach(flow, self.limit[flow], now)
        self.limit[flow] = IDLE
        cap = self.most[flow]
        for channel, load in self.couplings[flow]:
            users = self.users[channel]
            del users[flow]
            # an empty channel has exactly no load: 1e-17 left over by a difference would never go away
            self.potential[channel] = potential = self.potential[channel] - load * cap if users else 0.0
            if self.is_linked[channel]:
                self.is_touched = True
                self.dirty[channel] = None
                if potential <= self.threshold[channel] or len(users) < 2:
                    self.relink[channel] = None

    def recap(self, flow: int, cap: float, own_limit: int, now: float) -> None:
        """Change the cap of a running flow, and the channel that sets it (-1: none)."""
        if self.limit[flow] == IDLE:
            self.cap[flow], self.own_limit[flow] = cap, own_limit  # joined in this batch and not yet in a class
            return
        work = self.remaining(flow, now)
        self._detach(flow, self.limit[flow], now)
        self.cap[flow], self.own_limit[flow] = cap, own_limit
        self._attach(flow, CAPPED, work, now)
        self.is_touched = True
        for channel, _ in self.couplings[flow]:
            if self.is_linked[channel]:
                self.dirty[channel] = None

    def set_bandwidth(self, channel: int, bandwidth_per_s: float) -> None:
        """Change a bandwidth; the caller takes its users out and in again, since their caps may follow from it."""
        self.bandwidth[channel] = bandwidth_per_s
        self.threshold[channel] = bandwidth_per_s * LINKED
        self.relink[channel] = None
        self.is_touched = True
        if self.is_linked[channel]:
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
                    self.slope[channel] -= load * weight
                    if not self.num_members[channel]:
                        self._empty(channel)
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
        work = self.remaining(flow, now)
        self._detach(flow, self.limit[flow], now)
        self._attach(flow, limit, work, now)
        for channel, _ in self.couplings[flow]:
            if self.is_linked[channel]:
                self.dirty[channel] = None

    # ------------------------------------------------------------------------------------------------ settling

    def settle(self, now: float) -> None:
        """Restore the law on every dirty channel and what it reaches; set the pending events."""
        unlinked = self._link(now) if self.relink else ()
        if self.fresh:
            self._place(now)
        rounds = 0
        while self.dirty:
            # lowest level first: what is settled below is not changed by what is above
            queue = list(self.dirty) if len(self.dirty) == 1 else sorted(self.dirty, key=self.level.__getitem__)
            self.dirty = {}
            for channel in queue:
                self._settle(channel, now)
            rounds += 1
            if rounds > 100 + len(self.users):
                raise InternalError(f"sharing did not settle at {now!r} s")
        for channel in unlinked:
            self._unlink(channel)
        self.is_touched = False

    def _place(self, now: float) -> None:
        """Put each flow that has joined where it will most likely stay, so that few have to move."""
        fresh, works = self.fresh, self.fresh_work
        self.fresh, self.fresh_work = [], []
        most: dict[int, float] = {}
        slope: dict[int, float] = {}
        for flow in fresh:
            for channel, load in self.couplings[flow]:
                if self.is_linked[channel]:
                    most[channel] = most.get(channel, 0.0) + load * self.cap[flow]
                    slope[channel] = slope.get(channel, 0.0) + load * self.weight[flow]
        expected: dict[int, float] = {}
        for channel, load in most.items():
            self.dirty[channel] = None
            room = max(self.bandwidth[channel] - self.other[channel], 0.0)
            if self.num_members[channel] or load > room:
                expected[channel] = level = room / (self.slope[channel] + slope[channel])
                if not self.num_members[channel]:
                    self.level[channel] = level  # any finite base will do: `_settle` sets the level
        for flow, work in zip(fresh, works, strict=True):
            level, limit = self.cap[flow] / self.weight[flow], CAPPED
            for channel, _ in self.couplings[flow]:
                if channel in expected and expected[channel] < level:
                    level, limit = expected[channel], channel
            self._attach(flow, limit, work, now)

    def _settle(self, channel: int, now: float) -> None:
        """Level and class of one channel, everything else as it is."""
        bandwidth, has_members = self.bandwidth[channel], self.num_members[channel] > 0
        if has_members:
            level = self.level[channel]
            self.virtual[channel] += level * (now - self.clock[channel])
        else:
            self.virtual[channel] = 0.0
            level = self.level[channel] = 0.0  # the base that `_cross` and the change below refer to
        self.clock[channel] = now
        if self.num_updates[channel] > 16 + 2 * len(self.users[channel]):
            self._sum_anew(channel)
        fair = 0.0
        # each move raises the fair level; `max` keeps rounding from undoing that, so a flow moves twice at most
        while True:
            if self.num_members[channel]:
                fair = max((bandwidth - self.other[channel]) / self.slope[channel], fair)
                if self._let_out(channel, fair, now):
                    continue
                if not self._take_in(channel, fair * (1.0 + TIE), now):
                    break
            elif self.other[channel] <= bandwidth * FULL or not self._take_in(channel, 0.0, now):
                break
        self.dirty.pop(channel, None)
        is_limiting = self.num_members[channel] > 0
        if is_limiting != self.is_limiting[channel]:
            self.is_limiting[channel] = is_limiting
            (self.limited_from if is_limiting else self.limited_to)[channel].append(now)
        if not is_limiting:
            self.level[channel] = INFINITY
            return
        if self.num_updates[channel] and bandwidth - self.other[channel] < 1e-3 * bandwidth:
            # little room is a difference of large sums: let no rounding of the sums into it
            self._sum_anew(channel)
            fair = max(bandwidth - self.other[channel], 0.0) / self.slope[channel]
        self.level[channel] = fair
        if self.crossing[channel] and fair != level:
            self._spread(channel, fair - level)
        # the one pending event of the class: its first member ends
        heap, limit, finish = self.by_finish[channel], self.limit, self.finish
        virtual, flow = heap[0]
        while limit[flow] != channel or finish[flow] != virtual:
            heappop(heap)
            virtual, flow = heap[0]
        due = now + max((virtual - self.virtual[channel]) / fair, 0.0)
        if due != self.due_s[channel]:
            self.due_s[channel] = due
            heappush(self.heap, (due, channel << 2 | LEVEL))

    def _spread(self, channel: int, change: float) -> None:
        """Tell the channels that members cross that their load has changed."""
        for other, pair in self.crossing[channel].items():
            self.other[other] += pair[0] * change
            self.num_updates[other] += 1
            if self.num_members[other] or self.other[other] > self.bandwidth[other] * FULL:
                self.dirty[other] = None

    def _let_out(self, channel: int, fair: float, now: float) -> bool:
        """Move members whose own cap, or another channel that they cross, is below the level `fair`. True: some moved."""
        by_cap, limit = self.by_cap[channel], self.limit
        while limit[by_cap[0][1]] != channel:
            heappop(by_cap)
        if by_cap[0][0] <= fair * (1.0 + TIE):
            self._move(heappop(by_cap)[1], CAPPED, now)
            return True
        if not self.crossing[channel]:
            return False
        level, low = self.level, fair * (1.0 - TIE)
        lower = [other for other in self.crossing[channel] if level[other] < low and self.num_members[other]]
        if not lower:
            return False
        other = min(lower, key=level.__getitem__)
        for flow in [flow for flow in self.users[other] if limit[flow] == channel]:
            self._move(flow, other, now)
        return True

    def _take_in(self, channel: int, above: float, now: float) -> bool:
        """Move the fastest user that something else limits into the class, if its level is `above`. True: some moved."""
        capped, limit = self.capped[channel], self.limit
        while capped and limit[capped[0][1]] != CAPPED:
            heappop(capped)
        fastest = -capped[0][0] if capped else 0.0
        if self.crossed_by[channel]:
            source = max(self.crossed_by[channel], key=self.level.__getitem__)
            if self.level[source] >= fastest and self.level[source] > above:
                for flow in [flow for flow in self.users[channel] if limit[flow] == source]:
                    self._move(flow, channel, now)
                return True
        if fastest > above:
            self._move(heappop(capped)[1], channel, now)
            return True
        return False

    # ------------------------------------------------------------------------------------------------ linking, sums

    def _link(self, now: float) -> list[int]:
        """Link the channels that now can be full; return those that no longer can, to unlink when they limit nobody."""
        unlinked = []
        for channel in self.relink:
            binds = len(self.users[channel]) > 1 and self.potential[channel] > self.threshold[channel]
            if self.is_linked[channel]:
                if not binds:
                    unlinked.append(channel)
                continue
            if not binds:
                continue
            self.is_linked[channel] = True
            self.dirty[channel] = None
            self.level[channel], self.clock[channel] = INFINITY, now
            self.other[channel] = self.slope[channel] = self.virtual[channel] = 0.0
            self.num_updates[channel] = 0
            capped = self.capped[channel] = []
            for flow, load in self.users[channel].items():
                source = self.limit[flow]
                if source == CAPPED:
                    self.other[channel] += load * self.cap[flow]
                    capped.append((-self.cap[flow] / self.weight[flow], flow))
                elif source >= 0:
                    self._cross(source, channel, load * self.weight[flow])
            heapify(capped)
        self.relink = {}
        return unlinked

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
