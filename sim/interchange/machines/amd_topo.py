"""AMD's topology tables (`rocm-smi --showtopo`, `amd-smi topology`, text or JSON) -> a Layout: GPUs, sockets, xGMI links.

Each tool prints one matrix per question; any selection of them is read. KFD's weight of a direct xGMI link is 15 and each
further hop over another GPU adds as much, so a pair of another weight has no link of its own. A "NUMA BW" cell tells the
slowest and the fastest rate between two GPUs in MB/s: their ratio is the number of links.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sim.errors import Fault, InputError
from sim.interchange.machines.figures import Adapter, Layout, Socket
from sim.interchange.machines.numa import sockets_of

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
#: heading of a table -> what its cells are
_HEADINGS = (
    ("type", re.compile(r"link type between two gpus|^\W*link type table", re.I)),
    ("weight", re.compile(r"weight between two gpus|^\W*weight table", re.I)),
    ("hops", re.compile(r"hops between two gpus|^\W*hops table", re.I)),
    ("rate", re.compile(r"^\W*numa bw table|^[=\s]*bandwidth\b[=\s]*$", re.I)),
    ("", re.compile(r"^\W*[\w -]+ table\s*:|^\W*={4,}.*={4,}\s*$", re.I)),
)
_NAME = r"(?:GPU\d+|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d)"
_NAMES = re.compile(rf"^{_NAME}(?:\s+{_NAME})*$", re.I)
_ROW = re.compile(rf"^({_NAME})\s+(\S.*)$", re.I)
_NODE = re.compile(r"GPU\s*\[?(\d+)\]?\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)", re.I)
_PAIR = re.compile(r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d+) and (\d+)", re.I)
_RATE = re.compile(r"^(\d+)-(\d+)$")
_DIRECT_WEIGHT = 15
#: path over two sockets, as ROCm counts hops of PCIe
_HOPS_ACROSS = 3
Tables = dict[str, dict[tuple[int, int], str]]


def looks_like(text: str) -> bool:
    """Whether one of the tables is in the text."""
    return (
        bool(re.search(r"(?:Weight|Hops|Link Type) between two GPUs|(?m:^\W*(?:LINK TYPE|WEIGHT|HOPS) TABLE\s*:)", text, re.I))
        or bool(_PAIR.search(text) or _NODE.search(text))
        or ('"num_hops"' in text and '"link_type"' in text)
    )


def parse(text: str, file: str) -> Layout:
    """The layout that the tables tell together. Raises InputError for a table with rows missing, or without any cell."""
    found = _of_json(text)
    tables, nodes = found if found is not None else _of_text(_ESCAPE.sub("", text), file)
    pairs = {pair for table in tables.values() for pair in table}
    num = max([-1, *(max(pair) for pair in pairs), *nodes]) + 1
    if not num:
        remedy = "give the output of: rocm-smi --showtopo, or amd-smi topology"
        raise InputError(Fault(what="holds no table of links between GPUs", remedy=remedy, file=file))
    missing = [number for number in range(num) if not any(first == number for first, _ in pairs)]
    if pairs and missing:
        what = f"{len(missing)} of the header's GPUs have no row: {', '.join(f'GPU{number}' for number in missing)}"
        raise InputError(Fault(what=what, remedy="the output is cut: save it to a file", file=file))
    links, notes = _links(tables, file)
    sockets, told = _sockets(nodes, tables, num)
    return Layout(
        source=file, sockets=(Socket(),) * (max(sockets) + 1), gpu_links=links, gpu_vendor="amd", notes=(*notes, *told),
        adapters=tuple(Adapter(kind="gpu", name=f"gpu{number}", socket=sockets[number]) for number in range(num)),
    )  # fmt: skip


def _of_text(text: str, file: str) -> tuple[Tables, dict[int, int]]:
    """(tables by what their cells are, GPU -> NUMA node)."""
    tables: Tables = {}
    section, columns = "", list[str]()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = " ".join(raw.replace("|", " ").replace("*", " ").split()).lstrip("> ")
        kind = next((kind for kind, pattern in _HEADINGS if pattern.search(line)), None)
        if kind is not None:
            section, columns = kind, []
        elif section and _NAMES.match(line) and not columns:
            columns = [name.lower() for name in line.split()]
        elif columns and (row := _ROW.match(line)):
            cells = row[2].split()
            if row[1].lower() not in columns or len(cells) != len(columns):
                what = f"row {row[1]} has {len(cells)} cells below {len(columns)} columns"
                raise InputError(Fault(what=what, remedy="save the output to a file", file=file, line=number))
            first = columns.index(row[1].lower())
            tables.setdefault(section, {}).update({(first, second): cell.upper() for second, cell in enumerate(cells)})
    return tables, {int(match[1]): int(match[2]) for match in _NODE.finditer(text)}


def _of_json(text: str) -> tuple[Tables, dict[int, int]] | None:
    """The same of `amd-smi topology --json` (a list of GPUs with `links`) or `rocm-smi --showtopo --json`; else None."""
    start = min((at for mark in "[{" if (at := text.find(mark)) >= 0), default=-1)
    if start < 0 or ('"link_type"' not in text and not _PAIR.search(text)):
        return None
    try:
        document: Any = json.JSONDecoder().raw_decode(text, start)[0]
    except (json.JSONDecodeError, RecursionError):
        return None
    tables: Tables = {}
    nodes: dict[int, int] = {}
    for kind, pair, value in _cells(document):
        tables.setdefault(kind, {})[pair] = value.upper()
    if isinstance(document, dict):
        for name, card in document.items():
            if isinstance(card, dict) and name.startswith("card") and name[4:].isdigit():
                node = str(card.get("(Topology) Numa Node", ""))
                nodes |= {int(name[4:]): int(node)} if node.lstrip("-").isdigit() else {}
    return (tables, nodes) if tables else None


def _cells(document: Any) -> Iterator[tuple[str, tuple[int, int], str]]:
    """(kind, pair, cell) of either JSON."""
    keys = {"weight": "weight", "hops": "num_hops", "type": "link_type", "rate": "bandwidth"}
    held = document.get("system") if isinstance(document, dict) else None
    for name, value in held.items() if isinstance(held, dict) else ():
        if match := _PAIR.search(name):
            kind = {"link type": "type"}.get(match[1].lower(), match[1].lower())
            first, second = int(match[2]), int(match[3])
            yield kind, (first, second), str(value)
            yield kind, (second, first), str(value)
    gpus = [item for item in document if isinstance(item, dict)] if isinstance(document, list) else []
    for first, gpu in enumerate(gpus):
        for second, link in enumerate(gpu.get("links") or ()):
            if isinstance(link, dict):
                yield from ((kind, (first, second), str(link[key])) for kind, key in keys.items() if key in link)


def _links(tables: Tables, file: str) -> tuple[dict[tuple[int, int], int], list[str]]:
    """(GPU, GPU) -> xGMI links of their own."""
    types, weights, hops, rates = (tables.get(kind, {}) for kind in ("type", "weight", "hops", "rate"))
    links: dict[tuple[int, int], int] = {}
    for first, second in sorted({*types, *weights, *hops}):
        kind, weight = types.get((first, second), ""), weights.get((first, second), "")
        is_near = weight == str(_DIRECT_WEIGHT) if weight else hops.get((first, second)) == "1"
        if first >= second or (kind != "XGMI" if kind else not is_near):
            continue
        other = types.get((second, first), kind)
        if other != kind:
            what = f"GPU{first}-GPU{second} is {kind} one way and {other} the other"
            raise InputError(Fault(what=what, remedy="columns are shifted", file=file))
        if weight.isdigit() and int(weight) != _DIRECT_WEIGHT:
            continue  # over another GPU
        told = _RATE.match(rates.get((first, second), ""))
        links[first, second] = max(1, round(int(told[2]) / int(told[1]))) if told and int(told[1]) else 1
    notes = [] if types or weights or hops else ["links among GPUs: none (the file has no table of them)"]
    if links and not any(_RATE.match(cell) and not cell.startswith("0") for cell in rates.values()):
        notes.append("xGMI links between two GPUs: one (no table tells their rate; amd-smi topology does)")
    if links and not weights:
        notes.append("every xGMI pair has a link of its own (no table of weights)")
    return links, notes


def _sockets(nodes: Mapping[int, int], tables: Tables, num: int) -> tuple[list[int], list[str]]:
    """Socket of each GPU by its NUMA node, else by the hops of PCIe paths; and what was assumed for it."""
    hops = tables.get("hops", {})
    if not nodes and str(_HOPS_ACROSS) in hops.values():
        return [int(hops.get((0, number)) == str(_HOPS_ACROSS)) for number in range(num)], []
    return sockets_of([max(0, nodes.get(number, 0)) for number in range(num)])
