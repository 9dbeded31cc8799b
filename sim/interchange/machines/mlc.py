"""Output of Intel's Memory Latency Checker (any selection of its tests, also with a shell session around it) -> figures."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sim.interchange.machines.figures import Figure

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_ROW = re.compile(rf"^\s*(\d+)((?:\s+(?:{_NUMBER}|-))+)\s*$")
_CURVE = re.compile(rf"^\s*(\d{{5}})\s+({_NUMBER})\s+({_NUMBER})\s*$")
_MIX = re.compile(rf"^(ALL Reads|[321]:1 Reads-Writes|Stream-triad like)\s*:\s*({_NUMBER})")
_MIX_LINE = re.compile(rf"(?m)^\s*ALL Reads\s*:\s*{_NUMBER}\s*$")
_CURVE_HEAD = re.compile(r"Inject\s+Latency\s+Bandwidth")
_IDLE = re.compile(rf"Each iteration took .*?\(\s*({_NUMBER})\s*ns\)")
#: traffic -> share of writes in the bytes
_WRITE_SHARES = {"ALL Reads": 0.0, "3:1 Reads-Writes": 0.25, "2:1 Reads-Writes": 1 / 3, "1:1 Reads-Writes": 0.5}
#: codes of -W -> share of writes: what `--loaded_latency` injects, as MLC's help lists them
_CODES = {2: 1 / 3, 3: 0.25, 5: 0.5, 6: 1.0, 7: 1 / 3, 8: 0.5, 9: 0.25, 10: 1 / 3, 11: 0.25, 12: 0.2}
_TRAFFIC = re.compile(r"(?:^|\s)-W\s?(\d+)\b")
_TARGET = re.compile(r"(?:^|\s)(?:-j\s?|--membind[= ]|-m\s?)(\d+)\b")
#: heading -> quantity of the rows below it; pasted matrices lose their heading and keep the line on the traffic
_SECTIONS = {
    "Measuring idle latencies": "memory_latency", "Measuring Memory Bandwidths between nodes": "memory_bandwidth",
    "Measuring Loaded Latencies": "loaded_latency",
}  # fmt: skip
#: a load that hits a cache is no memory latency: a test on a small buffer
_LEAST_LATENCY_NS = 20.0


def looks_like(text: str) -> bool:
    """Whether MLC named itself."""
    is_named = any(word in text for word in ("Memory Latency Checker", "Peak Injection Memory Bandwidths", *_SECTIONS))
    return is_named or bool(_CURVE_HEAD.search(text) or _MIX_LINE.search(text))


def parse(text: str, file: str) -> list[Figure]:
    """Figures of all tables; later tables of a kind win over earlier ones when the caller asks for one."""
    return list(_figures(text, file))


def _figures(text: str, file: str) -> Iterator[Figure]:
    section, write_share, target = "", 0.0, 0.0
    for raw in text.splitlines():
        line = re.sub(r"^\[[^\]]*\]<std\w+>:", "", raw).strip()
        if "mlc" in line or line.startswith("Command line parameters"):
            code = _TRAFFIC.search(line)
            write_share = _CODES.get(int(code[1]), 0.0) if code else 0.0
            target = float(node[1]) if (node := _TARGET.search(line)) else target if line.startswith("Command") else 0.0
        heading = next((quantity for words, quantity in _SECTIONS.items() if words in line), None)
        if heading is not None:
            section = heading
        elif "traffic type" in line:
            section = "loaded_latency" if section == "loaded_latency" else "memory_bandwidth"
        elif _CURVE_HEAD.search(line):
            section = "loaded_latency"
        elif line.startswith("Measuring"):
            section = ""
        elif match := _MIX.match(line):
            if match[1] in _WRITE_SHARES:
                at = {"write_share": _WRITE_SHARES[match[1]]}
                yield Figure(quantity="system_bandwidth", value=float(match[2]) * 1e6, source=f"{file}: {match[1]}", at=at)
        elif match := _IDLE.search(line):
            if float(match[1]) >= _LEAST_LATENCY_NS:
                at = {"from_node": 0.0, "to_node": target}
                yield Figure(quantity="memory_latency", value=float(match[1]) * 1e-9, source=f"{file}: idle latency", at=at)
        elif section == "loaded_latency" and (match := _CURVE.match(line)):
            at = {"bandwidth_bytes_per_s": float(match[3]) * 1e6, "write_share": write_share}
            yield Figure(quantity=section, value=float(match[2]) * 1e-9, source=f"{file}: delay {match[1]}", at=at)
        elif section in ("memory_latency", "memory_bandwidth") and (match := _ROW.match(line)):
            scale = 1e-9 if section == "memory_latency" else 1e6
            for column, cell in enumerate(match[2].split()):
                if cell != "-":
                    at = {"from_node": float(match[1]), "to_node": float(column)}
                    source = f"{file}: node {match[1]} to {column}"
                    yield Figure(quantity=section, value=float(cell) * scale, source=source, at=at)
