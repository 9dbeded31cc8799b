"""The matrix of `nvidia-smi topo -m` -> a Layout: GPUs, their sockets, shared PCIe switches, NVLinks between them."""

from __future__ import annotations

import re

from sim.errors import Fault, InputError
from sim.interchange.machines.figures import Adapter, Layout, Socket

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")
_AFFINITIES = ("CPU", "NUMA")
_PEER = re.compile(r"\b(?:OK|NS|CNS|GNS|TNS|DR|U)\b")
_RANGE = re.compile(r"^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")
#: cells that mean "below one PCIe switch"
_BELOW_SWITCH = ("PIX", "PXB")


def looks_like(text: str) -> bool:
    """Whether the text holds a matrix with GPU0 as the first column."""
    return bool(re.search(r"(?m)^\W*(?:\x1b\[[0-9;]*m)?\s*GPU0\b", text))


def parse(text: str, file: str) -> Layout:
    """Read the matrix; raises InputError with the line for glued, missing or contradictory cells."""
    lines = [(number, _ESCAPE.sub("", line)) for number, line in enumerate(text.splitlines(), start=1)]
    head = next(((number, line) for number, line in lines if re.match(r"\s*GPU0\b", line)), None)
    if head is None:
        remedy = "expected the output of: nvidia-smi topo -m"
        raise InputError(Fault(what="has no header row that begins with GPU0", remedy=remedy, file=file))
    words = head[1].split()
    # adapters have names of many kinds (NIC0, mlx5_0, mlx5_bond_0): everything before "CPU Affinity" is a device
    columns = words[: next((index for index, word in enumerate(words) if word in _AFFINITIES), len(words))]
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for number, line in lines:
        if number <= head[0] or not line.strip():
            continue
        name = line.split()[0]
        if name not in columns and not name.startswith("GPU"):
            break  # the legend
        rows[name] = _row(line, name, columns, file, number)
    _check(columns, rows, file, head[0])
    return _layout(columns, rows, file)


def _row(line: str, name: str, columns: list[str], file: str, number: int) -> tuple[list[str], list[str]]:
    """(cells, what follows them) of a row."""
    if "\t" in line:
        parts = [part.strip() for part in line.split("\t")]
        cells, rest = parts[1 : 1 + len(columns)], parts[1 + len(columns) :]
    else:
        words = line.split()[1:]
        cells, rest = words[: len(columns)], words[len(columns) :]
    for column, cell in zip(columns, [*cells, *[""] * len(columns)], strict=False):
        if _CELL.fullmatch(cell):
            continue
        if _PEER.fullmatch(cell):
            what, remedy = "is the peer-to-peer matrix of `nvidia-smi topo -p2p`", "give the output of: nvidia-smi topo -m"
        elif len(_CELL.findall(cell)) > 1:
            what = f"row {name}, column {column}: cells are glued together: {cell!r}"
            remedy = "save the output to a file in place of copying it from a terminal"
        else:
            what = f"row {name}, column {column}: expected X, NV#, PIX, PXB, PHB, NODE or SYS, got {cell!r}"
            remedy = "give the whole output of: nvidia-smi topo -m"
        raise InputError(Fault(what=what, remedy=remedy, file=file, line=number))
    return cells, rest


def _check(columns: list[str], rows: dict[str, tuple[list[str], list[str]]], file: str, line: int) -> None:
    missing = [name for name in columns if name.startswith("GPU") and name not in rows]
    if missing:
        what = f"{len(missing)} of the header's GPUs have no row: {', '.join(missing)}"
        raise InputError(Fault(what=what, remedy="the output is cut: save it to a file", file=file, line=line))
    place = {name: index for index, name in enumerate(columns)}
    for name, (cells, _rest) in rows.items():
        if name not in place or cells[place[name]] != "X":
            what = f"row {name}: no X on the diagonal"
            raise InputError(Fault(what=what, remedy="columns are shifted", file=file, line=line))
    for name, (cells, _rest) in rows.items():
        for other, (theirs, _) in rows.items():
            if cells[place[other]] != theirs[place[name]]:
                what = f"{name}-{other} is {cells[place[other]]} one way and {theirs[place[name]]} the other"
                raise InputError(Fault(what=what, remedy="columns are shifted", file=file, line=line))


def _layout(columns: list[str], rows: dict[str, tuple[list[str], list[str]]], file: str) -> Layout:
    place = {name: index for index, name in enumerate(columns)}
    gpus = [name for name in columns if name.startswith("GPU")]
    nics = [name for name in columns if not name.startswith("GPU")]
    sockets = _sockets(gpus, rows, place)
    switches = _switches([name for name in columns if name in rows], rows, place)
    adapters = [Adapter(kind="gpu", name=name.lower(), socket=sockets[name], switch=switches.get(name, "")) for name in gpus]
    for name in nics:
        near = [gpu for gpu in gpus if rows[gpu][0][place[name]] != "SYS"]
        socket = sockets[near[0]] if near else 0
        adapters.append(Adapter(kind="nic", name=name.lower(), socket=socket, switch=switches.get(name, "")))
    links = {}
    for first, name in enumerate(gpus):
        for second in range(first + 1, len(gpus)):
            cell = rows[name][0][place[gpus[second]]]
            if cell.startswith("NV"):
                links[first, second] = int(cell[2:])
    count = max(sockets.values(), default=0) + 1
    return Layout(source=file, sockets=(Socket(),) * count, adapters=tuple(adapters), gpu_links=links)


def _sockets(gpus: list[str], rows: dict[str, tuple[list[str], list[str]]], place: dict[str, int]) -> dict[str, int]:
    """GPU -> socket: by its NUMA node (or CPU list) where it is printed, else one socket per group without SYS between."""
    found: dict[str, int] = {}
    keys: list[str] = []
    for name in gpus:
        rest = [cell for cell in rows[name][1] if cell and cell != "N/A"]
        key = "|".join(cell for cell in rest if _RANGE.match(cell))
        numbers = [cell for cell in rest if cell.isdigit()]
        key = f"node {numbers[-1]}" if numbers else key
        if not key:
            peer = next((other for other in found if rows[name][0][place[other]] not in ("SYS",)), None)
            key = keys[found[peer]] if peer is not None else name
        if key not in keys:
            keys.append(key)
        found[name] = keys.index(key)
    return found


def _switches(names: list[str], rows: dict[str, tuple[list[str], list[str]]], place: dict[str, int]) -> dict[str, str]:
    """Device -> switch that it shares with another device (joined by PIX or PXB)."""
    switch: dict[str, str] = {}
    for name in names:
        for other in names:
            if other != name and rows[name][0][place[other]] in _BELOW_SWITCH:
                shared = switch.get(name) or switch.get(other) or f"switch{len(set(switch.values()))}"
                old = {switch.get(name), switch.get(other)} - {None, shared}
                switch = {key: shared if value in old else value for key, value in switch.items()}
                switch[name] = switch[other] = shared
    return switch
