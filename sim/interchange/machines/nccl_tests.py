"""nccl-tests and rccl-tests, as text (old and new columns, mpirun tags) or JSON -> figures of collectives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sim.interchange.machines.figures import Figure

#: `mpirun --tag-output`, `srun --label`
_TAG = re.compile(r"^(?:\[\d+,\d+\]<std\w+>:|\s*\d+: )")
#: the command, or the line by which newer versions say what they run
_BEGUN = re.compile(r"(?:^|[\s/:])(?P<kind>\w+?)_perf(?:_mpi)?\b")
_LOCAL = re.compile(r"^#\s*nThread\s+1\s+nGpus\s+(\d+)\b")
_RANK = re.compile(r"^#\s+Rank\s+(\d+).*?\bon\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s*(.*)$")
_NAMES = (
    ("all_reduce", "all_reduce"), ("reduce_scatter", "reduce_scatter"), ("all_gather", "all_gather"),
    ("alltoall", "all_to_all"), ("broadcast", "broadcast"), ("sendrecv", "point_to_point"),
)  # fmt: skip
#: bytes, s, bytes/s of the algorithm, of the bus
Row = tuple[float, float, float, float]


def looks_like(text: str) -> bool:
    """Whether the header of its table (or its JSON) is in the text."""
    return bool(re.search(r"algbw\s+busbw", text)) or ('"bus_bw"' in text and '"results"' in text)


def parse(text: str, file: str) -> list[Figure]:
    """Out-of-place times by size. Rows of size 0, elided and cut rows are left out; time is the row's, in s.

    The number of ranks comes from the list of devices, else from bus over algorithm bandwidth of the largest size; that of
    nodes is 0 where nothing tells it.
    """
    start = text.find("{")
    if start >= 0 and '"bus_bw"' in text:
        return list(_of_json(text[start:], file))
    lines = [_TAG.sub("", line).strip() for line in text.splitlines()]
    ranks: dict[int, re.Match[str]] = {}
    columns: list[str] = []
    kind = _kind(_BEGUN.search(text), file)
    tables: dict[tuple[str, int, int], list[Row]] = {}
    num_local = 0  # GPUs of one process, which are on one node
    for line in lines:  # one log may hold several tests
        words = line.lstrip("# ").split()
        if words[:2] == ["Using", "devices"]:
            ranks = {}
        elif local := _LOCAL.match(line):
            num_local = int(local[1])
        elif rank := _RANK.match(line):
            ranks[int(rank[1])] = rank
        elif words[:2] == ["size", "count"]:
            columns = words
        elif columns and line[:1].isdigit():
            num_nodes = len({match[2] for match in ranks.values()})
            tables.setdefault((kind or "all_reduce", len(ranks), num_nodes), []).extend(_row(words, columns))
        elif named := _BEGUN.search(line):
            kind = _kind(named, file)
    found: list[Figure] = _names(ranks, file)
    for (name, num_ranks, num_nodes), rows in tables.items():
        num_ranks = num_ranks or _ranks_of(name, rows)
        found += _figures(name, num_ranks, num_nodes or int(num_ranks == num_local), rows, file)
    return found


def _row(words: list[str], columns: list[str]) -> list[Row]:
    """(bytes, seconds, algbw, busbw) of the out-of-place columns; they follow the operation's own columns.

    Collectives without a reduction leave `redop` empty, so numbers are counted from the right: four (time algbw busbw
    check) in place, four out of place.
    """
    width = len(columns) - columns.index("time")
    values = words[-width:]
    try:
        size, time, algbw, busbw = (float(word) for word in (words[0], *values[:3]))
    except ValueError:
        return []
    return [(size, time * 1e-6, algbw * 1e9, busbw * 1e9)] if size > 0 and time > 0 and len(words) >= width + 2 else []


def _ranks_of(kind: str, rows: list[Row]) -> int:
    if not rows or kind not in ("all_reduce", "all_gather", "reduce_scatter"):
        return 0
    _size, _time, algbw, busbw = max(rows)
    share = busbw / algbw / (2.0 if kind == "all_reduce" else 1.0) if algbw else 0.0
    return round(1.0 / (1.0 - share)) if 0 < share < 1 else 0


def _kind(named: re.Match[str] | None, file: str) -> str:
    """Collective by the test's name, else by the file's; "" if neither tells."""
    name = (named["kind"] if named else file.rsplit("/", 1)[-1]).lower()
    plain = name.replace("_", "").replace("-", "")
    return next((kind for word, kind in _NAMES if word.replace("_", "") in plain), "")


def _names(ranks: dict[int, re.Match[str]], file: str) -> list[Figure]:
    named = [match for match in ranks.values() if match[4].strip()]
    return [
        Figure(quantity="gpu_name", value=0.0, source=file, at={"device": f"gpu{match[3]}"}, text=match[4].strip())
        for match in named
    ]


def _figures(kind: str, num_ranks: int, num_nodes: int, rows: list[Row], file: str) -> Iterator[Figure]:
    for size, seconds, _algbw, busbw in rows:
        at: dict[str, float | str] = {"kind": kind, "ranks": float(num_ranks), "nodes": float(num_nodes)}
        at |= {"size_bytes": size, "bus_bytes_per_s": busbw}
        yield Figure(quantity="collective", value=seconds, source=f"{file}: {kind} of {size:.0f} B", at=at)


def _of_json(text: str, file: str) -> Iterator[Figure]:
    try:
        document: Any = json.JSONDecoder().raw_decode(text)[0]
    except (json.JSONDecodeError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    devices = [item for item in document.get("devices") or () if isinstance(item, dict)]
    hosts = {str(item.get("hostname", item.get("host", ""))) for item in devices}
    for index, item in enumerate(devices):
        if name := str(item.get("device_info", item.get("name", ""))).strip():
            yield Figure(
                quantity="gpu_name", value=0.0, source=file, at={"device": f"gpu{item.get('device', index)}"}, text=name
            )
    rows = []
    for result in document.get("results") or ():
        place = result.get("out_of_place") if isinstance(result, dict) else None
        if isinstance(place, dict):
            times = place.get("times_us", place.get("time"))
            time = times[0] if isinstance(times, list) and times else times
            if isinstance(time, int | float) and time > 0 and result.get("size", 0) > 0:
                rates = [float(place.get(key, 0) or 0) * 1e9 for key in ("alg_bw", "bus_bw")]
                rows.append((float(result["size"]), time * 1e-6, rates[0], rates[1]))
    kind = _kind(_BEGUN.search(json.dumps(document.get("config", ""))), file) or "all_reduce"
    yield from _figures(kind, len(devices) or _ranks_of(kind, rows), len(hosts), rows, file)
