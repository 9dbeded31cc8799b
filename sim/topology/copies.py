"""Bulk copies between tiers: by a GPU's copy engine, a drive's DMA or a CPU's cores, straight or through a buffer."""

from __future__ import annotations

from sim.laws.links import serial
from sim.records import INFINITY, Uses
from sim.topology.graph import Edge
from sim.topology.inventory import Inventory
from sim.topology.movers import engine_limits, staging_rate
from sim.topology.route import Route, merged
from sim.topology.tiers import host_of, media_of, memory_tier, resolve
from sim.topology.walk import hops, required_path


def copied(edges: tuple[Edge, ...]) -> Uses:
    """What one byte of a copy uses on these links."""
    return tuple(use for edge in edges for use in edge.uses("copy"))


def copy(machine: Inventory, source: str, target: str, initiator: str, *, is_pinned: bool, is_direct: bool) -> Route:
    """See `Machine.route`."""
    read, write = media_of(machine, source), media_of(machine, target)
    engine = machine.device(initiator)
    edges = required_path(machine, read.device, write.device)
    gpu = next((media.device for media in (read, write) if machine.devices[media.device].kind == "gpu"), "")
    is_bounced = not is_direct and bool(gpu) and machine.tiers[source if gpu == write.device else target].kind == "nvme"
    if is_bounced and resolve(machine, "dram", gpu) == memory_tier(machine, gpu):
        is_bounced = False  # the page cache is in the GPU's memory
    is_paged = not is_pinned and bool(gpu) and not machine.devices[gpu].part.get("pins_on_demand")
    staging: Uses = ()
    second = INFINITY
    cap, latency = engine_limits(engine)
    if is_bounced or is_paged:
        buffer = machine.media[resolve(machine, "dram", gpu)]
        staging = (*buffer.uses(1.0), *buffer.uses(0.0))
    if is_bounced:  # the file is read into host memory first, then copied: the stages do not overlap
        drive = machine.channels[(read if gpu == write.device else write).channel].bandwidth_per_s
        drive /= 1.0 if gpu == write.device else write.cost(1.0)
        slot = min(machine.channels[edge.channels[0]].bandwidth_per_s for edge in edges if gpu in (edge.source, edge.target))
        if serial(drive, slot) <= cap:
            cap, second = serial(drive, slot), slot
    if is_paged and (staging_cap := staging_rate(machine.devices[host_of(machine, gpu)])) <= cap:
        cap = second = staging_cap  # one core fills the bounce buffer, wherever the pages lie
    uses = merged(read.uses(0.0, "copy"), staging, copied(edges), write.uses(1.0, "copy"))
    latency += read.access_latency_s + write.access_latency_s
    return Route(
        uses=uses,
        rate_cap_bytes_per_s=cap,
        latency_s=latency,
        hops=hops(read.device, edges),
        is_staged=is_bounced or is_paged,
        second_stage_bytes_per_s=second,
    )
