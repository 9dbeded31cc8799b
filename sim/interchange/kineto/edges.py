"""What each GPU work waited for on other queues: recorded where the tracer says so, else inferred from calls or times."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict

from sim.interchange.kineto.links import Call, Linked, Work
from sim.interchange.kineto.queues import LATE_NS, SLACK_NS, TIGHT_NS, Queues, is_collective, main_queues


class Edges:
    """Cross-stream dependencies of works, one recording."""

    def __init__(self, linked: Linked, queues: Queues, counts: Counter[str], launch_ns: int) -> None:
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
        return first.end_ns <= then.start_ns + SLACK_NS

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
        if late_ns <= LATE_NS:
            return 0
        best: Work | None = None
        for queue, works in self.queues.of.items():
            if queue == work.queue or queue[0] != work.queue[0]:
                continue
            at = bisect.bisect_left(self.queues.launched[queue], call.start_ns)
            for first in reversed(works[:at]):
                if first.end_ns <= ready_ns:
                    break
                if first.end_ns <= work.start_ns + SLACK_NS // 2 and (best is None or first.end_ns > best.end_ns):
                    best = first
        if best is not None and work.start_ns - best.end_ns <= TIGHT_NS:
            self._add(best, work, "inferred from the times")
            return 0
        return late_ns

    def _late_orphan(self, work: Work, before: Work) -> int:
        """The same for a work whose launch is not recorded: late against its stream and the other streams' works."""
        late_ns = work.start_ns - before.end_ns
        if late_ns <= TIGHT_NS:
            return 0
        for queue, works in self.queues.of.items():
            if queue == work.queue or queue[0] != work.queue[0]:
                continue
            at = bisect.bisect_right(works, work.start_ns + SLACK_NS // 2, key=lambda item: item.end_ns)
            if at and work.start_ns - works[at - 1].end_ns <= TIGHT_NS:
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
