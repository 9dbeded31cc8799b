"""Collectives on a machine: what one rank's part uses, how fast it can go alone, which algorithm a library would take.

Inside a node over GPU links, every rank moves its volume over its own links (a ring over all of them, a mesh, a switch
that adds). Over PCIe, or through host memory without peer access, the ring's way is walked link by link. Between nodes
the buffer's node-level volume is spread over all network adapters of the node, pipelined with the part inside.
T = A + X/B + 2 g sqrt(A X/B) alone (`laws.collectives`); contention with other flows comes from the channels.
All members move in lock step, so a shared channel's load is charged evenly to the ranks that own it: identical ranks use
identical channels, which is what folding needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.errors import Fault, InputError
from sim.laws.collectives import (
    ONE_SHOT_S,
    chunking,
    hops_latency,
    nodes_reached,
    pipelined,
    ring_volume,
    switch_volume,
    tree_latency,
)
from sim.records import INFINITY, Uses
from sim.topology.graph import Edge, Traffic
from sim.topology.machine import Machine
from sim.topology.messages import GPU_LINKS, adapters, direct
from sim.topology.route import Route, merged

#: bandwidth that a double binary tree keeps of a ring's: it cannot use both directions of every link all the time
TREE_EFFICIENCY = 0.9


@dataclass(frozen=True, slots=True)
class CollectiveFlow:
    """One rank's part: work in bytes of the buffer, channel costs per such byte, cap, start latency.

    Alone it takes latency_s + work_bytes / rate_cap seconds.
    """

    work_bytes: float
    uses: Uses
    rate_cap: float
    latency_s: float
    algorithm: str = ""


@dataclass(frozen=True, slots=True)
class _Level:
    """One way to do the part inside a node, or between nodes: costs per buffer byte, latency, chunking loss.

    `uses` is what one rank is charged, `loads` what all ranks together put on the same channels.
    """

    name: str
    uses: Uses
    loads: Uses
    latency_s: float
    chunking: float


_NOTHING = _Level("", (), (), 0.0, 0.0)


def collective(
    machine: Machine, kind: str, size_bytes: float, members: Sequence[tuple[int, str]], me: int, *, algorithm: str = "",
    is_fused: bool = False, copies: tuple[float, float] = (0.0, 1.0),
) -> CollectiveFlow:  # fmt: skip
    """The part of member `me` of `members` (node, GPU); `size_bytes` is the whole buffer (of an all-gather: the gathered one).

    Of the algorithms that the links allow, the fastest for this size; `algorithm` keeps those whose name begins so;
    `is_fused` adds the one-shot all-reduce of serving frameworks to those of the vendor's library; `copies` of a token (their
    number, and the share of the nodes that they keep to) cross the network once per node and reach each rank once (DeepEP).
    Raises InputError when members on several nodes have no network adapter, MachineError when there is no way between two.
    """
    if len(members) < 2 or size_bytes <= 0:
        return CollectiveFlow(0.0, (), INFINITY, 0.0)
    node, device = members[me]
    local = tuple(gpu for at, gpu in members if at == node)
    num_nodes = len({at for at, _ in members})
    inside = _inside(machine, kind, local, device, num_nodes, copies, is_fused=is_fused) if len(local) > 1 else [_NOTHING]
    outside = _between(machine, kind, local, num_nodes, copies) if num_nodes > 1 else [_NOTHING]
    flows = [_joined(machine, size_bytes, near, far) for near in inside for far in outside if near.name.startswith(algorithm)]
    if not flows:
        names = ", ".join(sorted({level.name for level in inside}))
        raise InputError(Fault(what=f"no algorithm {algorithm!r} for {kind} on {machine.name!r}", remedy=f"one of {names}"))
    return min(flows, key=lambda flow: flow.latency_s + flow.work_bytes / flow.rate_cap)


def alone_time(machine: Machine, kind: str, size_bytes: float, members: Sequence[tuple[int, str]]) -> float:
    """Seconds of a collective with nothing beside it: the slowest member."""
    flows = (collective(machine, kind, size_bytes, members, me) for me in range(len(members)))
    return max(flow.latency_s + flow.work_bytes / flow.rate_cap for flow in flows)


def _joined(machine: Machine, size_bytes: float, near: _Level, far: _Level) -> CollectiveFlow:
    """Both levels as one pipeline: the slower one sets the rate, their latencies add."""
    uses = merged(near.uses, far.uses)
    loads = merged(near.loads, far.loads)
    transfer_s = size_bytes * max(load / machine.channels[name].bandwidth_per_s for name, load in loads)
    latency_s = near.latency_s + far.latency_s
    total_s = pipelined(latency_s, transfer_s, max(near.chunking, far.chunking))
    name = " + ".join(level.name for level in (near, far) if level.name)
    return CollectiveFlow(size_bytes, uses, size_bytes / (total_s - latency_s), latency_s, name)


# ------------------------------------------------------------------------------------------------------------ inside a node


def _inside(
    machine: Machine, kind: str, local: tuple[str, ...], device: str, num_nodes: int, copies: tuple[float, float],
    *, is_fused: bool = False,
) -> list[_Level]:  # fmt: skip
    """What the ranks of one node can do among themselves."""
    num = len(local)
    volume = ring_volume(kind, num) / (num_nodes if kind == "all_to_all" and not copies[0] else 1)
    if copies[0]:  # what comes from other nodes is handed on inside, to each rank once, any of them alike
        volume *= nodes_reached(num * num_nodes, *copies) / copies[0]
    latency_s = hops_latency(num)
    out, into = _gpu_links(machine, local, device)
    if not out:
        return [_walked(machine, kind, local, device, volume)]
    uses, loads = _spread(machine, device, out, into, "collective", volume)
    if kind == "all_to_all":  # each pair by itself: nothing is handed on, so there are no hops to pipeline
        return [_Level("direct exchange", uses, loads, tree_latency(num), 0.0)]
    levels = [_Level("ring", uses, loads, latency_s, chunking("ring"))]
    if kind == "all_reduce" and num_nodes == 1 and len(out) == num - 1 > 2 and all(edge.link == "xgmi" for edge in out):
        levels.append(_Level("direct exchange", uses, loads, tree_latency(num), chunking("mesh")))
    switch = machine.devices.get(out[0].target)
    if kind == "all_reduce" and len(out) == 1 and switch is not None and switch.part.get("reduces"):
        uses, loads = _spread(machine, device, out, into, "reduction", switch_volume(num))
        levels.append(_Level("in-switch reduction", uses, loads, latency_s, chunking("switch")))
    if kind == "all_reduce" and is_fused:  # every rank reads the whole buffer of every other one
        uses, loads = _spread(machine, device, out, into, "collective", num - 1.0)
        levels.append(_Level("one shot", uses, loads, ONE_SHOT_S, 0.0))
    return levels


def _gpu_links(machine: Machine, local: tuple[str, ...], device: str) -> tuple[list[Edge], list[Edge]]:
    """GPU links of `device` that lead to the others, and back; empty if some member is reached by none of them."""
    others = dict.fromkeys(member for member in local if member != device)  # in rank order, once each
    ways = {other: direct(machine, device, other) for other in others}
    linked = [other for other, way in ways.items() if way and all(edge.link in GPU_LINKS for edge in way)]
    if not linked:
        return [], []
    out = {edge.target: edge for other in linked if (edge := (ways[other] or ())[0])}
    back = {(source, edge.link) for source, edge in out.items()}
    into = [edge for edge in machine.edges if edge.target == device and (edge.source, edge.link) in back]
    return list(out.values()), into


def _spread(
    machine: Machine, device: str, out: list[Edge], into: list[Edge], traffic: Traffic, volume: float
) -> tuple[Uses, Uses]:
    """The volume over all of the device's links in proportion to their width, both ways, and its memory: what the device
    is charged, and what the channels carry. A link straight to another member is charged half to each of its ends."""
    raw = sum(edge.raw_bytes_per_s for edge in out)
    carried = [(edge, volume * edge.raw_bytes_per_s / raw) for edge in (*out, *into)]
    links = [edge.uses(traffic, share * (0.5 if _joins_gpus(machine, edge) else 1.0)) for edge, share in carried]
    loads = [edge.uses(traffic, share) for edge, share in carried]
    media = machine.media[machine.memory_tier(device)]
    memory = tuple((name, volume * cost) for way in (0.0, 1.0) for name, cost in media.uses(way, "copy"))
    return merged(*links, memory), merged(*loads, memory)


def _joins_gpus(machine: Machine, edge: Edge) -> bool:
    return all(machine.devices[end].kind == "gpu" for end in (edge.source, edge.target))


def _walked(machine: Machine, kind: str, local: tuple[str, ...], device: str, volume: float) -> _Level:
    """The ring (or all pairs) of copies over PCIe or through host memory: the loads that `device` is charged for."""
    key = ("collective", kind == "all_to_all", local, device)
    charged, carried = machine.kept(key, lambda: _charges(machine, kind, local, device))
    uses = tuple((channel, volume * load / num_owners) for channel, load, num_owners in charged)
    total = tuple((channel, volume * load) for channel, load in carried)
    if kind == "all_to_all":
        return _Level("direct exchange over PCIe", uses, total, tree_latency(len(local)), 0.0)
    return _Level("ring over PCIe", uses, total, hops_latency(len(local)), chunking("ring"))


def _charges(
    machine: Machine, kind: str, local: tuple[str, ...], device: str
) -> tuple[list[tuple[str, float, int]], list[tuple[str, float]]]:
    """(channel, load per unit of volume, members that share it) of what `device` is charged; (channel, load) of all."""
    pairs = {(a, b): machine.peer(a, b) for a in local for b in local if a != b}
    if kind == "all_to_all":
        weights = {pair: 1.0 / (len(local) - 1) for pair in pairs}
    else:
        weights = dict.fromkeys(zip(local, (*local[1:], local[0]), strict=True), 1.0)
    loads: dict[str, float] = {}
    for pair, weight in weights.items():
        for channel, cost in pairs[pair].uses:
            loads[channel] = loads.get(channel, 0.0) + weight * cost * _slowdown(machine, channel)
    wires = {gpu: _own_wires(machine, gpu) for gpu in local}
    charged = []
    for channel, load in loads.items():
        owners, is_target = _owners(pairs, channel)
        owners = {gpu for gpu in owners if channel in wires[gpu]} or owners
        if device in owners:
            bandwidth = machine.channels[channel].bandwidth_per_s
            charged.append((len(owners), is_target, bandwidth, channel, load))
    charged.sort(key=lambda item: item[:3])
    return [(channel, load, num_owners) for num_owners, _, _, channel, load in charged], list(loads.items())


def _slowdown(machine: Machine, channel: str) -> float:
    """What a collective costs on a link above a plain copy; 1 for memories."""
    for edge in machine.edges:
        if channel in edge.channels:
            costs = dict(edge.costs)
            return costs.get("collective", 1.0) / costs.get("copy", 1.0)
    return 1.0


def _one_way(edge: Edge, share: float, traffic: Traffic) -> Uses:
    """An adapter's network port, or its host link: adapters use both directions of that without the host's duplex loss."""
    return edge.uses(traffic, share) if edge.link == "network" else edge.uses("copy", share)[:1]


def _owners(pairs: dict[tuple[str, str], Route], channel: str) -> tuple[set[str], bool]:
    """Who a channel belongs to: those who send over it or those who receive, whichever are fewer."""
    crossing = [pair for pair, route in pairs.items() if any(name == channel for name, _ in route.uses)]
    sources, targets = {a for a, _ in crossing}, {b for _, b in crossing}
    return (sources, False) if len(sources) <= len(targets) else (targets, True)


def _own_wires(machine: Machine, gpu: str) -> set[str]:
    """Channels between a GPU and its host, both ways."""
    memory, host = machine.memory_tier(gpu), machine.resolve("dram", gpu)
    ways = (machine.route(memory, host, initiator=gpu), machine.route(host, memory, initiator=gpu))
    return {channel for way in ways for channel, _ in way.uses}


# ------------------------------------------------------------------------------------------------------------ between nodes


def _between(machine: Machine, kind: str, local: tuple[str, ...], num_nodes: int, copies: tuple[float, float]) -> list[_Level]:
    """The node's share over all its adapters: a ring over the nodes, or a tree where that has fewer hops."""
    nics = [name for name, device in machine.devices.items() if device.kind == "nic"]
    if not nics:
        adapters(machine, local[0])  # raises
    # gathers and scatters go around one ring of all ranks: a node's link carries what each rank lacks, not each node
    is_flat = kind in ("all_gather", "reduce_scatter")
    volume = ring_volume(kind, num_nodes * len(local) if is_flat else num_nodes)
    per_rank = volume if kind == "all_to_all" else volume / len(local)
    if copies[0]:
        per_rank *= nodes_reached(num_nodes, *copies) / copies[0]
    wires = [edge for edge in machine.edges if {edge.source, edge.target} & set(nics)]
    num_gpus = sum(device.kind == "gpu" for device in machine.devices.values())
    traffic: Traffic = "partial" if len(local) < num_gpus else "collective"
    uses = merged(*(_one_way(edge, per_rank / len(nics), traffic) for edge in wires))
    loads = tuple((channel, cost * len(local)) for channel, cost in uses)
    hop_s = max(edge.message_latency_s for edge in wires)
    if kind == "all_to_all":
        return [_Level("direct exchange of nodes", uses, loads, tree_latency(num_nodes, hop_s), 0.0)]
    levels = [_Level("ring of nodes", uses, loads, hops_latency(num_nodes, hop_s), chunking("network"))]
    if kind == "all_reduce" and num_nodes > 2:
        slower = [tuple((channel, cost / TREE_EFFICIENCY) for channel, cost in part) for part in (uses, loads)]
        levels.append(_Level("tree of nodes", slower[0], slower[1], tree_latency(num_nodes, hop_s), chunking("network")))
    return levels
