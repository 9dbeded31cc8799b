"""Compiled: which class each running flow is in, what that puts on channels, and when each flow ends. See `engine.flows`."""

from __future__ import annotations

from typing import Any

from sim.engine.fast.heaps import drop, drop_event, put, set_event
from sim.engine.fast.jit import inner
from sim.engine.fast.layout import DIRTY
from sim.engine.flows import IDLE, LARGE, SMALL, STALE


@inner
def remaining(s: Any, flow: int, now: float) -> Any:
    """Work that an active flow has left."""
    row = s.flow[flow]
    if row.limit < 0:
        return max((row.finish - now) * row.cap, 0.0)
    channel = s.channel[row.limit]
    virtual = channel.virtual + channel.level * (now - channel.clock)
    return max((row.finish - virtual) * row.weight, 0.0)


@inner
def rate(s: Any, flow: int) -> Any:
    """Work per second of an active flow."""
    row = s.flow[flow]
    return row.cap if row.limit < 0 else row.weight * s.channel[row.limit].level


@inner
def begin_limit(s: Any, channel: int, now: float) -> None:
    """One more flow or class that `channel` limits."""
    row = s.channel[channel]
    if row.num_limiting == 0:
        if row.full_from < 0.0:
            row.full_from = now
        elif now > row.full_to:
            one = s.gap[s.count[0].gaps]
            one.channel, one.length_s = channel, now - row.full_to
            s.count[0].gaps += 1
    row.num_limiting += 1


@inner
def end_limit(s: Any, channel: int, now: float) -> None:
    """One less."""
    row = s.channel[channel]
    row.num_limiting -= 1
    if row.num_limiting == 0:
        row.full_to = now


@inner
def collect(s: Any, channel: int, until_s: float, ended: Any, num_ended: int) -> int:
    """Append the members of the class of `channel` that end up to `until_s`: the first, whose event this is, always."""
    row = s.channel[channel]
    bound = row.virtual + row.level * (until_s - row.clock)
    at = s.count[0].by_finish + row.slot_at
    is_first = True
    while row.num_finishing and (is_first or s.heap[at].key <= bound):
        item = s.heap[at].item
        row.num_finishing = drop(s.heap, s.place, at, row.num_finishing, item)
        ended[num_ended] = s.slot[item - s.count[0].by_finish].flow
        num_ended += 1
        is_first = False
    return num_ended


@inner
def attach(s: Any, flow: int, limit: int, work: float, now: float) -> None:
    """Let `limit` (CAPPED or a channel) limit the flow from now on, with `work` left."""
    s.flow[flow].limit = limit
    if limit < 0:
        attach_to_cap(s, flow, work, now)
    else:
        attach_to_class(s, flow, limit, work, now)


@inner
def attach_to_cap(s: Any, flow: int, work: float, now: float) -> None:
    """The flow runs at its cap."""
    row = s.flow[flow]
    row.finish = now + work / row.cap
    set_event(s, row.stream, row.finish)
    if row.logs_own:
        begin_limit(s, row.own, now)
    for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
        link = s.link[j]
        channel = s.channel[link.channel]
        if channel.is_linked:
            channel.num_updates += 1
            channel.other += link.load * row.cap
            put_capped(s, link.channel, link.slot, row.cap / row.weight)


@inner
def attach_to_class(s: Any, flow: int, limit: int, work: float, now: float) -> None:
    """The flow shares the level of the channel `limit`."""
    row, own = s.flow[flow], s.channel[limit]
    own.virtual = own.virtual + own.level * (now - own.clock) if own.num_members else 0.0
    own.clock = now
    row.finish = own.virtual + work / row.weight
    first = s.link_at[row.lane]
    for j in range(first, s.link_at[row.lane + 1]):
        link = s.link[j]
        channel = s.channel[link.channel]
        if not channel.is_linked:
            continue
        channel.num_updates += 1
        if link.channel != limit:
            cross(s, pair_of(s, row.lane, limit, j - first), link.load * row.weight)
            continue
        channel.slope += link.load * row.weight
        at, item = s.count[0].by_finish + channel.slot_at, s.count[0].by_finish + link.slot
        channel.num_finishing = put(s.heap, s.place, at, channel.num_finishing, item, row.finish)
        at, item = s.count[0].by_cap + channel.slot_at, s.count[0].by_cap + link.slot
        channel.num_members = put(s.heap, s.place, at, channel.num_members, item, row.cap / row.weight)


@inner
def put_capped(s: Any, channel: int, slot: int, level: float) -> None:
    """Note a capped user of `channel`; the fastest comes first."""
    at, item = s.count[0].capped + s.channel[channel].slot_at, s.count[0].capped + slot
    s.channel[channel].num_capped = put(s.heap, s.place, at, s.channel[channel].num_capped, item, -level)


@inner
def pair_of(s: Any, lane: int, source: int, j: int) -> Any:
    """The pair from channel `source` to the j-th link of the lane."""
    first = s.link_at[lane]
    num = s.link_at[lane + 1] - first
    i = 0
    while s.link[first + i].channel != source:
        i += 1
    return s.pair_of[s.pair_at[lane] + i * num + j]


@inner
def cross(s: Any, pair: int, load: float) -> None:
    """A member of the class of one channel puts `load` per unit of its level on another."""
    row = s.pair[pair]
    source, target = s.channel[row.source], s.channel[row.target]
    target.other += load * source.level
    if row.count:
        row.load += load
    else:
        row.load = load
        row.at_source, row.at_target = source.num_crossing, target.num_crossed_by
        s.crossing[source.pair_at + source.num_crossing] = pair
        s.crossed_by[target.pair_at + target.num_crossed_by] = pair
        source.num_crossing += 1
        target.num_crossed_by += 1
    row.count += 1


@inner
def uncross(s: Any, pair: int) -> None:
    """No member of the source crosses the target any more: the others of each list keep their order."""
    row = s.pair[pair]
    source, target = s.channel[row.source], s.channel[row.target]
    source.num_crossing -= 1
    for k in range(row.at_source, source.num_crossing):
        later = s.crossing[source.pair_at + k + 1]
        s.crossing[source.pair_at + k] = later
        s.pair[later].at_source = k
    target.num_crossed_by -= 1
    for k in range(row.at_target, target.num_crossed_by):
        later = s.crossed_by[target.pair_at + k + 1]
        s.crossed_by[target.pair_at + k] = later
        s.pair[later].at_target = k
    row.count = 0


@inner
def enter(s: Any, channel: int, slot: int, flow: int, load: float) -> None:
    """`flow` is the last user of `channel`: users stay in the order in which they came."""
    row, one = s.channel[channel], s.slot[slot]
    one.flow, one.load, one.before, one.next = flow, load, row.last_slot, -1
    if row.last_slot >= 0:
        s.slot[row.last_slot].next = slot
    else:
        row.first_slot = slot
    row.last_slot = slot
    row.num_users += 1


@inner
def depart(s: Any, channel: int, slot: int) -> None:
    """The flow of `slot` no longer uses `channel`."""
    row, one = s.channel[channel], s.slot[slot]
    if one.before >= 0:
        s.slot[one.before].next = one.next
    else:
        row.first_slot = one.next
    if one.next >= 0:
        s.slot[one.next].before = one.before
    else:
        row.last_slot = one.before
    one.flow = -1
    row.num_users -= 1


@inner
def detach(s: Any, flow: int, now: float) -> None:
    """Take the flow out of what limits it."""
    row = s.flow[flow]
    first, last = s.link_at[row.lane], s.link_at[row.lane + 1]
    if row.limit < 0:
        drop_event(s, row.stream)
        if row.logs_own:
            end_limit(s, row.own, now)
    for j in range(first, last):
        link = s.link[j]
        channel = s.channel[link.channel]
        if not channel.is_linked:
            continue
        channel.num_updates += 1
        if row.limit < 0:
            channel.other -= link.load * row.cap
            at, item = s.count[0].capped + s.channel[link.channel].slot_at, s.count[0].capped + link.slot
            channel.num_capped = drop(s.heap, s.place, at, channel.num_capped, item)
        elif link.channel == row.limit:
            slope = channel.slope
            channel.slope = slope - link.load * row.weight
            if channel.num_members > 1 and channel.slope < SMALL * slope:
                channel.num_updates += STALE
            at, item = s.count[0].by_finish + s.channel[link.channel].slot_at, s.count[0].by_finish + link.slot
            channel.num_finishing = drop(s.heap, s.place, at, channel.num_finishing, item)
            at, item = s.count[0].by_cap + s.channel[link.channel].slot_at, s.count[0].by_cap + link.slot
            channel.num_members = drop(s.heap, s.place, at, channel.num_members, item)
            if not channel.num_members:
                channel.slope = channel.virtual = 0.0
                drop_event(s, len(s.stream) + link.channel)
        else:
            pair = pair_of(s, row.lane, row.limit, j - first)
            if channel.other > LARGE * channel.bandwidth:
                channel.num_updates += STALE
            channel.other -= link.load * row.weight * s.channel[row.limit].level
            if link.load * row.weight > (1.0 - SMALL) * s.pair[pair].load:
                s.channel[row.limit].num_updates += STALE
            s.pair[pair].load -= link.load * row.weight
            s.pair[pair].count -= 1
            if not s.pair[pair].count:
                uncross(s, pair)


@inner
def mark(s: Any, channel: int) -> None:
    """The law may be broken on the linked channel."""
    row = s.channel[channel]
    if not row.is_dirty:
        row.is_dirty = 1
        row.dirty_at = s.count[0].marks
        s.count[0].marks += 1
    if not row.is_listed:
        row.is_listed = 1
        s.lists[DIRTY, s.count[0].dirty] = channel
        s.count[0].dirty += 1


@inner
def move(s: Any, flow: int, limit: int, now: float) -> None:
    """Let `limit` limit the active flow from now on."""
    work = remaining(s, flow, now)
    detach(s, flow, now)
    attach(s, flow, limit, work, now)
    lane = s.flow[flow].lane
    for j in range(s.link_at[lane], s.link_at[lane + 1]):
        if s.channel[s.link[j].channel].is_linked:
            mark(s, s.link[j].channel)


@inner
def sum_anew(s: Any, channel: int) -> None:
    """Running sums of `channel` from its users: bounds the drift of adding and subtracting."""
    row = s.channel[channel]
    row.num_updates = 0
    slope = other = 0.0
    for k in range(row.pair_at, row.pair_at + row.num_crossing):
        s.pair[s.crossing[k]].load = 0.0
    i = row.first_slot
    while i >= 0:
        flow, load = s.slot[i].flow, s.slot[i].load
        i = s.slot[i].next
        one = s.flow[flow]
        if one.limit != channel:
            if one.limit != IDLE:
                other += load * rate(s, flow)
            continue
        slope += load * one.weight
        first = s.link_at[one.lane]
        for j in range(first, s.link_at[one.lane + 1]):
            if s.link[j].channel != channel and s.channel[s.link[j].channel].is_linked:
                s.pair[pair_of(s, one.lane, channel, j - first)].load += s.link[j].load * one.weight
    row.slope, row.other = slope, other
