"""From the NUMA nodes that a GPU tool prints to sockets: BIOS settings divide a socket into two, four or more nodes."""

from __future__ import annotations

from collections.abc import Sequence

#: nodes of a socket divided as far as EPYC's NPS4 and Xeon's SNC4 go
_MOST_OF_A_SOCKET = 4
#: no machine has more
_MOST_CPUS = 1_000_000


def sockets_of(nodes: Sequence[int]) -> tuple[list[int], list[str]]:
    """(socket of each GPU, notes) from the NUMA node of each GPU.

    Nodes 0 and 1 are sockets. Where there are more, machines with GPUs have one or two sockets: up to four nodes are one
    socket's quarters if there is no more than a GPU to each, else two sockets' halves; more nodes are those of two sockets.
    """
    size, most = nodes_of_a_socket(nodes), max(nodes, default=0)
    seen = sorted({node // size for node in nodes})
    note = f"NUMA nodes up to {most}: {size} to a socket (give --hwloc to be sure)"
    return [seen.index(node // size) for node in nodes], [note] if size > 1 else []


def nodes_of_a_socket(nodes: Sequence[int]) -> int:
    """NUMA nodes that a socket is divided into, from the node of each GPU (see :func:`sockets_of`)."""
    most = max(nodes, default=0)
    if most <= 1:
        return 1
    if most < _MOST_OF_A_SOCKET:
        return _MOST_OF_A_SOCKET if len(nodes) <= most + 1 else 2
    return max(_MOST_OF_A_SOCKET, most // 2 + 1)


def cpus_listed(text: str) -> list[int]:
    """Numbers of a list like ``0-23,48-71``; words that are no numbers are left out."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit() and int(last or first) < _MOST_CPUS:
            found += range(int(first), int(last or first) + 1)
    return found


def threads_of(cpus: Sequence[int]) -> int:
    """Threads of a core: Linux numbers the second ones behind all first ones, so a node with two runs of numbers has two."""
    half = len(cpus) // 2
    return 2 if cpus and len(cpus) % 2 == 0 and cpus[half] != cpus[half - 1] + 1 else 1
