"""From a described topology and its parts to a Machine: what cannot exist is refused, the rest is assembled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from sim.errors import MachineError
from sim.topology import parts as p
from sim.topology.assembly import Assembly
from sim.topology.cabling import attach, join_devices
from sim.topology.description import Topology
from sim.topology.device_tiers import add_device, cache_by_dram
from sim.topology.limits import check
from sim.topology.lint import Setup, advice_of, warnings_of
from sim.topology.machine import Machine
from sim.topology.wires import connections


def build(topology: Topology, parts: Mapping[str, p.Part], sources: Mapping[str, Mapping[str, str]], file: str = "") -> Machine:
    """The machine that a topology describes.

    `parts` holds every part that is named (transitively), `sources` part name -> field path -> citation. Raises
    MachineError with all faults when the machine cannot exist.
    """
    faults = [dataclasses.replace(fault, file=file) for fault in check(topology, parts)]
    if faults:
        raise MachineError(faults)
    built = _assemble(topology, parts)
    cited = {
        f"{name}.{path}": citation
        for name, device in built.devices.items()
        for path, citation in sources.get(device.part_name, {}).items()
    }
    assumed = tuple(f"{path}: {citation}" for path, citation in cited.items() if citation.startswith("assumed"))
    setup = Setup(topology=topology, parts=parts, devices=built.devices, edges=tuple(built.edges))
    return Machine(
        name=topology.name,
        title=topology.title or topology.name,
        devices=built.devices,
        tiers=built.tiers,
        channels=built.channels,
        num_nodes=topology.nodes,
        reserved_bytes=topology.reserved,
        limits=topology.limits,
        lent_bytes=topology.shared_gpu_memory or 0.0,
        edges=tuple(built.edges),
        media=built.media,
        bandwidth_ranges=built.ranges,
        assumptions=(*topology.assumptions, *built.unmeasured, *assumed),
        warnings=warnings_of(setup),
        advice=advice_of(setup),
        sources=cited,
    )


def _assemble(topology: Topology, parts: Mapping[str, p.Part]) -> Assembly:
    """Devices first, then what caches what, then links: each step names what the one before has built."""
    built, entries = Assembly(topology, parts), topology.devices
    for name, entry in entries.items():
        add_device(built, name, entry)
    for name, entry in entries.items():
        if entry.mode == "memory":
            cache_by_dram(built, name, entry)
    for name, entry in entries.items():
        attach(built, name, entry)
    for group in topology.links.values():
        link = built.part(group.part, p.Link)
        for a, b in connections(group, entries):
            join_devices(built, a, b, link, group.lanes)
    return built
