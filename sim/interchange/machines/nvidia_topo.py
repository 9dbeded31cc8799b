"""The matrix of `nvidia-smi topo -m` -> a Layout: GPUs, their sockets, shared PCIe switches, NVLinks between them.

Found inside longer logs, behind quote marks and in Markdown tables; rows that a terminal wrapped are put together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from sim.errors import Fault, InputError
from sim.interchange.machines.figures import Adapter, Layout, Socket
from sim.interchange.machines.numa import cpus_listed, nodes_of_a_socket, sockets_of, threads_of

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_QUOTE = re.compile(r"^(?:[ \t]*>)+ ?")
#: "SOC" is what drivers before 2017 wrote for SYS
_CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
_AFFINITIES = ("CPU", "NUMA")
_PEER = re.compile(r"\b(?:OK|NS|CNS|GNS|TNS|DR|U)\b")
_RANGE = re.compile(r"^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")
_FIRST_ROW = re.compile(r"\s*GPU0\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b")
_HEADER = re.compile(r"\s*GPU0\b(?!\s+(?:X\b|NV\d|PIX|PXB|PHB|NODE|SYS|SOC))")
_END = re.compile(r"\s*(?:NIC )?Legend\b|\s*X\s*=", re.I)
#: cells that mean "below one PCIe switch"
_BELOW_SWITCH = ("PIX", "PXB")
Row = tuple[list[str], list[str]]


def looks_like(text: str) -> bool:
    """Whether the text holds a matrix with GPU0 as the first column."""
    return bool(re.search(r"(?m)^\W*(?:\x1b\[[0-9;]*m)?\s*GPU0\b", text))


def parse(text: str, file: str) -> Layout:
    """Read the matrix; raises InputError with the line for glued, missing or contradictory cells."""
    lines = [(number, _plain(line)) for number, line in enumerate(text.splitlines(), start=1)]
    first = next((index for index, (_, line) in enumerate(lines) if _HEADER.match(line)), None)
    if first is None:
        remedy = "expected the output of: nvidia-smi topo -m"
        raise InputError(Fault(what="has no header row that begins with GPU0", remedy=remedy, file=file))
    matrix = _matrix(lines[first:])
    width = max(len(line) for _, line in matrix)
    top = next((index for index, (_, line) in enumerate(matrix) if _FIRST_ROW.match(line)), len(matrix))
    ((number, header),) = _joined(matrix[:top], lambda _: False, width)
    words = header.split()
    has_affinity = any(word in _AFFINITIES for word in words)
    # adapters have names of many kinds (NIC0, mlx5_0, mlx5_bond_0): everything before "CPU Affinity" is a device
    columns = words[: next((index for index, word in enumerate(words) if word in _AFFINITIES), len(words))]
    known = re.compile(rf"\s*(?:GPU\d+|{'|'.join(map(re.escape, columns))})\s")
    rest = list(_joined(matrix[top:], lambda line: bool(known.match(line)), width)) if top < len(matrix) else []
    rows: dict[str, Row] = {}
    for at, line in rest:
        name = line.split()[0]
        if name in rows or (name not in columns and not name.startswith("GPU")):
            break  # the legend, or another matrix
        rows[name] = _row(line, name, columns, file, at)
    _check(columns, rows, file, number)
    return _layout(columns, rows, has_affinity, file)


def _plain(line: str) -> str:
    """A line without escapes, quote marks, and the frame of a Markdown table (cells then stand between tabs)."""
    line = _QUOTE.sub("", _ESCAPE.sub("", line)).rstrip("\r\n")
    if line.lstrip().startswith("|"):
        line = "\t".join(cell.strip() for cell in line.strip().strip("|").split("|"))
    return line


def _matrix(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines of a matrix without blank ones, up to its legend."""
    end = next((index for index, (_, line) in enumerate(lines) if _END.match(line)), len(lines))
    return [(number, line) for number, line in lines[:end] if line.strip()]


def _joined(lines: list[tuple[int, str]], is_start: Callable[[str], bool], width: int) -> Iterator[tuple[int, str]]:
    """Rows, each with its first line's number; a line that starts none continues the row before it (a terminal wrapped it).

    A line as wide as the widest was cut there, maybe within a word: it continues without a space.
    """
    number, held, last = lines[0][0], lines[0][1], lines[0][1]
    for at, line in lines[1:]:
        if is_start(line):
            yield number, held
            number, held = at, line
        else:
            held += line if len(last) == width or "\t" in held else f" {line}"
        last = line
    yield number, held


def _row(line: str, name: str, columns: list[str], file: str, number: int) -> Row:
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
    return ["SYS" if cell == "SOC" else cell for cell in cells], rest


def _check(columns: list[str], rows: dict[str, Row], file: str, line: int) -> None:
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


def _layout(columns: list[str], rows: dict[str, Row], has_affinity: bool, file: str) -> Layout:
    place = {name: index for index, name in enumerate(columns)}
    gpus = [name for name in columns if name.startswith("GPU")]
    nics = [name for name in columns if not name.startswith("GPU")]
    numbers, notes = _sockets(gpus, rows, place, has_affinity)
    sockets = dict(zip(gpus, numbers, strict=True))
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
    cores, why = _cores(gpus, rows, numbers)
    return Layout(
        source=file, sockets=(Socket(cores=cores, note=why),) * count, adapters=tuple(adapters), gpu_links=links,
        gpu_vendor="nvidia", has_gpu_nodes=_has_gpu_nodes(rows[name] for name in gpus), notes=tuple(notes),
    )  # fmt: skip


def _sockets(gpus: list[str], rows: dict[str, Row], place: dict[str, int], has_affinity: bool) -> tuple[list[int], list[str]]:
    """(socket of each GPU, notes): by its NUMA node, else its CPU list, else one socket per group without SYS between."""
    told = [_told(rows[name]) for name in gpus]
    if has_affinity and not any(told):
        # under WSL and in virtual machines every pair is SYS and no affinity is known
        note = "sockets: 1 (the matrix tells no affinity of any GPU, as under WSL; give --hwloc to be sure)"
        return [0] * len(gpus), [note] if len(gpus) > 1 else []
    nodes = [next((int(cell) for cell in reversed(cells) if cell.isdigit()), None) for cells in told]
    if not _has_gpu_nodes(rows[name] for name in gpus) and None not in nodes:
        return sockets_of([node for node in nodes if node is not None])
    keys: list[object] = []
    found: list[int] = []
    for name, cells, node in zip(gpus, told, nodes, strict=True):
        key: object = node if node is not None else "|".join(cell for cell in cells if _RANGE.match(cell))
        if key == "":
            peer = next((index for index in range(len(found)) if rows[name][0][place[gpus[index]]] != "SYS"), None)
            key = keys[found[peer]] if peer is not None else name
        if key not in keys:
            keys.append(key)
        found.append(keys.index(key))
    return found, []


def _cores(gpus: list[str], rows: dict[str, Row], sockets: list[int]) -> tuple[int, str]:
    """(cores of a socket, what they rest on) from the CPU lists of its GPUs, the longest of all; 0 where none is told.

    A list that has one run of numbers may hold two threads of each core (virtual machines): it is taken as cores.
    """
    told = {name: cells for name in gpus if (cells := [cell for cell in _told(rows[name]) if _RANGE.match(cell)])}
    lists = {name: cells[0] for name, cells in told.items() if re.search(r"[-,]", cells[0])}
    if not lists:
        return 0, ""
    found: dict[int, set[str]] = {}
    for name, socket in zip(gpus, sockets, strict=True):
        found.setdefault(socket, set()).update([lists[name]] if name in lists else [])
    each = max(len(cpus_listed(text)) // threads_of(cpus_listed(text)) for text in lists.values())
    nodes = [int(cells[1]) for cells in told.values() if len(cells) > 1 and cells[1].isdigit()]
    # lists of the nodes of a divided socket are parts of it; a socket that one list stands for is whole
    parts = nodes_of_a_socket(nodes) if len(nodes) == len(lists) and len(set(lists.values())) == len(set(nodes)) else 1
    parts = max(parts, *map(len, found.values()))
    may = "" if any("," in text for text in lists.values()) else ", which may be threads"
    return each * parts, f"the CPU affinity of its GPUs{may}; give --hwloc to be sure"


def _told(row: Row) -> list[str]:
    return [cell for cell in row[1] if cell not in ("", "N/A", "NA", "None")]


def _has_gpu_nodes(rows: Iterable[Row]) -> bool:
    """Whether a number stands under "GPU NUMA ID" beside that of the CPU's node."""
    return any(sum(map(str.isdigit, _told(row))) > 1 for row in rows)


def _switches(names: list[str], rows: dict[str, Row], place: dict[str, int]) -> dict[str, str]:
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
