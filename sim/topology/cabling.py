"""Links between devices: each direction a channel, with the limits inside switches and sockets that it shares."""

from __future__ import annotations

import dataclasses

from sim.records import INFINITY, Channel
from sim.topology import parts as p
from sim.topology.assembly import Assembly
from sim.topology.description import DeviceEntry
from sim.topology.graph import Edge
from sim.topology.wires import connection_of, join


def attach(built: Assembly, name: str, entry: DeviceEntry) -> None:
    """What the device hangs on: its own link up, or the memory bus; a network adapter also gets its wire out."""
    part = built.parts[entry.part]
    if isinstance(part, p.Nic):
        _network(built, name, part, entry.count)
    choice = connection_of(name, built.topology, built.parts)
    if choice is None:
        if isinstance(part, p.Storage):  # on the memory bus
            built.edges += [_bus(a, b) for up in entry.to for a, b in ((up, name), (name, up))]
        return
    link = built.part(choice.part, p.Link)
    for up in entry.to:
        join_devices(built, up, name, link, choice.lanes * entry.count)


def join_devices(built: Assembly, a: str, b: str, link: p.Link, lanes: int) -> None:
    """The link between two devices, with what it shares inside its ends."""
    ends = (built.parts[built.topology.devices[a].part], built.parts[built.topology.devices[b].part])
    limits = (0.0, 0.0)
    if isinstance(ends[1], p.Expander):
        count = built.topology.devices[b].count
        limits = (ends[1].write_bandwidth * count, ends[1].read_bandwidth * count)
    channels, edges = join(a, b, link, lanes, ends=ends, limits=limits)
    built.channels |= {channel.name: channel for channel in channels}
    parts = {a: ends[0], b: ends[1]}
    built.edges += [_crossing(built, edge, parts[edge.source], parts[edge.target]) for edge in edges]


def _crossing(built: Assembly, edge: Edge, source: p.Part, target: p.Part) -> Edge:
    """The edge with what it shares inside its ends: a switch's internal limit, a socket's limit of all its devices.

    What leaves a switch has crossed it once; a socket's devices share one channel per direction.
    """
    shared = {}
    if isinstance(source, p.Switch) and source.bandwidth:
        shared[f"{edge.source}.crossing"] = (source.bandwidth, edge.source)
    if edge.link in ("pcie", "cxl"):
        for part, name, way in ((source, edge.source, "out"), (target, edge.target, "in")):
            if isinstance(part, p.Cpu) and part.io_bandwidth:
                shared[f"{name}.io.{way}"] = (part.io_bandwidth, name)
    if not shared:
        return edge
    for name, (rate, device) in shared.items():
        built.channels[name] = Channel(name=name, bandwidth_per_s=rate, device=device)
    return dataclasses.replace(edge, channels=(*edge.channels, *shared))


def _network(built: Assembly, name: str, nic: p.Nic, count: int) -> None:
    link = built.part(nic.port.part, p.Link)
    channels, edges = join(name, "network", link, nic.port.lanes * count, ends=(nic, None))
    built.channels |= {channel.name: channel for channel in channels}
    built.edges += edges


def _bus(source: str, target: str) -> Edge:
    """A way that costs nothing: a module in a socket's own memory slots."""
    return Edge(
        source=source, target=target, link="package", channels=(), bandwidth_bytes_per_s=INFINITY, raw_bytes_per_s=INFINITY
    )
