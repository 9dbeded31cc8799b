"""What each blocking call and each GPU work waited for: recorded where the tracer says so, inferred where it does not.

Recorded waits are never replayed as durations: they become dependencies. Inferred ones must agree with the observed times
(the thing waited for ended before the waiter went on) and are counted by the rule that found them.
"""

from __future__ import annotations

import bisect
import statistics
from collections import Counter, defaultdict

import msgspec

from sim.interchange.kineto.edges import Edges
from sim.interchange.kineto.links import Call, Linked, Work
from sim.interchange.kineto.queues import LATE_NS, SLACK_NS, TIGHT_NS, Queues

_US = 1000
#: smaller pageable copies go into the command buffer and return at once (CUDA documents 64 KB)
_STAGED_BYTES = 2**16
#: launches block when this many works are queued and not started (CUDA's queue holds 1024)
_FULL_QUEUE = 500


class Waits(msgspec.Struct):
    """Dependencies found. `works[i]`: works that work i waits for on other queues; `calls[i]`: works that call i blocks for.

    `cpu_ns[i]`: (before, after) the wait, the CPU time of call i itself. `launch_ns`: call start -> start of the kernel on
    an idle GPU; `gap_ns`: end -> start of two queued kernels. `late_ns[i]`: work i started that much later than its launch,
    its stream and every known dependency allow.
    """

    works: list[list[int]]
    calls: list[list[int]]
    cpu_ns: list[tuple[int, int]]
    counts: Counter[str]
    launch_ns: int
    gap_ns: int
    late_ns: list[int]


def find_waits(linked: Linked) -> Waits:
    """Resolve every blocking call and every cross-stream dependency of one recording."""
    queues = Queues(linked)
    launch_ns, gap_ns = _latencies(linked, queues)
    counts: Counter[str] = Counter()
    calls = [_blocks_for(call, linked, queues, counts) for call in linked.calls]
    cpu_ns = _cpu_times(linked, queues, calls, counts)
    works, late_ns = Edges(linked, queues, counts, launch_ns).find()
    return Waits(works, calls, cpu_ns, counts, launch_ns, gap_ns, late_ns)


def _latencies(linked: Linked, queues: Queues) -> tuple[int, int]:
    """Launch latency on an idle queue (lower quartile: others waited for something) and gap of queued works (median)."""
    idle, queued = [], []
    for works in queues.of.values():
        for before, work in zip([None, *works], works, strict=False):
            if work.call < 0:
                continue
            call = linked.calls[work.call]
            if before is None or before.end_ns < call.start_ns:
                idle.append(work.start_ns - call.start_ns)
            elif call.end_ns < before.end_ns - LATE_NS:
                queued.append(work.start_ns - before.end_ns)
    launch_ns = sorted(idle)[len(idle) // 4] if idle else 0
    return max(0, launch_ns), max(0, int(statistics.median(queued))) if queued else 0


def _blocks_for(call: Call, linked: Linked, queues: Queues, counts: Counter[str]) -> list[int]:
    """Works whose end lets a blocking call return."""
    if call.works:
        copies = [linked.works[i] for i in call.works if linked.works[i].kind == "memcpy"]
        blocking = [work.index for work in copies if _holds(work, call)]
        if blocking:
            counts["copies that held the CPU until they were done"] += 1
        return blocking
    if call.waits_for == "stream":
        return _stream_sync(call, linked, queues, counts)
    if call.waits_for in ("device", "free"):
        lasts = [work for queue in queues.of if (work := queues.last_before(queue, call.start_ns)) is not None]
        held = [work for work in lasts if work.end_ns <= call.end_ns + SLACK_NS]
        if call.waits_for == "free" and (len(held) < len(lasts) or not any(w.end_ns > call.start_ns for w in held)):
            return []
        if len(held) < len(lasts):
            counts["device synchronisations that returned before a stream was done (not a wait for it)"] += 1
        return [work.index for work in held]
    if call.waits_for == "event":
        return _event_sync(call, queues, counts)
    return []


def _holds(copy: Work, call: Call) -> bool:
    """Whether a copy held the CPU: it was done when the call returned, or the call staged it from pageable memory."""
    is_staged = "Pageable -> Device" in copy.name and copy.size_bytes > _STAGED_BYTES and copy.start_ns < call.end_ns
    return copy.end_ns <= call.end_ns + SLACK_NS // 2 or is_staged


def _stream_sync(call: Call, linked: Linked, queues: Queues, counts: Counter[str]) -> list[int]:
    told = linked.syncs.get(call.correlation)
    lasts = {queue: work for queue in queues.of if (work := queues.last_before(queue, call.start_ns)) is not None}
    if told is not None and isinstance(told.stream, int) and told.stream >= 0:
        return [work.index for queue, work in lasts.items() if queue[1] == told.stream]
    held = [work for work in lasts.values() if work.end_ns <= call.end_ns + SLACK_NS]
    if not held:
        counts["stream synchronisations without a known stream"] += 1
        return []
    counts["stream synchronisations: stream inferred"] += 1
    same_thread = [w for w in held if w.call >= 0 and linked.calls[w.call].thread == call.thread]
    recent = max(same_thread, key=lambda w: linked.calls[w.call].start_ns, default=None)
    latest = max(held, key=lambda work: work.end_ns)
    # the stream of the thread's last launch, unless only another one explains why the call took this long
    if recent is None or (
        latest.end_ns > call.start_ns and recent.end_ns < call.start_ns and call.end_ns - call.start_ns > TIGHT_NS
    ):
        recent = latest
    return [recent.index]


def _event_sync(call: Call, queues: Queues, counts: Counter[str]) -> list[int]:
    """The event is not named: the work that ended last while the call lasted."""
    best: Work | None = None
    for queue, works in queues.of.items():
        at = bisect.bisect_left(queues.launched[queue], call.start_ns)
        for work in reversed(works[:at]):
            if work.end_ns <= call.start_ns:
                break
            if work.end_ns <= call.end_ns + SLACK_NS and (best is None or work.end_ns > best.end_ns):
                best = work
    if best is None:
        counts["event synchronisations that did not block (what they waited for is unknown)"] += 1
        return []
    counts["event synchronisations: work inferred"] += 1
    return [best.index]


def _cpu_times(linked: Linked, queues: Queues, waits: list[list[int]], counts: Counter[str]) -> list[tuple[int, int]]:
    """CPU time of each call before and after its wait; a launch held by a full queue costs a usual launch."""
    usual: dict[str, list[int]] = defaultdict(list)
    for call, held in zip(linked.calls, waits, strict=True):
        if call.works and not held:
            usual[call.name].append(call.end_ns - call.start_ns)
    median = {name: int(statistics.median(times)) for name, times in usual.items()}
    times: list[tuple[int, int]] = []
    for call, held in zip(linked.calls, waits, strict=True):
        duration = call.end_ns - call.start_ns
        typical = median.get(call.name, duration if not held else 0)
        if held:
            before = min(duration, typical) if call.works else 0
            done_ns = max(linked.works[i].end_ns for i in held)
            times.append((before, max(0, call.end_ns - max(done_ns, call.start_ns + before))))
        elif call.works and duration > max(8 * typical, 50 * _US) and queues.backlog(call.start_ns) >= _FULL_QUEUE:
            counts["launches held by a full launch queue"] += 1
            times.append((typical, 0))
        else:
            times.append((duration, 0))
    return times
