"""Where a step's seconds went: every instant of the slowest rank belongs to exactly one category."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim.errors import InternalError
from sim.metrics.seen import Seen
from sim.records import Operation, OperationRecord, Struct

#: category of an operation -> key of the breakdown, in the priority in which overlapping seconds are attributed
KEYS: Mapping[str, str] = {
    "compute": "compute",
    "collective": "exposed_collective",
    "transfer": "exposed_transfer",
    "cpu_optimizer": "cpu_optimizer",
    "storage": "storage",
    "paging": "paging",
    "data": "data",
    "idle": "idle",
}
_PRIORITY = tuple(KEYS)


def rank_of(stream: str) -> str:
    """Rank class of a stream name ``"<rank class>.<role>"``."""
    return stream.rsplit(".", 1)[0]


def busy_interval(operation: Operation, record: OperationRecord) -> tuple[float, float]:
    """Seconds in which an operation occupies its rank: its start latency and its work, not its wait for memory."""
    return max(record.ready_s, record.start_s - operation.latency_s), record.end_s


def slowest_rank(seen: Seen) -> str:
    """The rank class whose last operation that takes time ends last; on a tie, the first by name."""
    ends: dict[str, float] = {}
    _, start_s, end_s = seen.times_s
    for stream, rows in seen.rows_of.items():
        last_s = float(end_s[rows].max(where=end_s[rows] > start_s[rows], initial=0.0))
        if last_s > 0.0:
            ends[rank_of(stream)] = max(ends.get(rank_of(stream), 0.0), last_s)
    return min(ends, key=lambda rank: (-ends[rank], rank)) if ends else ""


class Stretch(Struct, frozen=True, kw_only=True):
    """Seconds after `after_s` stand for `factor` seconds each: the sampled tokens of a decode for all of them."""

    after_s: float
    factor: float

    def seconds(self, start_s: float, end_s: float) -> float:
        """What the span from `start_s` to `end_s` stands for."""
        return float(self._stretched(start_s, end_s, max))

    def all_seconds(self, start_s: Any, end_s: Any) -> Any:
        """`seconds` of arrays."""
        import numpy as np

        return self._stretched(start_s, end_s, np.maximum)

    def _stretched(self, start_s: Any, end_s: Any, larger: Callable[[Any, Any], Any]) -> Any:
        late = larger(0.0, end_s - larger(start_s, self.after_s))
        return (end_s - start_s - late) + self.factor * late


def breakdown_s(seen: Seen, rank: str | None = None, *, stretch: Stretch | None = None) -> dict[str, float]:
    """Seconds of the step by key of :data:`KEYS`; they sum to the makespan (stretched, if it is).

    An instant at which several operations of the rank run belongs to the first of their categories in the order of KEYS;
    an instant at which none runs is idle. `rank` defaults to the slowest.
    """
    import numpy as np

    chosen = slowest_rank(seen) if rank is None else rank
    own = [rows for stream, rows in seen.rows_of.items() if rank_of(stream) == chosen]
    if not own:
        return partition([], seen.replay.makespan_s, stretch)
    number = {category: i for i, category in enumerate(_PRIORITY)}
    ready_s, start_s, end_s = (np.concatenate([times[rows] for rows in own]) for times in seen.times_s)
    kinds = np.concatenate([seen.order.kinds[rows] for rows in own])
    latency_s = np.array([operation.latency_s for operation in seen.examples])[kinds]
    category = np.array([number[operation.category] for operation in seen.examples])[kinds]
    begin_s = np.maximum(ready_s, start_s - latency_s)  # as `busy_interval`
    lasts = end_s > begin_s
    return _partitioned(begin_s[lasts], end_s[lasts], category[lasts], seen.replay.makespan_s, stretch)


def partition(spans: Sequence[tuple[float, float, int]], total_s: float, stretch: Stretch | None = None) -> dict[str, float]:
    """Share `total_s` among categories; spans are (start, end, place of the category in :data:`KEYS`), the first place wins."""
    import numpy as np

    starts, ends, places = (np.array(column) for column in zip(*spans, strict=True)) if spans else (np.zeros(0),) * 3
    return _partitioned(starts, ends, places, total_s, stretch)


def _partitioned(starts: Any, ends: Any, places: Any, total_s: float, stretch: Stretch | None) -> dict[str, float]:
    """`partition` of arrays."""
    if stretch:
        total_s = stretch.seconds(0.0, total_s)
    parts = _owned(starts, ends, places, stretch.all_seconds if stretch else _difference)
    seconds = {KEYS[category]: math.fsum(parts[rank]) for rank, category in enumerate(_PRIORITY)}
    rest = total_s - math.fsum(value for key, value in seconds.items() if key != "idle")
    if rest < -1e-9 * max(1.0, total_s):
        raise InternalError(f"the step of {total_s!r} s has {-rest!r} s more work than it lasts")
    seconds["idle"] = max(0.0, rest)
    return seconds


def _difference(start: Any, end: Any) -> Any:
    return end - start


def _owned(starts: Any, ends: Any, places: Any, length: Callable[[Any, Any], Any]) -> list[list[float]]:
    """Lengths of the pieces of time in which something of each place runs and nothing of a place before it."""
    import numpy as np

    if not len(starts):
        return [[] for _ in _PRIORITY]
    times, edge = np.unique(np.concatenate((starts, ends)), return_inverse=True)
    changes = np.zeros((len(_PRIORITY), len(times)), np.int64)
    np.add.at(changes, (places, edge[: len(starts)]), 1)
    np.add.at(changes, (places, edge[len(starts) :]), -1)
    running = np.cumsum(changes, axis=1)[:, :-1] > 0
    owner = np.where(running.any(axis=0), running.argmax(axis=0), -1)
    lengths = length(times[:-1], times[1:])
    return [lengths[owner == place].tolist() for place in range(len(_PRIORITY))]
