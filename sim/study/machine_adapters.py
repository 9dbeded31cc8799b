"""Network adapters and drives of an imported machine, and the lanes that everything on a socket needs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sim.interchange.machines import Figure, Layout
from sim.study.machine_draft import Draft, catalogue_of, copied, gb_per_s

_ADAPTERS = {"pcie3": "connectx-4-edr", "pcie4": "connectx-6-hdr"}
_DRIVE = "nvme-pcie4-2tb"
#: blocks from this size on tell a drive's bandwidth, smaller ones its operations per second
_LARGE_BLOCK = 2**17


def add_adapters(draft: Draft, layout: Layout) -> None:
    """Adapters and drives; then every socket gets the lanes that its devices need."""
    _nics(draft, layout)
    _drives(draft, layout)
    _widen_sockets(draft)


def _widen_sockets(draft: Draft) -> None:
    """Devices that are there have lanes: a socket gets as many as they need where its part is thought to have fewer."""
    needed: Counter[str] = Counter()
    for entry in draft.devices.values():
        above = str(entry.get("to", ""))
        if above.startswith("cpu"):
            part: Any = draft.parts.get(entry["part"]) or catalogue_of(entry["part"]).parts[entry["part"]]
            link = entry.get("link") or (part.get("link") if isinstance(part, dict) else getattr(part, "link", None))
            lanes = link.get("lanes", 16) if isinstance(link, dict) else getattr(link, "lanes", 16)
            needed[above] += lanes["value"] if isinstance(lanes, dict) else lanes
    port = draft.parts.get("host-cpu", {}).get("pcie")
    have = port["lanes"]["value"] if port and isinstance(port["lanes"], dict) else port["lanes"] if port else 0
    if needed and max(needed.values()) > have:
        draft.assumptions = [line for line in draft.assumptions if not line.startswith("PCIe lanes of a socket")]
        lanes = draft.assume("PCIe lanes of a socket", max(needed.values()), "what the devices found on it need")
        draft.parts["host-cpu"]["pcie"] = {"part": port["part"], "lanes": lanes}


def _nics(draft: Draft, layout: Layout) -> None:
    adapters = layout.of_kind("nic")
    if not adapters:
        return
    cpus = sum(name.startswith("cpu") for name in draft.devices)
    if not cpus:
        return
    fastest = max((adapter.link_bytes_per_s for adapter in adapters), default=0.0)
    generation = "pcie3" if 0 < fastest < 16.5e9 else "pcie4" if 0 < fastest < 33e9 else "pcie5"
    part = _ADAPTERS.get(generation, "connectx-7-ndr")
    draft.assumptions.append(f"{len(adapters)} network adapters: {part} (the files do not tell their speed)")
    for index, adapter in enumerate(adapters):
        draft.devices[f"nic{index}"] = {"part": part, "to": f"cpu{min(adapter.socket, cpus - 1)}"}


def _drives(draft: Draft, layout: Layout) -> None:
    """NVMe drives: as fio measured them, else as in the catalogue."""
    direct = draft.of("storage_bandwidth", is_direct=1.0)
    if len(direct) < len(draft.of("storage_bandwidth")):
        draft.assumptions.append("fio jobs that do not tell direct=1 (through the page cache): not used")
    rates = [f for f in direct if not f.at["is_mixed"]]
    if len(rates) < len(direct):
        draft.assumptions.append("fio jobs that read and write at once: not used (neither rate is the drive's alone)")
    drives = layout.of_kind("nvme")
    cpus = sum(name.startswith("cpu") for name in draft.devices)
    if not cpus or not (rates or drives):
        return
    part = _drive_part(draft, layout, rates) if rates else _DRIVE
    if not rates:
        draft.assumptions.append(f"drives: {_DRIVE} (give --fio to calibrate)")
    if len(drives) > 1 and rates:
        draft.assumptions.append(f"fio measured one drive; the other {len(drives) - 1} are taken as equal")
    for index in range(max(1, len(drives))):
        socket = drives[index].socket if drives else 0
        draft.devices[f"nvme{index}"] = {"part": part, "to": f"cpu{min(socket, cpus - 1)}"}


def _drive_part(draft: Draft, layout: Layout, rates: list[Figure]) -> str:
    base: Any = catalogue_of(_DRIVE).parts[_DRIVE]
    changes: dict[str, Any] = {"title": "drive, as achieved", "efficiency": 1.0}
    for direction in ("read", "write"):
        large = [f for f in rates if f.at["direction"] == direction and float(f.at["block_bytes"]) >= _LARGE_BLOCK]
        key = f"{direction}_bandwidth"
        if large:
            best = max(large, key=lambda figure: figure.value)
            changes[key] = draft.measured(gb_per_s(best.value), [best], f"{direction}s of the drive")
        else:
            rate = getattr(base, key) * base.efficiency
            changes[key] = draft.assume(
                f"large {direction}s of the drive", gb_per_s(rate), f"{_DRIVE}; no fio job has such blocks"
            )
        single = draft.of("storage_latency", direction=direction, depth=1.0, is_direct=1.0, is_mixed=0.0)
        if single:
            quickest = min(single, key=lambda figure: figure.value)
            changes[f"{direction}_latency"] = draft.measured(f"{quickest.value * 1e6:.4g} us", [quickest], f"one {direction}")
    small = [
        f for f in rates if f.at["direction"] == "read" and f.at["pattern"] == "random" and float(f.at["block_bytes"]) <= 8192
    ]
    if small:
        most = max(small, key=lambda figure: float(figure.at["operations_per_s"]))
        operations = float(most.at["operations_per_s"])
        changes["read_operations"] = draft.measured(f"{operations:.6g} Hz", [most], "random reads per second")
    sizes = [drive.capacity_bytes for drive in layout.of_kind("nvme") if drive.capacity_bytes]
    if sizes:
        changes["capacity"] = {"value": f"{min(sizes) / 1e9:.6g} GB", "source": draft.cite("datasheet", layout.source)}
    draft.parts["drive"] = copied(draft, _DRIVE, changes)
    return "drive"
