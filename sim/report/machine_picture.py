"""The machine as a picture: devices in layers from storage to GPUs, links with what they carry."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.report.style import INK, figure, legend_below, patches, save, titled
from sim.topology.machine import Machine
from sim.units import format_bandwidth, format_bytes

_COLOURS = {
    "gpu": "#CDE3F2", "apu": "#CDE3F2", "cpu": "#CFEAE1", "switch": "#E6E6E6", "nic": "#E6E6E6", "cxl": "#F7DCC8",
    "pmem": "#F7DCC8", "pool": "#F7DCC8", "nvme": "#F0DAE6",
}  # fmt: skip
_LINKS = {
    "pcie": "#555555", "cxl": "#D55E00", "nvlink": "#0072B2", "c2c": "#009E73", "xgmi": "#009E73", "upi": "#009E73",
    "network": "#CC79A7", "io": "#999999",
}  # fmt: skip


Place = tuple[float, float]


def draw_machine(machine: Machine, path: Path, *, note: str = "") -> Path:
    """One node of the machine: boxes are devices with their memory, lines are links (both directions in one).

    `note` says which of several machines this is.
    """
    boxes = _boxes(machine)
    places = _places(machine, boxes)
    columns = max(x for x, _y in places.values()) + 1
    depth = -min(y for _x, y in places.values()) + 1
    fig = figure(max(7.0, 1.5 * columns), 1.5 + 1.35 * depth)
    axes = fig.add_subplot()
    axes.set_axis_off()
    used = _draw_links(axes, machine, places)
    for name, members in boxes.items():
        kind = machine.devices[name].kind
        box = {"boxstyle": "round,pad=0.4", "facecolor": _COLOURS.get(kind, "#FFFFFF"), "edgecolor": INK, "linewidth": 0.8}
        x, y = places[name]
        axes.text(x, y, _caption(machine, members), ha="center", va="center", fontsize=8, color=INK, bbox=box, zorder=3)
    axes.set_xlim(-0.6, columns - 0.4)
    axes.set_ylim(-depth + 0.5, 0.5)
    nodes = f", {machine.num_nodes} such nodes" if machine.num_nodes > 1 else ""
    titled(fig, f"{machine.title or machine.name}{nodes}", f"{note}; {_finding(machine)}" if note else _finding(machine))
    keys = [(colour, kind) for kind, colour in _LINKS.items() if kind in used]
    legend_below(fig, patches(keys), [label for _colour, label in keys], num_columns=8)
    return save(fig, path)


def _finding(machine: Machine) -> str:
    """How much memory there is, by kind of tier, and what one direction of a link carries."""
    totals: dict[str, float] = defaultdict(float)
    for tier in machine.tiers.values():
        totals[tier.kind] += tier.capacity_bytes * tier.multiplicity
    memory = ", ".join(f"{format_bytes(size)} {kind}" for kind, size in totals.items())
    return f"memory of a node: {memory}; numbers on links are per direction"


def _boxes(machine: Machine) -> dict[str, list[str]]:
    """First device of each box -> all devices in it."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, device in machine.devices.items():
        alone = name if device.kind in ("gpu", "apu", "cpu", "switch") else ""
        groups.setdefault((device.kind, device.part_name, device.to, device.host, alone), []).append(name)
    return {members[0]: members for members in groups.values()}


def _row(machine: Machine, name: str) -> int:
    """Fabric switches on top, then GPUs, PCIe and CXL switches, sockets, and what hangs on them."""
    device = machine.devices[name]
    if device.kind in ("gpu", "apu"):
        return 1
    if device.kind == "switch":
        return 2 if device.to else 0
    return 3 if device.kind == "cpu" else 4


def _places(machine: Machine, boxes: Mapping[str, list[str]]) -> dict[str, Place]:
    """Where each box stands: below or above the middle of what it is wired to, a box apart from its neighbours."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    first = {member: name for name, members in boxes.items() for member in members}
    for edge in machine.edges:
        if edge.source in first and edge.target in first:
            neighbours[first[edge.source]].add(first[edge.target])
            neighbours[first[edge.target]].add(first[edge.source])
    rows: dict[int, list[str]] = defaultdict(list)
    for name in boxes:
        rows[_row(machine, name)].append(name)
    used = sorted(rows)
    start = 1 if 1 in rows else max(used, key=lambda row: len(rows[row]))
    x: dict[str, float] = {name: float(index) for index, name in enumerate(rows[start])}
    for row in sorted((row for row in used if row != start), key=lambda row: (row < start, abs(row - start))):
        wanted = {name: _mean([x[other] for other in neighbours[name] if other in x], len(x)) for name in rows[row]}
        position = -math.inf
        names = sorted(rows[row], key=lambda name: (wanted[name], name))
        for name in names:
            position = x[name] = max(wanted[name], position + 1.0)
        shift = _mean([x[name] - wanted[name] for name in names], 0)
        x.update({name: x[name] - shift for name in names})
    left = min(x.values())
    levels = {row: -float(index) for index, row in enumerate(used)}
    return {name: (x[name] - left, levels[_row(machine, name)]) for name in boxes}


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else float(default)


def _draw_links(axes: Any, machine: Machine, places: Mapping[str, Place]) -> set[str]:
    """Lines between devices; returns the kinds drawn. The first link of a kind and speed is labelled."""
    used: set[str] = set()
    pairs: dict[tuple[str, str], tuple[str, float]] = {}
    for edge in machine.edges:
        if edge.source in places and edge.target in places:
            first, second = sorted((edge.source, edge.target), key=lambda name: places[name])
            pairs[first, second] = (edge.link, max(edge.bandwidth_bytes_per_s, pairs.get((first, second), ("", 0.0))[1]))
    labelled: set[tuple[str, float]] = set()
    for (first, second), (kind, bandwidth) in pairs.items():
        (x0, y0), (x1, y1) = places[first], places[second]
        used.add(kind)
        is_bent = y0 == y1 and abs(x0 - x1) > 1.01
        arrow = {"arrowstyle": "-", "color": _LINKS.get(kind, INK), "linewidth": 1.5}
        arrow["connectionstyle"] = f"arc3,rad={0.25 if is_bent else 0.0}"
        axes.annotate("", (x1, y1), (x0, y0), arrowprops=arrow, zorder=1)
        if (kind, bandwidth) in labelled:
            continue
        labelled.add((kind, bandwidth))
        y = (y0 + y1) / 2 - (0.125 * abs(x1 - x0) if is_bent else 0.0)
        halo = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.9}
        style = {"fontsize": 8, "ha": "center", "va": "center", "color": _LINKS.get(kind, INK)}
        axes.text((x0 + x1) / 2, y, format_bandwidth(bandwidth), bbox=halo, zorder=2, **style)
    return used


def _caption(machine: Machine, members: list[str]) -> str:
    name = members[0]
    device = machine.devices[name]
    number = device.count * len(members)
    lines = [name if len(members) == 1 else f"{name} to {members[-1]}"]
    lines.append(device.part_name + (f" x{number}" if number > 1 else ""))
    for tier in machine.tiers.values():
        if tier.device == name:
            media = machine.media.get(tier.name)
            channel = machine.channels.get(media.channel) if media else None
            speed = f", {format_bandwidth(channel.bandwidth_per_s)}" if channel else ""
            lines.append(f"{format_bytes(tier.capacity_bytes)}{speed}")
    return "\n".join(lines)
