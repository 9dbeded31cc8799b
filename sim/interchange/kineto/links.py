"""Who launched what: GPU works, the CPU calls that launch them or wait for them, and the operators around the calls.

A GPU event is joined to its call by `correlation` (the `External id` of GPU events is worthless before 2024), a call to
its operators by containment on its thread. Nothing here is guessed; guesses live in `waits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from sim.interchange.kineto.events import GPU_KINDS, Event, Recording

#: calls that hold the CPU until GPU work is done; value = what they wait for
SYNCS = {
    "cudaStreamSynchronize": "stream", "hipStreamSynchronize": "stream", "cuStreamSynchronize": "stream",
    "cudaDeviceSynchronize": "device", "hipDeviceSynchronize": "device", "cuCtxSynchronize": "device",
    "cudaEventSynchronize": "event", "hipEventSynchronize": "event", "cuEventSynchronize": "event",
    "urQueueFinish": "stream", "zeCommandQueueSynchronize": "stream", "zeCommandListHostSynchronize": "stream",
    "urEventWait": "event", "zeEventHostSynchronize": "event",
    "cudaFree": "free", "hipFree": "free",
}  # fmt: skip
WAIT_EVENT = frozenset({"cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent"})


class WorkArgs(msgspec.Struct, gc=False):
    """Arguments of a GPU event that are used; all may be absent, and numbers may be strings (ROCm)."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    dtype: Any = None


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of a runtime call that are used (`size` in bytes is ROCm's)."""

    correlation: Any = None
    size: Any = None


class SyncArgs(msgspec.Struct, gc=False):
    """Arguments of a `cuda_sync` event (recorded only on request)."""

    cuda_sync_kind: str = ""
    stream: Any = None
    correlation: Any = None
    wait_on_stream: Any = None
    wait_on_cuda_event_record_corr_id: Any = None


class Work(msgspec.Struct, gc=False):
    """One GPU event: a kernel, a copy or a fill. `queue` = (device, stream): works of a queue run in order."""

    index: int
    kind: str
    name: str
    start_ns: int
    end_ns: int
    queue: tuple[int, int]
    size_bytes: float
    args: WorkArgs
    call: int = -1  # index of the call that launched it; -1 = launched before the recording began
    operator: int = -1  # innermost operator around that call


class Call(msgspec.Struct, gc=False):
    """One CPU call that launches GPU works, waits for them, or orders streams."""

    index: int
    name: str
    start_ns: int
    end_ns: int
    thread: tuple[int | str, int | str]
    correlation: int
    operator: int = -1
    works: list[int] = []
    waits_for: str = ""  # stream device event free: a blocking call; "order" = cudaStreamWaitEvent


class Operator(msgspec.Struct, gc=False):
    """A framework operator or annotation on a CPU thread, with the one that encloses it."""

    index: int
    name: str
    start_ns: int
    end_ns: int
    thread: tuple[int | str, int | str]
    parent: int
    is_annotation: bool
    args: msgspec.Raw


class Linked(msgspec.Struct):
    """A recording with its links. `syncs`: correlation of a call -> what the tracer said it waits for."""

    works: list[Work]
    calls: list[Call]
    operators: list[Operator]
    syncs: dict[int, SyncArgs]
    num_records: dict[int, Call]  # correlation -> cudaEventRecord call

    def enclosing(self, operator: int) -> Iterator[Operator]:
        """The operator and everything around it, innermost first."""
        while operator >= 0:
            yield self.operators[operator]
            operator = self.operators[operator].parent


def number(value: Any, default: float = 0.0) -> float:
    """A number written as one, or as text; `default` otherwise."""
    if isinstance(value, bool) or value is None:
        return default
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


def _whole(value: Any, default: int = -1) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).removeprefix("stream ").strip() if value is not None else ""
    try:
        return int(text, 0)
    except ValueError:
        return default


def link(recording: Recording) -> Linked:
    """Join works, calls and operators of one recording. Counts of what could not be joined go into its notes."""
    works, launched = _works(recording)
    calls, records, sizes = _calls(recording.events, launched)
    operators = _nest(recording.events, calls)
    for call in calls:
        for index in call.works:
            works[index].call, works[index].operator = call.index, call.operator
            if works[index].kind == "memcpy" and not works[index].size_bytes:
                works[index].size_bytes = sizes.get(call.correlation, 0.0)
    syncs = {}
    for event in recording.events:
        if event.kind == "sync":
            args = _decode(event.args, SyncArgs)
            syncs[_whole(args.correlation)] = args
    orphans = sum(work.call < 0 for work in works)
    if orphans:
        recording.notes.append(f"{orphans} of {len(works)} GPU events have no launch in the recording: ordered by stream only")
    return Linked(works=works, calls=calls, operators=operators, syncs=syncs, num_records=records)


def _decode(raw: msgspec.Raw, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return kind()


def _works(recording: Recording) -> tuple[list[Work], dict[int, list[int]]]:
    """GPU events in order of start; on one queue they never overlap (a truncated end is moved, not a start)."""
    works: list[Work] = []
    launched: dict[int, list[int]] = {}
    last: dict[tuple[int, int], Work] = {}
    for event in recording.events:
        if event.kind not in GPU_KINDS:
            continue
        args = _decode(event.args, WorkArgs)
        queue = (_whole(args.device, _whole(event.pid, 0)), _whole(args.stream, _whole(event.tid, 0)))
        # a duration in whole microseconds is truncated: half of one is missing on average
        end_ns = event.end_ns + (500 if recording.is_integer_us else 0)
        work = Work(len(works), event.kind, event.name, event.start_ns, end_ns, queue, number(args.bytes), args)
        before = last.get(queue)
        if before is not None and before.end_ns > work.start_ns:
            before.end_ns = max(before.start_ns, work.start_ns)
        last[queue] = work
        works.append(work)
        if args.correlation is not None:
            launched.setdefault(_whole(args.correlation), []).append(work.index)
    return works, launched


def _calls(events: Iterable[Event], launched: dict[int, list[int]]) -> tuple[list[Call], dict[int, Call], dict[int, float]]:
    """Calls that launch, wait or order, by start; records by correlation; copy sizes that only the call knows."""
    calls: list[Call] = []
    records: dict[int, Call] = {}
    sizes: dict[int, float] = {}
    taken: set[int] = set()
    for event in events:
        if event.kind != "call":
            continue
        name = event.name
        args = _decode(event.args, CallArgs)
        correlation = _whole(args.correlation)
        works = launched.get(correlation, []) if correlation not in taken else []
        waits_for = SYNCS.get(name) or ("order" if name in WAIT_EVENT else "")
        if "EventRecord" in name:
            records[correlation] = Call(-1, name, event.start_ns, event.end_ns, (event.pid, event.tid), correlation)
        if not works and not waits_for:
            continue
        taken.add(correlation)
        if args.size is not None:
            sizes[correlation] = number(args.size)
        call = Call(len(calls), name, event.start_ns, event.end_ns, (event.pid, event.tid), correlation)
        call.works, call.waits_for = works, waits_for
        calls.append(call)
    return calls, records, sizes


def _nest(events: Iterable[Event], calls: list[Call]) -> list[Operator]:
    """Operators with their parents; each call learns the innermost operator around it.

    Events come sorted by (start, -end), so per thread a stack of open operators is enough.
    """
    operators: list[Operator] = []
    open_by_thread: dict[Any, list[Operator]] = {}
    queue = iter(calls)
    call = next(queue, None)

    def place(until_ns: int) -> None:
        nonlocal call
        while call is not None and call.start_ns < until_ns:
            stack = open_by_thread.get(call.thread, [])
            call.operator = next((o.index for o in reversed(stack) if o.end_ns >= call.end_ns), -1)
            call = next(queue, None)

    for event in events:
        if event.kind not in ("op", "annotation"):
            continue
        place(event.start_ns)
        thread = (event.pid, event.tid)
        stack = open_by_thread.setdefault(thread, [])
        while stack and stack[-1].end_ns <= event.start_ns:
            stack.pop()
        parent = next((o.index for o in reversed(stack) if o.end_ns >= event.end_ns), -1)
        operator = Operator(
            len(operators), event.name, event.start_ns, event.end_ns, thread, parent, event.kind == "annotation", event.args
        )
        operators.append(operator)
        stack.append(operator)
    place(2**63)
    return operators
