"""Compiled: which channels can be full at the moment. The others limit nobody and couple nobody. See `engine.fluid`."""

from __future__ import annotations

from typing import Any

from sim.engine.fast.flows import cross, mark, pair_of, put_capped, uncross
from sim.engine.fast.heaps import drop_event
from sim.engine.fast.jit import inner
from sim.engine.fast.layout import RELINK, UNLINKED
from sim.engine.flows import CAPPED, IDLE, INFINITY


@inner
def relink(s: Any, channel: int) -> None:
    """The channel may start or stop being linked."""
    if not s.channel[channel].is_relinked:
        s.channel[channel].is_relinked = 1
        s.lists[RELINK, s.count[0].relink] = channel
        s.count[0].relink += 1


@inner
def link(s: Any, now: float) -> None:
    """Link the channels that now can be full; note those that no longer can, to unlink when they limit nobody."""
    for k in range(s.count[0].relink):
        channel = s.lists[RELINK, k]
        row = s.channel[channel]
        row.is_relinked = 0
        binds = row.num_users > 1 and row.potential > row.threshold
        if row.is_linked:
            if not binds:
                s.lists[UNLINKED, s.count[0].unlinked] = channel
                s.count[0].unlinked += 1
            continue
        if not binds:
            continue
        row.is_linked = 1
        mark(s, channel)
        row.level, row.clock = INFINITY, now
        row.other = row.slope = row.virtual = 0.0
        row.num_updates = 0
        i = row.first_slot
        while i >= 0:
            slot, one = i, s.flow[s.slot[i].flow]
            i = s.slot[i].next
            if one.limit == IDLE:
                continue
            if one.limit == CAPPED:
                row.other += s.slot[slot].load * one.cap
                put_capped(s, channel, slot, one.cap / one.weight)
            else:
                j = 0
                first = s.link_at[one.lane]
                while s.link[first + j].channel != channel:
                    j += 1
                cross(s, pair_of(s, one.lane, one.limit, j), s.slot[slot].load * one.weight)
    s.count[0].relink = 0


@inner
def unlink(s: Any, channel: int) -> None:
    """The channel couples nobody any more."""
    row = s.channel[channel]
    row.is_linked = 0
    row.level = INFINITY
    while row.num_crossed_by:
        uncross(s, s.crossed_by[row.pair_at])
    at = s.count[0].capped + row.slot_at
    for k in range(row.num_capped):
        s.place[s.heap[at + k].item] = -1
    row.num_capped = 0
    drop_event(s, len(s.stream) + channel)
