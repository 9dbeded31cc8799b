"""What each blocking call and each GPU work waited for: recorded where the tracer says so, inferred where it does not.

Recorded waits are never replayed as durations: they become dependencies. Inferred ones must agree with the observed times
(the thing waited for ended before the waiter went on) and are counted by the rule that found them.
"""

from __future__ import annotations

import bisect
import statistics
from collections import Counter, defaultdict
from functools import lru_cache

import msgspec

from sim.interchange.kineto.links import Call, Linked, Work

_US = 1000
#: clocks of CPU and GPU agree to about this; the truncated dialect is off by up to 1 us at either end
_SLACK_NS = 2 * _US
#: a work that starts later than this after everything known was ready waited for something unknown
_LATE_NS = 5 * _US
#: a dependency explains a late start only if it ended at most this long before it
_TIGHT_NS = 20 * _US
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


class _Queues:
    """Works per queue with their launch times, for "the last work of queue q launched before t"."""

    def __init__(self, linked: Linked) -> None:
        self.calls = linked.calls
        self.works = linked.works
        self.of: dict[tuple[int, int], list[Work]] = defaultdict(list)
        self.launched: dict[tuple[int, int], list[int]] = {}
        for work in linked.works:
            self.of[work.queue].append(work)
        for queue, works in self.of.items():
            times, latest = [], -(2**62)
            for work in works:
                latest = max(latest, linked.calls[work.call].start_ns if work.call >= 0 else latest)
                times.append(latest)
            self.launched[queue] = times
        self.starts = sorted(work.start_ns for work in linked.works)
        self.launches = sorted(linked.calls[work.call].start_ns for work in linked.works if work.call >= 0)
        self.orphans = len(linked.works) - len(self.launches)

    def last_before(self, queue: tuple[int, int], time_ns: int) -> Work | None:
        """The last work of `queue` whose launch began before `time_ns`."""
        at = bisect.bisect_left(self.launched[queue], time_ns)
        return self.of[queue][at - 1] if at else None

    def backlog(self, time_ns: int) -> int:
        """Works launched and not started at `time_ns`."""
        return bisect.bisect_left(self.launches, time_ns) + self.orphans - bisect.bisect_left(self.starts, time_ns)


def is_collective(work: Work) -> bool:
    """Whether a kernel is one of NCCL's or RCCL's (they name themselves)."""
    return work.kind == "kernel" and _names_collective(work.name)


@lru_cache(maxsize=2**16)
def _names_collective(name: str) -> bool:
    plain = name.lower()
    return "nccl" in plain or "rccl" in plain


def main_queues(works: list[Work]) -> dict[int, tuple[int, int]]:
    """Per device the queue with the most kernel time that is not communication."""
    busy: Counter[tuple[int, int]] = Counter()
    for work in works:
        busy[work.queue] += (work.end_ns - work.start_ns + 1) if work.kind == "kernel" and not is_collective(work) else 0
    return {device: max((q for q in busy if q[0] == device), key=lambda q: busy[q]) for device in {q[0] for q in busy}}


def find_waits(linked: Linked) -> Waits:
    """Resolve every blocking call and every cross-stream dependency of one recording."""
    queues = _Queues(linked)
    launch_ns, gap_ns = _latencies(linked, queues)
    counts: Counter[str] = Counter()
    calls = [_blocks_for(call, linked, queues, counts) for call in linked.calls]
    cpu_ns = _cpu_times(linked, queues, calls, counts)
    works, late_ns = _Edges(linked, queues, counts, launch_ns).find()
    return Waits(works, calls, cpu_ns, counts, launch_ns, gap_ns, late_ns)


def _latencies(linked: Linked, queues: _Queues) -> tuple[int, int]:
    """Launch latency on an idle queue (lower quartile: others waited for something) and gap of queued works (median)."""
    idle, queued = [], []
    for works in queues.of.values():
        for before, work in zip([None, *works], works, strict=False):
            if work.call < 0:
                continue
            call = linked.calls[work.call]
            if before is None or before.end_ns < call.start_ns:
                idle.append(work.start_ns - call.start_ns)
            elif call.end_ns < before.end_ns - _LATE_NS:
                queued.append(work.start_ns - before.end_ns)
    launch_ns = sorted(idle)[len(idle) // 4] if idle else 0
    return max(0, launch_ns), max(0, int(statistics.median(queued))) if queued else 0


def _blocks_for(call: Call, linked: Linked, queues: _Queues, counts: Counter[str]) -> list[int]:
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
        held = [work for work in lasts if work.end_ns <= call.end_ns + _SLACK_NS]
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
    return copy.end_ns <= call.end_ns + _SLACK_NS // 2 or is_staged


def _stream_sync(call: Call, linked: Linked, queues: _Queues, counts: Counter[str]) -> list[int]:
    told = linked.syncs.get(call.correlation)
    lasts = {queue: work for queue in queues.of if (work := queues.last_before(queue, call.start_ns)) is not None}
    if told is not None and isinstance(told.stream, int) and told.stream >= 0:
        return [work.index for queue, work in lasts.items() if queue[1] == told.stream]
    held = [work for work in lasts.values() if work.end_ns <= call.end_ns + _SLACK_NS]
    if not held:
        counts["stream synchronisations without a known stream"] += 1
        return []
    counts["stream synchronisations: stream inferred"] += 1
    same_thread = [w for w in held if w.call >= 0 and linked.calls[w.call].thread == call.thread]
    recent = max(same_thread, key=lambda w: linked.calls[w.call].start_ns, default=None)
    latest = max(held, key=lambda work: work.end_ns)
    # the stream of the thread's last launch, unless only another one explains why the call took this long
    if recent is None or (
        latest.end_ns > call.start_ns and recent.end_ns < call.start_ns and call.end_ns - call.start_ns > _TIGHT_NS
    ):
        recent = latest
    return [recent.index]


def _event_sync(call: Call, queues: _Queues, counts: Counter[str]) -> list[int]:
    """The event is not named: the work that ended last while the call lasted."""
    best: Work | None = None
    for queue, works in queues.of.items():
        at = bisect.bisect_left(queues.launched[queue], call.start_ns)
        for work in reversed(works[:at]):
            if work.end_ns <= call.start_ns:
                break
            if work.end_ns <= call.end_ns + _SLACK_NS and (best is None or work.end_ns > best.end_ns):
                best = work
    if best is None:
        counts["event synchronisations that did not block (what they waited for is unknown)"] += 1
        return []
    counts["event synchronisations: work inferred"] += 1
    return [best.index]


def _cpu_times(linked: Linked, queues: _Queues, waits: list[list[int]], counts: Counter[str]) -> list[tuple[int, int]]:
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


class _Edges:
    """Cross-stream dependencies of works, one recording."""

    def __init__(self, linked: Linked, queues: _Queues, counts: Counter[str], launch_ns: int) -> None:
        self.linked, self.queues, self.counts, self.launch_ns = linked, queues, counts, launch_ns
        self.main = main_queues(linked.works)
        self.found: list[list[int]] = [[] for _ in linked.works]
        self.awaited: dict[tuple[tuple[int, int], tuple[int, int]], int] = defaultdict(lambda: -1)
        self.num_orders = _orders_before_launch(linked)
        self.has_orders = any(call.waits_for == "order" for call in linked.calls)

    def find(self) -> tuple[list[list[int]], list[int]]:
        """(works waited for; ns by which its start is later than anything explains), per work."""
        self._recorded()
        late_ns = [0] * len(self.found)
        previous: dict[tuple[int, int], Work] = {}
        for work in self.linked.works:
            if work.call >= 0:
                self._structural(work)
                late_ns[work.index] = self._late(work, previous.get(work.queue))
            elif work.queue in previous:
                late_ns[work.index] = self._late_orphan(work, previous[work.queue])
            previous[work.queue] = work
        return self.found, late_ns

    def _add(self, first: Work, then: Work, rule: str) -> None:
        if first.index not in self.found[then.index]:
            self.found[then.index].append(first.index)
            self.counts[f"cross-stream waits {rule}"] += 1
        key = (then.queue, first.queue)
        self.awaited[key] = max(self.awaited[key], first.index)

    def _recorded(self) -> None:
        """`Stream Wait Event` rows name both streams and the record call."""
        for call in self.linked.calls:
            told = self.linked.syncs.get(call.correlation)
            if call.waits_for != "order" or told is None or not isinstance(told.wait_on_stream, int):
                continue
            if told.wait_on_stream < 0 or not isinstance(told.stream, int):
                continue
            record = self.linked.num_records.get(told.wait_on_cuda_event_record_corr_id or -1)
            limit_ns = record.start_ns if record is not None else call.start_ns
            for queue in self.queues.of:
                if queue[1] == told.stream:
                    self._order(queue, call, (queue[0], told.wait_on_stream), limit_ns)

    def _order(self, queue: tuple[int, int], call: Call, source: tuple[int, int], limit_ns: int) -> None:
        at = bisect.bisect_left(self.queues.launched[queue], call.end_ns)
        if source in self.queues.of and at < len(self.queues.of[queue]):
            first = self.queues.last_before(source, limit_ns)
            if first is not None:
                self._add(first, self.queues.of[queue][at], "as recorded")

    def _is_consistent(self, first: Work, then: Work) -> bool:
        return first.end_ns <= then.start_ns + _SLACK_NS

    def _structural(self, work: Work) -> None:
        """A stream-wait call just before the launch orders the launch after the other stream's latest work."""
        call = self.linked.calls[work.call]
        count = self.num_orders[work.call]
        main = self.main[work.queue[0]]
        if work.queue != main and not self.has_orders and is_collective(work):
            first = self.queues.last_before(main, call.start_ns)
            if first is not None and self._is_consistent(first, work):
                self._add(first, work, "inferred from the call order")
        candidates = []
        for queue in self.queues.of if count else ():
            if queue != work.queue and queue[0] == work.queue[0]:
                first = self.queues.last_before(queue, call.start_ns)
                if first is not None and first.index > self.awaited[work.queue, queue] and self._is_consistent(first, work):
                    launched_ns = self.linked.calls[first.call].start_ns if first.call >= 0 else 0
                    candidates.append((queue != main, -launched_ns, first))
        # the main stream first (communication waits for what it sends), then the latest launches
        for _, _, first in sorted(candidates, key=lambda row: row[:2])[:count]:
            self._add(first, work, "inferred from the call order")

    def _late(self, work: Work, before: Work | None) -> int:
        """A start later than launch and stream order allow, right after another stream's work ended: it waited for it."""
        call = self.linked.calls[work.call]
        # a long kernel launch submits at its end; a copy call may last as long as the copy
        submitted_ns = call.end_ns if work.kind == "kernel" else call.start_ns
        ready_ns = max(call.start_ns + self.launch_ns, submitted_ns)
        ends = [self.linked.works[i].end_ns for i in self.found[work.index]]
        ready_ns = max([ready_ns, *ends, *([before.end_ns] if before else [])])
        late_ns = work.start_ns - ready_ns
        if late_ns <= _LATE_NS:
            return 0
        best: Work | None = None
        for queue, works in self.queues.of.items():
            if queue == work.queue or queue[0] != work.queue[0]:
                continue
            at = bisect.bisect_left(self.queues.launched[queue], call.start_ns)
            for first in reversed(works[:at]):
                if first.end_ns <= ready_ns:
                    break
                if first.end_ns <= work.start_ns + _SLACK_NS // 2 and (best is None or first.end_ns > best.end_ns):
                    best = first
        if best is not None and work.start_ns - best.end_ns <= _TIGHT_NS:
            self._add(best, work, "inferred from the times")
            return 0
        return late_ns

    def _late_orphan(self, work: Work, before: Work) -> int:
        """The same for a work whose launch is not recorded: late against its stream and the other streams' works."""
        late_ns = work.start_ns - before.end_ns
        if late_ns <= _TIGHT_NS:
            return 0
        for queue, works in self.queues.of.items():
            if queue == work.queue or queue[0] != work.queue[0]:
                continue
            at = bisect.bisect_right(works, work.start_ns + _SLACK_NS // 2, key=lambda item: item.end_ns)
            if at and work.start_ns - works[at - 1].end_ns <= _TIGHT_NS:
                self._add(works[at - 1], work, "inferred from the times")
                return 0
        return late_ns


def _orders_before_launch(linked: Linked) -> list[int]:
    """Per call: stream-wait calls of its thread since the launch before it."""
    pending: Counter[tuple[int | str, int | str]] = Counter()
    counts = [0] * len(linked.calls)
    for call in linked.calls:
        if call.waits_for == "order":
            pending[call.thread] += 1
        elif call.works:
            counts[call.index] = pending.pop(call.thread, 0)
    return counts
