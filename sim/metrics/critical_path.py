"""The chain of operations that a step waits for, and the resource that owns most of its seconds.

From the operation that ends last we walk back to whatever released each operation (a dependency, or the one before it on
its stream). The seconds of each link are split among the resources that set its pace:

- at its cap, computation is paced by its own device. Kernel time is arithmetic plus memory time plus launches, so the
  device's cores ("gpu0.sm", "cpu0.cores") own the arithmetic, nobody the launches ("overhead"), and the channel of its memory
  the rest; where that split is unknown, the channel owns the share of it that the operation used, and the cores the rest;
- at its cap, a copy that saturates no channel is paced by the copy engine;
- below its cap, the channel that limited it owns all: the one that its own ranks fill, else of those it crosses the one
  that was saturated longest;
- threads that wait for what they have in flight, on channels that are not full, are paced by their cores.
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.breakdown import Stretch
from sim.metrics.owner_names import NONE
from sim.metrics.seen import Seen
from sim.records import OperationRecord, Program, Replay

#: share of the critical path above which a resource is said to bind
BINDING_SHARE = 0.3


def critical_path(program: Program, replay: Replay) -> list[OperationRecord]:
    """Records of the operations on the critical path, first to last. Empty for an empty replay."""
    seen = Seen(program, replay)
    return [seen.records[index] for index in _path(seen)]


def _path(seen: Seen) -> list[int]:
    """Records on the critical path, first to last."""
    import numpy as np

    end_s, order = seen.times_s[2], seen.order
    if not len(end_s):
        return []
    waiting, begin, cause = order.causes
    released = np.full(len(end_s), -1)  # the cause of each operation that ended last
    if len(cause):
        ends = end_s[cause]
        last_s = np.zeros(len(end_s))
        last_s[waiting] = np.maximum.reduceat(ends, begin)
        latest = np.where(ends == np.repeat(last_s[waiting], np.diff(begin, append=len(cause))), np.arange(len(cause)), -1)
        released[waiting] = cause[np.maximum.reduceat(latest, begin)]
    causes = released.tolist()
    last = np.flatnonzero(end_s == end_s.max())
    current = int(last[order.by_name[last].argmax()])
    path = [current]
    while (current := causes[current]) >= 0:
        path.append(current)
    path.reverse()
    return path


def owners_s(seen: Seen, *, stretch: Stretch | None = None) -> dict[str, float]:
    """Seconds of the critical path by the resource that owns them, largest first."""
    import numpy as np

    from sim.metrics.owners import seconds_by_owner

    seconds = seconds_by_owner(seen, np.array(_path(seen), np.int64), stretch)
    return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))


def launching_share(program: Program, replay: Replay) -> float:
    """Share of the critical path's overhead in which the CPU launches kernels; the rest is starts and framework time."""
    known = {operation.id: operation for operation in program.operations}
    launching_s = starting_s = 0.0
    for record in critical_path(program, replay):
        operation = known[record.id]
        starting_s += max(0.0, min(operation.latency_s, record.end_s - record.ready_s))
        launching_s += operation.launch_s if record.end_s > record.start_s else 0.0
    return launching_s / (launching_s + starting_s) if launching_s else 0.0


def bound_by(owners: Mapping[str, float], total_s: float) -> str:
    """The resource that owns most seconds of the critical path; "none" when none owns more than 30 % of the step.

    "arrival" where a later start of a job decides when all have ended; "overhead" when launches, framework code and fixed
    latencies own more than any resource: faster hardware gains little.
    """
    first = max(owners, key=lambda name: (owners[name], name), default="")
    return first if first and owners[first] > BINDING_SHARE * total_s else NONE
