"""An order of a Chakra file's nodes in which each stands behind those that it waits for."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping

from sim.errors import Fault, InputError
from sim.interchange.chakra.nodes import Node


def ordered(nodes: Mapping[int, Node], counts: Counter[str], file: str) -> tuple[list[int], dict[int, list[int]]]:
    """(ids in a topological order, lowest first; what each waits for).

    The PyTorch converter splits an operator around its kernels and lets pieces name a later piece as their parent: if
    nodes wait in a circle, control dependencies on later ids are dropped (counted) and the rest is tried once more. Raises
    InputError when a circle remains.
    """
    deps = {identity: _known(node, nodes, counts) for identity, node in nodes.items()}
    order, stuck = _sorted(deps)
    if stuck:
        for identity in stuck:
            parents = {dep for dep in nodes[identity].ctrl_deps if dep >= identity}
            counts["control dependencies on later nodes (dropped: they close a circle)"] += len(parents)
            deps[identity] = [dep for dep in deps[identity] if dep not in parents]
        order, stuck = _sorted(deps)
    if stuck:
        names = [f"{identity} {nodes[identity].name}" for identity in stuck[:3]]
        what = f"nodes wait for each other in a circle, among them {', '.join(names)}"
        raise InputError(Fault(what=what, remedy="correct ctrl_deps and data_deps", file=file))
    return order, deps


def _known(node: Node, nodes: Mapping[int, Node], counts: Counter[str]) -> list[int]:
    known = [dep for dep in dict.fromkeys((*node.ctrl_deps, *node.data_deps)) if dep in nodes]
    missing = len(set(node.ctrl_deps) | set(node.data_deps)) - len(known)
    if missing:
        counts["dependencies on nodes that are not in the file (ignored)"] += missing
    return known


def _sorted(deps: Mapping[int, list[int]]) -> tuple[list[int], list[int]]:
    """(ids in order, ids that wait in a circle)."""
    waits: dict[int, int] = {}
    successors: dict[int, list[int]] = defaultdict(list)
    for identity, names in deps.items():
        waits[identity] = len(names)
        for dep in names:
            successors[dep].append(identity)
    ready = [identity for identity, count in waits.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        identity = heapq.heappop(ready)
        order.append(identity)
        for then in successors[identity]:
            waits[then] -= 1
            if not waits[then]:
                heapq.heappush(ready, then)
    return order, [identity for identity, count in waits.items() if count]
