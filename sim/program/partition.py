"""The coarsest equitable partition of a labelled graph, by colour refinement.

In an equitable partition nodes of one class have the same label, and equally many edges of each label to each class. Starting
from the labels, classes are split by what their nodes see until nothing splits; every equitable partition refines each stage,
so the last one is the coarsest. Colours are compared, never hashes: two nodes of one class do see the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

#: (label of the edge, number of the node at its other end), as one node sees them
Edges = Sequence[tuple[int, int]]


def coarsest(labels: Sequence[Hashable], edges: Sequence[Edges]) -> list[int]:
    """The class of each node. `edges[i]` is what node i must see alike in all of its class."""
    colours: dict[Hashable, int] = {}
    colour = [colours.setdefault(label, len(colours)) for label in labels]
    members: list[set[int]] = [set() for _ in colours]
    for node, own in enumerate(colour):
        members[own].add(node)
    seen_by: list[list[int]] = [[] for _ in labels]
    for node, row in enumerate(edges):
        for _, other in row:
            seen_by[other].append(node)
    pending = set(range(len(labels)))
    while pending:
        pending = {node for changed in _split(pending, colour, members, edges) for node in seen_by[changed]}
    return colour


def _split(pending: set[int], colour: list[int], members: list[set[int]], edges: Sequence[Edges]) -> list[int]:
    """Split the classes of `pending` nodes, those that see a changed colour; return the nodes that got a new colour.

    The others of a class see no new colour, so they stay together; of the parts the first such keeps the old colour.
    """
    sights: dict[int, dict[tuple[tuple[int, int], ...], list[int]]] = {}
    for node in sorted(pending):
        sight = tuple(sorted((label, colour[other]) for label, other in edges[node]))
        sights.setdefault(colour[node], {}).setdefault(sight, []).append(node)
    changed: list[int] = []
    for own, parts in sights.items():
        groups = list(parts.values())
        if len(members[own]) == sum(map(len, groups)):
            groups.remove(max(groups, key=len))
        for group in groups:
            changed += group
            members[own].difference_update(group)
            members.append(set(group))
            for node in group:
                colour[node] = len(members) - 1
    return changed
