"""Microbenchmarks of a host beside its memory: DeepSpeed's Adam by element count, drives by queue depth (fio)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.errors import Fault, InputError
from sim.laws import cpu as laws
from sim.laws.storage import rate as storage_rate
from sim.records import INFINITY
from sim.study.bench_copies import by_cores, tier_of
from sim.study.bench_flows import Load, spread, times
from sim.topology.machine import Device, Machine
from sim.topology.route import Route

#: traffic of a bandwidth test: long against every start latency
_LONG = 64.0 * 2**30
_FP32_BYTES = 4.0


def cpu_adam(
    machine: Machine,
    *,
    device: str = "cpu0",
    elements: float,
    shares: Mapping[str, float] | None = None,
    ranks: int = 1,
    is_bound: bool = True,
    implementation: str = "simd",
    sockets: int = 1,
    state_bytes: float = _FP32_BYTES,
) -> dict[str, float]:
    """One Adam update of states in host memory, spread page by page over tiers by `shares`: time and traffic per second.

    `implementation` is one of `laws.cpu.IMPLEMENTATIONS`; `state_bytes` of each state and gradient (4). The elements are
    divided over `sockets` (each on its own memory) and over `ranks`, processes that map their own temporaries; ranks that are
    not bound draw less from the DRAM and wait for each other.
    """
    counts = {"elements": elements, "ranks": ranks, "sockets": sockets, "state_bytes": state_bytes}
    _check_adam(implementation, counts, shares or {})
    kernel = laws.IMPLEMENTATIONS[implementation]
    scale = state_bytes / _FP32_BYTES
    part = machine.part(device)
    mine = elements / sockets
    cached = laws.cached_elements(scale * mine, _number(part, "last_level_cache")) / scale
    cache_rate = _number(part, "cache_bandwidth") or laws.CACHE_BYTES_PER_CORE_S.get() * _number(part, "cores")
    size = scale * kernel.size_bytes
    in_memory = size * (mine - cached)
    memory = _update_seconds(machine, device, kernel, in_memory, shares or {"dram": 1.0})
    if not is_bound:
        waiting = laws.UNBOUND_WAIT_S.get() if ranks > 1 else 0.0
        memory = max(
            memory + waiting, _update_seconds(machine, device, kernel, in_memory, {"dram": 1.0}) / laws.UNBOUND_SHARE.get()
        )
    seconds = memory + size * cached / cache_rate
    seconds += laws.fault_time(scale * kernel.temporary_bytes * elements / ranks, _number(part, "page"))
    if kernel.needs_avx and not part.get("has_avx", True):
        seconds = max(seconds, laws.scalar_time(mine, int(_number(part, "cores")), _number(part, "clock")))
    return {"time": seconds, "bandwidth": size * elements / seconds}


def _check_adam(implementation: str, counts: Mapping[str, float], shares: Mapping[str, float]) -> None:
    """Raises InputError for an implementation that is not known, counts that are not positive, shares that are no whole."""
    if implementation not in laws.IMPLEMENTATIONS:
        known = ", ".join(laws.IMPLEMENTATIONS)
        raise InputError(
            Fault(what=f"unknown implementation {implementation!r} of Adam", remedy=f"one of {known}", path="implementation")
        )
    if wrong := [name for name, value in counts.items() if value <= 0]:
        raise InputError(Fault(what=f"{wrong[0]} must be above 0, got {counts[wrong[0]]:g}", path=wrong[0]))
    if shares and (min(shares.values()) < 0 or abs(sum(shares.values()) - 1) > 1e-3):
        raise InputError(Fault(what=f"shares must sum to 1, got {sum(shares.values()):g}", path="shares"))


def _update_seconds(machine: Machine, device: str, kernel: laws.Adam, size_bytes: float, shares: Mapping[str, float]) -> float:
    """Seconds of one socket's update whose bytes are spread over tiers by `shares`."""
    tiers = [(tier_of(machine, name, device), share) for name, share in shares.items()]
    routes = [
        (_in_place(machine, route, name) if kernel.is_fused else route, share)
        for name, share in tiers
        for route in [machine.access(device, name, write_share=kernel.write_share)]
    ]
    return times(machine, [spread(routes, size_bytes, write_share=kernel.write_share)])[0]


def _in_place(machine: Machine, route: Route, tier: str) -> Route:
    """The route of an update in place: a bus of DRAM carries less of it than of one stream, an expander's link binds before."""
    media = machine.media[tier]
    if machine.device(media.device).kind == "cxl":
        return route
    share = laws.IN_PLACE_SHARE.get()
    return replace(route, uses=tuple((name, cost / share if name == media.channel else cost) for name, cost in route.uses))


def storage(
    machine: Machine,
    *,
    tier: str | Sequence[str] = "nvme",
    operation: str = "read",
    block: float = 2.0**20,
    queue_depth: int = 32,
    jobs: int = 1,
    target: str = "dram",
    is_direct: bool = False,
    is_raw: bool = False,
    device: str = "",
) -> dict[str, float]:
    """fio: blocks in flight on a drive or array; "gpu" as target goes through host memory unless `is_direct`.

    `is_raw`: blocks of the device, or large ones by direct I/O, at the datasheet's rate; else files, which lose what the
    part's efficiency says. A job reads into host memory and then copies; several jobs overlap. Several tiers run at once,
    each with its own queue and the memory next to it. Persistent memory is copied by cores, one for each block in flight.
    """
    is_read, in_flight = operation == "read", queue_depth * jobs
    loads, scaled = [], {}
    for name in [tier] if isinstance(tier, str) else tier:
        near = device or _near(machine, name)
        drive = machine.resolve(name if name in machine.tiers else _storage_role(machine, name), near)
        memory = machine.resolve("gpu" if target == "gpu" else "dram", near)
        ends = (drive, memory) if is_read else (memory, drive)
        owner = machine.device(machine.media[drive].device)
        if machine.tiers[drive].kind == "pmem" and target != "gpu":
            cpu = machine.host_of(near)
            route = by_cores(machine, *ends, cpu, num_cores=min(in_flight, int(_number(machine.part(cpu), "cores"))))
            bound = INFINITY
        else:
            route = machine.route(*ends, initiator=owner.name, is_direct=is_direct)
            bound = _queue_rate(owner, block, in_flight, is_read=is_read)
        loads.append(Load(work=_LONG, uses=route.uses, rate_cap=min(bound, jobs * route.rate_cap_bytes_per_s)))
        if is_raw:
            scaled[machine.media[drive].channel] = 1.0 / (_number(owner.part, "efficiency") or 1.0)
    bandwidth = sum(load.work / end for load, end in zip(loads, times(machine, loads, scaled=scaled), strict=True))
    return {"bandwidth": bandwidth, "iops": bandwidth / block, "latency": len(loads) * in_flight * block / bandwidth}


def _queue_rate(drive: Device, block: float, in_flight: int, *, is_read: bool) -> float:
    """Bytes/s that the queue of a drive or array lets through."""
    latency, rated = ("read_latency", "read_bandwidth") if is_read else ("write_latency", "write_bandwidth")
    operations = _number(drive.part, "read_operations")
    return storage_rate(block, in_flight, _number(drive.part, latency), _number(drive.part, rated), operations, drive.count)


def _near(machine: Machine, tier: str) -> str:
    """Whose memory is meant when no device is named: the first GPU's, or for a tier by name its own host's."""
    if tier in machine.tiers:
        return machine.host_of(machine.media[tier].device)
    return next(iter(machine.gpus()), "") or next(name for name, item in machine.devices.items() if item.kind == "cpu")


def _storage_role(machine: Machine, tier: str) -> str:
    return tier if any(item.kind == tier for item in machine.tiers.values()) else "storage"


def _number(part: Mapping[str, Any], key: str) -> float:
    value = part.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0
