"""Rows of plain numbers for the compiled kernel; `rows` makes them from the arrays.

A *lane* is a (stream, path) that operations use: all of them couple to the same channels. A *slot* is the place of one
stream among the users of one channel: a stream runs one operation at a time, so there is one flow at most. A *pair* is
two channels (c, d) that one flow can cross, with what the flows that c limits put on d. All counts are fixed by the
program, so nothing grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FLOW = np.dtype(
    [
        ("finish", "f8"),  # s when capped, virtual time of the class when limited by a channel
        ("cap", "f8"),  # of the moment: that of a latency-bound flow changes
        ("most", "f8"),  # the largest that it can be
        ("weight", "f8"),
        ("work", "f8"),
        ("latency_s", "f8"),
        ("ready", "f8"),
        ("start", "f8"),
        ("end", "f8"),
        ("limit", "i8"),  # IDLE, CAPPED or the channel
        ("own", "i8"),  # channel that sets the cap, -1: none
        ("most_own", "i8"),  # channel that sets the largest cap
        ("kind", "i8"),  # among the kinds of flows on which caps depend
        ("place", "i8"),  # among the running latency-bound flows
        ("is_bound", "i1"),
        ("lane", "i8"),
        ("stream", "i8"),
        ("waits", "i8"),
        ("is_gated", "i1"),  # allocates: admitted after the waves of its batch
        ("has_frees", "i1"),
        ("is_followed", "i1"),  # the next operation is the next of its stream
        ("logs_own", "i1"),  # the seconds of its own limit are counted while it runs
    ],
    align=True,
)
CHANNEL = np.dtype(
    [
        ("bandwidth", "f8"),
        ("threshold", "f8"),
        ("potential", "f8"),  # load if every user ran at its upper bound
        ("level", "f8"),
        ("slope", "f8"),
        ("other", "f8"),
        ("virtual", "f8"),
        ("clock", "f8"),
        ("most", "f8"),  # of flows about to be placed: load at their caps,
        ("extra", "f8"),  # load per unit of level,
        ("expected", "f8"),  # and the level to expect
        ("full_from", "f8"),  # when it first limited some flow (-1: never yet),
        ("full_to", "f8"),  # and when it last did; `State.gap` has the times between
        ("load", "f8"),  # of the segment that is open
        ("since", "f8"),
        ("peak", "f8"),
        ("now", "f8"),  # load of the moment
        ("slot_at", "i8"),  # its first slot
        ("first_slot", "i8"),  # of the user that came first, -1: none
        ("last_slot", "i8"),
        ("num_users", "i8"),
        ("num_bound", "i8"),  # latency-bound users
        ("dirty_at", "i8"),  # order of marks
        ("met", "i8"),  # stamp of the last set of flows that it belonged to
        ("num_members", "i8"),
        ("num_finishing", "i8"),  # members whose end is still to come
        ("num_capped", "i8"),
        ("num_updates", "i8"),
        ("num_limiting", "i8"),
        ("pair_at", "i8"),  # its pairs are pair_at .. pair_at + its neighbours
        ("num_crossing", "i8"),
        ("num_crossed_by", "i8"),
        ("has_law", "i1"),  # its latency depends on its load
        ("is_linked", "i1"),
        ("is_limiting", "i1"),
        ("is_dirty", "i1"),
        ("is_listed", "i1"),
        ("is_relinked", "i1"),
        ("is_placed", "i1"),
    ],
    align=True,
)
LINK = np.dtype([("load", "f8"), ("channel", "i8"), ("slot", "i8")], align=True)
PAIR = np.dtype(
    [("load", "f8"), ("source", "i8"), ("target", "i8"), ("count", "i8"), ("at_source", "i8"), ("at_target", "i8")], align=True
)
SLOT = np.dtype([("load", "f8"), ("flow", "i8"), ("before", "i8"), ("next", "i8")], align=True)
STREAM = np.dtype([("flow", "i8"), ("met", "i8"), ("is_start", "i1"), ("is_active", "i1")], align=True)
GAP = np.dtype([("length_s", "f8"), ("channel", "i8")], align=True)
#: caps of a set of flows, one entry each in the order of their kinds; the first has their number
KNOWN = np.dtype([("cap", "f8"), ("kind", "i8"), ("num", "i8")], align=True)
ENTRY = np.dtype([("key", "f8"), ("item", "i8")], align=True)
SEGMENT = np.dtype([("start", "f8"), ("end", "f8"), ("rate", "f8"), ("channel", "i8")], align=True)
COUNT = np.dtype(
    [
        ("now", "f8"),
        *(
            (name, "i8")
            for name in (
                "events_at", "by_finish", "by_cap", "capped",  # first items of the kinds of heaps
                "events", "batches", "left", "fresh", "dirty", "relink", "unlinked", "held", "segments", "gaps", "is_touched",
                "marks", "stamp", "bound", "has_bound", "num_key", "is_unsolved",
            )
        ),
    ],
    align=True,
)  # fmt: skip

_WHOLE, _REAL = np.dtype("i8"), np.dtype("f8")
#: type of the rows of each part of a State, in its order
ROWS: Mapping[str, np.dtype[Any]] = {
    "flow": FLOW, "channel": CHANNEL, "stream": STREAM, "link_at": _WHOLE, "link": LINK, "use_at": _WHOLE, "use": LINK,
    "pair_at": _WHOLE, "pair_of": _WHOLE, "pair": PAIR, "crossing": _WHOLE, "crossed_by": _WHOLE, "slot": SLOT, "heap": ENTRY,
    "place": _WHOLE, "successor_at": _WHOLE, "successor": _WHOLE, "held": _WHOLE, "held_s": _REAL, "segment": SEGMENT,
    "gap": GAP, "table": _WHOLE, "known": KNOWN, "lists": _WHOLE, "count": COUNT,
}  # fmt: skip
#: rows of `State.lists`
FRESH, DIRTY, RELINK, UNLINKED, ENDED, STARTED, QUEUED, PLACED, TURN, BOUND, SEEDS, MET, KEY = range(13)
#: why `loop.advance` came back: nothing pending, the horizon, a log is full, the law does not settle, Python has caps to find
EMPTY, HORIZON, FULL_LOG, UNSETTLED, UNSOLVED = range(5)
#: makes a number whose value numba does not take for part of its type, for which it would compile a callee apart
integer: Any = np.int64

#: room for segments and gaps between two looks of Python, in channels
LOG_ROUNDS = 64


class State(NamedTuple):
    """Everything the compiled code reads and writes."""

    flow: Any
    channel: Any
    stream: Any
    link_at: Any  # lane -> links
    link: Any  # (channel, slot, load) that couple
    use_at: Any
    use: Any  # (channel, load) of the whole path
    pair_at: Any  # lane -> k x k numbers of pairs
    pair_of: Any
    pair: Any
    crossing: Any  # source channel -> pairs with members
    crossed_by: Any  # target channel -> pairs with members
    slot: Any
    heap: Any  # all heaps, one after the other: see `heaps`
    place: Any  # item -> index in its heap, -1: not in it
    successor_at: Any
    successor: Any
    held: Any  # flow << 1 | is a free, in order
    held_s: Any
    segment: Any
    gap: Any  # times between two instants at which a channel limits some flow
    table: Any  # open addresses -> where a set of flows begins in `known`, -1: free
    known: Any
    lists: Any  # rows: see `fluid`
    count: Any


def number_of(key: Any, num: int) -> Any:
    """A number from the first `num` of `key`, not negative: the same compiled and in Python."""
    value = integer(num)
    for i in range(num):
        value = (value * 1_000_003 + key[i]) & 0x3FFFFFFFFFF
    return value
