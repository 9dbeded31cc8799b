"""Seconds covered by intervals: what was busy, what was full."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from operator import sub

from sim.engine.arrays import Arrays


def covered_s(starts: list[float], ends: list[float]) -> float:
    """Length of the union of intervals; the two lists may be in any order of their own.

    With both sorted, nothing is open between the i-th end and the next start exactly when that start is later.
    """
    if not starts:
        return 0.0
    starts, ends = sorted(starts), sorted(ends)
    # rounded once: the compiled kernel meets the gaps in another order
    gaps = fsum([gap for gap in map(sub, starts[1:], ends) if gap > 0.0])
    return ends[-1] - starts[0] - gaps


def busy_s(arrays: Arrays, start: list[float], end: list[float]) -> list[float]:
    """Seconds during which each channel had a flow, from when its operations started and ended."""
    starts: list[list[float]] = [[] for _ in arrays.paths]
    ends: list[list[float]] = [[] for _ in arrays.paths]
    for path, begin, finish in zip(arrays.path, start, end, strict=True):
        if finish > begin:
            starts[path].append(begin)
            ends[path].append(finish)
    return [
        covered_s(_joined(starts[path] for path in paths), _joined(ends[path] for path in paths)) for paths in _paths_of(arrays)
    ]


def full_s(
    arrays: Arrays, start: list[float], end: list[float], since: list[list[float]], until: list[list[float]]
) -> list[float]:
    """Seconds during which each channel limited some flow: as logged, and all the time of flows that no other can slow."""
    for path, own, begin, finish in zip(arrays.path, arrays.own_limit, start, end, strict=True):
        if own >= 0 and finish > begin and not arrays.paths[path].couplings:
            since[own].append(begin)
            until[own].append(finish)
    return [covered_s(starts, ends) for starts, ends in zip(since, until, strict=True)]


def _joined(lists: Iterable[list[float]]) -> list[float]:
    joined: list[float] = []
    for one in lists:
        joined += one
    return joined


def _paths_of(arrays: Arrays) -> list[list[int]]:
    paths: list[list[int]] = [[] for _ in arrays.channels]
    for path, row in enumerate(arrays.paths):
        for channel in row.channels:
            paths[channel].append(path)
    return paths
