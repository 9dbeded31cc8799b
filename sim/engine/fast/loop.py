"""Compiled: batches of simultaneous changes, up to a horizon. See `engine.kernel`, whose order these keep."""

from __future__ import annotations

from typing import Any

from sim.engine.fast.bound import begin, finish, settle_all
from sim.engine.fast.flows import begin_limit, collect, end_limit
from sim.engine.fast.fluid import loads
from sim.engine.fast.heaps import drop_event, set_event, sort
from sim.engine.fast.jit import inner
from sim.engine.fast.layout import EMPTY, ENDED, FULL_LOG, HORIZON, QUEUED, STARTED, UNSETTLED, UNSOLVED, integer
from sim.engine.flows import CAPPED, IDLE
from sim.laws.sharing import TIE


@inner
def start_all(s: Any) -> None:
    """Start, at time zero, whatever waits for nothing."""
    for i in range(len(s.flow)):
        if not s.flow[i].waits:
            s.flow[i].ready = 0.0
            start_at(s, i, 0.0)


@inner
def start_at(s: Any, flow: int, time_s: float) -> None:
    """The event that starts the flow, or its work after its latency."""
    row = s.stream[s.flow[flow].stream]
    row.flow, row.is_start = flow, 1
    set_event(s, s.flow[flow].stream, time_s)


@inner
def advance(s: Any, horizon_s: float, is_observed: bool) -> int:
    """Run every batch before `horizon_s`; return why it came back."""
    count = s.count[0]
    ended, started, queued = s.lists[ENDED], s.lists[STARTED], s.lists[QUEUED]
    if count.is_unsolved:
        now = count.now
        if not settle_all(s, now):
            return UNSOLVED if count.is_unsolved else UNSETTLED
        if is_observed and len(s.segment):
            log_segments(s, now)
    while count.events:
        now = s.heap[0].key
        if now >= horizon_s:
            return HORIZON
        if len(s.segment) and count.segments + len(s.channel) > len(s.segment):
            return FULL_LOG
        if count.gaps + len(s.channel) > len(s.gap):
            return FULL_LOG
        until = now + TIE * now
        num_ended = num_started = num_queued = integer(0)
        while count.events and s.heap[0].key <= until:
            item = s.heap[0].item
            drop_event(s, item)
            if item >= len(s.stream):
                num_ended = collect(s, item - len(s.stream), until, ended, num_ended)
            elif s.stream[item].is_start:
                started[num_started] = s.stream[item].flow
                num_started += 1
            else:
                ended[num_ended] = s.stream[item].flow
                num_ended += 1
        count.now = now
        count.batches += 1
        sort(ended, num_ended)
        for k in range(num_ended):
            stop(s, ended[k], now)
        while True:
            if num_ended:
                num_started = release(s, ended, num_ended, started, num_started, now)
                num_ended = integer(0)
            if not num_started:
                if not num_queued:
                    break
                for k in range(num_queued):
                    started[k] = queued[k]
                num_started, num_queued = num_queued, integer(0)
                admit(s, started, num_started, now)
            sort(started, num_started)
            for k in range(num_started):
                flow = started[k]
                row = s.flow[flow]
                if row.start < 0.0:
                    if row.is_gated:
                        row.is_gated = 0
                        queued[num_queued] = flow
                        num_queued += 1
                        continue
                    if now + row.latency_s > now:
                        delay(s, flow, now, is_observed)
                        continue
                row.start = now
                if row.work <= 0.0:
                    ended[num_ended] = flow
                    num_ended += 1
                else:
                    run(s, flow, now)
            num_started = integer(0)
        if count.is_touched and not settle_all(s, now):
            return UNSOLVED if count.is_unsolved else UNSETTLED
        if is_observed and len(s.segment):
            log_segments(s, now)
    return EMPTY


@inner
def run(s: Any, flow: int, now: float) -> None:
    """The flow has work to do from now on."""
    row = s.flow[flow]
    stream = s.stream[row.stream]
    stream.flow, stream.is_start, stream.is_active = flow, 0, 1
    if s.link_at[row.lane + 1] > s.link_at[row.lane]:
        begin(s, flow, now)
        return
    row.limit = CAPPED
    row.finish = now + row.work / row.cap
    set_event(s, row.stream, row.finish)
    if row.logs_own:
        begin_limit(s, row.own, now)


@inner
def delay(s: Any, flow: int, now: float, is_observed: bool) -> None:
    """The flow's latency begins; where nothing can slow it and nobody looks, its end is known."""
    row = s.flow[flow]
    row.start = now + row.latency_s
    is_coupled = s.link_at[row.lane + 1] > s.link_at[row.lane]
    if is_coupled or is_observed or row.logs_own or row.work <= 0.0:
        start_at(s, flow, row.start)
        return
    row.limit = CAPPED
    row.finish = row.start + row.work / row.cap
    s.stream[row.stream].flow, s.stream[row.stream].is_start = flow, 0
    set_event(s, row.stream, row.finish)


@inner
def stop(s: Any, flow: int, now: float) -> None:
    """The flow has done its work."""
    row = s.flow[flow]
    s.stream[row.stream].is_active = 0
    if s.link_at[row.lane + 1] > s.link_at[row.lane]:
        finish(s, flow, now)
        return
    row.limit = IDLE
    if row.logs_own:
        end_limit(s, row.own, now)


@inner
def release(s: Any, ended: Any, num_ended: int, started: Any, num_started: int, now: float) -> int:
    """Record the ends, free, and start what has waited for the last of them; return how many start."""
    count = s.count[0]
    sort(ended, num_ended)
    count.left -= num_ended
    for k in range(num_ended):
        flow = ended[k]
        row = s.flow[flow]
        row.end = now
        if row.has_frees:
            s.held[count.held], s.held_s[count.held] = flow << 1 | 1, now
            count.held += 1
        for j in range(s.successor_at[flow], s.successor_at[flow + 1]):
            num_started = let_go(s, s.successor[j], started, num_started, now)
        if row.is_followed:
            num_started = let_go(s, flow + 1, started, num_started, now)
    return num_started


@inner
def let_go(s: Any, flow: int, started: Any, num_started: int, now: float) -> int:
    """One less to wait for."""
    row = s.flow[flow]
    row.waits -= 1
    if not row.waits:
        row.ready = now
        started[num_started] = flow
        num_started += 1
    return num_started


@inner
def admit(s: Any, started: Any, num_started: int, now: float) -> None:
    """All frees of the batch are in: now the allocations, in canonical order."""
    sort(started, num_started)
    for k in range(num_started):
        s.held[s.count[0].held], s.held_s[s.count[0].held] = started[k] << 1, now
        s.count[0].held += 1


@inner
def log_segments(s: Any, now: float) -> None:
    """Close the segments of the channels whose load has changed."""
    loads(s)
    for c in range(len(s.channel)):
        row = s.channel[c]
        if row.now == row.load:
            continue
        if row.load > 0.0 and now > row.since:
            one = s.segment[s.count[0].segments]
            one.channel, one.start, one.end, one.rate = c, row.since, now, row.load
            s.count[0].segments += 1
        row.since, row.load = now, row.now
        row.peak = max(row.peak, row.load)
