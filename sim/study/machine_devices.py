"""The devices of an imported machine: GPUs with their host link and the links among them, adapters, drives."""

from __future__ import annotations

from typing import Any

from sim.config.part_block import part_block
from sim.errors import Fault, InputError
from sim.interchange.machines import Figure, Layout
from sim.interchange.machines.figures import Adapter
from sim.probe.calibrate import start_and_rate
from sim.study.machine_adapters import add_adapters
from sim.study.machine_draft import Draft, catalogue_of, copied, gb_per_s, gpu_part, median, num_gpus
from sim.study.machine_gpu_links import GpuLinks

_GENERATIONS = ("pcie3", "pcie4", "pcie5", "pcie6")
_SWITCHES = {"pcie3": "pcie3-switch", "pcie4": "pcie4-switch", "pcie5": "pcie5-switch"}
_RATIO_LIMIT = 1.2


def add_devices(draft: Draft, layout: Layout) -> None:
    """Everything that hangs on the sockets."""
    gpus = layout.of_kind("gpu") or _gpus_of_figures(draft, layout)
    if gpus:
        _Gpus(draft, layout, gpus).add()
    elif draft.of("collective"):
        draft.assumptions.append("collectives: not used (the file does not list its GPUs; give --topo or --hwloc)")
    add_adapters(draft, layout)


def _gpus_of_figures(draft: Draft, layout: Layout) -> list[Adapter]:
    """GPUs that only measurements name."""
    count = num_gpus(draft, layout)
    if count > 1:
        draft.assumptions.append(f"where the {count} GPUs hang (give --hwloc or --topo to be sure)")
    return [Adapter(kind="gpu", name=f"gpu{number}") for number in range(count)]


class _Gpus:
    def __init__(self, draft: Draft, layout: Layout, gpus: list[Adapter]) -> None:
        self.draft, self.layout, self.gpus = draft, layout, gpus
        self.part_name = gpu_part(draft, layout)
        self.part: Any = catalogue_of(self.part_name).parts[self.part_name]
        self.num_cpus = sum(name.startswith("cpu") for name in draft.devices)

    def add(self) -> None:
        used = self._calibrated_part()
        if self.part.cpu:
            self.draft.assumptions.append(f"the processor is that of {self.part_name}: host and GPU share one memory")
            for adapter in self.gpus:
                self.draft.devices[adapter.name] = {"part": used}
            return
        host = self.draft.parts["host-cpu"]
        # Infinity Fabric to the host is the processor's of Frontier alone: other hosts hold MI250X on PCIe
        is_coherent = self.part.c2c is not None and ("c2c" in host or "7A53" in host["title"])
        link = self._host_link(is_coherent)
        names = [f"gpu{index}" for index in range(len(self.gpus))]
        switches = self._switches(link)
        for name, adapter in zip(names, self.gpus, strict=True):
            entry: dict[str, Any] = {"part": used}
            if not is_coherent:
                entry["to"] = switches.get(adapter.switch) or self._cpu(adapter)
                entry["link"] = link
            self.draft.devices[name] = entry
        if is_coherent:
            self.draft.links["c2c"] = {"part": link["part"], "lanes": self.part.c2c.lanes, **self._coherent_ends(names)}
        GpuLinks(draft=self.draft, layout=self.layout, part_name=self.part_name, part=self.part, names=names).add()

    def _cpu(self, adapter: Adapter) -> str:
        return f"cpu{min(adapter.socket, self.num_cpus - 1)}"

    def _coherent_ends(self, names: list[str]) -> dict[str, Any]:
        """Which GPU hangs on which processor, as `links` of a topology says it."""
        if self.num_cpus == len(names):
            return {"between": ["cpu0", "gpu0"]} if len(names) == 1 else {"matched": ["cpu*", "gpu*"]}
        return {"pairs": [[self._cpu(adapter), name] for name, adapter in zip(names, self.gpus, strict=True)]}

    # ---- the part

    def _calibrated_part(self) -> str:
        """The catalogue's part, or a copy with what was measured on the GPU itself."""
        draft = self.draft
        changes: dict[str, Any] = {}
        streams = draft.of("device_stream")
        if streams:
            kernels = {}
            for kernel in ("copy", "triad"):
                own = [figure for figure in streams if figure.at["kernel"] == kernel]
                if own:
                    share = median(own) / self.part.memory.bandwidth
                    if share > _RATIO_LIMIT:
                        peak = gb_per_s(self.part.memory.bandwidth)
                        what = f"{kernel} reaches {gb_per_s(median(own))}, {self.part_name} has {peak}"
                        raise InputError(
                            Fault(what=what, remedy="name the GPU with --gpu PART", file=own[0].source.split(": ")[0])
                        )
                    kernels[kernel] = draft.measured(f"{share:.4f}", own, f"GPU memory, {kernel}") | {"value": round(share, 4)}
            if kernels:
                changes["kernel_bandwidth"] = kernels
        reads = draft.of("memory_bandwidth") or draft.of("system_bandwidth", write_share=0.0)
        if self.part.cpu and reads:
            share = self._share(max(f.value for f in reads), self.part.memory.bandwidth, reads, f"{self.part_name}'s memory")
            told = draft.measured(gb_per_s(max(f.value for f in reads)), reads, "reads of the shared memory by the processor")
            memory = part_block(self.part)["memory"] | {"efficiency": told | {"value": share}}
            changes["memory"] = memory
        start = self._copy_start()
        if start is not None:
            changes["copy_latency"] = start
        if not changes:
            return self.part_name
        draft.parts["gpu"] = copied(draft, self.part_name, changes)
        return "gpu"

    def _copy_start(self) -> dict[str, Any] | None:
        """t0 of T = t0 + S/B over the sizes of one direction of pinned copies."""
        sized = [f for f in self.draft.of("copy", is_pinned=1.0, is_duplex=0.0) if f.at.get("size_bytes") and f.value > 0]
        direction = "h2d" if any(f.at["direction"] == "h2d" for f in sized) else "d2h"
        sized = [f for f in sized if f.at["direction"] == direction]
        if len({f.at["size_bytes"] for f in sized}) < 4:
            return None
        sizes = [float(f.at["size_bytes"]) for f in sized]
        start, _rate = start_and_rate(sizes, [size / f.value for size, f in zip(sizes, sized, strict=True)])
        return self.draft.measured(f"{start * 1e6:.4g} us", sized, "start of a copy")

    # ---- to the host

    def _host_link(self, is_coherent: bool) -> dict[str, Any]:
        """The link to the host as `link:` of a device; calibrated when copies were measured."""
        draft = self.draft
        down, up = (self._copies(direction) for direction in ("h2d", "d2h"))
        rate_down, rate_up = median(down), median(up)
        if is_coherent:
            port = self.part.c2c
        else:
            port = self.part.pcie
            if port is None:
                what = f"{self.part_name} has no PCIe link, and its host is not in the files"
                raise InputError(Fault(what=what, remedy="give --hwloc, or another --gpu"))
        name = port.part if is_coherent else self._generation(port, max(rate_down, rate_up))
        if not down and not up:
            draft.assumptions.append(f"copies between host and GPU: those of the part catalogue on {name}")
            return {"part": name, "lanes": port.lanes}
        link: Any = catalogue_of(name).parts[name]
        raw = (link.lane_bandwidth or link.transfers * link.coding / 8.0) * port.lanes
        changes: dict[str, Any] = {}
        for key, figures, rate in (("efficiency", down, rate_down), ("upward_efficiency", up, rate_up)):
            if figures:
                share = self._share(rate, raw, figures, f"{name} x{port.lanes}")
                what = "copies to the GPU" if key == "efficiency" else "copies to the host"
                changes[key] = draft.measured(gb_per_s(rate), figures, what) | {"value": share}
        changes.setdefault("efficiency", changes.get("upward_efficiency"))
        if is_coherent:
            changes["load_efficiency"] = changes["efficiency"]
        self._duplex(rate_down or rate_up, rate_up or rate_down)
        draft.parts["host-link"] = copied(draft, name, changes) | {"title": f"{link.title}, as achieved"}
        return {"part": "host-link", "lanes": port.lanes}

    def _copies(self, direction: str) -> list[Figure]:
        """The largest pinned copies of one direction alone, by the copy engine where there is a choice, from the near node."""
        found = [f for f in self.draft.of("copy", direction=direction, is_duplex=0.0) if f.at.get("is_pinned", 1.0) == 1.0]
        if engines := [f for f in found if f.at.get("engine") == "ce"]:
            found = engines
        largest = max((float(f.at.get("size_bytes", 0.0)) for f in found), default=0.0)
        found = [f for f in found if float(f.at.get("size_bytes", 0.0)) >= largest / 2.0]
        best: dict[object, Figure] = {}
        for figure in found:
            device = figure.at.get("device")
            if device not in best or figure.value > best[device].value:
                best[device] = figure
        return list(best.values())

    def _generation(self, port: Any, rate: float) -> str:
        """Slowest PCIe generation that carries what was measured: as the bus reports, else the GPU's own."""
        if port.part not in _GENERATIONS:
            return str(port.part)
        seen = max((adapter.link_bytes_per_s for adapter in self.gpus), default=0.0)
        for name in _GENERATIONS[: _GENERATIONS.index(port.part) + 1]:
            link: Any = catalogue_of(name).parts[name]
            raw = link.transfers * link.coding / 8.0 * port.lanes
            # a link that sleeps reports generation 1: a speed below what was measured says nothing
            if seen and seen >= rate and raw >= max(seen * 0.99, rate):
                return name
        return str(port.part)

    @staticmethod
    def _share(rate: float, raw: float, figures: list[Figure], name: str) -> float:
        share = rate / raw
        if share > _RATIO_LIMIT:
            what = f"copies at {gb_per_s(rate)} over {name}, which carries {gb_per_s(raw)}"
            raise InputError(Fault(what=what, remedy="name the GPU with --gpu PART", file=figures[0].source.split(": ")[0]))
        return round(share, 4)

    def _duplex(self, down: float, up: float) -> None:
        both = [
            f
            for f in self.draft.of("copy", is_duplex=1.0)
            if f.at["direction"] in ("h2d", "d2h") and f.at.get("engine") != "sm"
        ]
        if both and down and up:
            share = min(1.0, 2.0 * median(both) / (down + up))
            told = self.draft.measured(f"{share:.3f}", both, "both directions of the host link at once")
            self.draft.parts["host-cpu"]["port_duplex"] = told | {"value": round(share, 4)}

    def _switches(self, link: dict[str, Any]) -> dict[str, str]:
        """Device name of each PCIe switch that GPUs share."""
        names: dict[str, str] = {}
        base = link["part"] if link["part"] in _SWITCHES else getattr(self.part.pcie, "part", "pcie4")
        for adapter in self.gpus:
            if adapter.switch and adapter.switch not in names:
                names[adapter.switch] = f"switch{len(names)}"
                part = _SWITCHES.get(base, "pcie5-switch")
                self.draft.devices[names[adapter.switch]] = {"part": part, "to": self._cpu(adapter)}
        if names:
            draft = self.draft
            draft.assumptions.append("uplinks of PCIe switches: sixteen lanes each")
        return names
