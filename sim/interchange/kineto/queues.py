"""GPU works by the queue on which they ran, and how exactly their times can be told."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict

from sim.interchange.kernel_class import is_communication
from sim.interchange.kineto.links import Linked, Work

_US = 1000
#: clocks of CPU and GPU agree to about this; the truncated dialect is off by up to 1 us at either end
SLACK_NS = 2 * _US
#: a work that starts later than this after everything known was ready waited for something unknown
LATE_NS = 5 * _US
#: a dependency explains a late start only if it ended at most this long before it
TIGHT_NS = 20 * _US


class Queues:
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
    """Whether a kernel is of a communication library (they name themselves)."""
    return work.kind == "kernel" and is_communication(work.name)


def main_queues(works: list[Work]) -> dict[int, tuple[int, int]]:
    """Per device the queue with the most kernel time that is not communication."""
    busy: Counter[tuple[int, int]] = Counter()
    for work in works:
        busy[work.queue] += (work.end_ns - work.start_ns + 1) if work.kind == "kernel" and not is_collective(work) else 0
    return {device: max((q for q in busy if q[0] == device), key=lambda q: busy[q]) for device in {q[0] for q in busy}}
