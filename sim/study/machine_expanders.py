"""CXL memory of an imported machine: NUMA nodes without cores, or memory devices on the bus, as achieved."""

from __future__ import annotations

from collections import defaultdict

from sim.interchange.machines import Figure, Layout
from sim.study.machine_draft import Draft, gb_per_s
from sim.study.machine_figures import Grid

#: rate and latency of an expander, and lanes of a socket, that no file tells (assumed, listed)
_CXL_RATE, _CXL_NS = 25e9, 250
_LANES = 128


def add_expanders(draft: Draft, layout: Layout, grid: Grid) -> None:
    """A CXL device for each node of that kind, or each memory device on the bus, or each column of MLC without a row."""
    nodes = [node for node in layout.nodes if node.kind == "cxl"]
    boards = layout.of_kind("cxl")
    found: list[tuple[int, float, int]] = [(node.socket, node.capacity_bytes, node.number) for node in nodes]
    if not found:
        found = [(board.socket, board.capacity_bytes, -1) for board in boards]
    if not found and grid.without_cores:
        draft.assumptions.append("NUMA nodes without cores: CXL memory of the first socket")
        found = [(0, 0.0, number) for number in grid.without_cores]
    found = _numbered(draft, found, grid.without_cores)
    by_number: dict[int, dict[str, list[Figure]]] = defaultdict(lambda: {"latency": [], "bandwidth": []})
    for name, table in (("latency", grid.latency), ("bandwidth", grid.bandwidth)):
        for (_, column), figure in table.items():
            by_number[column][name].append(figure)
    if found:  # it is there, so the socket speaks it
        draft.parts["host-cpu"].setdefault(
            "cxl", {"part": "cxl2-pcie5", "lanes": draft.assume("CXL lanes of a socket", _LANES)}
        )
    for index, (socket, capacity, number) in enumerate(found):
        part = f"cxl-memory-{index}"
        latency, bandwidth = by_number[number]["latency"], by_number[number]["bandwidth"]
        size = (
            {"value": f"{capacity / 2**30:.6g} GiB", "source": draft.cite("datasheet", layout.source)}
            if capacity
            else draft.assume(f"capacity of cxl{index}", "128 GiB")
        )
        rate = (
            draft.measured(gb_per_s(max(f.value for f in bandwidth)), bandwidth, f"reads of node {number}")
            if bandwidth
            else draft.assume(f"reads of cxl{index}", gb_per_s(_CXL_RATE))
        )
        idle = (
            draft.measured(f"{min(f.value for f in latency) * 1e9:.5g} ns", latency, f"latency of node {number}")
            if latency
            else draft.assume(f"latency of cxl{index}", f"{_CXL_NS} ns")
        )
        lanes = 8 if float(str(rate["value"]).split()[0]) < 28 else 16
        link = draft.assume(f"link of cxl{index}", lanes, "CXL 2.0 lanes at 32 GT/s")
        draft.parts[part] = {
            "kind": "cxl", "title": f"CXL memory {index}, as achieved", "source": rate["source"],
            "link": {"part": "cxl2-pcie5", "lanes": link}, "memory": "host-memory", "channels": 1, "capacity": size,
            "latency": {"idle": idle}, "read_bandwidth": rate,
        }  # fmt: skip
        draft.devices[f"cxl{index}"] = {"part": part, "to": f"cpu{min(socket, _last_cpu(draft))}"}


def _numbered(draft: Draft, found: list[tuple[int, float, int]], measured: list[int]) -> list[tuple[int, float, int]]:
    """Memory devices with the NUMA nodes that MLC measured, where the layout's numbers are others: in order, if as many."""
    if not found or not measured or set(measured) & {number for _, _, number in found}:
        return found
    if len(found) == len(measured):
        return [(socket, size, number) for (socket, size, _), number in zip(found, sorted(measured), strict=True)]
    nodes = ", ".join(map(str, measured))
    draft.assumptions.append(f"measured NUMA nodes without cores ({nodes}): not used, the layout has {len(found)} of them")
    return found


def _last_cpu(draft: Draft) -> int:
    return sum(name.startswith("cpu") for name in draft.devices) - 1
