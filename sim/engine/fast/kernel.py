"""Drives the compiled loop, and turns what it leaves into what the records ask for."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np

from sim.engine.arrays import Arrays
from sim.engine.fast.layout import EMPTY, FULL_LOG, UNSETTLED, UNSOLVED
from sim.engine.fast.rows import lay_out
from sim.engine.fast.solver import Solver
from sim.engine.ledger import Ledger
from sim.errors import InternalError
from sim.records import ChannelSegment


class FastKernel:
    """State of one replay. The compiled loop knows no bytes: the ledger follows it, in the order of its log.

    That is the same as long as everything fits. `is_stuck`: something does not, or waits for ever; the plain kernel tells why.
    """

    def __init__(self, arrays: Arrays, code: Any, *, is_full: bool, is_enforced: bool, is_observed: bool) -> None:
        self.code = code  # the compiled functions
        self.arrays, self.is_enforced, self.is_observed = arrays, is_enforced, is_full or is_observed
        self._solver = Solver(arrays) if arrays.windows else None
        kind = self._solver.kind if self._solver is not None else ()
        self.state: Any = lay_out(arrays, kind, is_full=is_full, is_observed=self.is_observed)
        self.ledger = Ledger(arrays, is_logged=is_full)
        self.segments: list[ChannelSegment] = []
        self._gaps: list[list[float]] = [[] for _ in arrays.channels]
        self.is_stuck = False
        self._num_held = 0
        code.start_all(self.state)

    @property
    def is_done(self) -> bool:
        """All operations have ended."""
        return not self.state.count[0]["left"]

    @property
    def num_batches(self) -> int:
        """Batches so far."""
        return int(self.state.count[0]["batches"])

    def advance(self, horizon_s: float) -> None:
        """Run every batch before `horizon_s`."""
        while True:
            why = self.code.advance(self.state, horizon_s, self.is_observed)
            self._take_logs()
            self._follow()
            if why == UNSETTLED:
                raise InternalError(f"sharing did not settle at {float(self.state.count[0]['now'])!r} s")
            if why == UNSOLVED and self._solver is not None:
                self.state = self._solver.solved(self.state)
            elif why != FULL_LOG:
                self.code.keep()
                self.is_stuck = self.is_stuck or (why == EMPTY and not self.is_done)
                return

    def loads(self) -> list[float]:
        """Load of one member of each channel, now."""
        self.code.loads(self.state)
        rows: list[float] = self.state.channel["now"].tolist()
        return rows

    def times_s(self) -> tuple[Any, Any, Any]:
        """When each operation was ready, started and ended, as arrays."""
        flow = self.state.flow
        return flow["ready"].copy(), flow["start"].copy(), flow["end"].copy()

    def work_on(self) -> list[float]:
        """Work on each path, summed over operations in their order."""
        path = np.array(self.arrays.of_kinds(self.arrays.path), np.int64)[self.arrays.kinds]
        sums: list[float] = np.bincount(path, self.state.flow["work"], len(self.arrays.paths)).tolist()
        return sums

    def busy_s(self) -> list[float]:
        """Seconds during which each channel had a flow."""
        rows = [path.channels for path in self.arrays.paths]
        return self._covered_s(np.array(self.arrays.path, np.int64), rows)

    def full_s(self) -> list[float]:
        """Seconds during which each channel limited some flow: as logged, and all the time of flows that no other can slow."""
        flow, num = self.state.flow, len(self.arrays.channels)
        alone = np.where(flow["logs_own"], -1, flow["own"]).astype(np.int64)
        seconds = self._covered_s(alone, [(channel,) for channel in range(num)])
        spans = zip(self.state.channel["full_from"].tolist(), self.state.channel["full_to"].tolist(), strict=True)
        for channel, (since, until) in enumerate(spans):
            if since >= 0.0:
                seconds[channel] = until - since - fsum(self._gaps[channel])
        return seconds

    def _covered_s(self, key: Any, rows: Sequence[tuple[int, ...]]) -> list[float]:
        """Seconds of each channel with work on it: operation i is on the channels of row key[i]; key -1: on none."""
        flow = self.state.flow
        key = np.where(flow["end"] > flow["start"], key, -1)
        order = np.argsort(key.astype(np.int16) if len(rows) < 2**15 else key, kind="stable")  # short ones are sorted faster
        at = np.searchsorted(key[order], np.arange(len(rows) + 1))
        begins, ends = flow["start"][order], flow["end"][order]
        parts: list[list[slice]] = [[] for _ in self.arrays.channels]
        for number, channels in enumerate(rows):
            if at[number + 1] > at[number]:
                for channel in channels:
                    parts[channel].append(slice(at[number], at[number + 1]))
        return [_union_s([begins[part] for part in one], [ends[part] for part in one]) for one in parts]

    def peak_rate(self) -> list[float]:
        """The largest rate of each channel (zero where nobody looked)."""
        rows: list[float] = self.state.channel["peak"].tolist()
        return rows

    def _take_logs(self) -> None:
        for length_s, channel in self.state.gap[: self.state.count[0]["gaps"]].tolist():
            self._gaps[channel].append(length_s)
        self.state.count[0]["gaps"] = 0
        num = self.state.count[0]["segments"]
        names = [channel.name for channel in self.arrays.channels]
        for start_s, end_s, rate, channel in self.state.segment[:num].tolist():
            self.segments.append(ChannelSegment(name=names[channel], start_s=start_s, end_s=end_s, rate_per_s=rate))
        self.state.count[0]["segments"] = 0

    def _follow(self) -> None:
        """Book what was allocated and freed since the last look."""
        first, self._num_held = self._num_held, int(self.state.count[0]["held"])
        codes = self.state.held[first : self._num_held].tolist()
        for code, time_s in zip(codes, self.state.held_s[first : self._num_held].tolist(), strict=True):
            flow = code >> 1
            if code & 1:
                self.ledger.free(self.arrays.frees[flow], flow, time_s)
                continue
            rows = self.arrays.allocates[flow]
            if self.is_enforced and self.ledger.shortfall(rows)[0] >= 0:
                self.is_stuck = True
                return
            self.ledger.allocate(rows, flow, time_s)


def _union_s(begins: list[Any], ends: list[Any]) -> float:
    """Length of the union of intervals, as `engine.intervals.covered_s`, to the last bit."""
    if not begins:
        return 0.0
    since, until = np.sort(np.concatenate(begins)), np.sort(np.concatenate(ends))
    gaps = since[1:] - until[:-1]
    return float(until[-1] - since[0]) - fsum(gaps[gaps > 0.0].tolist())
