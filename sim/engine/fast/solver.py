"""Finds the caps of latency-bound flows for the compiled kernel, once for each set of kinds that runs together."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.engine.arrays import Arrays
from sim.engine.bound import kind_of, laws_of, solve
from sim.engine.fast.layout import KEY, KNOWN, number_of


class Solver:
    """`kind` numbers, for each kind of operations, what its caps depend on; in the order of the plain kernel."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        of_flow = [kind_of(arrays, flow) for flow in arrays.of_kinds(range(len(arrays.work)))]
        self._kinds = sorted(set(of_flow))
        number = {kind: i for i, kind in enumerate(self._kinds)}
        self.kind = [number[kind] for kind in of_flow]
        self._laws = laws_of(arrays)
        self._bandwidths = arrays.bandwidths
        self._num_rows = 0
        self._begins: dict[int, int] = {}  # where a set begins -> its hash

    def solved(self, state: Any) -> Any:
        """The state with the caps that it lacks."""
        key = state.lists[KEY, : state.count[0]["num_key"]].tolist()
        caps = solve(self._arrays, self._bandwidths, self._laws, tuple(self._kinds[kind] for kind in key))
        begin, num = self._num_rows, len(key)
        self._num_rows += num
        self._begins[begin] = int(number_of(key, num))
        known, table = state.known, state.table
        if self._num_rows > len(known):
            known = np.concatenate((known[:begin], np.zeros(begin + 64 + num, KNOWN)))
        known["cap"][begin : begin + num], known["kind"][begin : begin + num] = caps, key
        known["num"][begin : begin + num] = num
        if 2 * len(self._begins) > len(table):
            table = np.full(4 * len(table), -1, np.int64)
            for other, value in self._begins.items():
                _put(table, other, value)
        else:
            _put(table, begin, self._begins[begin])
        return state if known is state.known and table is state.table else state._replace(table=table, known=known)


def _put(table: Any, begin: int, value: int) -> None:
    place = value % len(table)
    while table[place] >= 0:
        place = (place + 1) % len(table)
    table[place] = begin
