"""Loads and stores: what the traffic of a device's own compute to a tier uses, and how long a dependent load takes."""

from __future__ import annotations

from collections.abc import Mapping

from sim.laws.memory import window
from sim.records import INFINITY, Uses
from sim.topology.graph import Edge, Media, Traffic
from sim.topology.inventory import Inventory
from sim.topology.movers import cpu_cap, number
from sim.topology.route import Route, merged
from sim.topology.tiers import media_of
from sim.topology.walk import hops, required_path


def access(machine: Inventory, initiator: str, tier: str, *, write_share: float, num_cores: int | None, kernel: str) -> Route:
    """See `Machine.access`."""
    media, device = media_of(machine, tier), machine.device(initiator)
    inward = required_path(machine, media.device, initiator)
    outward = required_path(machine, initiator, media.device)
    load: Traffic = "cpu_load" if device.kind == "cpu" else "load"
    store: Traffic = "cpu_store" if device.kind == "cpu" else "store"
    reads = 1.0 - write_share
    own = kernel if media.device == initiator else ""
    uses = merged(
        media.uses(write_share, own),
        *(edge.uses(load, reads + edge.request_cost * write_share) for edge in inward),
        *(edge.uses(store, write_share + edge.request_cost * reads) for edge in outward),
    )
    uses = tuple((channel, cost) for channel, cost in uses if cost > 0)
    cap, window_bytes = INFINITY, 0.0
    if device.kind == "cpu":
        cores = int(number(device.part, "cores", 1)) if num_cores is None else num_cores
        cap = cpu_cap(device, cores, write_share=write_share)
        lines = number(device.part, "lines_per_core")
        write_lines = number(device.part, "write_lines_per_core") or lines
        window_bytes = window(cores, lines, write_lines, number(device.part, "line", 64.0), write_share)
    idle_s = _mean_latency(machine, initiator, media, (inward, outward), write_share)
    # A flow that uses both directions meets both hop latencies, a byte only its own: scale the window to compensate.
    scale = _latency(machine, uses) / idle_s if idle_s else 1.0
    return Route(
        uses=uses,
        rate_cap_bytes_per_s=cap,
        latency_s=0.0,
        weight=max(window_bytes, 1.0),
        window_bytes=window_bytes * scale,
        idle_latency_s=idle_s,
        own_window_bytes=window_bytes,
        hops=hops(initiator, outward),
    )


def _latency(machine: Inventory, uses: Uses) -> float:
    laws = (machine.channels[channel].latency for channel, _cost in uses)
    return sum(law.idle_latency_s for law in laws if law is not None)


def _mean_latency(
    machine: Inventory, initiator: str, media: Media, ways: tuple[tuple[Edge, ...], tuple[Edge, ...]], write_share: float
) -> float:
    """The medium as its owner sees it (or the CPU of the same APU), and the hops: for reads those towards the initiator."""
    device, owner = machine.devices[initiator], machine.devices[media.device]
    law = device.part.get("latency") if owner.part.get("cpu") == device.part_name else None
    own = float(law["idle"]) if isinstance(law, Mapping) else _latency(machine, ((media.channel, 1.0),))
    back, there = (_latency(machine, tuple((name, 1.0) for edge in edges for name in edge.channels[:1])) for edges in ways)
    own += media.behind.latency_s if media.behind else 0.0
    return own + (1.0 - write_share) * back + write_share * there


def idle_latency(machine: Inventory, initiator: str, tier: str) -> float:
    """Seconds of a dependent load: the memory as its owner sees it, and the hops that the data crosses."""
    media = media_of(machine, tier)
    machine.device(initiator)
    inward = required_path(machine, media.device, initiator)
    return _mean_latency(machine, initiator, media, (inward, ()), 0.0)
