"""What a collective costs one rank when only links are known: ring inside a node, then every rank's share over the network.

All members move in lock step, so a channel's load is charged to the ranks that own it: the source's way out, the
target's way in, and evenly to all who share a middle (a socket link, host memory). Identical ranks then use identical
channels, which is what folding needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.topology.machine import Machine
from sim.topology.route import Route

#: times that a ring passes the (n - 1) / n of the buffer that a rank does not hold
_TURNS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
#: seconds per step of a ring: all-reduce of small messages on NVLink machines (docs/model.md, Collectives)
_STEP_S = 2.4e-6


@dataclass(frozen=True, slots=True)
class CollectiveFlow:
    """One rank's part of a collective: bytes it sends, channels per byte, cap, start time."""

    work_bytes: float
    uses: tuple[tuple[str, float], ...]
    rate_cap: float
    latency_s: float


def ring(machine: Machine, kind: str, size_bytes: float, members: Sequence[tuple[int, str]], me: int) -> CollectiveFlow:
    """The part of member `me`; `size_bytes` is the whole buffer (the gathered one of an all-gather)."""
    if len(members) < 2 or size_bytes <= 0:
        return CollectiveFlow(0.0, (), float("inf"), 0.0)
    node, device = members[me]
    local = [gpu for at, gpu in members if at == node]
    num_nodes = len({at for at, _ in members})
    inside = _volume(kind, len(local)) * size_bytes
    outside = _volume(kind, num_nodes) * size_bytes / len(local) if num_nodes > 1 else 0.0
    work = max(inside, outside)
    uses: list[tuple[str, float]] = []
    cap = float("inf")
    if inside:
        loads, cap = _local_loads(machine, local, device)
        uses += [(channel, load * inside / work) for channel, load in loads]
        cap *= work / inside
    if outside:
        route = machine.network(device)
        uses += [(channel, cost * outside / work) for channel, cost in route.uses]
        cap = min(cap, route.rate_cap_bytes_per_s * work / outside)
    costs: dict[str, float] = {}
    for channel, cost in uses:
        costs[channel] = costs.get(channel, 0.0) + cost
    steps = (len(local) - 1) + 2 * (num_nodes - 1).bit_length()
    return CollectiveFlow(work, tuple(costs.items()), cap, _STEP_S * steps)


def _volume(kind: str, num: int) -> float:
    """Bytes that each of `num` ranks sends per byte of the buffer."""
    return _TURNS[kind] * (num - 1) / num if kind in _TURNS else 1.0


def _local_loads(machine: Machine, local: Sequence[str], device: str) -> tuple[list[tuple[str, float]], float]:
    """Channels that `device` is charged for, per byte that it sends around the ring of `local`, and its rate cap."""
    pairs = {(a, b): machine.peer(a, b) for a in local for b in local if a != b}
    around = [pairs[a, b] for a, b in zip(local, [*local[1:], local[0]], strict=True)]
    loads: dict[str, float] = {}
    for route in around:
        for channel, cost in route.uses:
            loads[channel] = loads.get(channel, 0.0) + cost
    wires = {gpu: _own_wires(machine, gpu) for gpu in local}
    charged = []
    for channel, load in loads.items():
        owners, is_target = _owners(pairs, channel)
        nearest = {gpu for gpu in owners if channel in wires[gpu]}
        owners = nearest or owners
        if device in owners:
            charged.append((len(owners), is_target, machine.channels[channel].bandwidth_per_s, channel, load / len(owners)))
    charged.sort(key=lambda item: item[:3])
    return [(channel, load) for *_, channel, load in charged], min(route.rate_cap_bytes_per_s for route in around)


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
