"""Between GPUs: peer copies and messages over their own links, over PCIe, through host memory, or out to another node."""

from __future__ import annotations

from sim.errors import Fault, InputError
from sim.laws.links import staged_rate
from sim.records import INFINITY, Uses
from sim.topology.copies import copied
from sim.topology.graph import Edge
from sim.topology.inventory import Inventory
from sim.topology.movers import engine_limits
from sim.topology.route import Route, merged
from sim.topology.tiers import distance, host_of, memory_tier, resolve
from sim.topology.walk import hops, path, required_path

#: link types that join GPUs without host memory
GPU_LINKS = frozenset({"nvlink", "xgmi", "c2c"})


def peer(machine: Inventory, gpu_a: str, gpu_b: str, *, by_collective: bool = False) -> Route:
    """See `Machine.peer`."""
    read, write = machine.media[memory_tier(machine, gpu_a)], machine.media[memory_tier(machine, gpu_b)]
    start: Uses = read.uses(0.0, "copy")
    end: Uses = write.uses(1.0, "copy")
    cap, latency = engine_limits(machine.devices[gpu_a])
    edges = direct(machine, gpu_a, gpu_b)
    if edges is not None:
        is_pushed = by_collective and all(edge.link in GPU_LINKS for edge in edges)
        moved = tuple(use for edge in edges for use in edge.uses("collective")) if is_pushed else copied(edges)
        return Route(uses=merged(start, moved, end), rate_cap_bytes_per_s=cap, latency_s=latency, hops=hops(gpu_a, edges))
    # No direct way: device to host memory, host memory to device, a copy engine piece by piece, a collective without pauses.
    host = host_of(machine, gpu_a)
    up, down = required_path(machine, gpu_a, host), required_path(machine, host, gpu_b)
    staging = machine.media[resolve(machine, "dram", gpu_a)]
    bounce: Uses = (*staging.uses(1.0), *staging.uses(0.0))
    uses = merged(start, copied(up), bounce, copied(down), end)
    if not by_collective:
        cap = min(cap, staged_rate(min(machine.channels[name].bandwidth_per_s / cost for name, cost in uses if cost), latency))
    return Route(uses=uses, rate_cap_bytes_per_s=cap, latency_s=2 * latency, hops=hops(gpu_a, up + down), is_staged=True)


def direct(machine: Inventory, gpu_a: str, gpu_b: str) -> tuple[Edge, ...] | None:
    """Edges of a copy that does not touch host memory: GPU links, else PCIe where both drivers allow it; None = staged."""
    edges = path(machine, gpu_a, gpu_b, closed_kinds=frozenset({"cpu"}))
    if edges is not None and all(edge.link in GPU_LINKS for edge in edges):
        return edges
    allowed = all(machine.part(gpu).get("peer_over_pcie") for gpu in (gpu_a, gpu_b))
    return path(machine, gpu_a, gpu_b) if allowed else None


def adapters(machine: Inventory, gpu: str) -> tuple[str, ...]:
    """Network adapters at the least distance from the GPU, in file order; InputError when the machine has none."""
    return machine.kept(gpu, lambda: _adapters(machine, gpu))


def _adapters(machine: Inventory, gpu: str) -> tuple[str, ...]:
    nics = [name for name, device in machine.devices.items() if device.kind == "nic"]
    if not nics:
        raise InputError(
            Fault(what=f"machine {machine.name!r} has no network adapter", remedy="add a nic device to join nodes")
        )
    distances = {nic: distance(machine, gpu, nic) for nic in nics}
    nearest = min(distances.values())
    return tuple(nic for nic in nics if distances[nic] == nearest)


def network(machine: Inventory, gpu: str) -> Route:
    """See `Machine.network`."""
    near = adapters(machine, gpu)
    sharers = [name for name in machine.gpus() if adapters(machine, name) == near]
    nic = near[sharers.index(gpu) % len(near)]
    wire = next(edge for edge in machine.edges if edge.source == nic and edge.link == "network")
    edges = (*required_path(machine, gpu, nic), wire)
    media = machine.media[memory_tier(machine, gpu)]
    latency = sum(edge.message_latency_s for edge in edges)
    uses = merged(media.uses(0.0, "copy"), copied(edges))
    return Route(uses=uses, rate_cap_bytes_per_s=INFINITY, latency_s=latency, hops=hops(gpu, edges))
