"""A linked recording, cut to one step, as operations.

CPU threads and GPU queues become streams. A launch is a CPU operation with the CPU time since the operation before it; a
blocking call waits (by dependency) for what it waited for; a kernel waits for its launch. Nothing that was a wait in the
recording is a duration here. CPU time that ran while the GPU still worked for earlier steps is hidden: it costs nothing.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from typing import Any

import msgspec

from sim.interchange.copy_names import ends_of
from sim.interchange.groups import Groups
from sim.interchange.kineto.events import Recording
from sim.interchange.kineto.handover import predecessors
from sim.interchange.kineto.links import Call, Linked, Operator, Work
from sim.interchange.kineto.queues import is_collective, main_queues
from sim.interchange.kineto.steps import Window
from sim.interchange.kineto.waits import Waits, find_waits
from sim.interchange.kineto.works import WorkDescriber
from sim.interchange.rules import Rule
from sim.interchange.statistics import UNEXPLAINED_GAP, UNRECORDED_WORK
from sim.records import Kernel, Kind, StepOperation

_US = 1000
#: above this a late start of a launched work is taken as GPU work that the recording lacks (CUDA graphs, filters)
_UNRECORDED_NS = 20 * _US
#: queued kernels follow each other within this; more belongs to a filtered recording
_MAX_GAP_NS = 5 * _US
_LOADER = "enumerate(DataLoader)"


class Reading(msgspec.Struct):
    """One rank's recording, linked and resolved: shared by all its steps."""

    recording: Recording
    linked: Linked
    waits: Waits
    predecessors: list[int]
    is_kept: list[bool]  # calls that become operations
    describer: WorkDescriber
    main: dict[int, tuple[int, int]]
    loads: list[Operator]  # data-loader calls, by start
    launches_ns: list[int]  # of the works on the main queues, ascending
    ends_ns: list[int]  # latest end of the works up to that launch


def resolve(recording: Recording, linked: Linked, rules: tuple[Rule, ...] = ()) -> Reading:
    """Everything about a recording that does not depend on the step chosen."""
    waits = find_waits(linked)
    is_kept = [bool(call.works or waits.calls[call.index]) for call in linked.calls]
    before = predecessors(linked, is_kept, waits.counts)
    describer = WorkDescriber(recording, linked, waits.counts, rules)
    loads = [operator for operator in linked.operators if operator.name.startswith(_LOADER)]
    main = main_queues(linked.works)
    launches_ns, ends_ns = _progress(linked, main)
    return Reading(recording, linked, waits, before, is_kept, describer, main, loads, launches_ns, ends_ns)


def _progress(linked: Linked, main: dict[int, tuple[int, int]]) -> tuple[list[int], list[int]]:
    calls = linked.calls
    rows = sorted(
        (calls[work.call].start_ns if work.call >= 0 else work.start_ns, work.end_ns)
        for work in linked.works
        if work.queue == main[work.queue[0]]
    )
    return [launch for launch, _ in rows], list(itertools.accumulate((end for _, end in rows), max))


def build_operations(
    reading: Reading, window: Window, rank_class: str, groups: Groups, delay_s: float = 0.0
) -> tuple[list[StepOperation], Counter[str]]:
    """Operations of one step of one rank, and counts of what was inferred in it.

    `groups` are those of the whole job; the rank starts `delay_s` after the first one.
    """
    return _Builder(reading, window, rank_class, groups).build(delay_s)


def done_ns(reading: Reading, time_ns: int) -> int:
    """When the CPU has reached `time_ns` and the GPU has finished what was launched before it."""
    at = bisect.bisect_left(reading.launches_ns, time_ns)
    return max(time_ns, reading.ends_ns[at - 1] if at else 0)


def recorded_s(reading: Reading, window: Window) -> float:
    """Recorded step time in s: from CPU and GPU being done with the step before to both being done with this one.

    In a steady state this is the distance of the marks; where the CPU only runs ahead (the first steps of a recording) the
    marks alone would tell how fast it queues, not how long a step takes.
    """
    return (done_ns(reading, window.end_ns) - done_ns(reading, window.start_ns)) * 1e-9


class _Builder:
    def __init__(self, reading: Reading, window: Window, rank_class: str, groups: Groups) -> None:
        self.groups = groups
        self.reading, self.linked, self.waits = reading, reading.linked, reading.waits
        self.start_ns, self.end_ns, self.rank_class = window.start_ns, window.end_ns, rank_class
        self.operations: list[StepOperation] = []
        self.counts: Counter[str] = Counter()
        self.sequence: Counter[str] = Counter()
        self.queue_names = _queue_names(reading)
        self.gap_s = min(self.waits.gap_ns, _MAX_GAP_NS) * 1e-9
        self.calls = [c for c in self.linked.calls if reading.is_kept[c.index] and self.start_ns <= c.start_ns < self.end_ns]
        self.is_in = {call.index for call in self.calls}
        self.thread_names = _thread_names(self.calls)
        self.works = [w for w in self.linked.works if self._is_of_step(w)]
        self.work_in = {work.index for work in self.works}
        self.first: list[str] = []  # what everything else waits for
        self.own_ns = 0  # CPU time of the step that is no wait, hidden or not
        self.hidden_until_ns = min(done_ns(reading, self.start_ns), self.end_ns)

    def _is_of_step(self, work: Work) -> bool:
        return work.call in self.is_in if work.call >= 0 else self.start_ns <= work.start_ns < self.end_ns

    def build(self, delay_s: float) -> tuple[list[StepOperation], Counter[str]]:
        if delay_s > 0:
            self.first = ["start"]
            name = "starts after the first rank (as recorded)"
            self._add("cpu", Kind.COMPUTE, "start", [], fixed_s=delay_s, category="idle", name=name)
        for call in self.calls:
            self._call(call)
        self._tail()
        for work in self.works:
            self._work(work)
        if self.hidden_until_ns > self.start_ns:
            self._pace()
            hidden_ms = (self.hidden_until_ns - self.start_ns) / 1e6
            self.counts[f"CPU time hidden behind the step before: {hidden_ms:.1f} ms; steps"] = 1
        names = {op.id: f"{op.stream}.{op.sequence}" for op in self.operations}
        renamed = [
            msgspec.structs.replace(op, id=names[op.id], after=tuple(names[item] for item in op.after))
            for op in self.operations
        ]
        return renamed, self.counts

    def _add(self, stream: str, kind: Kind, identity: str, after: list[str], **fields: Any) -> None:
        name = f"{self.rank_class}.{stream}"
        self.operations.append(
            StepOperation(
                id=identity, kind=kind, stream=name, sequence=self.sequence[name], after=tuple(dict.fromkeys(after)), **fields
            )
        )
        self.sequence[name] += 1

    def _hidden(self, start_ns: int, end_ns: int) -> int:
        """Part of [start, end) that ran behind the work of earlier steps."""
        return max(0, min(end_ns, self.hidden_until_ns) - start_ns)

    def _pace(self) -> None:
        """What hides behind the step before costs nothing while the GPU is the slower one, but steps follow each other no
        faster than the CPU launches them: all its own time of the step, beside everything else."""
        own_ns = min(self.own_ns, self.end_ns - self.start_ns)
        name = "the CPU's own time of a step: its pace"
        self._add("cpu pace", Kind.COMPUTE, "pace", list(self.first), fixed_s=own_ns * 1e-9, category="idle", name=name)

    def _call(self, call: Call) -> None:
        """CPU time up to and in the call; a blocking call is a second operation that waits."""
        before = self.reading.predecessors[call.index]
        from_ns, after = self.start_ns, list(self.first)
        if before in self.is_in:
            predecessor = self.linked.calls[before]
            from_ns = predecessor.end_ns
            after = [self._last_of(predecessor)] if predecessor.thread != call.thread else []
        stream = self.thread_names[call.thread]
        from_ns = min(from_ns, call.start_ns)
        after = self._load(stream, call, from_ns, after)
        own_ns, rest_ns = self.waits.cpu_ns[call.index]
        loaded_ns = self._loading_ns(from_ns, call.start_ns)
        busy_ns = call.start_ns - from_ns - loaded_ns + own_ns
        self.own_ns += max(0, busy_ns) + loaded_ns + rest_ns
        cpu_ns = busy_ns - self._hidden(from_ns + loaded_ns, call.start_ns + own_ns)
        phase = self._phase(call.operator, call.thread)
        fixed = {"category": "idle", "phase": phase, "name": call.name}
        self._add(stream, Kind.COMPUTE, f"c{call.index}", after, fixed_s=max(0, cpu_ns) * 1e-9, **fixed)
        held = self.waits.calls[call.index]
        if held:
            rest_ns -= self._hidden(call.end_ns - rest_ns, call.end_ns)
            waits = [f"w{index}" for index in held if index in self.work_in]
            self._add(stream, Kind.COMPUTE, f"c{call.index}.wait", waits, fixed_s=max(0, rest_ns) * 1e-9, **fixed)

    def _last_of(self, call: Call) -> str:
        return f"c{call.index}.wait" if self.waits.calls[call.index] else f"c{call.index}"

    def _loading_ns(self, from_ns: int, to_ns: int) -> int:
        return sum(max(0, min(to_ns, op.end_ns) - max(from_ns, op.start_ns)) for op in self.reading.loads)

    def _load(self, stream: str, call: Call, from_ns: int, after: list[str]) -> list[str]:
        """The data loader's part of the time before a call, as an operation of its own."""
        loading_ns = self._loading_ns(from_ns, call.start_ns)
        if not loading_ns:
            return after
        self.counts["data-loader calls"] += 1
        fixed_s = max(0, loading_ns - self._hidden(from_ns, from_ns + loading_ns)) * 1e-9
        self._add(stream, Kind.COMPUTE, f"c{call.index}.load", after, fixed_s=fixed_s, category="data", name=_LOADER)
        return []

    def _tail(self) -> None:
        """CPU time from the last call to the end of the step."""
        last = max(self.calls, key=lambda call: call.end_ns, default=None)
        from_ns = min(self.end_ns, last.end_ns) if last is not None else self.start_ns
        after = [self._last_of(last)] if last is not None else []
        self.own_ns += max(0, self.end_ns - from_ns)
        tail_ns = self.end_ns - from_ns - self._hidden(from_ns, self.end_ns)
        name = "until the end of the step"
        self._add("cpu", Kind.COMPUTE, "end", after, fixed_s=max(0, tail_ns) * 1e-9, category="idle", name=name)

    def _work(self, work: Work) -> None:
        stream = self.queue_names[work.queue]
        after = [f"c{work.call}"] if work.call in self.is_in else list(self.first)
        for index in self.waits.works[work.index]:
            if index in self.work_in:
                after.append(f"w{index}")
            else:
                self.counts["waits for works of other steps (dropped)"] += 1
        phase = "forward"
        if work.call >= 0:
            phase = self._phase(work.operator, self.linked.calls[work.call].thread)
        late_ns = min(self.waits.late_ns[work.index], work.start_ns - self.start_ns)
        if late_ns > _UNRECORDED_NS:
            self._gap(work, late_ns, stream, after, phase)
            after = []
        fields = self.reading.describer.describe(work, phase, self.groups)
        if fields["kind"] is Kind.COMPUTE:
            fields["fixed_s"] = self.gap_s
        self._add(stream, fields.pop("kind"), f"w{work.index}", after, **fields)

    def _gap(self, work: Work, late_ns: int, stream: str, after: list[str], phase: str) -> None:
        """Time before a work that nothing recorded explains: GPU work if it was queued long before, else just time."""
        identity = f"w{work.index}.before"
        if work.call >= 0:
            self.counts["gaps before launched works taken as unrecorded GPU work"] += 1
            kernel = Kernel(kind="recorded", recorded_s=late_ns * 1e-9, name=UNRECORDED_WORK)
            self._add(stream, Kind.COMPUTE, identity, after, kernels=(kernel,), phase=phase, name=UNRECORDED_WORK)
            return
        self.counts["gaps before works without a recorded launch (kept, the same on any machine)"] += 1
        fixed_s = late_ns * 1e-9
        self._add(stream, Kind.COMPUTE, identity, after, fixed_s=fixed_s, category="idle", phase=phase, name=UNEXPLAINED_GAP)

    def _phase(self, operator: int, thread: object) -> str:
        for around in self.linked.enclosing(operator):
            if around.name.startswith("Optimizer."):
                return "update"
            if around.name.startswith("autograd::engine"):
                return "backward"
        return "forward" if self.thread_names.get(thread, "cpu") == "cpu" else "backward"


def _thread_names(calls: list[Call]) -> dict[object, str]:
    """thread -> stream: "cpu" is the thread of the step's first call, others are numbered."""
    threads = list(dict.fromkeys(call.thread for call in calls))
    return {thread: f"cpu{number}" if number else "cpu" for number, thread in enumerate(threads)}


def _queue_names(reading: Reading) -> dict[tuple[int, int], str]:
    """GPU queue -> stream by what runs on it: compute, collective, h2d, d2h; further ones of a role are numbered."""
    names: dict[tuple[int, int], str] = {}
    taken: Counter[str] = Counter()
    by_queue: dict[tuple[int, int], list[Work]] = {}
    for work in reading.linked.works:
        by_queue.setdefault(work.queue, []).append(work)
    mains = set(reading.main.values())
    for queue in sorted(by_queue, key=lambda q: (q not in mains, q)):
        works = by_queue[queue]
        role = "compute"
        if queue not in mains:
            if any(is_collective(w) for w in works):
                role = "collective"
            elif all(ends_of(w.name) == ("dram", "gpu") for w in works):
                role = "h2d"
            elif all(ends_of(w.name) == ("gpu", "dram") for w in works):
                role = "d2h"
        names[queue] = f"{role}{taken[role]}" if taken[role] else role
        taken[role] += 1
    return names
