"""Heaps whose entries know their place: a key can change or go without leaving a stale entry behind.

All heaps are slices of one array. Items: a stream or (after the streams) a channel among the events; a slot in the three
heaps of its channel (members by finish, members by cap, capped users by level). Item numbers of slots start at
`State.count`'s `by_finish`, `by_cap` and `capped`.
"""

from __future__ import annotations

from typing import Any

from sim.engine.fast.jit import inner


@inner
def put(heap: Any, place: Any, at: int, size: int, item: int, key: float) -> int:
    """Insert `item` into the heap of `size` entries from `at`, or change its key; return the size."""
    i = place[item]
    if i < 0:
        i = size
        size += 1
    return _settle_at(heap, place, at, size, i, item, key)


@inner
def drop(heap: Any, place: Any, at: int, size: int, item: int) -> int:
    """Take `item` out if it is there; return the size."""
    i = place[item]
    if i < 0:
        return size
    place[item] = -1
    size -= 1
    if i == size:
        return size
    last = heap[at + size]
    return _settle_at(heap, place, at, size, i, last.item, last.key)


@inner
def _settle_at(heap: Any, place: Any, at: int, size: int, i: int, item: int, key: float) -> int:
    """Put (key, item) where it belongs, starting from the hole at `i`. Equal keys: the smaller item first."""
    while i > 0:
        j = (i - 1) >> 1
        above = heap[at + j]
        if above.key < key or (above.key == key and above.item < item):
            break
        heap[at + i].key, heap[at + i].item = above.key, above.item
        place[above.item] = i
        i = j
    while True:
        j = 2 * i + 1
        if j >= size:
            break
        below = heap[at + j]
        if j + 1 < size:
            other = heap[at + j + 1]
            if other.key < below.key or (other.key == below.key and other.item < below.item):
                j += 1
                below = other
        if key < below.key or (key == below.key and item < below.item):
            break
        heap[at + i].key, heap[at + i].item = below.key, below.item
        place[below.item] = i
        i = j
    heap[at + i].key, heap[at + i].item = key, item
    place[item] = i
    return size


@inner
def set_event(s: Any, item: int, time_s: float) -> None:
    """The one pending event of a stream, or of a channel (numbered after the streams), is at `time_s`."""
    s.count[0].events = put(s.heap, s.place, s.count[0].events_at, s.count[0].events, item, time_s)


@inner
def drop_event(s: Any, item: int) -> None:
    """No event of a stream or channel is pending."""
    s.count[0].events = drop(s.heap, s.place, s.count[0].events_at, s.count[0].events, item)


@inner
def sort(row: Any, num: int) -> None:
    """The first `num` numbers of `row` in ascending order (Shell's method: mostly few, often sorted, in place)."""
    gap = num
    while gap > 1:
        gap = max(gap * 5 // 11, 1)
        for k in range(gap, num):
            value = row[k]
            j = k
            while j >= gap and row[j - gap] > value:
                row[j] = row[j - gap]
                j -= gap
            row[j] = value
