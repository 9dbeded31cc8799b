"""From device to device: which edges a byte crosses."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

from sim.errors import Fault, MachineError
from sim.topology.graph import Edge
from sim.topology.inventory import Device, Inventory

#: device kinds that forward what is not meant for them; a GPU or a drive does not
_FORWARDS = frozenset({"cpu", "switch"})


class _Wires:
    """The edges of machines that are wired alike, as a graph, and the paths that were found in it."""

    def __init__(self, edges: tuple[Edge, ...]) -> None:
        import networkx as nx  # 0.2 s of CPU: only when a route is asked for

        self._graph: Any = nx.DiGraph()
        self._paths: dict[tuple[frozenset[str], str, str], tuple[Edge, ...] | None] = {}
        for edge in edges:
            # Prefer few hops, then wide links; the second term stays far below one hop (1 GB/s -> 1e-3).
            weight = 1.0 + 1e6 / edge.bandwidth_bytes_per_s
            known = self._graph.get_edge_data(edge.source, edge.target)
            if known is None or known["weight"] > weight:
                self._graph.add_edge(edge.source, edge.target, weight=weight, edge=edge)

    def path(self, closed: frozenset[str], source: str, target: str) -> tuple[Edge, ...] | None:
        """Edges from source to target through no device of `closed`; None if there is no way."""
        key = (closed, source, target)
        if key not in self._paths:
            self._paths[key] = self._found(closed, source, target)
        return self._paths[key]

    def _found(self, closed: frozenset[str], source: str, target: str) -> tuple[Edge, ...] | None:
        import networkx as nx

        graph = self._graph
        if source not in graph or target not in graph:
            return None
        view = nx.restricted_view(graph, closed - {source, target}, ())
        try:
            nodes = nx.dijkstra_path(view, source, target)
        except nx.NetworkXNoPath:
            return None
        return tuple(graph[a][b]["edge"] for a, b in pairwise(nodes))


@lru_cache(maxsize=64)
def _wires(edges: tuple[Edge, ...]) -> _Wires:
    return _Wires(edges)


def path(
    machine: Inventory, source: str, target: str, *, closed_kinds: frozenset[str] = frozenset()
) -> tuple[Edge, ...] | None:
    """Edges from device to device, through devices that forward; None if there is no way."""
    if source == target:
        return ()
    return machine.kept((source, target, closed_kinds), lambda: _walk(machine, source, target, closed_kinds))


def _walk(machine: Inventory, source: str, target: str, closed_kinds: frozenset[str]) -> tuple[Edge, ...] | None:
    hosts = {machine.devices[end].host for end in (source, target) if end in machine.devices} - {""}
    if len(hosts) > 1:  # a shared pool joins memories, not hosts
        return None
    wires = machine.kept(("wires",), lambda: _wires(machine.edges))
    return wires.path(machine.kept(closed_kinds, lambda: _closed(machine, closed_kinds)), source, target)


def _closed(machine: Inventory, closed_kinds: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, device in machine.devices.items() if not _forwards(device, closed_kinds))


def _forwards(device: Device, closed_kinds: frozenset[str]) -> bool:
    if device.kind == "gpu":  # an APU is also the hub of its CPU's devices
        return bool(device.part.get("cpu")) and "cpu" not in closed_kinds
    return device.kind in _FORWARDS and device.kind not in closed_kinds


def required_path(machine: Inventory, source: str, target: str) -> tuple[Edge, ...]:
    """As `path`; raises MachineError if there is no way."""
    found = path(machine, source, target)
    if found is None:
        raise MachineError(
            Fault(what=f"no way from {source!r} to {target!r} in machine {machine.name!r}", remedy="join them by a link")
        )
    return found


def hops(source: str, edges: tuple[Edge, ...]) -> tuple[str, ...]:
    """Names of the devices on the way, both ends among them."""
    return (source, *(edge.target for edge in edges))
