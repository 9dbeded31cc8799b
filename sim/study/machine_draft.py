"""A machine's topology document while it grows from the files of tools: devices, parts, sources and what was assumed."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.config.part_block import part_block
from sim.config.parts import Catalogue, load_parts, part_names
from sim.errors import Fault, InputError
from sim.interchange.gpu_names import part_of
from sim.interchange.machines import Figure, Layout
from sim.interchange.machines.figures import Adapter

ASSUMED = "assumed"
#: raw rate of 16 lanes of PCIe 4, bytes/s (PCI-SIG: 16 GT/s, 128b/130b)
_PCIE4_X16 = 31.5e9
_PCIE5_X16 = 63e9
#: raw rate of the twelve links of an A100 (NVIDIA), bytes/s
_NVLINK3 = 300e9


@dataclass(slots=True, kw_only=True)
class Draft:
    """A topology document while it grows, with where each number comes from."""

    layouts: Sequence[Layout]
    figures: Sequence[Figure]
    gpu: str = ""
    devices: dict[str, Any] = field(default_factory=dict)
    links: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)  # what was calibrated by which file

    def of(self, quantity: str, **at: object) -> list[Figure]:
        """Figures of a quantity whose `at` has these values."""
        return [f for f in self.figures if f.quantity == quantity and all(f.at.get(key) == value for key, value in at.items())]

    def cite(self, kind: str, text: str) -> str:
        """Key of a source; equal ones share one."""
        for key, source in self.sources.items():
            if source == {"kind": kind, "cite": text}:
                return key
        key = ASSUMED if kind == "assumed" and ASSUMED not in self.sources else f"source-{len(self.sources)}"
        self.sources[key] = {"kind": kind, "cite": text}
        return key

    def measured(self, text: str, figures: Sequence[Figure], what: str) -> dict[str, Any]:
        """A value with the files of its figures as source."""
        files = ", ".join(dict.fromkeys(figure.source.split(": ")[0] for figure in figures))
        self.used.append(f"{what} {text} ({files})")
        return {"value": text, "source": self.cite("microbenchmark", files)}

    def assume(self, what: str, value: Any, why: str = "") -> dict[str, Any]:
        """A value that no file tells; it is listed."""
        self.assumptions.append(f"{what}: {value}{f' ({why})' if why else ''}")
        return {"value": value, "source": self.cite("assumed", "typical of its kind; no file given tells it")}

    def layout(self) -> Layout:
        """What the files say together: processors and memory from hwloc, devices from the file that lists most GPUs."""
        if not self.layouts:
            return Layout(source="")
        base = max(self.layouts, key=lambda item: (len(item.nodes), len(item.sockets)))
        devices = max(self.layouts, key=lambda item: len(item.of_kind("gpu")))
        links = next((item for item in self.layouts if item.gpu_links), devices)
        rates = next((item for item in self.layouts if item.gpu_rates or item.gpu_switch_bytes_per_s), devices)
        names = {adapter.name: adapter.model for item in self.layouts for adapter in item.adapters if adapter.model}
        others = [item for item in base.adapters if base is not devices and item.kind not in {a.kind for a in devices.adapters}]
        # nvidia-smi tells NUMA nodes: with several to a socket, neighbours share one
        num, seen = len(base.sockets) or 1, len(devices.sockets) or 1
        adapters = [
            Adapter(kind=a.kind, name=a.name, model=a.model or names.get(a.name, ""),
                    socket=a.socket * num // seen if seen > num and a in devices.adapters else a.socket, switch=a.switch,
                    link_bytes_per_s=a.link_bytes_per_s, capacity_bytes=a.capacity_bytes)
            for a in (*devices.adapters, *others)
        ]  # fmt: skip
        return Layout(
            source=base.source, name=base.name or devices.name,
            sockets=base.sockets if base.nodes else max((base.sockets, devices.sockets), key=len), nodes=base.nodes,
            adapters=tuple(adapters), gpu_links=links.gpu_links, gpu_rates=rates.gpu_rates,
            gpu_switch_bytes_per_s=rates.gpu_switch_bytes_per_s, gpu_vendor=links.gpu_vendor or devices.gpu_vendor,
            has_gpu_nodes=any(item.has_gpu_nodes for item in self.layouts),
            notes=tuple(note for item in self.layouts for note in item.notes),
        )  # fmt: skip


def catalogue_of(*names: str) -> Catalogue:
    """Parts of the catalogue by name, with those that they name."""
    return load_parts(list(names))


def copied(draft: Draft, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Block of a catalogue part with single numbers replaced; the others cite the catalogue."""
    block = part_block(load_parts([name]).parts[name])
    source = draft.cite("datasheet", f"part catalogue of tiersim: {name}")
    return {**block, "source": source, **changes}


def matching_cpu(model: str) -> str:
    """Catalogue part of a CPU as the operating system names it ("Intel(R) Xeon(R) Platinum 8480+"); "" if there is none."""
    tokens = [token.lower() for token in re.findall(r"[A-Za-z]*\d{3,5}[A-Za-z]{0,2}\d?", model)]
    if re.search(r"neoverse-v2|grace", model, re.I):
        return "grace-480gb"
    for token in tokens:
        for name in part_names():
            if re.match(r"(?:xeon|epyc|ryzen|core|threadripper)", name) and token == name.rsplit("-", 1)[-1]:
                return name
    return ""


def gpu_part(draft: Draft, layout: Layout) -> str:
    """Catalogue part of the GPUs: as asked, as a file names them, else a guess that is listed."""
    names = part_names()
    if draft.gpu:
        if draft.gpu not in names:
            raise InputError(Fault(what=f"--gpu {draft.gpu!r} is not in the part catalogue", remedy="see `tiersim list parts`"))
        return draft.gpu
    adapters = layout.of_kind("gpu")
    told = [(a.model, a.capacity_bytes) for a in adapters if a.model] + [(f.text, 0.0) for f in draft.of("gpu_name")]
    for model, memory in told:
        if (part := part_of(model, memory)) in names:
            return part
    if told:
        what = f"GPU {told[0][0]!r} is not in the part catalogue"
        raise InputError(Fault(what=what, remedy="name the nearest with --gpu PART (see `tiersim list parts`)"))
    most = max(layout.gpu_links.values(), default=0)
    copies = [f.value for f in draft.of("copy") if f.at.get("direction") in ("h2d", "d2h")]
    bus = max((float(f.at["bus_bytes_per_s"]) for f in draft.of("collective", nodes=1.0)), default=0.0)
    guesses = {18: "h100-sxm", 12: "a100-80gb-sxm", 6: "v100-32gb-sxm", 4: "rtx-3090", 2: "v100-32gb-sxm"}
    if layout.gpu_vendor == "amd":
        part, why = _amd_guess(layout.gpu_links)
    elif layout.has_gpu_nodes and most:
        part, why = ("gb200" if most > 6 else "gh200-96gb"), "by its NVLinks and its memory that is a NUMA node of the host"
    elif most:
        part, why = guesses.get(most, "v100-32gb-sxm"), f"by its {most} NVLinks"
    elif bus > _PCIE5_X16:
        part = "h100-sxm" if bus > _NVLINK3 else "a100-80gb-sxm"
        why = f"by collectives at {gb_per_s(bus)}, more than PCIe carries"
    elif copies and max(copies) > _PCIE4_X16:
        part, why = "h100-pcie", f"by copies at {gb_per_s(max(copies))}, more than PCIe 4 carries"
    else:
        part, why = "a100-80gb-pcie", "no file names it"
    draft.assumptions.append(f"GPU model: {part} ({why}; --gpu PART says otherwise)")
    draft.gpu = part  # asked once
    return part


def _amd_guess(links: Mapping[tuple[int, int], int]) -> tuple[str, str]:
    """(part, why) by the shape of the xGMI links: a complete mesh of eight; dies that share packages; bridges; none."""
    partners: dict[int, set[int]] = defaultdict(set)
    for first, second in links:
        partners[first] |= {first, second}
        partners[second] |= {first, second}
    if not links:
        return "mi210", "no links among the GPUs, and no file names it"
    if max(links.values()) > 1 or any(partners[other] != own for own in partners.values() for other in own):
        return "mi250x-die", "by xGMI links that differ between pairs"
    return ("mi300x", "by its mesh of xGMI links") if len(partners[0]) > 4 else ("mi210", "by its bridge of xGMI links")


def apu_of(draft: Draft, layout: Layout) -> str:
    """Catalogue part of the GPUs if it is a processor with its own cores; "" otherwise."""
    if not num_gpus(draft, layout):
        return ""
    part: Any = catalogue_of(name := gpu_part(draft, layout)).parts[name]
    return name if part.cpu else ""


def num_gpus(draft: Draft, layout: Layout) -> int:
    """GPUs of the layout, else those that measurements name (gpu0, gpu1, ...) or that took part in a collective on one
    node, else one if `gpu` was asked for."""
    if known := len(layout.of_kind("gpu")):
        return known
    words = [word for figure in draft.figures for word in str(figure.at.get("device", "")).split("-")]
    numbers = {int(word[3:]) for word in words if word.startswith("gpu") and word[3:].isdigit()}
    ranks = [int(float(figure.at["ranks"])) for figure in draft.of("collective", nodes=1.0)]
    return max(max(numbers, default=0 if draft.gpu else -1) + 1, *ranks, 0)


def median(figures: Iterable[Figure]) -> float:
    """Median value of figures; 0 without any."""
    values = [figure.value for figure in figures]
    return statistics.median(values) if values else 0.0


def gb_per_s(rate: float) -> str:
    """A rate as topology files write it."""
    return f"{rate / 1e9:.5g} GB/s"
