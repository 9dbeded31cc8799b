"""The links among the GPUs of an imported machine: as a file counts them, or as measured collectives tell of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sim.errors import Fault, InputError
from sim.interchange.machines import Layout
from sim.study.machine_draft import Draft, catalogue_of, copied, gb_per_s

_GPU_SWITCHES = {"nvlink2": "nvswitch1", "nvlink3": "nvswitch2", "nvlink4": "nvswitch3", "nvlink5": "nvswitch4"}
_RATIO_LIMIT = 1.2


@dataclass(kw_only=True)
class GpuLinks:
    """Adds the links to a draft; `part` is the catalogue's GPU, `names` those of the machine."""

    draft: Draft
    layout: Layout
    part_name: str
    part: Any
    names: list[str]

    @property
    def catalogue(self) -> Any:
        """Parts that the GPU names, by name."""
        return catalogue_of(self.part_name).parts

    def add(self) -> None:
        """The links that a file shows, else those that collectives tell of."""
        layout, names = self.layout, self.names
        port = self.part.fabric
        if not (layout.gpu_links or layout.gpu_rates or layout.gpu_switch_bytes_per_s):
            if port is not None and self._is_linked():
                self._assume_links()
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

    def _is_linked(self) -> bool:
        """Whether collectives on this node alone were faster than PCIe carries."""
        pcie: Any = self.part.pcie and self.catalogue[self.part.pcie.part]
        limit = pcie.transfers * pcie.coding / 8.0 * self.part.pcie.lanes if pcie else 0.0
        own = self.draft.of("collective", ranks=float(len(self.names)), nodes=1.0)
        return max((float(f.at["bus_bytes_per_s"]) for f in own), default=0.0) > limit

    def _assume_links(self) -> None:
        """All links that the part has, by a switch where there is one of that kind, else divided among the others."""
        port, names = self.part.fabric, self.names
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
