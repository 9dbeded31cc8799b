"""The copy that a benchmark asks for: ends by name, role, GPU or shares; what the CPU's caches absorb and hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.errors import Fault, InputError
from sim.laws.links import timing, written_time
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
    is_written: bool = False,
    num_writing: int = 1,
) -> Load:
    """One copy of `size` bytes as a load. Shares {tier: fraction} on either end mean interleaved pages.

    `is_written`: a core has just written the source, so that its cache holds the last of it. `num_writing` devices write as
    much to this host at once, and share what its last-level cache absorbs.
    """
    num_bytes = parse(size, "bytes") if isinstance(size, str) else float(size)
    sources, targets = _ends(machine, source, initiator), _ends(machine, target, initiator)
    parts = []
    for a, share_a in sources.items():
        for b, share_b in targets.items():
            route = _route(machine, a, b, initiator, is_pinned=is_pinned, uses_copy_engine=uses_copy_engine)
            if a == b and not uses_copy_engine and source != target:  # one memory, two kinds of allocation
                route = _coherent(machine, route, initiator)
            if is_written and _fetches(machine, initiator, a, b):
                route = _past_cache(machine, route, a, 1.0 - min(1.0, _written(machine, initiator)[0] / num_bytes))
            parts.append((_absorbed(machine, route, b, initiator, num_writing * num_bytes), share_a * share_b))
    if not parts:
        raise InputError(Fault(what=f"copy from {source!r} to {target!r}: nothing to do"))
    return of_route(parts[0][0], num_bytes) if len(parts) == 1 else spread(parts, num_bytes)


def timing_s(machine: Machine, target: Any, initiator: str, *, way: str, is_pinned: bool) -> float:
    """Seconds that a benchmark's way of timing adds to a copy between a GPU and its host (see `laws.links.timing`)."""
    to_gpu = all(machine.device(machine.media[tier].device).kind == "gpu" for tier in _ends(machine, target, initiator))
    return timing(way, is_fetched=to_gpu == is_pinned)


def written_s(machine: Machine, entries: Sequence[Mapping[str, Any]], size_bytes: float, seconds: float) -> float:
    """Seconds that the first of these copies takes longer than `seconds` for fetching what a core's cache holds of its source.

    The buffers of all entries were filled by one core; 0 where the CPU's part does not say how devices read that.
    """
    readers = [entry["initiator"] for entry in entries if _is_fetch(machine, entry)]
    if not readers or not _is_fetch(machine, entries[0]):
        return 0.0
    capacity, device_rate, core_rate = _written(machine, entries[0]["initiator"])
    if not capacity:
        return 0.0
    fetching = written_time(size_bytes, capacity, device_rate, core_rate, len(readers))
    return max(0.0, fetching - seconds * min(1.0, capacity / size_bytes))


def num_writing(machine: Machine, entries: Sequence[Mapping[str, Any]]) -> int:
    """How many of these copies a GPU makes into a host's memory; at least 1."""
    ends = [(entry["initiator"], _ends(machine, entry["target"], entry["initiator"])) for entry in entries]
    kinds = [(machine.device(who).kind, {machine.tiers[tier].kind for tier in tiers}) for who, tiers in ends]
    return max(1, sum(who == "gpu" and tiers <= _BEHIND_CACHE for who, tiers in kinds))


def _is_fetch(machine: Machine, entry: Mapping[str, Any]) -> bool:
    ends = [_ends(machine, entry[end], entry["initiator"]) for end in ("source", "target")]
    return all(_fetches(machine, entry["initiator"], a, b) for a in ends[0] for b in ends[1])


def _fetches(machine: Machine, initiator: str, source: str, target: str) -> bool:
    """Whether a GPU reads a host's memory into its own."""
    is_gpu = machine.device(initiator).kind == machine.device(machine.media[target].device).kind == "gpu"
    return is_gpu and machine.tiers[source].kind in _BEHIND_CACHE


def _written(machine: Machine, initiator: str) -> tuple[float, float, float]:
    """Of what a core of the initiator's host has just written: bytes kept (0 = none), bytes/s of one device and of all."""
    written = machine.part(machine.host_of(initiator)).get("written")
    if not isinstance(written, Mapping):
        return 0.0, 1.0, 1.0
    return float(written["kept"]), float(written["device_bandwidth"]), float(written["owner_bandwidth"])


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

    T = max(t0 + S / link, (S - C) / media) (`laws.memory.absorbed_write_time`), for a copy alone on an idle machine; of the
    `size_bytes` of all writes to all tiers at once the cache takes the same share.
    """
    cpu = machine.host_of(machine.media[target].device)
    part = machine.part(cpu)
    cache = float(part.get("last_level_cache") or 0.0) * float(part.get("dma_share") or 0.0)  # type: ignore[arg-type]
    if machine.device(initiator).kind != "gpu" or machine.tiers[target].kind not in _BEHIND_CACHE or not cache:
        return route
    return _past_cache(machine, route, target, max(0.0, 1.0 - cache / size_bytes))


def _past_cache(machine: Machine, route: Route, tier: str, share: float) -> Route:
    """The route of a copy of which only `share` reaches a tier, its medium and the hops between it and its CPU."""
    owner = machine.media[tier].device
    cpu = machine.host_of(owner)
    behind = {machine.media[tier].channel}
    if owner != cpu and {owner, cpu} <= set(route.hops):
        first, last = sorted((route.hops.index(owner), route.hops.index(cpu)))
        steps = set(zip(route.hops[first:last], route.hops[first + 1 : last + 1], strict=True))
        behind |= {channel for edge in machine.edges if (edge.source, edge.target) in steps for channel in edge.channels}
    uses = tuple((channel, cost * share if channel in behind else cost) for channel, cost in route.uses)
    return replace(route, uses=uses)
