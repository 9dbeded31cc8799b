"""The devices of an imported machine: GPUs with their host link and the links among them, adapters, drives."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sim.config.part_block import part_block
from sim.errors import Fault, InputError
from sim.interchange.machines import Figure, Layout
from sim.interchange.machines.figures import Adapter
from sim.probe.calibrate import start_and_rate
from sim.study.machine_adapters import add_adapters
from sim.study.machine_draft import Draft, catalogue_of, copied, gb_per_s, gpu_part, median, num_gpus

_GENERATIONS = ("pcie3", "pcie4", "pcie5", "pcie6")
_SWITCHES = {"pcie3": "pcie3-switch", "pcie4": "pcie4-switch", "pcie5": "pcie5-switch"}
_GPU_SWITCHES = {"nvlink2": "nvswitch1", "nvlink3": "nvswitch2", "nvlink4": "nvswitch3", "nvlink5": "nvswitch4"}
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
        catalogue = catalogue_of(self.part_name)
        self.part: Any = catalogue.parts[self.part_name]
        self.catalogue = catalogue.parts
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
        self._gpu_links(names)

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

    # ---- among each other

    def _gpu_links(self, names: list[str]) -> None:
        layout = self.layout
        port = self.part.fabric
        if not (layout.gpu_links or layout.gpu_rates or layout.gpu_switch_bytes_per_s):
            if port is not None and self._is_linked(len(names)):
                self._assume_links(names)
            elif port is not None and len(names) > 1 and not self.layout.of_kind("gpu"):
                self.draft.assumptions.append("links among GPUs: none (give --topo or --hwloc if there are)")
            return
        if port is None:
            what = f"the files show links between GPUs, {self.part_name} has none"
            raise InputError(Fault(what=what, remedy="name the GPU with --gpu PART", file=layout.source))
        link: Any = self.catalogue[port.part]
        raw = link.lane_bandwidth or link.transfers * link.coding / 8.0
        lanes = dict(layout.gpu_links) or {pair: max(1, round(rate / raw)) for pair, rate in layout.gpu_rates.items()}
        into = round(layout.gpu_switch_bytes_per_s / raw)
        most = max(lanes.values(), default=into)
        if most > port.lanes:
            what = f"{most} links at a GPU, {self.part_name} has {port.lanes}"
            raise InputError(Fault(what=what, remedy="name the GPU with --gpu PART", file=layout.source))
        part = self._collectives(port.part, raw * (into or self._per_gpu(lanes, len(names))), len(names))
        complete = len(lanes) == len(names) * (len(names) - 1) // 2 and len(set(lanes.values())) == 1
        is_full = complete and len(names) > 2 and most * (len(names) - 1) > port.lanes
        if port.part in _GPU_SWITCHES and (into or is_full):
            # every pair shows the same links and together they are more than a GPU has: a switch joins them
            self.draft.devices["nvswitch"] = {"part": _GPU_SWITCHES[port.part]}
            self.draft.links["gpu-links"] = {"part": part, "lanes": into or most, "between": ["gpu*", "nvswitch"]}
            return
        by_lanes: dict[int, list[list[str]]] = defaultdict(list)
        for (first, second), count in sorted(lanes.items()):
            by_lanes[count].append([names[first], names[second]])
        for count, pairs in by_lanes.items():
            self.draft.links[f"gpu-links-{count}"] = {"part": part, "lanes": count, "pairs": pairs}

    def _is_linked(self, num: int) -> bool:
        """Whether collectives on this node alone were faster than PCIe carries."""
        pcie: Any = self.part.pcie and self.catalogue[self.part.pcie.part]
        limit = pcie.transfers * pcie.coding / 8.0 * self.part.pcie.lanes if pcie else 0.0
        own = self.draft.of("collective", ranks=float(num), nodes=1.0)
        return max((float(f.at["bus_bytes_per_s"]) for f in own), default=0.0) > limit

    def _assume_links(self, names: list[str]) -> None:
        """All links that the part has, by a switch where there is one of that kind, else divided among the others."""
        port = self.part.fabric
        link: Any = self.catalogue[port.part]
        raw = link.lane_bandwidth or link.transfers * link.coding / 8.0
        part = self._collectives(port.part, raw * port.lanes, len(names))
        if port.part in _GPU_SWITCHES:
            self.draft.devices["nvswitch"] = {"part": _GPU_SWITCHES[port.part]}
            self.draft.links["gpu-links"] = {"part": part, "lanes": port.lanes, "between": ["gpu*", "nvswitch"]}
        else:
            lanes = max(1, port.lanes // (len(names) - 1))
            self.draft.links["gpu-links"] = {"part": part, "lanes": lanes, "mesh": names}
        self.draft.assumptions.append(
            f"links among GPUs: all {port.lanes} of {self.part_name} (collectives are faster than PCIe; give --topo to be sure)"
        )

    @staticmethod
    def _per_gpu(lanes: dict[tuple[int, int], int], num: int) -> int:
        """Links of one GPU: the sum over its partners, but what each pair shows where a switch joins them."""
        first = [count for (one, other), count in lanes.items() if 0 in (one, other)]
        is_switched = len(first) == num - 1 > 1 and len(set(lanes.values())) == 1
        return max(first, default=1) if is_switched else max(1, sum(first))

    def _collectives(self, name: str, raw: float, num: int) -> str:
        """The link part, with the efficiency and hop latency of measured collectives on one node."""
        own = [f for f in self.draft.of("collective", ranks=float(num)) if float(f.at["nodes"]) <= 1.0]
        reduces = [f for f in own if f.at["kind"] == "all_reduce"]
        chosen = reduces or own
        others = [f for f in self.draft.of("collective") if f.at["ranks"] != float(num)]
        if others and not chosen:
            self.draft.assumptions.append(
                f"collectives of {int(float(others[0].at['ranks']))} ranks: not of this node, not used"
            )
        if not chosen or num < 2:
            return name
        best = max(chosen, key=lambda figure: float(figure.at["bus_bytes_per_s"]))
        bus = float(best.at["bus_bytes_per_s"])
        share = min(_RATIO_LIMIT, bus / raw)
        told = self.draft.measured(gb_per_s(bus), [best], f"bus bandwidth of {best.at['kind']}") | {"value": round(share, 4)}
        changes: dict[str, Any] = {"collective_efficiency": told}
        if reduces:
            changes["switch_efficiency"] = told
        small = min(chosen, key=lambda figure: float(figure.at["size_bytes"]))
        if float(small.at["size_bytes"]) <= 4096:
            hop = small.value / (2.0 * (num - 1))
            changes["message_latency"] = self.draft.measured(f"{hop * 1e6:.3g} us", [small], "hop of a small collective")
        self.draft.parts["gpu-link"] = copied(self.draft, name, changes)
        return "gpu-link"
