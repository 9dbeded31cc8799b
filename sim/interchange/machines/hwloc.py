"""XML of hwloc 2 and 3 (`lstopo FILE.xml`) -> a Layout: sockets, NUMA nodes of every kind, the PCI tree, GPU links.

Parsed with the standard library, which opens no external entity; internal ones are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

from sim.errors import Fault, InputError
from sim.interchange.machines.figures import Adapter, Layout, Node, Socket

Element = ElementTree.Element
_KINDS = {
    "": "dram", "DRAM": "dram", "HBM": "hbm", "MCDRAM": "hbm", "CXL-DRAM": "cxl", "CXL": "cxl", "NVM": "pmem", "SPM": "spm",
    "GPUMemory": "gpu",
}  # fmt: skip
_GPU_OS_NAMES = re.compile(r"^(?:cuda|nvml|rsmi|opencl|ze)\d")
_MIB, _KIB = 2.0**20, 2.0**10
#: PCI class of 3D controllers and processing accelerators
_GPU_CLASSES = ("0302", "1200")


def looks_like(text: str) -> bool:
    """Whether the text is XML with a topology as its root."""
    return text.lstrip("\ufeff \r\n\t").startswith("<") and "<topology" in text[:4096]


def parse(text: str, file: str) -> Layout:
    """The layout; raises InputError for damaged XML, for other XML (NCCL's), and for hwloc 1."""
    if "<!ENTITY" in text:
        raise InputError(Fault(what="declares XML entities", remedy="export it again with: lstopo FILE.xml", file=file))
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        what = f"is damaged XML: {error}"
        raise InputError(Fault(what=what, remedy="export it again with: lstopo FILE.xml", file=file)) from error
    if root.tag != "topology":
        what = f"is XML with the root <{root.tag}>, expected <topology> of hwloc"
        remedy = "NCCL's topology is not read: export with lstopo FILE.xml" if root.tag == "system" else "use lstopo FILE.xml"
        raise InputError(Fault(what=what, remedy=remedy, file=file))
    if not root.get("version", "1").startswith(("2", "3")):
        what = f"is of hwloc {root.get('version', '1')}, versions 2 and 3 are read"
        raise InputError(Fault(what=what, remedy="convert it: lstopo -i FILE.xml NEW.xml", file=file))
    return _Reader(root, file).layout()


class _Reader:
    def __init__(self, root: Element, file: str) -> None:
        self.root, self.file = root, file
        self.above = {child: parent for parent in root.iter() for child in parent}
        self.packages = [item for item in root.iter("object") if item.get("type") == "Package"]
        self.notes: list[str] = []

    def layout(self) -> Layout:
        sockets = tuple(self._socket(package) for package in self.packages)
        if not sockets:
            self.notes.append("the file lists no CPU package: one socket assumed")
            sockets = (self._socket(self.root),)
        devices = [item for item in self.root.iter("object") if item.get("type") == "PCIDev"]
        found = [(device, adapter) for device in devices if (adapter := self._adapter(device)) is not None]
        shared = Counter(self._root_port(device) for device, _ in found)
        adapters: Counter[str] = Counter()
        named, gpus = [], dict[str, int]()
        for device, adapter in found:
            port = self._root_port(device)
            switch = (
                f"switch{sorted(key for key, count in shared.items() if count > 1).index(port)}" if shared[port] > 1 else ""
            )
            if adapter.kind == "gpu":
                gpus |= dict.fromkeys(self._identities(device), adapters["gpu"])
            named.append(_named(adapter, f"{adapter.kind}{adapters[adapter.kind]}", switch))
            adapters[adapter.kind] += 1
        rates, into_switch = self._gpu_rates(gpus)
        return Layout(
            source=self.file, name=self._info(self.root, "HostName"), sockets=sockets, nodes=tuple(self._nodes()),
            adapters=tuple(named), gpu_rates=rates, gpu_switch_bytes_per_s=into_switch, notes=tuple(self.notes),
        )  # fmt: skip

    # ---- processors and memory

    def _socket(self, package: Element) -> Socket:
        below = list(package.iter("object"))
        # virtual machines and reduced files list threads without cores
        cores = sum(item.get("type") == "Core" for item in below) or sum(item.get("type") == "PU" for item in below)
        caches = [
            _number(item.get("cache_size"))
            for item in below
            if item.get("type") == "L3Cache" and item.get("subtype") != "MemorySideCache"
        ]
        return Socket(model=self._info(package, "CPUModel"), cores=cores, last_level_cache_bytes=sum(caches))

    def _nodes(self) -> Iterator[Node]:
        rates, latencies = (self._attribute(name) for name in ("Bandwidth", "Latency"))
        local: set[str] = set()
        for item in self.root.iter("object"):
            if item.get("type") != "NUMANode":
                continue
            subtype = item.get("subtype", "")
            kind = _KINDS.get(subtype, "dram")
            cores = item.get("cpuset", "")
            if not subtype and (cores in local or not _bits(cores)):
                kind, taken = ("gpu", "a GPU's memory") if self._is_superchip() else ("cxl", "CXL memory")
                self.notes.append(f"NUMA node {item.get('os_index')} has no cores of its own and no kind: taken as {taken}")
            local.add(cores)
            index = item.get("gp_index", "")
            yield Node(
                number=int(_number(item.get("os_index"))), kind=kind, capacity_bytes=_number(item.get("local_memory")),
                socket=self._socket_of(item), bandwidth_bytes_per_s=rates.get(index, 0.0) * _MIB,
                latency_s=latencies.get(index, 0.0) * 1e-9,
            )  # fmt: skip

    def _is_superchip(self) -> bool:
        """Whether a device or the product is named as one whose GPU memory is a NUMA node of the host."""
        return any(re.search(r"\bG[HB][123]00\b|Grace", info.get("value", "")) for info in self.root.iter("info"))

    def _attribute(self, name: str) -> dict[str, float]:
        """Best value of a memory attribute by target (its nearest initiator's)."""
        found: dict[str, float] = {}
        best = max if name == "Bandwidth" else min
        for attribute in self.root.iter("memattr"):
            if attribute.get("name") in (name, f"Read{name}"):
                for value in attribute.iter("memattr_value"):
                    target = value.get("target_obj_gp_index", "")
                    number = _number(value.get("value"))
                    found[target] = best(found.get(target, number), number)
        return found

    def _socket_of(self, item: Element) -> int:
        """The package around an object, or the one that its cores (or those around it) belong to."""
        walk: Element | None = item
        while walk is not None:
            if walk in self.packages:
                return self.packages.index(walk)
            own = _bits(walk.get("cpuset", ""))
            if own:
                shares = [len(own & _bits(package.get("cpuset", ""))) for package in self.packages]
                return shares.index(max(shares)) if shares else 0
            walk = self.above.get(walk)
        return 0

    # ---- devices

    def _adapter(self, device: Element) -> Adapter | None:
        below = [item for item in device.iter("object") if item.get("type") == "OSDev"]
        names = [item.get("name", "") for item in below]
        kind = device.get("pci_type", "")[:4]
        rate = _number(device.get("pci_link_speed")) * 1e9
        socket = self._socket_of(device)
        model = next((info for item in [*below, device] for key in ("GPUModel",) if (info := self._info(item, key))), "")
        if model or kind in _GPU_CLASSES or any(_GPU_OS_NAMES.match(name) for name in names):
            model = model or self._info(device, "PCIDevice")
            sizes = [_size(self._info(item, key)) for item in below for key in ("CUDAGlobalMemorySize", "RSMIVRAMSize")]
            return Adapter(
                kind="gpu", model=model, socket=socket, link_bytes_per_s=rate, capacity_bytes=max(sizes, default=0.0)
            )
        memory = [item for item in below if item.get("subtype") == "CXLMem"]
        if memory:
            size = sum(_size(self._info(item, key)) for item in memory for key in ("CXLRAMSize", "CXLPMEMSize"))
            return Adapter(kind="cxl", socket=socket, link_bytes_per_s=rate, capacity_bytes=size)
        model = self._info(device, "PCIDevice")
        if kind == "0108" or any(name.startswith("nvme") for name in names):
            size = max((_size(self._info(item, "Size")) for item in below), default=0.0)
            return Adapter(kind="nvme", model=model, socket=socket, link_bytes_per_s=rate, capacity_bytes=size)
        if any(re.match(r"(?:mlx\d|hfi|bnxt_re|irdma|efa)_?\d*", name) for name in names):
            return Adapter(kind="nic", model=model, socket=socket, link_bytes_per_s=rate)
        return None

    def _root_port(self, device: Element) -> str:
        """Identity of the topmost PCI bridge above a device: devices that share one share a switch."""
        bridges = []
        walk = self.above.get(device)
        while walk is not None:
            if walk.get("type") == "Bridge" and walk.get("bridge_type") == "1-1":
                bridges.append(walk.get("pci_busid") or walk.get("gp_index") or "")
            walk = self.above.get(walk)
        return bridges[-1] if bridges else f"alone {device.get('gp_index')}"

    def _identities(self, device: Element) -> list[str]:
        return [f"{item.get('type')}:{item.get('gp_index')}" for item in device.iter("object")]

    def _gpu_rates(self, gpus: dict[str, int]) -> tuple[dict[tuple[int, int], float], float]:
        """NVLink or xGMI rates (MB/s, one way): among GPUs, and from one GPU into all switches together."""
        rates: dict[tuple[int, int], float] = {}
        into_switch: Counter[int] = Counter()
        to_sockets: set[float] = set()
        for table in (item for item in self.root if item.tag in ("distances2hetero", "distances2")):
            if table.get("name") not in ("NVLinkBandwidth", "XGMIBandwidth"):
                continue
            names = _words(table, "indexes")
            if table.get("type"):
                names = [f"{table.get('type')}:{name}" for name in names]
            values = [_number(word) for word in _words(table, "u64values")]
            if len(values) != len(names) ** 2:
                self.notes.append(f"{table.get('name')}: {len(values)} values for {len(names)} devices: left out")
                continue
            for row, first in enumerate(names):
                for column, second in enumerate(names):
                    value = values[row * len(names) + column] * 1e6
                    if first not in gpus or row == column or not value:
                        continue
                    if second in gpus and gpus[first] < gpus[second]:
                        rates[gpus[first], gpus[second]] = value
                    elif second not in gpus and second.startswith(("Package", "NUMANode")):
                        to_sockets.add(value)
                    elif second not in gpus:
                        into_switch[gpus[first]] += value  # type: ignore[assignment]
        if to_sockets:
            rate = f"{max(to_sockets) / 1e9:.4g} GB/s"
            self.notes.append(f"NVLink between GPUs and sockets ({rate}) is not modelled: PCIe is taken")
        if into_switch:
            return {}, float(max(into_switch.values()))
        return rates, 0.0

    @staticmethod
    def _info(item: Element, name: str) -> str:
        return next((info.get("value", "") for info in item.findall("info") if info.get("name") == name), "")


def _named(adapter: Adapter, name: str, switch: str) -> Adapter:
    return Adapter(
        kind=adapter.kind, name=name, model=adapter.model, socket=adapter.socket, switch=switch,
        link_bytes_per_s=adapter.link_bytes_per_s, capacity_bytes=adapter.capacity_bytes,
    )  # fmt: skip


def _words(table: Element, tag: str) -> list[str]:
    return " ".join(item.text or "" for item in table.findall(tag)).split()


def _bits(cpuset: str) -> frozenset[int]:
    """Cores of "0x0000000f" or "0xf...f,,0x1": words of 32 bits, the most significant first; "0xf...f" is endless."""
    found = set()
    for place, word in enumerate(reversed(cpuset.replace("0xf...f", "").split(","))):
        try:
            value = int(word, 16) if word else 0
        except ValueError:
            return frozenset()
        found |= {32 * place + bit for bit in range(32) if value >> bit & 1}
    return frozenset(found)


def _number(text: str | None) -> float:
    """A number of the file; 0 where there is none. Raises InputError for what is none, or none of a machine."""
    try:
        value = float(text) if text else 0.0
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e18:
        what = f"holds {str(text)[:40]!r} where a size, a rate or a number of a device belongs"
        raise InputError(Fault(what=what, remedy="export it again with lstopo FILE.xml"))
    return value


def _size(text: str) -> float:
    """ "262144KiB" or a plain number of KiB -> bytes."""
    match = re.match(r"\s*(\d+)\s*(KiB|kB|MiB|GiB)?", text)
    return float(match[1]) * {"MiB": _MIB, "GiB": 2.0**30}.get(match[2] or "", _KIB) if match else 0.0
