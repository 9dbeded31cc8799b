"""Compiled: the sharing law kept up to date by local repair. See `engine.fluid`, whose steps these are."""

from __future__ import annotations

from typing import Any

from sim.engine.fast.flows import (
    attach,
    attach_to_cap,
    begin_limit,
    depart,
    detach,
    end_limit,
    enter,
    mark,
    move,
    rate,
    sum_anew,
)
from sim.engine.fast.heaps import set_event
from sim.engine.fast.jit import inner
from sim.engine.fast.layout import DIRTY, FRESH, PLACED, TURN, UNLINKED, integer
from sim.engine.fast.linking import link, relink, unlink
from sim.engine.flows import CAPPED, IDLE, INFINITY, LARGE, STALE
from sim.engine.fluid import FULL, ROUNDING, SAME
from sim.laws.sharing import TIE


@inner
def join(s: Any, flow: int, now: float) -> None:
    """Start `flow`. Call `settle` when all changes of the batch are in."""
    row = s.flow[flow]
    is_free = True
    for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
        one = s.link[j]
        channel = s.channel[one.channel]
        enter(s, one.channel, one.slot, flow, one.load)
        channel.potential += one.load * row.most
        if channel.is_linked:
            is_free = False
        elif channel.potential > channel.threshold and channel.num_users > 1:
            relink(s, one.channel)
            is_free = False
    if is_free:
        row.limit = CAPPED
        attach_to_cap(s, flow, row.work, now)
    else:
        s.count[0].is_touched = 1
        s.lists[FRESH, s.count[0].fresh] = flow
        s.count[0].fresh += 1


@inner
def leave(s: Any, flow: int, now: float) -> None:
    """Take `flow` out: it has ended."""
    detach(s, flow, now)
    row = s.flow[flow]
    row.limit = IDLE
    for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
        one = s.link[j]
        channel = s.channel[one.channel]
        depart(s, one.channel, one.slot)
        # an empty channel has exactly no load: 1e-17 left over by a difference would never go away
        channel.potential = channel.potential - one.load * row.most if channel.num_users else 0.0
        if channel.is_linked:
            s.count[0].is_touched = 1
            mark(s, one.channel)
            if channel.potential <= channel.threshold or channel.num_users < 2:
                relink(s, one.channel)


@inner
def settle(s: Any, now: float) -> bool:
    """Restore the law on every dirty channel and what it reaches; set the pending events. False: it does not settle."""
    count = s.count[0]
    if count.relink:
        link(s, now)
    if count.fresh:
        place(s, now)
    for k in range(count.unlinked):
        # its members go back to their caps: no rounding of running sums may keep them
        if s.channel[s.lists[UNLINKED, k]].num_members:
            sum_anew(s, s.lists[UNLINKED, k])
            mark(s, s.lists[UNLINKED, k])
    rounds = 0
    while count.dirty:
        num = 0
        for k in range(count.dirty):
            channel = s.lists[DIRTY, k]
            s.channel[channel].is_listed = 0
            if s.channel[channel].is_dirty:
                s.channel[channel].is_dirty = 0
                s.lists[TURN, num] = channel
                num += 1
        count.dirty = 0
        # lowest level first: what is settled below is not changed by what is above
        sort_by_level(s, num)
        for k in range(num):
            settle_channel(s, s.lists[TURN, k], now)
        rounds += 1
        if rounds > 100 + len(s.channel):
            return False
    for k in range(count.unlinked):
        unlink(s, s.lists[UNLINKED, k])
    count.unlinked = 0
    count.is_touched = 0
    return True


@inner
def sort_by_level(s: Any, num: int) -> None:
    """The first `num` channels whose turn it is, by their levels; equal levels in the order in which they were marked."""
    turn = s.lists[TURN]
    gap = num
    while gap > 1:
        gap = max(gap * 5 // 11, 1)
        for k in range(gap, num):
            channel = turn[k]
            level, dirty_at = s.channel[channel].level, s.channel[channel].dirty_at
            j = k
            while j >= gap:
                other = s.channel[turn[j - gap]]
                if other.level < level or (other.level == level and other.dirty_at < dirty_at):
                    break
                turn[j] = turn[j - gap]
                j -= gap
            turn[j] = channel


@inner
def place(s: Any, now: float) -> None:
    """Put each flow that has joined where it will most likely stay, so that few have to move."""
    num = 0
    for k in range(s.count[0].fresh):
        row = s.flow[s.lists[FRESH, k]]
        for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
            one = s.link[j]
            channel = s.channel[one.channel]
            if channel.is_linked:
                if not channel.is_placed:
                    channel.is_placed = 1
                    channel.most = channel.extra = 0.0
                    s.lists[PLACED, num] = one.channel
                    num += 1
                channel.most += one.load * row.cap
                channel.extra += one.load * row.weight
    for k in range(num):
        channel = s.channel[s.lists[PLACED, k]]
        mark(s, s.lists[PLACED, k])
        room = max(channel.bandwidth - channel.other, 0.0)
        if channel.num_members or channel.most > room:
            channel.expected = room / (channel.slope + channel.extra)
            if not channel.num_members:
                channel.level = channel.expected  # any finite base will do: `settle_channel` sets the level
    for k in range(s.count[0].fresh):
        flow = s.lists[FRESH, k]
        row = s.flow[flow]
        level, limit = row.cap / row.weight, integer(CAPPED)
        for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
            if s.channel[s.link[j].channel].expected < level:
                level, limit = s.channel[s.link[j].channel].expected, s.link[j].channel
        attach(s, flow, limit, row.work, now)
    for k in range(num):
        channel = s.channel[s.lists[PLACED, k]]
        channel.is_placed, channel.expected = 0, INFINITY
    s.count[0].fresh = 0


@inner
def settle_channel(s: Any, channel: int, now: float) -> None:
    """Level and class of one channel, everything else as it is."""
    row = s.channel[channel]
    if row.num_members:
        level = row.level
        row.virtual += level * (now - row.clock)
    else:
        level = row.level = row.virtual = 0.0
    row.clock = now
    fair = 0.0
    # each move raises the fair level; `max` keeps rounding from undoing that, so a flow moves twice at most
    while True:
        if row.num_updates > 16 + 2 * row.num_users:
            sum_anew(s, channel)
        if row.num_members:
            room = row.bandwidth - row.other
            fair = max(room / row.slope, fair)
            if let_out(s, channel, fair, now):
                continue
            # little room is known to few digits only: a level above `fair` by less than that may be the same
            if not take_in(s, channel, fair * (1.0 + TIE + (ROUNDING * row.bandwidth / room if room > 0.0 else 0.0)), now):
                break
        elif row.other <= row.bandwidth * FULL or not take_in(s, channel, 0.0, now):
            break
    row.is_dirty = 0
    is_limiting = row.num_members > 0
    if is_limiting != (row.is_limiting != 0):
        row.is_limiting = is_limiting
        if is_limiting:
            begin_limit(s, channel, now)
        else:
            end_limit(s, channel, now)
    if not is_limiting:
        row.level = INFINITY
        return
    if row.num_updates and row.bandwidth - row.other < 1e-3 * row.bandwidth:
        # little room is a difference of large sums: let no rounding of the sums into it
        sum_anew(s, channel)
        fair = max(row.bandwidth - row.other, 0.0) / row.slope
    room = row.bandwidth - row.other
    if room > 0.0 and abs(fair - level) * room <= SAME * level * row.bandwidth:
        fair = level  # channels that cross each other at one level would pass the last digit on for ever
    row.level = fair
    if fair != level:
        for k in range(row.pair_at, row.pair_at + row.num_crossing):
            pair = s.pair[s.crossing[k]]
            other = s.channel[pair.target]
            other.num_updates += STALE if other.other > LARGE * other.bandwidth else 1
            other.other += pair.load * (fair - level)
            if other.num_members or other.other > other.bandwidth * FULL:
                mark(s, pair.target)
    # the one pending event of the class: its first member ends
    first = s.heap[s.count[0].by_finish + row.slot_at].key
    set_event(s, len(s.stream) + channel, now + max((first - row.virtual) / fair, 0.0))


@inner
def let_out(s: Any, channel: int, fair: float, now: float) -> bool:
    """Move members whose own cap, or another channel that they cross, is below the level `fair`. True: some moved."""
    row = s.channel[channel]
    first = s.heap[s.count[0].by_cap + row.slot_at]
    if first.key <= fair * (1.0 + TIE):
        move(s, s.slot[first.item - s.count[0].by_cap].flow, integer(CAPPED), now)
        return True
    lowest, level = integer(-1), fair * (1.0 - TIE)
    for k in range(row.pair_at, row.pair_at + row.num_crossing):
        target = s.pair[s.crossing[k]].target
        if s.channel[target].num_members and s.channel[target].level < level:
            lowest, level = target, s.channel[target].level
    if lowest < 0:
        return False
    k = s.channel[lowest].first_slot
    while k >= 0:
        flow = s.slot[k].flow
        k = s.slot[k].next
        if s.flow[flow].limit == channel:
            move(s, flow, lowest, now)
    return True


@inner
def take_in(s: Any, channel: int, above: float, now: float) -> bool:
    """Move the fastest user that something else limits into the class, if its level is `above`. True: some moved."""
    row = s.channel[channel]
    at = s.count[0].capped + row.slot_at
    fastest = -s.heap[at].key if row.num_capped else 0.0
    source, level = integer(-1), -1.0
    for k in range(row.pair_at, row.pair_at + row.num_crossed_by):
        other = s.pair[s.crossed_by[k]].source
        if s.channel[other].level > level:
            source, level = other, s.channel[other].level
    if source >= 0 and level >= fastest and level > above:
        k = row.first_slot
        while k >= 0:
            flow = s.slot[k].flow
            k = s.slot[k].next
            if s.flow[flow].limit == source:
                move(s, flow, channel, now)
        return True
    if fastest > above:
        move(s, s.slot[s.heap[at].item - s.count[0].capped].flow, channel, now)
        return True
    return False


@inner
def loads(s: Any) -> None:
    """Load of one member of each channel, now, into `channel.now`."""
    for c in range(len(s.channel)):
        s.channel[c].now = 0.0
    for k in range(len(s.stream)):
        if s.stream[k].is_active:
            flow = s.stream[k].flow
            speed = rate(s, flow)
            for j in range(s.use_at[s.flow[flow].lane], s.use_at[s.flow[flow].lane + 1]):
                s.channel[s.use[j].channel].now += s.use[j].load * speed
