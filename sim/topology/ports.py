"""Which links a part has, and how many lanes of each a machine uses: what cannot be plugged together is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sim.errors import Fault
from sim.topology import parts as p
from sim.topology.description import Topology
from sim.topology.wires import connection_of, connections, raw_rate

#: attributes of parts that are ports
_PORTS = ("pcie", "cxl", "sockets", "fabric", "c2c", "link", "port")
#: link type -> name for people
NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "upi": "UPI", "c2c": "chip-to-chip link", "pcie": "PCIe", "cxl": "CXL"}
#: CXL runs over PCIe lanes
_CARRIERS = {"cxl": ("cxl", "pcie"), "pcie": ("pcie", "cxl")}
#: types whose lanes at one device are counted together
_COUNTED = ("pcie", "cxl", "nvlink")
#: a chipset hangs on four lanes that data sheets do not count among a socket's, and a drive may hang on the chipset
CHIPSET_LANES = 4
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Plug:
    """One end of a link as the topology has it: `path` is where it is written, in full or (`is_implied`) by the part alone."""

    path: str
    is_implied: bool = False
    device: str
    part_name: str
    link: p.Link
    link_name: str
    lanes: int
    is_shared: bool = False  # its lanes add up with those of other links
    is_tree: bool = False  # the far end of a device's own link
    is_socket: bool = False  # between two sockets

    def at(self, key: str) -> str:
        """Path of the link's `part` or `lanes`."""
        return self.path if self.is_implied else f"{self.path}.{key}"


def check_ports(topology: Topology, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """Faults of links that a part does not have, has fewer lanes of, or has only in an older generation."""
    used: dict[tuple[str, str], int] = defaultdict(int)
    reported: set[tuple[str, str, str]] = set()
    for plug in _plugs(topology, parts):
        port = port_for(parts[plug.part_name], plug.link.type, parts)
        key = (plug.path, plug.part_name, plug.link.type)
        name = NAMES.get(plug.link.type, plug.link.type)
        if port is None:  # a CPU or a system on a chip may have ports that its part does not list
            if key not in reported and _is_missing(plug, parts):
                reported.add(key)
                yield Fault(path=plug.at("part"), what=f"{plug.part_name} ({plug.device}) has no {name}", remedy=_instead(plug))
            continue
        own = parts[port.part]
        assert isinstance(own, p.Link)
        used[plug.device, plug.link.type] += plug.lanes
        lanes = used[plug.device, plug.link.type] if plug.is_shared and plug.link.type in _COUNTED else plug.lanes
        spare = CHIPSET_LANES if plug.is_tree and isinstance(parts[plug.part_name], p.Cpu) else 0
        if plug.link.type == "cxl" and plug.is_tree:  # CXL runs on lanes of the socket's PCIe port
            used[plug.device, "pcie"] += plug.lanes
        has = getattr(parts[plug.part_name], "pcie", None)
        if plug.is_tree and has and used[plug.device, "pcie"] > has.lanes + spare and key not in reported:
            lanes, port, name = used[plug.device, "pcie"], has, "PCIe"
        if lanes > port.lanes + spare and key not in reported:
            reported.add(key)
            words = "lanes" if plug.link.type in ("pcie", "cxl") else "links"
            yield Fault(
                path=plug.at("lanes"), what=f"{lanes} {name} {words} at {plug.device}, {plug.part_name} has {port.lanes}",
                remedy=f"use at most {port.lanes}",
            )  # fmt: skip
        if (
            not (plug.is_tree and plug.is_implied)
            and raw_rate(plug.link) > raw_rate(own) * (1 + _ROUNDING)
            and key not in reported
        ):
            reported.add(key)
            what = f"{plug.link_name} is faster than what {plug.part_name} ({plug.device}) has"
            yield Fault(path=plug.at("part"), what=what, remedy=f"use {port.part}")


def _is_missing(plug: Plug, parts: Mapping[str, p.Part]) -> bool:
    """Whether a part without such a port surely has none: GPUs list theirs, CPUs CXL and, if any, their links to sockets."""
    part = parts[plug.part_name]
    if isinstance(part, p.Cpu):
        return (plug.link.type == "cxl" and plug.is_tree) or (plug.is_socket and part.sockets is not None)
    return isinstance(part, p.Gpu) and not plug.is_tree


def port_for(part: p.Part, link_type: str, parts: Mapping[str, p.Part]) -> p.Port | None:
    """The port of `part` into which a link of that type fits; None if it has none."""
    found: dict[str, p.Port] = {}
    for attribute in _PORTS:
        port = getattr(part, attribute, None)
        if isinstance(port, p.Port) and isinstance(link := parts.get(port.part), p.Link):
            found.setdefault(link.type, port)
    if isinstance(part, p.Cpu) and link_type == "cxl":
        return found.get("cxl")
    return next((found[kind] for kind in _CARRIERS.get(link_type, (link_type,)) if kind in found), None)


def _plugs(topology: Topology, parts: Mapping[str, p.Part]) -> Iterator[Plug]:
    """Both ends of every link, in file order."""
    devices = topology.devices
    for name, entry in devices.items():
        uplink = connection_of(name, topology, parts) if entry.to else None
        link = parts.get(uplink.part) if uplink else None
        if uplink is None or not isinstance(link, p.Link):
            continue
        path = f"devices.{name}.link" if entry.link else f"devices.{name}"
        common = {"path": path, "is_implied": entry.link is None, "link": link, "link_name": uplink.part}
        if not isinstance(parts[entry.part], p.Switch):
            yield Plug(device=name, part_name=entry.part, lanes=uplink.lanes, **common)  # type: ignore[arg-type]
        for up in entry.to:
            if up in devices and not isinstance(parts[devices[up].part], p.Switch):
                above = devices[up].part
                yield Plug(device=up, part_name=above, lanes=uplink.lanes * entry.count, is_shared=True, is_tree=True, **common)  # type: ignore[arg-type]
    for key, group in topology.links.items():
        link = parts.get(group.part)
        if not isinstance(link, p.Link):
            continue
        for pair in connections(group, devices):
            is_socket = all(end in devices and isinstance(parts[devices[end].part], p.Cpu) for end in pair)
            for device in pair:
                if device in devices and not isinstance(parts[devices[device].part], p.Switch):
                    yield Plug(
                        path=f"links.{key}", device=device, part_name=devices[device].part, link=link,
                        link_name=group.part, lanes=group.lanes, is_shared=True, is_socket=is_socket,
                    )  # fmt: skip


def _instead(plug: Plug) -> str:
    if plug.link.type == "cxl":
        return "hang it on a socket with CXL"
    if plug.link.type in ("nvlink", "xgmi") and not plug.is_socket:
        return "remove the link: copies between the devices go over PCIe"
    return "use a link that the part has"


def check_connected(topology: Topology, parts: Mapping[str, p.Part]) -> Iterator[Fault]:
    """Faults of devices that no chain of links joins to a processor that runs host code."""
    devices = topology.devices
    root = {name: name for name in devices}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    for name, entry in devices.items():
        for up in entry.to:
            if up in devices:
                root[find(name)] = find(up)
    for group in topology.links.values():
        for a, b in connections(group, devices):
            if a in devices and b in devices:
                root[find(a)] = find(b)
    hosts = {find(name) for name, entry in devices.items() if _runs_host_code(parts[entry.part])}
    for name in devices:
        if find(name) not in hosts:
            yield Fault(
                path=f"devices.{name}", what=f"{name!r} is connected to no CPU",
                remedy="hang it on a device with 'to:', or join it by a link",
            )  # fmt: skip


def _runs_host_code(part: p.Part) -> bool:
    return isinstance(part, p.Cpu) or (isinstance(part, p.Gpu) and bool(part.cpu))
