"""Finding ways through a machine: which links a copy, a load or a message crosses, and what a byte costs on each."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sim.errors import Fault, InputError, MachineError
from sim.records import INFINITY
from sim.topology.graph import Edge
from sim.topology.route import Route, merged

if TYPE_CHECKING:
    from sim.topology.machine import Device, Machine

#: device kinds that forward what is not meant for them; a GPU or a drive does not
_FORWARDS = frozenset({"cpu", "switch"})
#: tier kinds that a role means, best first
_ROLES = {
    "dram": ("dram", "lpddr", "hbm"),
    "hbm": ("hbm",),
    "cxl": ("cxl",),
    "nvme": ("nvme",),
    "storage": ("nvme", "pmem"),
    "pmem": ("pmem",),
}
_GPU_LINKS = frozenset({"nvlink", "xgmi", "c2c"})


def unknown(word: str, name: str, known: Iterable[str], machine: str) -> Fault:
    """The fault for a name that the machine lacks."""
    known = list(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
    return Fault(what=f"unknown {word} {name!r} in machine {machine!r}", remedy=remedy)


# ------------------------------------------------------------------------------------------------------------ the walk


@lru_cache(maxsize=256)
def _graph(edges: tuple[Edge, ...]) -> Any:
    import networkx as nx  # 0.2 s of CPU: only when a route is asked for

    graph: Any = nx.DiGraph()
    for edge in edges:
        # Prefer few hops, then wide links; the second term stays far below one hop (1 GB/s -> 1e-3).
        weight = 1.0 + 1e6 / edge.bandwidth_bytes_per_s
        if not graph.has_edge(edge.source, edge.target) or graph[edge.source][edge.target]["weight"] > weight:
            graph.add_edge(edge.source, edge.target, weight=weight, edge=edge)
    return graph


@lru_cache(maxsize=4096)
def _path(edges: tuple[Edge, ...], closed: frozenset[str], source: str, target: str) -> tuple[Edge, ...] | None:
    import networkx as nx

    graph = _graph(edges)
    if source not in graph or target not in graph:
        return None
    view = nx.restricted_view(graph, closed - {source, target}, ())
    try:
        nodes = nx.dijkstra_path(view, source, target)
    except nx.NetworkXNoPath:
        return None
    return tuple(graph[a][b]["edge"] for a, b in pairwise(nodes))


def path(machine: Machine, source: str, target: str, *, closed_kinds: frozenset[str] = frozenset()) -> tuple[Edge, ...] | None:
    """Edges from device to device, through devices that forward; None if there is no way."""
    if source == target:
        return ()
    closed = frozenset(
        name for name, device in machine.devices.items() if device.kind not in _FORWARDS or device.kind in closed_kinds
    )
    return _path(machine.edges, closed, source, target)


def _required_path(machine: Machine, source: str, target: str) -> tuple[Edge, ...]:
    found = path(machine, source, target)
    if found is None:
        raise MachineError(
            Fault(what=f"no way from {source!r} to {target!r} in machine {machine.name!r}", remedy="join them by a link")
        )
    return found


def _data(edges: tuple[Edge, ...]) -> tuple[tuple[str, float], ...]:
    return tuple(use for edge in edges for use in edge.channels)


def _hops(source: str, edges: tuple[Edge, ...]) -> tuple[str, ...]:
    return (source, *(edge.target for edge in edges))


# ------------------------------------------------------------------------------------------------------------- who is where


def _distance(machine: Machine, a: str, b: str) -> tuple[int, float]:
    edges = path(machine, a, b)
    if edges is None:
        return (1_000, 0.0)
    return (len(edges), -min((edge.bandwidth_bytes_per_s for edge in edges), default=INFINITY))


def host_of(machine: Machine, device: str) -> str:
    """The CPU nearest to the device; the first named on a tie."""
    if machine.devices[device].kind == "cpu":
        return device
    direct = [name for name in machine.devices[device].to if name in machine.devices and machine.devices[name].kind == "cpu"]
    if direct:
        return direct[0]
    cpus = [name for name, other in machine.devices.items() if other.kind == "cpu"]
    if not cpus:
        raise MachineError(Fault(what=f"machine {machine.name!r} has no CPU", remedy="add one under devices"))
    return min(cpus, key=lambda cpu: (_distance(machine, device, cpu), cpus.index(cpu)))


def memory_tier(machine: Machine, device: str) -> str:
    """The tier whose media hangs on the device; of a socket with HBM and DDR, the DDR."""
    own = [tier for tier, media in machine.media.items() if media.device == device]
    if not own:
        raise InputError(Fault(what=f"device {device!r} of machine {machine.name!r} has no memory of its own"))
    return min(own, key=lambda tier: (machine.tiers[tier].kind == "hbm", own.index(tier)))


def resolve(machine: Machine, role: str, device: str) -> str:
    """See `Machine.resolve`."""
    if role in machine.tiers:
        return role
    if role == "gpu":
        return memory_tier(machine, device)
    if role not in _ROLES:
        raise InputError(unknown("tier", role, [*_ROLES, "gpu", *machine.tiers], machine.name))
    for kind in _ROLES[role]:
        found = [name for name, tier in machine.tiers.items() if tier.kind == kind and _is_for(machine, name, role)]
        if found:
            host = host_of(machine, device)
            return min(found, key=lambda tier: (_distance(machine, host, machine.media[tier].device), found.index(tier)))
    what = f"machine {machine.name!r} has no {role} tier"
    raise InputError(Fault(what=what, remedy=f"it has {', '.join(machine.tiers)}"))


def _is_for(machine: Machine, tier: str, role: str) -> bool:
    """Host memory that happens to be HBM counts as DRAM only when a CPU shares or owns it."""
    if role != "dram" or machine.tiers[tier].kind != "hbm":
        return True
    device = machine.media[tier].device
    return machine.devices[device].kind == "cpu" or any(
        device in other.to for other in machine.devices.values() if other.kind == "cpu"
    )


# ------------------------------------------------------------------------------------------------------------------ copies


def _number(part: object, key: str, default: float = 0.0) -> float:
    value = part.get(key, default) if isinstance(part, dict) else default
    return float(value) if isinstance(value, (int, float)) else default


def copy(machine: Machine, source: str, target: str, initiator: str, *, is_pinned: bool, is_direct: bool) -> Route:
    """See `Machine.route`."""
    for tier in (source, target):
        if tier not in machine.media:
            raise InputError(unknown("tier", tier, machine.tiers, machine.name))
    read, write = machine.media[source], machine.media[target]
    engine = machine.device(initiator)
    is_bounced = not is_direct and {"nvme", "gpu"} <= {machine.devices[m.device].kind for m in (read, write)}
    bounce: tuple[tuple[str, float], ...] = ()
    if is_bounced or not is_pinned:
        gpu = next((m.device for m in (read, write) if machine.devices[m.device].kind == "gpu"), write.device)
        staging = machine.media[resolve(machine, "dram", gpu)]
        bounce = ((staging.channel, 1.0), (staging.channel, staging.stream_write_cost))
    edges = _required_path(machine, read.device, write.device)
    uses = merged(((read.channel, 1.0),), bounce, _data(edges), ((write.channel, write.stream_write_cost),))
    cap, latency = _engine_limits(machine, engine, is_pinned=is_pinned)
    latency += read.access_latency_s + write.access_latency_s
    return Route(uses=uses, rate_cap_bytes_per_s=cap, latency_s=latency, hops=_hops(read.device, edges), is_staged=is_bounced)


def _engine_limits(machine: Machine, engine: Device, *, is_pinned: bool) -> tuple[float, float]:
    """Rate cap and start latency of who moves the bytes."""
    cap = INFINITY
    if engine.kind == "gpu":
        cap = _number(engine.part, "copy_bandwidth") or INFINITY
    elif engine.kind == "cpu":
        cap = cpu_cap(engine, int(_number(engine.part, "cores", 1)), write_share=0.5) / 2  # each byte is read and written
    if not is_pinned:
        host = machine.devices[host_of(machine, engine.name)]
        cap = min(cap, cpu_cap(host, 1, write_share=0.5) / 2)
    return cap, _number(engine.part, "copy_latency")


def cpu_cap(cpu: Device, num_cores: int, *, write_share: float) -> float:
    """Most bytes/s (read + written) that `num_cores` of a socket move, whatever the memory: core, chiplet, socket limits."""
    cap = _number(cpu.part, "socket_bandwidth") or INFINITY
    if per_core := _number(cpu.part, "core_bandwidth"):
        cap = min(cap, num_cores * per_core)
    chiplet = cpu.part.get("chiplet")
    if isinstance(chiplet, dict):
        num_chiplets = -(-num_cores // int(chiplet["cores"]))
        reads, writes = chiplet["read_bandwidth"], chiplet["write_bandwidth"]
        share = max((1 - write_share) / reads, write_share / writes)
        cap = min(cap, num_chiplets / share)
    return cap


# ------------------------------------------------------------------------------------------------------------ load and store


def access(machine: Machine, initiator: str, tier: str, *, write_share: float, num_cores: int | None) -> Route:
    """See `Machine.access`."""
    if tier not in machine.media:
        raise InputError(unknown("tier", tier, machine.tiers, machine.name))
    device, media = machine.device(initiator), machine.media[tier]
    inward = _required_path(machine, media.device, initiator)
    outward = _required_path(machine, initiator, media.device)
    read_share = 1.0 - write_share
    uses = merged(
        ((media.channel, read_share + write_share * media.write_cost),),
        *(_loads(edge, read_share, write_share) for edge in inward),
        *(_loads(edge, write_share, read_share) for edge in outward),
    )
    cap, window = INFINITY, 0.0
    if device.kind == "cpu":
        cores = int(_number(device.part, "cores", 1)) if num_cores is None else num_cores
        cap = cpu_cap(device, cores, write_share=write_share)
        window = cores * _number(device.part, "lines_per_core") * _number(device.part, "line", 64.0)
    return Route(uses=uses, rate_cap_bytes_per_s=cap, latency_s=0.0, weight=max(window, 1.0), window_bytes=window,
                 hops=_hops(initiator, outward))  # fmt: skip


def _loads(edge: Edge, data_share: float, opposite_share: float) -> tuple[tuple[str, float], ...]:
    return tuple((channel, cost * (data_share + edge.request_cost * opposite_share)) for channel, cost in edge.channels)


def idle_latency(machine: Machine, initiator: str, tier: str) -> float:
    """Sum of the idle latencies of the channels that a load crosses."""
    route = access(machine, initiator, tier, write_share=0.0, num_cores=1)
    laws = (machine.channels[name].latency for name, _cost in route.uses)
    return sum(law.idle_latency_s for law in laws if law is not None)


# ----------------------------------------------------------------------------------------------------------------- messages


def peer(machine: Machine, gpu_a: str, gpu_b: str) -> Route:
    """See `Machine.peer`."""
    read, write = machine.media[memory_tier(machine, gpu_a)], machine.media[memory_tier(machine, gpu_b)]
    ends = merged(((read.channel, 1.0),), ((write.channel, write.stream_write_cost),))
    part_a, part_b = machine.part(gpu_a), machine.part(gpu_b)
    cap, latency = _engine_limits(machine, machine.devices[gpu_a], is_pinned=True)
    edges = path(machine, gpu_a, gpu_b, closed_kinds=frozenset({"cpu"}))
    if edges is None or any(edge.link not in _GPU_LINKS for edge in edges):
        allowed = bool(part_a.get("peer_over_pcie")) and bool(part_b.get("peer_over_pcie"))
        edges = path(machine, gpu_a, gpu_b) if allowed else None
    if edges is not None:
        uses = merged(ends[:1], _data(edges), ends[1:])
        return Route(uses=uses, rate_cap_bytes_per_s=cap, latency_s=latency, hops=_hops(gpu_a, edges))
    # No direct way: device to host memory, host memory to device, pipelined in chunks.
    up = _required_path(machine, gpu_a, host_of(machine, gpu_a))
    down = _required_path(machine, host_of(machine, gpu_a), gpu_b)
    staging = machine.media[resolve(machine, "dram", gpu_a)]
    bounce = ((staging.channel, staging.stream_write_cost), (staging.channel, 1.0))
    uses = merged(ends[:1], _data(up), bounce, _data(down), ends[1:])
    return Route(uses=uses, rate_cap_bytes_per_s=cap, latency_s=2 * latency, hops=_hops(gpu_a, up + down), is_staged=True)


def network(machine: Machine, gpu: str) -> Route:
    """See `Machine.network`."""
    nics = [name for name, device in machine.devices.items() if device.kind == "nic"]
    if not nics:
        raise InputError(
            Fault(what=f"machine {machine.name!r} has no network adapter", remedy="add a nic device to join nodes")
        )
    gpus = [name for name in machine.gpus() if host_of(machine, name) == host_of(machine, gpu)]
    nearest = min(_distance(machine, gpu, nic) for nic in nics)
    near = [nic for nic in nics if _distance(machine, gpu, nic) == nearest]
    peers = [name for name in gpus if min(_distance(machine, name, nic) for nic in near) == nearest]
    nic = near[peers.index(gpu) % len(near)] if gpu in peers else near[0]
    edges = (
        *_required_path(machine, gpu, nic),
        next(edge for edge in machine.edges if edge.source == nic and edge.link == "network"),
    )
    media = machine.media[memory_tier(machine, gpu)]
    latency = sum(edge.message_latency_s for edge in edges)
    uses = merged(((media.channel, 1.0),), _data(edges))
    return Route(uses=uses, rate_cap_bytes_per_s=INFINITY, latency_s=latency, hops=_hops(gpu, edges))
