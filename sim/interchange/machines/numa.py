"""From the NUMA nodes that a GPU tool prints to sockets: BIOS settings divide a socket into two, four or more nodes."""

from __future__ import annotations

from collections.abc import Sequence

#: nodes of a socket divided as far as EPYC's NPS4 and Xeon's SNC4 go
_MOST_OF_A_SOCKET = 4


def sockets_of(nodes: Sequence[int]) -> tuple[list[int], list[str]]:
    """(socket of each GPU, notes) from the NUMA node of each GPU.

    Nodes 0 and 1 are sockets. Where there are more, machines with GPUs have one or two sockets: up to four nodes are one
    socket's quarters if there is no more than a GPU to each, else two sockets' halves; more nodes are those of two sockets.
    """
    most = max(nodes, default=0)
    if most <= 1:
        seen = sorted(set(nodes))
        return [seen.index(node) for node in nodes], []
    if most < _MOST_OF_A_SOCKET:
        size = _MOST_OF_A_SOCKET if len(nodes) <= most + 1 else 2
    else:
        size = max(_MOST_OF_A_SOCKET, most // 2 + 1)
    seen = sorted({node // size for node in nodes})
    note = f"NUMA nodes up to {most}: {size} to a socket (give --hwloc to be sure)"
    return [seen.index(node // size) for node in nodes], [note]
