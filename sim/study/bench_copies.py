"""The copy that a benchmark asks for: ends by name, role, GPU or shares; writes that the last-level cache absorbs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.errors import Fault, InputError
from sim.laws.links import timing
from sim.records import INFINITY
from sim.study.bench_flows import Load, of_route, spread
from sim.topology.machine import Machine
from sim.topology.route import Route, merged
from sim.units import parse

#: tiers that a device's writes reach through the CPU's last-level cache
_BEHIND_CACHE = frozenset({"dram", "lpddr", "cxl"})


def tier_of(machine: Machine, name: str, device: str) -> str:
    """Tier of a name, a role seen from `device`, or a device (its own memory)."""
    if name in machine.devices and name not in machine.tiers:
        return machine.memory_tier(name)
    return machine.resolve(name, device)


def copy_load(
    machine: Machine,
    *,
    source: Any,
    target: Any,
    initiator: str,
    size: Any = 2.0**30,
    is_pinned: bool = True,
    uses_copy_engine: bool = True,
) -> Load:
    """One copy of `size` bytes as a load. Shares {tier: fraction} on either end mean interleaved pages."""
    num_bytes = parse(size, "bytes") if isinstance(size, str) else float(size)
    sources, targets = _ends(machine, source, initiator), _ends(machine, target, initiator)
    parts = []
    for a, share_a in sources.items():
        for b, share_b in targets.items():
            route = _route(machine, a, b, initiator, is_pinned=is_pinned, uses_copy_engine=uses_copy_engine)
            if a == b and not uses_copy_engine and source != target:  # one memory, two kinds of allocation
                route = _coherent(machine, route, initiator)
            parts.append((_absorbed(machine, route, b, initiator, share_b * num_bytes), share_a * share_b))
    if not parts:
        raise InputError(Fault(what=f"copy from {source!r} to {target!r}: nothing to do"))
    return of_route(parts[0][0], num_bytes) if len(parts) == 1 else spread(parts, num_bytes)


def timing_s(machine: Machine, target: Any, initiator: str, *, way: str, is_pinned: bool) -> float:
    """Seconds that a benchmark's way of timing adds to a copy between a GPU and its host (see `laws.links.timing`)."""
    to_gpu = all(machine.device(machine.media[tier].device).kind == "gpu" for tier in _ends(machine, target, initiator))
    return timing(way, is_fetched=to_gpu == is_pinned)


def _ends(machine: Machine, end: Any, initiator: str) -> dict[str, float]:
    if isinstance(end, Mapping):
        return {tier_of(machine, name, initiator): float(share) for name, share in end.items()}
    return {tier_of(machine, str(end), initiator): 1.0}


def _route(machine: Machine, source: str, target: str, initiator: str, *, is_pinned: bool, uses_copy_engine: bool) -> Route:
    ends = [machine.media[tier].device for tier in (source, target)]
    kinds = {machine.device(end).kind for end in ends}
    if ends[0] != ends[1] and kinds == {"gpu"}:
        return machine.peer(ends[0], ends[1])
    if machine.device(initiator).kind == "cpu":
        return by_cores(machine, source, target, initiator)
    route = machine.route(source, target, initiator=initiator, is_pinned=is_pinned)
    if uses_copy_engine:
        return route
    return replace(route, rate_cap_bytes_per_s=INFINITY)


def _coherent(machine: Machine, route: Route, initiator: str) -> Route:
    """A copy by kernels where one end was allocated for the host: an APU's caches keep out of it."""
    limit = machine.part(initiator).get("coherent_bandwidth")
    return replace(route, rate_cap_bytes_per_s=float(limit)) if limit else route  # type: ignore[arg-type]


def by_cores(machine: Machine, source: str, target: str, cpu: str, *, num_cores: int | None = None) -> Route:
    """Loads from one tier and stores to another by that many cores (None = all), whose lines in flight share their time."""
    read = machine.access(cpu, source, write_share=0.0, num_cores=num_cores)
    write = machine.access(cpu, target, write_share=1.0, num_cores=num_cores)
    uses = merged(read.uses, write.uses)
    own, other = machine.media[source], machine.media[target]
    if source == target:  # one bus with half writes, not a read stream and a write stream
        uses = tuple((name, 2 * own.cost(0.5) if name == own.channel else cost) for name, cost in uses)
    cap = min(read.rate_cap_bytes_per_s, write.rate_cap_bytes_per_s) / (2 if own.channel == other.channel else 1)
    in_time = 1.0 / (read.idle_latency_s / read.own_window_bytes + write.idle_latency_s / write.own_window_bytes)
    return Route(uses=uses, rate_cap_bytes_per_s=min(cap, in_time), latency_s=0.0, weight=read.weight)


def _absorbed(machine: Machine, route: Route, target: str, initiator: str, size_bytes: float) -> Route:
    """DMA writes land in the last-level cache first: only what it cannot hold crosses what lies behind it.

    T = max(t0 + S / link, (S - C) / media) (`laws.memory.absorbed_write_time`), for a copy alone on an idle machine.
    """
    cpu = machine.host_of(machine.media[target].device)
    cache = machine.part(cpu).get("dma_cache")
    if machine.device(initiator).kind != "gpu" or machine.tiers[target].kind not in _BEHIND_CACHE or not cache:
        return route
    kept = max(0.0, 1.0 - float(cache) / size_bytes)  # type: ignore[arg-type]
    behind = {machine.media[target].channel}
    for a, b in zip(route.hops, route.hops[1:], strict=False):
        if cpu in route.hops and route.hops.index(a) >= route.hops.index(cpu):
            behind |= {channel for edge in machine.edges if (edge.source, edge.target) == (a, b) for channel in edge.channels}
    uses = tuple((channel, cost * kept if channel in behind else cost) for channel, cost in route.uses)
    return replace(route, uses=uses)
