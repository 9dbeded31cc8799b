"""Who owns the seconds of operations: many at a time, as each of them would be told by itself.

See `metrics.critical_path` for the rules. Everything that only the kind of an operation decides is looked up once for each
kind; what its duration decides is worked out for all operations together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.metrics.breakdown import Stretch
from sim.metrics.owner_names import ARRIVAL, OVERHEAD
from sim.metrics.seen import Seen
from sim.records import Channel, Kind, Operation, Stream

#: an operation that reached this share of its cap was not held back by others
AT_CAP = 0.98
_COMPUTING = frozenset({Kind.COMPUTE, Kind.HOST_UPDATE, Kind.HOST_WORK})
_NOBODY = -1

_KIND = np.dtype(
    [
        ("work", "f8"), ("cap", "f8"), ("arithmetic_s", "f8"), ("launch_s", "f8"), ("latency_s", "f8"), ("is_windowed", "?"),
        ("uses", "i8"),  # row of `_Kinds.uses`
        ("waiting", "i8"),  # who owns the seconds before it starts
        ("cores", "i8"),  # who owns its arithmetic
        ("engine", "i8"),  # who owns a copy that nothing slows down; -1: the channel that it uses most
        ("waiter", "i8"),  # the cores that wait for their bytes in flight; -1: those of the channel that it uses most
        ("is_computing", "?"),
    ]
)  # fmt: skip
_USE = np.dtype(
    [
        ("cost", "f8"), ("bandwidth", "f8"),
        ("sharers", "f8"),  # identical ranks per member of the channel
        ("saturated_s", "f8"), ("name", "i8"),
        ("is_there", "?"),
        ("is_moved", "?"),  # bytes, not cores
    ]
)  # fmt: skip


#: share of a channel's rate from which a copy's cap is taken to come from that channel
_NEARLY = 0.75


@dataclass(slots=True)
class _Names:
    """Numbers of resources."""

    known: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return self.known.setdefault(name, len(self.known))


class _Kinds:
    """What kinds of operations have in common."""

    def __init__(self, seen: Seen, operations: Sequence[Operation]) -> None:
        self.names = _Names()
        self._channels = {channel.name: channel for channel in seen.program.channels}
        self._saturated_s = {total.name: total.saturated_s for total in seen.replay.channels}
        self._streams = {stream.name: stream for stream in seen.program.streams}
        self._rows: list[list[tuple[object, ...]]] = []
        self._text: dict[tuple[int, str, str], tuple[object, ...]] = {}  # by the identity of `uses`, which operations share
        self.kinds = np.array([self._kind(operation) for operation in operations], _KIND)
        longest = max([len(row) for row in self._rows], default=0) or 1
        self.uses = np.zeros((len(self._rows), longest), _USE)
        self.uses["bandwidth"] = 1.0
        for i, row in enumerate(self._rows):
            self.uses[i, : len(row)] = row

    def _kind(self, operation: Operation) -> tuple[object, ...]:
        key = (id(operation.uses), operation.stream, operation.kind)
        if key not in self._text:
            self._text[key] = self._named(operation)
        return (
            operation.work, operation.rate_cap, operation.arithmetic_s, operation.launch_s, operation.latency_s,
            operation.window_bytes > 0.0, *self._text[key],
        )  # fmt: skip

    def _named(self, operation: Operation) -> tuple[object, ...]:
        """The names among what a kind has in common."""
        stream, number = self._streams[operation.stream], self.names.number
        device = stream.device or operation.stream
        self._rows.append(self._uses(operation, stream))
        others = [name for name, cost in operation.uses if cost > 0.0 and self._channels[name].unit != "bytes"]
        return (
            len(self._rows) - 1,
            number(ARRIVAL if stream.role == "clock" else OVERHEAD),  # idle time of a rank is its framework's
            number(others[0] if others else f"{device}.sm"),
            number(self._capped_by(operation, device)) if operation.kind == Kind.TRANSFER else _NOBODY,
            number(others[0]) if others else _NOBODY,
            operation.kind in _COMPUTING,
        )

    def _capped_by(self, operation: Operation, device: str) -> str:
        """What keeps a copy at its cap: the slowest channel if that carries little more (a drive), else its engine."""
        rates = {
            name: self._channels[name].bandwidth_per_s / cost
            for name, cost in operation.uses
            if cost > 0.0 and self._channels[name].unit == "bytes"
        }
        slowest = min(rates, key=lambda name: (rates[name], name), default="")
        return slowest if slowest and operation.rate_cap >= _NEARLY * rates[slowest] else f"{device}.copy_engine"

    def _uses(self, operation: Operation, stream: Stream) -> list[tuple[object, ...]]:
        """What one unit of rate takes of each channel; the last name first, which decides between equals."""
        rows = sorted([(name, cost) for name, cost in operation.uses if cost > 0.0], reverse=True)
        return [self._use(self._channels[name], cost, stream) for name, cost in rows]

    def _use(self, channel: Channel, cost: float, stream: Stream) -> tuple[object, ...]:
        return (
            cost, channel.bandwidth_per_s, stream.multiplicity / channel.multiplicity,
            self._saturated_s.get(channel.name, 0.0), self.names.number(channel.name), True, channel.unit == "bytes",
        )  # fmt: skip

    def cores_of(self, channels: Any) -> Any:
        """The cores beside each of these channels."""
        names = list(self.names.known)
        found = {int(one): self.names.number(f"{names[one].split('.')[0] if one >= 0 else ''}.cores") for one in set(channels)}
        return np.array([found[int(one)] for one in channels], np.int64)


def seconds_by_owner(seen: Seen, rows: Any, stretch: Stretch | None) -> dict[str, float]:
    """Seconds of the operations `rows` by the resource that owns them, added up in the order of `rows`."""
    if not len(rows):
        return {}
    present, kind = np.unique(seen.order.kinds[rows], return_inverse=True)
    examples = seen.examples
    table = _Kinds(seen, [examples[one] for one in present.tolist()])
    kinds = table.kinds[kind]
    ready_s, start_s, end_s = (times[rows] for times in seen.times_s)
    begun_s = ready_s + np.maximum(0.0, np.minimum(kinds["latency_s"], end_s - ready_s))
    duration_s = end_s - start_s
    owned_s = stretch.all_seconds(start_s, end_s) if stretch else duration_s
    owners = np.full((len(rows), 4), _NOBODY)
    seconds = np.zeros((len(rows), 4))
    owners[:, 0] = kinds["waiting"]
    seconds[:, 0] = stretch.all_seconds(ready_s, begun_s) if stretch else begun_s - ready_s
    lasts = np.flatnonzero(duration_s > 0.0)
    owners[lasts, 1:], shares = _shares(table, kinds[lasts], duration_s[lasts])
    seconds[lasts, 1:] = shares * owned_s[lasts, None]
    number = owners.ravel() - _NOBODY  # nobody is 0
    counts, sums = np.bincount(number).tolist(), np.bincount(number, seconds.ravel()).tolist()
    names = ["", *table.names.known]
    return {names[i]: sums[i] for i in range(1, len(counts)) if counts[i]}


def _shares(table: _Kinds, kinds: Any, duration_s: Any) -> tuple[Any, Any]:
    """(owners, shares) of each operation: up to three, whose shares add up to 1."""
    uses = table.uses[kinds["uses"]]
    rows = np.arange(len(kinds))
    rate = kinds["work"] / duration_s
    used = rate[:, None] * uses["cost"] / uses["bandwidth"]
    moved = np.where(uses["is_moved"], used, -1.0)
    place = moved.argmax(axis=1)
    most = np.maximum(moved[rows, place], 0.0)
    busiest = np.where(uses["is_moved"].any(axis=1), uses["name"][rows, place], _NOBODY)
    has_uses = uses["is_there"].any(axis=1)
    is_free = (rate >= AT_CAP * kinds["cap"]) | ~has_uses  # at its own pace
    owners = np.full((len(kinds), 3), _NOBODY)
    shares = np.zeros((len(kinds), 3))
    free, paced = kinds["is_computing"] & is_free, ~kinds["is_computing"] & is_free & ((most < AT_CAP) | ~has_uses)
    is_split = kinds["arithmetic_s"] + kinds["launch_s"] > 0.0
    _kernels(kinds, np.flatnonzero(free & is_split), busiest, owners, shares, table.names.number(OVERHEAD))
    _unsplit(kinds, np.flatnonzero(free & ~is_split), busiest, most, owners, shares)
    engine = np.where(kinds["engine"] != _NOBODY, kinds["engine"], busiest)
    owners[paced, 0] = np.where(engine != _NOBODY, engine, table.names.number(OVERHEAD))[paced]
    shares[paced, 0] = 1.0
    slowed = np.flatnonzero(~free & ~paced)
    owners[slowed, 0] = _limiting(table, kinds[slowed], uses[slowed], used[slowed], busiest[slowed], duration_s[slowed])
    shares[slowed, 0] = 1.0
    return owners, shares


def _kernels(kinds: Any, at: Any, busiest: Any, owners: Any, shares: Any, overhead: int) -> None:
    """Kernels that ran at their own pace: from the parts of their solo time."""
    solo_s = kinds["work"][at] / kinds["cap"][at]
    arithmetic, launch = kinds["arithmetic_s"][at] / solo_s, kinds["launch_s"][at] / solo_s
    rest = np.maximum(0.0, 1.0 - arithmetic - launch)
    has_memory = busiest[at] != _NOBODY
    owners[at, 0], owners[at, 1], owners[at, 2] = kinds["cores"][at], overhead, busiest[at]
    shares[at, 0] = arithmetic + np.where(has_memory, 0.0, rest)
    shares[at, 1], shares[at, 2] = launch, rest


def _unsplit(kinds: Any, at: Any, busiest: Any, most: Any, owners: Any, shares: Any) -> None:
    """Computation at its own pace whose split is unknown: its memory owns the share that it used."""
    share = np.where(busiest[at] != _NOBODY, np.minimum(1.0, most[at]), 0.0)
    owners[at, 0], owners[at, 1] = busiest[at], kinds["cores"][at]
    shares[at, 0], shares[at, 1] = share, 1.0 - share


def _limiting(table: _Kinds, kinds: Any, uses: Any, used: Any, busiest: Any, duration_s: Any) -> Any:
    """Who slows each operation down: the channel that its own ranks fill, else the one that was saturated longest."""
    rows = np.arange(len(kinds))
    own = np.where(uses["is_there"], used * uses["sharers"], -1.0)
    fills = own.argmax(axis=1)
    is_alone = own[rows, fills] >= AT_CAP
    saturated_s = np.where(uses["is_there"], uses["saturated_s"], -1.0)
    longest = np.where(saturated_s == saturated_s.max(axis=1, initial=-1.0)[:, None], used, -1.0).argmax(axis=1)
    owners = uses["name"][rows, np.where(is_alone, fills, longest)]
    is_waiting = ~is_alone & kinds["is_windowed"] & (saturated_s < duration_s[:, None] / 2).all(axis=1)
    if is_waiting.any():
        owners[is_waiting] = np.where(
            kinds["waiter"][is_waiting] != _NOBODY, kinds["waiter"][is_waiting], table.cores_of(busiest[is_waiting])
        )
    return owners
