"""What joins devices: link technologies, switches, network adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from sim.topology.parts.described import Described, Efficiency, Port
from sim.units import BytesPerSecond, Doc, Fraction, Seconds, TransfersPerSecond, Watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(Described):
    """A link technology, per lane and direction."""

    kind: Literal["link"]
    type: Annotated[Literal["pcie", "cxl", "nvlink", "c2c", "xgmi", "upi", "network", "sata"], Doc("protocol family")]
    lane_bandwidth: Annotated[
        BytesPerSecond, Ge(0), Doc("raw rate of one lane or link, one direction, after line coding; 0 = transfers x coding / 8")
    ] = 0.0
    transfers: Annotated[TransfersPerSecond, Ge(0), Doc("symbol rate per lane")] = 0.0
    coding: Annotated[Fraction, Gt(0), Le(1), Doc("payload bits / line bits: 8b/10b .8, 128b/130b .985, FLIT .922")] = 1.0
    lanes: Annotated[int, Gt(0), Doc("most lanes or links of one connection")]
    widths: Annotated[tuple[int, ...], Doc("lane counts that exist; empty = any up to the maximum")] = ()
    efficiency: Annotated[Efficiency, Doc("achieved / raw of large copies away from the host (protocol headers, credits)")]
    upward_efficiency: Annotated[Efficiency | None, Doc("copies towards the host; default: as away from it")] = None
    load_efficiency: Annotated[Efficiency | None, Doc("the same for loads by a processor; default: as copies")] = None
    store_efficiency: Annotated[Efficiency | None, Doc("the same for stores; default: as loads")] = None
    cpu_load_efficiency: Annotated[Efficiency | None, Doc("loads by a CPU, whose lines are short; default: as loads")] = None
    cpu_store_efficiency: Annotated[Efficiency | None, Doc("stores by a CPU; default: as stores")] = None
    collective_efficiency: Annotated[Efficiency | None, Doc("rings and meshes; default: as copies")] = None
    partial_efficiency: Annotated[
        Efficiency | None, Doc("network: collectives of part of a node's GPUs, beside those of the others; default: as of all")
    ] = None
    switch_efficiency: Annotated[Efficiency | None, Doc("in-switch reduction; none = the link has none")] = None
    duplex_efficiency: Annotated[Efficiency, Doc("both directions at once / twice one direction")] = 1.0
    request_cost: Annotated[float, Ge(0), Le(1), Doc("bytes of requests and answers the other way per byte of data")] = 0.0
    latency: Annotated[Seconds, Ge(0), Doc("added to a load that crosses it, there and back")] = 0.0
    message_latency: Annotated[Seconds, Ge(0), Doc("one message or collective hop, software included")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(Described):
    """A device that joins links: PCIe, CXL or NVLink switch."""

    kind: Literal["switch"]
    port: Annotated[Port, Doc("link part and lanes (or links) in all")]
    latency: Annotated[Seconds, Ge(0), Doc("added to a load that crosses it, there and back")]
    bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("internal limit of all that crosses it; 0 = non-blocking")] = 0.0
    efficiency: Annotated[Efficiency, Doc("kept of the attached links' achieved bandwidth")] = 1.0
    reduces: Annotated[bool, Doc("adds data in flight (in-switch reduction)")] = False
    power: Annotated[Watts, Ge(0), Doc("0 = not stated")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic(Described):
    """A network adapter."""

    kind: Literal["nic"]
    port: Annotated[Port, Doc("network link part and ports")]
    link: Annotated[Port | None, Doc("host link; none = on the module")] = None
    power: Annotated[Watts, Ge(0), Doc("0 = not stated")] = 0.0
