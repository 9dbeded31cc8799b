"""Compiled: latency-bound flows, whose caps follow the loaded latency of their path. See `engine.bound`.

The caps of flows that run together are found in Python, by the very function of the plain kernel, and kept by the kinds of
the flows: a step repeats a few sets of kinds thousands of times. Where a set is new, `advance` comes back for them.
"""

from __future__ import annotations

from typing import Any

from sim.engine.fast.flows import attach_to_cap, detach, mark, remaining
from sim.engine.fast.fluid import join, leave, settle
from sim.engine.fast.heaps import sort
from sim.engine.fast.jit import inner
from sim.engine.fast.layout import BOUND, KEY, MET, SEEDS, integer, number_of
from sim.engine.flows import CAPPED, IDLE


@inner
def begin(s: Any, flow: int, now: float) -> None:
    """Start `flow`, at first at the cap of an idle path."""
    row, count = s.flow[flow], s.count[0]
    if row.is_bound:
        row.place = count.bound
        s.lists[BOUND, count.bound] = flow
        count.bound += 1
        for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
            s.channel[s.link[j].channel].num_bound += 1
    join(s, flow, now)
    if count.has_bound:
        count.is_touched = 1


@inner
def finish(s: Any, flow: int, now: float) -> None:
    """Take `flow` out."""
    row, count = s.flow[flow], s.count[0]
    if row.is_bound:
        count.bound -= 1
        last = s.lists[BOUND, count.bound]
        s.lists[BOUND, row.place] = last
        s.flow[last].place = row.place
        for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
            s.channel[s.link[j].channel].num_bound -= 1
    leave(s, flow, now)
    if count.has_bound:
        count.is_touched = 1


@inner
def settle_all(s: Any, now: float) -> bool:
    """Set the caps of latency-bound flows, then restore the law. False: caps are to be found, or it does not settle."""
    count = s.count[0]
    count.is_unsolved = 0
    num_seeds = count.bound
    for k in range(num_seeds):
        s.lists[SEEDS, k] = s.lists[BOUND, k]
    sort(s.lists[SEEDS], num_seeds)
    count.stamp += 1
    for k in range(num_seeds):
        if s.stream[s.flow[s.lists[SEEDS, k]].stream].met == count.stamp:
            continue
        num = gather(s, s.lists[SEEDS, k])
        for i in range(num):
            s.lists[KEY, i] = s.flow[s.lists[MET, i]].kind
        sort(s.lists[KEY], num)
        at = find(s, num)
        if at < 0:
            count.is_unsolved, count.num_key = 1, num
            return False
        for i in range(num):
            row = s.flow[s.lists[MET, i]]
            if row.is_bound:
                j = at
                while s.known[j].kind != row.kind:
                    j += 1
                if s.known[j].cap != row.cap:
                    recap(s, s.lists[MET, i], s.known[j].cap, now)
    return settle(s, now)


@inner
def gather(s: Any, seed: int) -> Any:
    """The flows whose caps depend on each other, from `seed` on, into the row of those met; return how many."""
    met, stamp = s.lists[MET], s.count[0].stamp
    met[0] = seed
    s.stream[s.flow[seed].stream].met = stamp
    num, k = integer(1), integer(0)
    while k < num:
        lane = s.flow[met[k]].lane
        k += 1
        for j in range(s.link_at[lane], s.link_at[lane + 1]):
            channel = s.channel[s.link[j].channel]
            is_full = channel.num_users > 1 and channel.potential > channel.threshold
            if channel.met == stamp or not (is_full or (channel.has_law and channel.num_bound > 0)):
                continue
            channel.met = stamp
            i = channel.first_slot
            while i >= 0:
                flow = s.slot[i].flow
                i = s.slot[i].next
                if s.stream[s.flow[flow].stream].met != stamp:
                    s.stream[s.flow[flow].stream].met = stamp
                    met[num] = flow
                    num += 1
    return num


hash_of = inner(number_of)


@inner
def find(s: Any, num: int) -> Any:
    """Where the caps of the key begin among the known ones; -1: it is not among them. A table of open addresses."""
    key, size = s.lists[KEY], len(s.table)
    place = hash_of(key, num) % size
    while s.table[place] >= 0:
        at = s.table[place]
        is_same = s.known[at].num == num
        for i in range(num):
            is_same = is_same and s.known[at + i].kind == key[i]
        if is_same:
            return at
        place = (place + 1) % size
    return integer(-1)


@inner
def recap(s: Any, flow: int, cap: float, now: float) -> None:
    """Change the cap of a running flow; below its largest cap it is latency that limits it, no channel."""
    row = s.flow[flow]
    own = row.most_own if cap >= row.most else integer(-1)
    if row.limit == IDLE:
        row.cap, row.own, row.logs_own = cap, own, own >= 0
        return  # joined in this batch and not yet in a class
    work = remaining(s, flow, now)
    detach(s, flow, now)
    row.cap, row.own, row.logs_own = cap, own, own >= 0
    row.limit = CAPPED
    attach_to_cap(s, flow, work, now)
    s.count[0].is_touched = 1
    for j in range(s.link_at[row.lane], s.link_at[row.lane + 1]):
        if s.channel[s.link[j].channel].is_linked:
            mark(s, s.link[j].channel)
