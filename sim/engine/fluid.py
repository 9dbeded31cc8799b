"""The sharing law in the replay: weighted max-min rates kept up to date by local repair.

The law is `laws.sharing.max_min`; this is the same unique allocation, reached from the previous one instead of from nothing.
A change (flow in, flow out) leaves a few channels dirty. Settling a channel recomputes its level and moves flows in and out
of its class until the conditions of the definition hold on it: members whose cap is below the level go to their caps,
members that cross a channel of lower level go there, and faster flows from elsewhere come in. A changed level dirties the
channels that its members cross. Lower levels never depend on higher ones, so this ends (proof sketch in docs/model.md).

Channels whose users cannot fill it even at their upper bounds are not linked: they limit nobody and couple nobody.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from sim.engine.arrays import LINKED
from sim.engine.flows import CAPPED, IDLE, INFINITY, LARGE, LEVEL, STALE, Flows
from sim.errors import InternalError
from sim.laws.sharing import TIE

#: a channel is over-full above this: flows at their caps within TIE of the level may add up to a few TIE too much
FULL = 1.0 + 4.0 * TIE
#: relative error of a load
ROUNDING = 1e-15
#: relative change of a level, per share of the bandwidth that its class has, which is rounding of the sums and no change
SAME = 4.0 * ROUNDING


class Fluid(Flows):
    """Flows that always obey the law after `settle`."""

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

    # ------------------------------------------------------------------------------------------------ settling

    def settle(self, now: float) -> None:
        """Restore the law on every dirty channel and what it reaches; set the pending events."""
        unlinked = self._link(now) if self.relink else ()
        if self.fresh:
            self._place(now)
        for channel in unlinked:
            if self.num_members[channel]:  # its members go back to their caps: no rounding of running sums may keep them
                self._sum_anew(channel)
                self.dirty[channel] = None
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
        fair = 0.0
        # each move raises the fair level; `max` keeps rounding from undoing that, so a flow moves twice at most
        while True:
            if self.num_updates[channel] > 16 + 2 * len(self.users[channel]):
                self._sum_anew(channel)
            if self.num_members[channel]:
                room = bandwidth - self.other[channel]
                fair = max(room / self.slope[channel], fair)
                if self._let_out(channel, fair, now):
                    continue
                # little room is known to few digits only: a level above `fair` by less than that may be the same
                if not self._take_in(channel, fair * (1.0 + TIE + (ROUNDING * bandwidth / room if room > 0.0 else 0.0)), now):
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
        room = bandwidth - self.other[channel]
        if room > 0.0 and abs(fair - level) * room <= SAME * level * bandwidth:
            fair = level  # channels that cross each other at one level would pass the last digit on for ever
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
            self.num_updates[other] += STALE if self.other[other] > LARGE * self.bandwidth[other] else 1
            self.other[other] += pair[0] * change
            if self.num_members[other] or self.other[other] > self.bandwidth[other] * FULL:
                self.dirty[other] = None

    def _let_out(self, channel: int, fair: float, now: float) -> bool:
        """Move members whose own cap, or another channel that they cross, is below the level `fair`. True: some moved."""
        by_cap, limit, cap, weight = self.by_cap[channel], self.limit, self.cap, self.weight
        level, flow = by_cap[0]
        while limit[flow] != channel or level != cap[flow] / weight[flow]:  # gone, or its cap has changed since
            heappop(by_cap)
            level, flow = by_cap[0]
        if level <= fair * (1.0 + TIE):
            self._move(heappop(by_cap)[1], CAPPED, now)
            return True
        if not self.crossing[channel]:
            return False
        levels, low = self.level, fair * (1.0 - TIE)
        lower = [other for other in self.crossing[channel] if levels[other] < low and self.num_members[other]]
        if not lower:
            return False
        other = min(lower, key=levels.__getitem__)
        for flow in [flow for flow in self.users[other] if limit[flow] == channel]:
            self._move(flow, other, now)
        return True

    def _take_in(self, channel: int, above: float, now: float) -> bool:
        """Move the fastest user that something else limits into the class, if its level is `above`. True: some moved."""
        capped, limit, cap, weight = self.capped[channel], self.limit, self.cap, self.weight
        fastest = 0.0
        while capped:
            level, flow = capped[0]
            if limit[flow] == CAPPED and level == -cap[flow] / weight[flow]:
                fastest = -level
                break
            heappop(capped)  # gone, or its cap has changed since
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
