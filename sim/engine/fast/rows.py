"""The rows of a program, made from its arrays.

Programs of one order differ in numbers alone: who waits for whom, lanes, slots and pairs are found once (a *frame*) and copied
for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.engine.arrays import LINKED, Arrays
from sim.engine.fast.layout import CHANNEL, COUNT, ENTRY, FLOW, GAP, KNOWN, LINK, LOG_ROUNDS, PAIR, SEGMENT, SLOT, STREAM, State
from sim.kept import Kept

#: operations whose frames are kept
_ROOM = 200_000


@dataclass(frozen=True, slots=True)
class _Frame:
    """Rows at time zero without the numbers that a machine's speed decides."""

    arrays: Arrays  # keeps the objects that the key names
    lanes: Sequence[tuple[int, int]]  # (stream, path)
    lane: Any  # of each kind of operations
    couplings: Sequence[Sequence[tuple[int, float]]]  # of each lane
    flow: Any
    channel: Any
    link_at: Any
    link: Any
    pair_at: Any
    pair_of: Any
    pair: Any
    num_slots: int
    successor_at: Any
    successor: Any


_FRAMES: Kept[_Frame] = Kept(_ROOM, lambda frame: len(frame.flow))


def lay_out(arrays: Arrays, kind: Sequence[int], *, is_full: bool, is_observed: bool) -> State:
    """A State at time zero. Room for loads if `is_observed`, for segments if `is_full`.

    `kind` are the numbers of what caps depend on, by the kind of operations, where some are latency-bound.
    """
    num_channels, num_streams = len(arrays.channels), len(arrays.streams)
    frame = _frame(arrays)
    paths = [arrays.paths[p] for _, p in frame.lanes] if is_observed else []
    use_at, use = _links([list(zip(row.channels, row.loads, strict=True)) for row in paths], None)
    num_items = num_streams + num_channels + 3 * frame.num_slots
    return State(
        flow=_flow(arrays, frame, kind),
        channel=_with_bandwidths(arrays, frame.channel),
        stream=np.zeros(num_streams, STREAM),
        link_at=frame.link_at,
        link=frame.link,
        use_at=use_at,
        use=use,
        pair_at=frame.pair_at,
        pair_of=frame.pair_of,
        pair=frame.pair.copy(),
        crossing=np.zeros(len(frame.pair), np.int64),
        crossed_by=np.zeros(len(frame.pair), np.int64),
        slot=_empty_slots(frame.num_slots),
        heap=np.zeros(num_items, ENTRY),
        place=np.full(num_items, -1, np.int64),
        successor_at=frame.successor_at,
        successor=frame.successor,
        held=np.zeros(len(arrays.allocates) + len(arrays.frees), np.int64),
        held_s=np.zeros(len(arrays.allocates) + len(arrays.frees)),
        segment=np.zeros(LOG_ROUNDS * num_channels if is_full else 0, SEGMENT),
        gap=np.zeros(LOG_ROUNDS * num_channels, GAP),
        table=np.full(16, -1, np.int64),
        known=np.zeros(0, KNOWN),
        lists=np.zeros((13, max(num_streams, num_channels, 1)), np.int64),
        count=_count(arrays, frame),
    )


def _count(arrays: Arrays, frame: _Frame) -> Any:
    count = np.zeros(1, COUNT)
    count["left"] = len(arrays.work)
    count["by_finish"] = len(arrays.streams) + len(arrays.channels)
    count["by_cap"] = count["by_finish"] + frame.num_slots
    count["capped"] = count["by_cap"] + frame.num_slots
    count["has_bound"] = bool(arrays.windows)
    return count


def _flow(arrays: Arrays, frame: _Frame, kind: Sequence[int]) -> Any:
    """Rows of the operations, with what the speed of the machine decides."""
    flow, kinds = frame.flow.copy(), arrays.kinds
    cap, own = np.array(arrays.of_kinds(arrays.cap))[kinds], np.array(arrays.of_kinds(arrays.own_limit))[kinds]
    flow["cap"], flow["most"], flow["own"], flow["most_own"] = cap, cap, own, own
    for name, column in (("weight", arrays.weight), ("work", arrays.work), ("latency_s", arrays.latency_s)):
        flow[name] = np.array(arrays.of_kinds(column))[kinds]
    flow["logs_own"] = _logs_own(arrays, frame)[kinds]
    if arrays.windows:
        flow["kind"] = np.array(kind)[kinds]
        flow["is_bound"] = np.array([i in arrays.windows for i in arrays.of_kinds(range(len(flow)))])[kinds]
    return flow


def _logs_own(arrays: Arrays, frame: _Frame) -> Any:
    """Kinds whose own limits are counted while they run: where a channel also limits flows that others can slow."""
    own = np.array(arrays.of_kinds(arrays.own_limit), np.int64)
    is_coupled = np.array([bool(row) for row in frame.couplings], bool)
    by_others = np.zeros(len(arrays.channels) + 1, bool)  # the last: no channel
    by_others[own[is_coupled[frame.lane]]] = True
    by_others[[c for row in frame.couplings for c, _ in row]] = True
    by_others[-1] = False
    return by_others[own]


def _with_bandwidths(arrays: Arrays, rows: Any) -> Any:
    channel = rows.copy()
    channel["bandwidth"] = arrays.bandwidths
    channel["threshold"] = channel["bandwidth"] * LINKED
    channel["has_law"] = [one.latency is not None for one in arrays.channels]
    return channel


def _frame(arrays: Arrays) -> _Frame:
    if arrays.order is None:
        return _framed(arrays)
    key = (
        id(arrays.order),
        tuple([stream.name for stream in arrays.streams]),
        tuple(arrays.of_kinds(arrays.path)),
        tuple([row.couplings for row in arrays.paths]),
        len(arrays.channels),
    )
    return _FRAMES.get(key, lambda: _framed(arrays))


def _framed(arrays: Arrays) -> _Frame:
    num, num_paths = len(arrays.work), max(len(arrays.paths), 1)
    stream, path = (np.array(arrays.of_kinds(column), np.int64) for column in (arrays.stream, arrays.path))
    keys, lane = np.unique(stream * num_paths + path, return_inverse=True)
    lanes = [(int(key) // num_paths, int(key) % num_paths) for key in keys]
    flow = np.zeros(num, FLOW)
    kinds = arrays.kinds
    flow["lane"], flow["stream"] = lane[kinds], stream[kinds]
    flow["limit"] = -2
    for name in ("ready", "start", "end"):
        flow[name] = -1.0
    flow["is_followed"][:-1] = flow["stream"][1:] == flow["stream"][:-1]
    flow["waits"] = arrays.num_after
    flow["waits"][1:] += flow["is_followed"][:-1]
    flow["is_gated"][list(arrays.allocates)] = 1
    flow["has_frees"][list(arrays.frees)] = 1
    couplings = [arrays.paths[p].couplings for _, p in lanes]
    channel, slots = _channels(arrays, [s for s, _ in lanes], couplings)
    link_at, link = _links(couplings, [[slots[c, s] for c, _ in row] for (s, _), row in zip(lanes, couplings, strict=True)])
    pair_at, pair_of, pair = _pairs(channel, couplings)
    successor_at, successor = _successors(arrays)
    return _Frame(
        arrays=arrays, lanes=lanes, lane=lane, couplings=couplings, flow=flow, channel=channel, link_at=link_at, link=link,
        pair_at=pair_at, pair_of=pair_of, pair=pair, num_slots=len(slots), successor_at=successor_at, successor=successor,
    )  # fmt: skip


def _successors(arrays: Arrays) -> tuple[Any, Any]:
    """Who waits for each operation, besides the next of its stream, in canonical order."""
    num, after = len(arrays.work), np.array(arrays.after, np.int64)
    at = np.zeros(num + 1, np.int64)
    np.cumsum(np.bincount(after, minlength=num), out=at[1:])
    waiting = np.repeat(np.arange(num, dtype=np.int64), np.array(arrays.num_after, np.int64))
    return at, waiting[np.argsort(after, kind="stable")]


def _channels(
    arrays: Arrays, streams: Sequence[int], couplings: Sequence[Sequence[tuple[int, float]]]
) -> tuple[Any, dict[tuple[int, int], int]]:
    """Rows of the channels but for their bandwidths, and the slot of each (channel, stream)."""
    used = sorted({(c, s) for s, row in zip(streams, couplings, strict=True) for c, _ in row})
    slots = {key: i for i, key in enumerate(used)}
    channel = np.zeros(len(arrays.channels), CHANNEL)
    channel["level"] = channel["expected"] = np.inf
    channel["full_from"] = channel["first_slot"] = channel["last_slot"] = -1
    num_slots = np.bincount(np.array([c for c, _ in used], np.int64), minlength=len(channel))
    channel["slot_at"] = np.cumsum(num_slots) - num_slots
    return channel, slots


def _links(rows: Sequence[Sequence[tuple[int, float]]], slots: Sequence[Sequence[int]] | None) -> tuple[Any, Any]:
    at = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=at[1:])
    link = np.zeros(int(at[-1]), LINK)
    link["channel"] = [c for row in rows for c, _ in row]
    link["load"] = [load for row in rows for _, load in row]
    link["slot"] = [slot for row in slots for slot in row] if slots is not None else -1
    return at, link


def _pairs(channel: Any, couplings: Sequence[Sequence[tuple[int, float]]]) -> tuple[Any, Any, Any]:
    """Pairs by source channel, and for each lane the pair of its i-th and j-th link at i x k + j."""
    keys = sorted({(c, d) for row in couplings for c, _ in row for d, _ in row if c != d})
    number = {key: i for i, key in enumerate(keys)}
    pair = np.zeros(len(keys), PAIR)
    pair["source"] = [c for c, _ in keys]
    pair["target"] = [d for _, d in keys]
    num = np.bincount(pair["source"], minlength=len(channel))
    channel["pair_at"] = np.cumsum(num) - num
    at = np.zeros(len(couplings) + 1, np.int64)
    np.cumsum([len(row) ** 2 for row in couplings], out=at[1:])
    pair_of = np.array([number.get((c, d), -1) for row in couplings for c, _ in row for d, _ in row], np.int64)
    return at, pair_of, pair


def _empty_slots(num: int) -> Any:
    slot = np.zeros(num, SLOT)
    slot["flow"] = -1
    return slot
