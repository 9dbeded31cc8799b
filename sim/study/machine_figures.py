"""Figures of a machine taken together: MLC's matrices by node, and the curve of loaded latency."""

from __future__ import annotations

import numpy as np

from sim.interchange.machines import Figure
from sim.study.machine_draft import Draft

#: of its own rate, what a node reads at least of another node of its socket (SNC and NPS: 0.99 and more; sockets: 0.3 to 0.9)
_NEAR_SHARE = 0.95


class Grid:
    """MLC's matrices: nodes with cores, and what each reaches where."""

    def __init__(self) -> None:
        self.latency: dict[tuple[int, int], Figure] = {}
        self.bandwidth: dict[tuple[int, int], Figure] = {}

    @property
    def with_cores(self) -> list[int]:
        """Nodes that have a row."""
        return sorted({row for row, _ in (*self.latency, *self.bandwidth)})

    @property
    def without_cores(self) -> list[int]:
        """Nodes that are a column only."""
        return sorted({column for _, column in (*self.latency, *self.bandwidth)} - set(self.with_cores))

    def sockets(self) -> dict[int, int]:
        """Node with cores -> socket: nodes that read each other as fast as themselves are parts of one (SNC, NPS).

        One node is one socket where all are equally fast (interleaved memory), or where that makes sockets of different sizes.
        """
        nodes = self.with_cores
        found: dict[int, int] = {}
        for node in nodes:
            near = next((other for other in found if self._is_near(node, other)), None)
            found[node] = found[near] if near is not None else len(set(found.values()))
        sizes = {sum(socket == other for other in found.values()) for socket in found.values()}
        num = len(set(found.values()))
        return found if 1 < num < len(nodes) and len(sizes) == 1 else {node: place for place, node in enumerate(nodes)}

    def _is_near(self, one: int, other: int) -> bool:
        pairs = [self.bandwidth.get(pair) for pair in ((one, other), (other, one))]
        own = [self.bandwidth.get((node, node)) for node in (one, other)]
        if any(figure is None for figure in (*pairs, *own)):
            return False
        near, local = (min(figure.value for figure in held if figure) for held in (pairs, own))
        return near >= _NEAR_SHARE * local

    def local(self, table: dict[tuple[int, int], Figure]) -> list[Figure]:
        """The diagonal."""
        return [figure for (row, column), figure in table.items() if row == column]

    def remote(self, table: dict[tuple[int, int], Figure]) -> list[Figure]:
        """Between nodes that have cores and are of different sockets."""
        sockets = self.sockets()
        return [f for (row, column), f in table.items() if column in sockets and sockets.get(row) != sockets[column]]


def grid_of(draft: Draft) -> Grid:
    """The matrices that the figures of a draft make."""
    grid = Grid()
    for quantity, table in (("memory_latency", grid.latency), ("memory_bandwidth", grid.bandwidth)):
        for figure in draft.of(quantity):
            table[int(figure.at["from_node"]), int(figure.at["to_node"])] = figure
    return grid


def fit_curve(points: list[tuple[float, float]]) -> tuple[float, float]:
    """(a, k) of L = L0 (1 + a u / (1 - k u)) through points of (bytes/s, s); u is the share of the largest rate.

    Least squares in a for each k of a grid; the lowest point is L0. Points above the knee (u > 0.97) count half: MLC's
    rate goes back and forth there.
    """
    rates, latencies = (np.array(values) for values in zip(*sorted(points), strict=True))
    u, rise = rates / rates.max(), latencies / latencies.min() - 1.0
    weight = np.where(u > 0.97, 0.5, 1.0)
    best = (0.0, 0.0, np.inf)
    for k in np.arange(0.0, 0.996, 0.005):
        shape = u / (1.0 - k * u)
        a = max(0.0, float((weight * shape * rise).sum() / (weight * shape * shape).sum()))
        error = float((weight * (a * shape - rise) ** 2).sum())
        if error < best[2]:
            best = (a, float(k), error)
    return round(best[0], 4), round(best[1], 3)
