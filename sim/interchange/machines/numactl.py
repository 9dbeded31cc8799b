"""`numactl --hardware` and `lscpu`, alone or in one file -> a Layout: sockets with their cores, NUMA nodes with their sizes."""

from __future__ import annotations

import re

from sim.errors import Fault, InputError
from sim.interchange.machines.figures import Layout, Node, Socket
from sim.interchange.machines.numa import cpus_listed, threads_of

_CPUS = re.compile(r"(?m)^\s*node (\d+) cpus:[ \t]*([\d \t]*)$")
_SIZE = re.compile(r"(?m)^\s*node (\d+) size:\s*(\d+) MB")
_DISTANCES = re.compile(r"(?m)^\s*(\d+):((?:[ \t]+\d+)+)[ \t]*$")
_LSCPU = re.compile(
    r"(?m)^\s*(Model name|Socket\(s\)|Core\(s\) per (?:socket|cluster)|L3 cache|L3|Thread\(s\) per core):[ \t]*(.+?)[ \t]*$"
)
_NODE_CPUS = re.compile(r"(?m)^\s*NUMA node(\d+) CPU\(s\):[ \t]*([\d,\-]*)[ \t]*$")
_CACHE = re.compile(r"([\d.]+)\s*(K|M|G)i?B?(?:\s*\((\d+) instances?\))?")
_MB = 2.0**20  # what numactl calls MB
#: the firmware's distance between nodes of one socket; the next socket is at 20 and more
_NEAR = 16


def looks_like(text: str) -> bool:
    """Whether the text lists NUMA nodes as numactl does, or processors as lscpu does."""
    return bool(_CPUS.search(text) and _SIZE.search(text)) or ("Model name:" in text and "Socket(s):" in text)


def parse(text: str, file: str) -> Layout:
    """The layout. Raises InputError for a listing that is cut: nodes without a size, or distances that contradict."""
    told = dict(reversed(_LSCPU.findall(text)))
    cores = {int(number): _numbers(cpus) for number, cpus in _CPUS.findall(text)}
    sizes = {int(number): float(size) * _MB for number, size in _SIZE.findall(text)}
    if missing := [number for number in cores if number not in sizes]:
        what = f"lists no size of NUMA node {missing[0]}"
        raise InputError(Fault(what=what, remedy="give the whole output of numactl --hardware", file=file))
    if not cores:
        cores = {int(number): cpus_listed(cpus) for number, cpus in _NODE_CPUS.findall(text)}
    threads = _whole(told.get("Thread(s) per core")) or max(map(threads_of, cores.values()), default=1)
    distances = _distances(text)
    groups = _groups(sorted(number for number, cpus in cores.items() if cpus), distances, _whole(told.get("Socket(s)")))
    per_socket = _whole(told.get("Core(s) per socket"))
    cache, model = _cache(told) / max(1, len(groups)), told.get("Model name", "")
    sockets = [
        Socket(
            model=model,
            cores=per_socket or sum(len(cores[number]) for number in group) // threads,
            last_level_cache_bytes=cache,
        )
        for group in groups
    ]
    sockets = sockets or [Socket(model=model, cores=per_socket)] * max(1, _whole(told.get("Socket(s)")))
    notes = []
    if len(groups) > 1 and "Socket(s)" not in told and "node distances" not in text:
        notes.append("the listing tells no distances: each NUMA node with cores is taken as a socket")
    nodes = []
    for number in sorted(sizes):
        if not sizes[number]:
            continue
        is_local = bool(cores.get(number))
        kind, taken = ("gpu", "a GPU's memory") if model.startswith("Neoverse-V2") else ("cxl", "CXL memory")  # Grace
        if not is_local:
            notes.append(f"NUMA node {number} has no cores of its own: taken as {taken}")
        home = _socket_of(number, groups, distances)
        nodes.append(Node(number=number, kind="dram" if is_local else kind, capacity_bytes=sizes[number], socket=home))
    return Layout(source=file, sockets=tuple(sockets), nodes=tuple(nodes), notes=tuple(notes))


def _groups(local: list[int], distances: dict[tuple[int, int], int], sockets: int) -> list[list[int]]:
    """Nodes with cores by socket: those near each other, or as many in a row as lscpu's number of sockets leaves."""
    if sockets and len(local) % sockets == 0:
        each = len(local) // sockets
        return [local[place : place + each] for place in range(0, len(local), each)] if each else []
    found: list[list[int]] = []
    for number in local:
        near = next((group for group in found if distances.get((group[0], number), 255) <= _NEAR), None)
        if near is None:
            found.append([number])
        else:
            near.append(number)
    return found


def _socket_of(number: int, groups: list[list[int]], distances: dict[tuple[int, int], int]) -> int:
    """The socket that a node is in, or for one without cores the nearest."""
    far = [min((distances.get((number, other), 255) for other in group), default=255) for group in groups]
    inside = next((place for place, group in enumerate(groups) if number in group), None)
    return inside if inside is not None else far.index(min(far)) if far else 0


def _distances(text: str) -> dict[tuple[int, int], int]:
    """(node, node) -> distance, of the table behind "node distances:" whose heading names the columns."""
    table = text.partition("node distances:")[2]
    heading = re.search(r"(?m)^\s*node[ \t]+([\d \t]+)$", table)
    if heading is None:
        return {}
    columns = [int(word) for word in heading[1].split()]
    found: dict[tuple[int, int], int] = {}
    for row, values in _DISTANCES.findall(table[heading.end() :]):
        found |= {(int(row), column): int(value) for column, value in zip(columns, values.split(), strict=False)}
    return found


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() and int(text) < 100_000 else 0


def _cache(told: dict[str, str]) -> float:
    """Bytes of all last-level caches; older lscpu prints one, without the number of them."""
    match = _CACHE.match(told.get("L3 cache", told.get("L3", "")))
    if match is None:
        return 0.0
    size = float(match[1]) * {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30}[match[2]]
    return size if match[3] else size * max(1, _whole(told.get("Socket(s)")))
