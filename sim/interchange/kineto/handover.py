"""Which call each call's CPU time counts from: the one before it on its thread, or the one that handed over to it.

While the autograd thread launches the backward pass the main thread waits inside `backward()`; no event says so. A thread
that was inside no operator while another thread made calls is taken to have waited for the last of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sim.interchange.kineto.links import Call, Linked

#: a gap shorter than this is the thread's own time, whoever else was active
_OWN_NS = 30_000


def predecessors(linked: Linked, is_kept: list[bool], counts: Counter[str]) -> list[int]:
    """Index of the call from whose end the CPU time of each kept call counts; -1 for the first."""
    last: dict[Any, Call] = {}
    found = [-1] * len(linked.calls)
    for call in linked.calls:
        if not is_kept[call.index]:
            continue
        own = last.get(call.thread)
        others = [c for thread, c in last.items() if thread != call.thread and c.end_ns <= call.start_ns]
        other = max(others, key=lambda c: c.end_ns, default=None)
        chosen = own
        if other is not None and (own is None or other.end_ns > own.end_ns):
            waited_ns = call.start_ns - (own.end_ns if own else other.end_ns)
            if own is None or (waited_ns > _OWN_NS and _outermost_start(linked, call) >= other.end_ns):
                chosen = other
                counts["hand-overs between CPU threads inferred"] += 1
        found[call.index] = chosen.index if chosen is not None else -1
        last[call.thread] = call
    return found


def _outermost_start(linked: Linked, call: Call) -> int:
    """Start of the outermost operator (annotations do not count: they enclose waits) around a call, or of the call."""
    starts = [op.start_ns for op in linked.enclosing(call.operator) if not op.is_annotation]
    return starts[-1] if starts else call.start_ns
