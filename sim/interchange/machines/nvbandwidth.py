"""nvbandwidth, as text or as JSON (`-j`) -> figures of copies between host and GPUs and among GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sim.interchange.machines.figures import Figure

_DEVICE = re.compile(r"(?m)^\s*Device (\d+): ([^\n(]+?)\s*(?:\(([0-9a-fA-F:.]+)\))?\s*:?$")
_RUNNING = re.compile(r"^\s*Running (\w+?)\.")
_CELLS = re.compile(r"^[\s\d.]*(?:N/A|[\s\d.])*$")
_DIRECTIONS = (("host_to_device", "h2d"), ("device_to_host", "d2h"), ("device_to_device", "p2p"))


def looks_like(text: str) -> bool:
    """Whether nvbandwidth named itself or one of its test cases."""
    return "nvbandwidth" in text[:4096] or bool(re.search(r"(?m)^\s*Running \w+_memcpy_\w*(?:ce|sm)\.", text))


def parse(text: str, file: str) -> list[Figure]:
    """Figures of the test cases that passed; a row that is cut is left out."""
    start = text.find("{")
    if start >= 0 and '"nvbandwidth"' in text:
        try:
            document = json.JSONDecoder().raw_decode(text, start)[0]
        except (json.JSONDecodeError, RecursionError):
            document = {}
        if isinstance(document, dict) and isinstance(document.get("nvbandwidth"), dict):
            return list(_of_json(document["nvbandwidth"], file))
    return list(_of_text(text, file))


def _of_json(root: dict[str, Any], file: str) -> Iterator[Figure]:
    devices = root.get("GPU Device list")
    for item in devices if isinstance(devices, list) else ():
        if named := re.match(r"\s*(\d+): ([^(]+)", str(item)):
            yield _named(named[1], named[2], file)
    for case in root.get("testcases") or ():
        if isinstance(case, dict) and case.get("status") == "Passed" and isinstance(case.get("bandwidth_matrix"), list):
            rows = [[str(cell) for cell in row] for row in case["bandwidth_matrix"] if isinstance(row, list)]
            yield from _case(str(case.get("name", "")), rows, file)


def _of_text(text: str, file: str) -> Iterator[Figure]:
    for match in _DEVICE.finditer(text):
        yield _named(match[1], match[2], file)
    name, num_columns, rows = "", 0, list[list[str]]()
    for line in [*text.splitlines(), "Running end."]:
        if running := _RUNNING.match(line):
            yield from _case(name, rows, file)
            name, num_columns, rows = running[1], 0, []
        elif name and line.strip() and _CELLS.match(line):
            cells = line.split()
            if not num_columns:
                num_columns = len(cells)
            elif len(cells) == num_columns + 1 and not cells[-1].endswith("."):
                rows.append(cells[1:])


def _named(number: str, name: str, file: str) -> Figure:
    return Figure(quantity="gpu_name", value=0.0, source=file, at={"device": f"gpu{number}"}, text=name.strip())


def _case(name: str, rows: Sequence[Sequence[str]], file: str) -> Iterator[Figure]:
    """Copies of one test case; those of several GPUs at once and local copies tell no link's own rate."""
    direction = next((short for word, short in _DIRECTIONS if name.startswith(word)), "")
    if not direction or "latency" in name or "local" in name:
        return
    is_duplex = "bidirectional" in name
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            value = _rate(cell)
            if value <= 0 or (direction == "p2p" and row == column):
                continue
            device = f"gpu{column}" if direction != "p2p" else f"gpu{row}-gpu{column}"
            at: dict[str, float | str] = {"direction": direction, "device": device, "is_pinned": 1.0}
            at |= {"is_duplex": float(is_duplex), "engine": "sm" if name.endswith("_sm") else "ce"}
            yield Figure(quantity="copy", value=value, source=f"{file}: {name}", at=at)


def _rate(cell: str) -> float:
    try:
        return float(cell) * 1e9
    except ValueError:
        return 0.0
