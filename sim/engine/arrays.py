"""A Program as flat arrays: the form that both kernels run on.

Operations are numbered by (stream name, sequence), channels, tiers and streams by name, so that the numbers, and with
them every tie-break and every sum, do not depend on the order of lines in a trace. Paths (tuples of channel and cost)
are shared: a step has a few dozen. `engine.build` fills them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, TypeVar

from sim.program.order import Order
from sim.records import INFINITY, Channel, Operation, Stream, Tier

_Value = TypeVar("_Value")

#: a channel is linked when the upper bounds of its users exceed this share of its bandwidth; below 1, so that the
#: rounding of a running sum can only link too much, which costs time and changes nothing
LINKED = 1.0 - 1e-9


@dataclass(slots=True)
class Path:
    """Channels that a flow uses and the load per unit of rate on one member of each.

    `limit` is the largest rate that an otherwise idle machine allows, `tight` the first channel that sets it (-1: none).
    `couplings` are the (channel, load) that can ever be full (the caps of what may run at once exceed their bandwidth) or
    whose latency limits someone.
    `servers` are the channels that serve one operation at a time.
    """

    channels: tuple[int, ...]
    loads: tuple[float, ...]
    costs: tuple[float, ...]  # per unit of work of one rank
    limit: float = INFINITY
    tight: int = -1
    couplings: tuple[tuple[int, float], ...] = ()
    servers: tuple[int, ...] = ()


@dataclass(slots=True)
class Arrays:
    """Structure of arrays; index i is operation i everywhere. Times in s, work in bytes or solo seconds."""

    name: str
    operations: list[Operation]  # in canonical order
    channels: list[Channel]
    tiers: list[Tier]
    streams: list[Stream]
    stream: list[int]
    paths: list[Path] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    cap: list[float] = field(default_factory=list)  # min(rate cap, path limit)
    weight: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    own_limit: list[int] = field(default_factory=list)  # the channel that sets the cap; -1: the operation's own rate cap
    num_after: list[int] = field(default_factory=list)  # declared dependencies, the predecessor on the stream not counted
    after: list[int] = field(default_factory=list)  # the dependencies of all operations, one operation after the other
    allocates: dict[int, tuple[tuple[int, str, float], ...]] = field(default_factory=dict)  # (tier, class, bytes per member)
    frees: dict[int, tuple[tuple[int, str, float], ...]] = field(default_factory=dict)
    windows: dict[int, tuple[float, float]] = field(default_factory=dict)  # latency-bound: (window bytes, write share)
    servers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # exclusive channels, ascending
    resident: list[tuple[int, str, float]] = field(default_factory=list)
    is_open: bool = False  # operations, bandwidths and caps may change during the replay
    order: Order | None = None  # of the operations, where they have one; operations of a kind have all numbers in common

    def of_kinds(self, column: Sequence[_Value]) -> list[_Value]:
        """The value of each kind of operations, from one per operation."""
        return [column[i] for i in self.order.examples] if self.order is not None else list(column)

    @property
    def kinds(self) -> Any:
        """The kind of each operation, as an array."""
        if self.order is not None:
            return self.order.kinds
        import numpy as np

        return np.arange(len(self.stream))

    @property
    def bandwidths(self) -> list[float]:
        """Bandwidth of one member of each channel, per second."""
        return [channel.bandwidth_per_s for channel in self.channels]

    def idle_cap(self, path: Path, window_bytes: float) -> float:
        """Rate at which a window covers the idle latency of a path."""
        idle_s = 0.0
        for channel, cost in zip(path.channels, path.costs, strict=True):
            law = self.channels[channel].latency
            idle_s += min(cost, 1.0) * law.idle_latency_s if law is not None else 0.0
        return window_bytes / idle_s if idle_s > 0.0 else INFINITY

    def dependents(self) -> tuple[list[list[int]], list[int]]:
        """(who waits for each operation, for how many each waits): dependencies, and the order of streams."""
        num = len(self.stream)
        successors: list[list[int]] = [[i + 1] if a == b else [] for i, (a, b) in enumerate(pairwise(self.stream))]
        successors += [[] for _ in range(len(successors), num)]
        waits = list(self.num_after)
        for i, row in enumerate(successors):
            if row:
                waits[i + 1] += 1
        rest = iter(self.after)
        for i, count in enumerate(self.num_after):
            for j in islice(rest, count):
                successors[j].append(i)
        return successors, waits
