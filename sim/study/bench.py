"""Standard microbenchmarks of a simulated machine, run as on a real one: `measure(machine, name, arguments)`.

Every result comes from a replay of the flows that the real tool would cause (STREAM, MLC, nvbandwidth, nccl-tests, fio,
DeepSpeed's Adam bench), except kernels, whose times are laws. Arguments are plain values or quantities with units;
results are SI: bandwidth and bus_bandwidth in bytes/s, latency and time in s, throughput in FLOP/s, iops in 1/s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim.errors import Fault, InputError
from sim.laws.collectives import bus_factor
from sim.laws.links import TIMING_S
from sim.laws.memory import interleaved
from sim.laws.queueing import queueing_delay
from sim.program.collectives import collective as collective_flow
from sim.study.bench_copies import copy_load, num_writing, tier_of, timing_s, written_s
from sim.study.bench_flows import Load, beside, of_collective, of_route, spread, times
from sim.study.bench_host import cpu_adam, storage
from sim.study.bench_kernels import attention, gemm
from sim.topology.machine import Machine
from sim.topology.route import Route
from sim.units import parse

#: traffic of a bandwidth test: long against every start latency
_LONG = 64.0 * 2**30
_LINE = 64.0
_PROBE_WEIGHT = 1e9
Result = dict[str, float]


def measure(machine: Machine, benchmark: str, arguments: Mapping[str, Any] | None = None) -> Result:
    """Run one benchmark; see `BENCHMARKS` for names and arguments.

    Raises InputError for an unknown benchmark, an argument that it does not take, or a device, tier or link that the
    machine lacks.
    """
    if benchmark not in BENCHMARKS:
        raise InputError(Fault(what=f"unknown benchmark {benchmark!r}", remedy=f"one of {', '.join(BENCHMARKS)}"))
    given = {key: value for key, value in (arguments or {}).items() if value is not None}
    function, quantities = BENCHMARKS[benchmark]
    try:
        return function(machine, **{key: plain(value, quantities.get(key)) for key, value in given.items()})
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise InputError(Fault(what=f"{benchmark}: {str(error).split('() ')[-1]}")) from None


def plain(value: Any, dimension: str | None) -> Any:
    """An argument in SI: text is parsed as a quantity of that dimension, anything else is taken as it is."""
    if dimension is None or isinstance(value, (int, float)):
        return value
    return parse(value, dimension)


# ---------------------------------------------------------------------------------------------------------- load and store


def _interleaved(machine: Machine, device: str, tier: str, write_share: float, cores: int | None) -> list[tuple[Route, float]]:
    """Routes to the tier; the role "cxl" means all expanders of the host, page-interleaved by bandwidth."""
    if tier == "cxl":
        host = machine.device(device).host
        found = [name for name, item in machine.tiers.items() if item.kind == "cxl" and _reaches(machine, name, host)]
        tiers = found or [machine.resolve(tier, device)]
    else:
        tiers = [tier_of(machine, tier, device)]
    routes = [machine.access(device, name, write_share=write_share, num_cores=cores) for name in tiers]
    speeds = [min(machine.channels[channel].bandwidth_per_s / cost for channel, cost in route.uses) for route in routes]
    return [(route, speed / sum(speeds)) for route, speed in zip(routes, speeds, strict=True)]


def _reaches(machine: Machine, tier: str, host: str) -> bool:
    return machine.device(machine.media[tier].device).host in ("", host)


def memory_bandwidth(
    machine: Machine,
    *,
    device: str,
    tier: str = "",
    write_share: float = 0.0,
    cores: int | None = None,
    sockets: int = 1,
    numa_nodes: int = 0,
    is_non_temporal: bool = False,
    initiator: str = "",
) -> Result:
    """Saturating reads and writes (STREAM, MLC): traffic of both.

    `sockets` run the test at once, each on its own memory. `numa_nodes` of the socket's four (NPS4) hold the data.
    `is_non_temporal` only names the kernel: the write share says what the bus carries. A GPU of an APU with
    `initiator: cpu` stands for the CPU side.
    """
    del is_non_temporal
    first = machine.host_of(device) if initiator == "cpu" else device
    peers = [name for name, item in machine.devices.items() if item.kind == machine.device(first).kind]
    used = [first, *(name for name in peers if name != first)][:sockets]
    per_socket = None if cores is None else max(1, round(cores / len(used)))
    loads: list[Load] = []
    scaled: dict[str, float] = {}
    for name in used:
        own = tier if name == first and tier else machine.memory_tier(name) if machine.device(name).kind == "gpu" else "dram"
        if name != first and tier not in ("", "cxl"):
            own = "dram" if machine.device(name).kind == "cpu" else machine.memory_tier(name)
        routes = _interleaved(machine, name, own, write_share, per_socket)
        loads.append(spread(routes, _LONG, write_share=write_share))
        if numa_nodes:
            media = machine.media[tier_of(machine, own, name)]
            scaled[media.channel] = min(1.0, numa_nodes / (4 * len(used)))
    ends = times(machine, loads, scaled=scaled)
    return {"bandwidth": sum(load.work / end for load, end in zip(loads, ends, strict=True))}


def memory_latency(machine: Machine, *, device: str, tier: str = "") -> Result:
    """Pointer chase: one line in flight."""
    return loaded_latency(machine, device=device, tier=tier)


def loaded_latency(machine: Machine, *, device: str, tier: str = "", write_share: float = 0.0, load: float = 0.0) -> Result:
    """Pointer chase beside traffic of `load` bytes/s at a write share (Mess, MLC)."""
    name = tier_of(machine, tier or ("gpu" if machine.device(device).kind == "gpu" else "dram"), device)
    chase = machine.access(device, name, num_cores=1)
    window = _LINE * _window_scale(machine, chase)
    # Its weight lets one line in flight pass a saturated queue: the law, finite at full load, says what it waits.
    probe = Load(work=1e4 * _LINE, uses=chase.uses, window_bytes=window, write_share=write_share, weight=_PROBE_WEIGHT)
    others = []
    if load > 0:
        route = machine.access(device, name, write_share=write_share)
        others = [Load(work=_LONG, uses=route.uses, rate_cap=load, write_share=write_share, weight=route.weight)]
    return {"latency": _LINE * beside(machine, probe, others) / probe.work}


def _window_scale(machine: Machine, route: Route) -> float:
    """Latency of all channels of a load over that of the way its data takes (see `Machine.access`)."""
    laws = [machine.channels[channel].latency for channel, _cost in route.uses]
    total = sum(law.idle_latency_s for law in laws if law is not None)
    return total / route.idle_latency_s if route.idle_latency_s else 1.0


def latency_ratio(machine: Machine, *, device: str, tier: str, over: str = "dram") -> Result:
    """Idle latency of one tier over another's."""
    far, near = (memory_latency(machine, device=device, tier=name)["latency"] for name in (tier, over))
    return {"ratio": far / near}


def interleave_gain(machine: Machine, *, device: str, tiers: Sequence[str], write_share: float = 0.0) -> Result:
    """Bandwidth of all tiers at their best weights over that of the first alone."""
    near = memory_bandwidth(machine, device=device, tier=tiers[0], write_share=write_share)["bandwidth"]
    loads = [spread(_interleaved(machine, device, tier, write_share, None), _LONG, write_share=write_share) for tier in tiers]
    rates = [load.work / beside(machine, load, [other for other in loads if other is not load]) for load in loads]
    best = interleaved([(rate / sum(rates), rate) for rate in rates])
    return {"ratio": best / near}


def streaming_share(machine: Machine, *, device: str, tier: str, streams: Sequence[Mapping[str, Any]]) -> Result:
    """Streams with different numbers of bytes outstanding on one path: what the first gets, and its share of the total.

    A queue serves in proportion to what is waiting in it.
    """
    loads = []
    for stream in streams:
        outstanding = plain(stream["outstanding"], "bytes")
        write_share = float(stream.get("write_share", 0.0))
        route = machine.access(device, tier_of(machine, tier, device), write_share=write_share)
        loads.append(Load(work=2.0**30, uses=route.uses, weight=outstanding, write_share=write_share))
    rates = [load.work / beside(machine, load, [other for other in loads if other is not load]) for load in loads]
    return {"bandwidth": rates[0], "share": rates[0] / sum(rates)}


def victim_latency(machine: Machine, *, device: str, tier: str, neighbours: Sequence[Mapping[str, Any]] = ()) -> Result:
    """Pointer chase beside neighbours that fill a port on its way: idle latency and the wait in the port's queue.

    A neighbour names its `device` and `tier` (default the victim's), `cores` (default all; what they keep in flight) or
    `outstanding` bytes, and its `write_share`. Only those that cross a channel of the victim count, at the fullest channel.
    """
    chase = machine.access(device, tier_of(machine, tier, device), num_cores=1)
    waiting: dict[str, list[tuple[float, float]]] = {name: [] for name, cost in chase.uses if cost > 0.0}
    for neighbour in neighbours:
        other, target = str(neighbour.get("device", device)), str(neighbour.get("tier", tier))
        write_share = float(neighbour.get("write_share", 0.0))
        cores = int(neighbour["cores"]) if "cores" in neighbour else None
        route = machine.access(other, tier_of(machine, target, other), write_share=write_share, num_cores=cores)
        size = plain(neighbour["outstanding"], "bytes") if "outstanding" in neighbour else route.own_window_bytes
        for name, cost in route.uses:
            if name in waiting and cost > 0.0:
                waiting[name].append((size * cost, route.idle_latency_s))
    delays = [queueing_delay(machine.channels[name].bandwidth_per_s, rows) for name, rows in waiting.items()]
    return {"latency": chase.idle_latency_s + max(delays, default=0.0)}


def device_stream(machine: Machine, *, device: str, kernel: str = "triad", devices: int = 1) -> Result:
    """Streaming kernel in a GPU's own memory: copy, scale, add, triad, dot, read, write."""
    kinds = {"scale": "copy", "mul": "copy", "add": "triad", "dot": "read", "write": "init"}
    gpus = [device, *(name for name in machine.gpus() if name != device)][:devices]
    routes = [machine.access(gpu, machine.memory_tier(gpu), kernel=kinds.get(kernel, kernel)) for gpu in gpus]
    loads = [of_route(route, _LONG) for route in routes]
    ends = times(machine, loads)
    return {"bandwidth": sum(load.work / end for load, end in zip(loads, ends, strict=True))}


# ------------------------------------------------------------------------------------------------------------------ copies


def copy(
    machine: Machine,
    *,
    source: Any,
    target: Any,
    initiator: str,
    size: float = 2.0**30,
    is_pinned: bool = True,
    beside: Sequence[Mapping[str, Any]] = (),
    is_summed: bool = False,
    uses_copy_engine: bool = True,
    timing: str = "queued",
) -> Result:
    """One copy (nvbandwidth, hipMemcpy) while the copies in `beside` run all the time; `is_summed` adds theirs.

    Ends are tiers, roles, GPUs (their memory), or shares {tier: fraction} of interleaved pages. `timing`: how the benchmark
    waits for each copy, a key of `laws.links.TIMING_S`. Who times each copy alone fills its buffers on a core before; it does
    not show in a long queue of copies, nor once other data went through the core's cache.
    """
    if timing not in TIMING_S:
        raise InputError(Fault(what=f"unknown way of timing {timing!r}", remedy=f"one of {', '.join(TIMING_S)}"))
    is_written = timing in ("events", "blocking") and is_pinned
    options = {"size": size, "is_pinned": is_pinned, "uses_copy_engine": uses_copy_engine, "is_written": is_written}
    entries = [{"source": source, "target": target, "initiator": initiator}, *beside]
    writing = num_writing(machine, entries)
    loads = [copy_load(machine, **{**options, **entry}, num_writing=writing) for entry in entries]
    seconds = _beside(machine, loads, 0)
    fetching = written_s(machine, entries, size, seconds - loads[0].latency_s) if is_written else 0.0
    seconds += fetching + timing_s(machine, target, initiator, way=timing, is_pinned=is_pinned)
    bandwidth = size / seconds
    if is_summed:
        bandwidth += sum(size / _beside(machine, loads, i) for i in range(1, len(loads)))
    return {"bandwidth": bandwidth, "time": seconds}


def _beside(machine: Machine, loads: Sequence[Load], index: int) -> float:
    return beside(machine, loads[index], [load for i, load in enumerate(loads) if i != index])


def collective(
    machine: Machine, *, collective: str = "all_reduce", size: float = 2.0**30, ranks: int | None = None, algorithm: str = ""
) -> Result:
    """A collective over the first `ranks` GPUs, nodes included (nccl-tests): time and bus bandwidth.

    `algorithm` "ring" forbids in-switch reduction (NCCL_ALGO). point_to_point is a send between the first two.
    """
    gpus = machine.gpus()
    count = ranks or len(gpus) * machine.num_nodes
    if not 2 <= count <= len(gpus) * machine.num_nodes:
        has = f"{machine.name} has {len(gpus) * machine.num_nodes}"
        raise InputError(Fault(what=f"a collective of {count} GPUs, {has}", remedy="at least two take part", path="ranks"))
    members = [(rank // len(gpus), gpus[rank % len(gpus)]) for rank in range(count)]
    if collective == "point_to_point":
        load = of_route(machine.peer(gpus[0], gpus[1], by_collective=True), size)
        seconds = times(machine, [load])[0]
        return {"time": seconds, "bus_bandwidth": size / seconds, "bandwidth": size / seconds}
    own = [me for me, (node, _gpu) in enumerate(members) if node == 0]
    flows = [collective_flow(machine, collective, size, members, me, algorithm=algorithm) for me in own]
    seconds = max(times(machine, [of_collective(flow) for flow in flows]))
    return {"time": seconds, "bus_bandwidth": bus_factor(collective, count) * size / seconds}


#: name -> (function, dimension of the arguments that may be written with a unit)
BENCHMARKS: dict[str, tuple[Callable[..., Result], dict[str, str]]] = {
    "memory_bandwidth": (memory_bandwidth, {}),
    "memory_latency": (memory_latency, {}),
    "loaded_latency": (loaded_latency, {"load": "bandwidth"}),
    "latency_ratio": (latency_ratio, {}),
    "interleave_gain": (interleave_gain, {}),
    "streaming_share": (streaming_share, {}),
    "victim_latency": (victim_latency, {}),
    "device_stream": (device_stream, {}),
    "copy": (copy, {"size": "bytes"}),
    "collective": (collective, {"size": "bytes"}),
    "gemm": (gemm, {}),
    "attention": (attention, {}),
    "cpu_adam": (cpu_adam, {}),
    "storage": (storage, {"block": "bytes"}),
}
