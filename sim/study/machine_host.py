"""The host side of an imported machine: sockets, their memory, what joins them, memory nodes without cores."""

from __future__ import annotations

from typing import Any

from sim.errors import Fault, InputError
from sim.interchange.machines import Layout
from sim.study.machine_draft import Draft, catalogue_of, copied, gb_per_s, gpu_part, matching_cpu, num_gpus
from sim.study.machine_expanders import add_expanders
from sim.study.machine_figures import Grid, fit_curve, grid_of

#: of a socket that no file and no catalogue part describes (assumed, listed): cores, GB/s, GiB, ns, lines in flight, PCIe lanes
_CORES, _RATE, _CAPACITY_GIB, _LATENCY_NS, _LINES, _LANES = 32, 150e9, 256, 100, 20, 128
#: loaded-latency constants of Sapphire Rapids, where no curve is given (docs/model.md)
_CURVE = {"a": 0.118, "c": 0.375, "k": 0.876}
#: share of the DRAM peak that reads reach, where nothing was measured
_EFFICIENCY = 0.8
#: share of the largest rate below which memory is as good as idle
_LOW_LOAD = 0.2
#: rate of the link between two sockets and what it adds to a load, where nothing was measured: two UPI links
_SOCKET_RATE, _SOCKET_NS = 50e9, 60
#: processors that GPUs on a coherent link come with: one for each GPU, or one for all dies of MI250X
_GRACE, _XGMI_HOST = "grace-480gb", "epyc-7a53"
#: fields of a catalogue CPU that measured memory and sockets replace
_OF_THE_DIMMS = (
    "memory", "bus", "memory_channels", "memory_types", "memory_transfers", "memory_transfers_2dpc", "memory_transfers_mrdimm",
    "memory_capacity", "sockets", "max_dimms_per_channel", "socket_bandwidth",
)  # fmt: skip


def add_host(draft: Draft, layout: Layout) -> None:
    """Sockets with memory as achieved, the links between them, CXL devices behind nodes without cores."""
    grid = grid_of(draft)
    _check_nodes(layout, grid)
    num = _num_sockets(draft, layout, grid)
    base = matching_cpu(layout.sockets[0].model if layout.sockets else "")
    module = _superchip(draft, layout)
    if module:
        base = base or module
        num = num if layout.sockets or module != _GRACE else num_gpus(draft, layout)
    cpu = _cpu(draft, layout, base, num, grid)
    draft.parts["host-cpu"] = cpu
    names = [f"cpu{index}" for index in range(num)]
    for name in names:
        draft.devices[name] = {"part": "host-cpu", "host": "host0"}
    if num > 1:
        _join(draft, names, grid)
    add_expanders(draft, layout, grid)


def _check_nodes(layout: Layout, grid: Grid) -> None:
    """Raises InputError when hwloc and MLC cannot have seen one machine: another number of NUMA nodes with cores."""
    listed = sum(node.kind == "dram" for node in layout.nodes)
    if listed and grid.with_cores and len(grid.with_cores) != listed:
        file = next(iter([*grid.latency.values(), *grid.bandwidth.values()])).source.split(": ")[0]
        what = f"measured {len(grid.with_cores)} NUMA nodes with cores, {layout.source} lists {listed}"
        raise InputError(Fault(what=what, remedy="give files of one machine, booted the same way", file=file))


def _num_sockets(draft: Draft, layout: Layout, grid: Grid) -> int:
    if layout.sockets:
        return len(layout.sockets)
    if _superchip(draft, layout) == _GRACE:
        draft.assumptions.append("sockets: one for each GPU of a superchip")
        return 1
    if len(grid.with_cores) > 1:
        num = len(set(grid.sockets().values()))
        why = "one for each NUMA node with cores"
        if num < len(grid.with_cores):
            why = f"{len(grid.with_cores)} NUMA nodes, of which those of a socket read each other as fast as themselves"
        draft.assumptions.append(f"sockets: {num} ({why}; give --hwloc to be sure)")
        return num
    draft.assumptions.append("sockets: 1 (no file tells; give --hwloc or --topo)")
    return 1


def _superchip(draft: Draft, layout: Layout) -> str:
    """CPU part that GPUs on a coherent link sit beside; "" for GPUs on PCIe."""
    if not num_gpus(draft, layout):
        return ""
    part = catalogue_of(name := gpu_part(draft, layout)).parts[name]
    link = getattr(part, "c2c", None)
    return "" if link is None else _XGMI_HOST if link.part.startswith("xgmi") else _GRACE


def _cpu(draft: Draft, layout: Layout, base: str, num: int, grid: Grid) -> dict[str, Any]:
    socket = layout.sockets[0] if layout.sockets else None
    from_base = {}
    if base:
        from_base = copied(draft, base, {})
        for key in _OF_THE_DIMMS:
            from_base.pop(key, None)
    elif socket and socket.model:
        draft.assumptions.append(
            f"constants of the CPU: those of a server core ({socket.model!r} is not in the part catalogue)"
        )
    cpu = {"kind": "cpu", "family": "imported", **from_base}
    cpu["title"] = (socket.model if socket else "") or str(from_base.get("title", "CPU of the imported machine"))
    source = draft.cite("datasheet", layout.source) if layout.source else ""
    if socket and socket.cores and not (socket.note and "cores" in cpu):
        cpu["cores"] = {"value": socket.cores, "source": source}
        draft.assumptions += [f"cores of a socket: {socket.cores} ({socket.note})"] if socket.note else []
    if "cores" not in cpu:
        cpu["cores"] = draft.assume("cores of a socket", _CORES)
    if socket and socket.last_level_cache_bytes:
        cpu["last_level_cache"] = {"value": f"{socket.last_level_cache_bytes / 2**20:.6g} MiB", "source": source}
    cpu["memory"] = _memory(draft, layout, base, num, grid)
    cpu["latency"] = _latency(draft, layout, base, grid)
    if "lines_per_core" not in cpu:
        cpu["lines_per_core"] = draft.assume("cache lines that one core keeps in flight", _LINES)
    if "pcie" not in cpu:
        cpu["pcie"] = {"part": "pcie5", "lanes": draft.assume("PCIe lanes of a socket", _LANES, "generation 5")}
    cpu["max_sockets"] = {
        "value": max(1, num),
        "source": source or draft.cite("assumed", "typical of its kind; no file given tells it"),
    }
    paged = [figure for figure in draft.of("copy", is_pinned=0.0) if figure.at["direction"] in ("h2d", "d2h")]
    if paged:
        rate = max(figure.value for figure in paged)
        cpu["staging_bandwidth"] = draft.measured(gb_per_s(rate), paged, "copies of pageable memory")
    return cpu


def _memory(draft: Draft, layout: Layout, base: str, num: int, grid: Grid) -> dict[str, Any]:
    """Attached memory of one socket at the rate that reads reach; the memory part beside it has efficiency 1."""
    rate = _read_rate(draft, layout, base, num, grid)
    own = [node for node in layout.nodes if node.kind in ("dram", "hbm")]
    total = sum(node.capacity_bytes for node in own) / max(1, num)
    if total:
        source = draft.cite("datasheet", layout.source)
        capacity = {"value": f"{total / 2**30:.6g} GiB", "source": source}
    elif base and (attached := getattr(catalogue_of(base).parts[base], "memory", None)) is not None:
        capacity = draft.assume("memory of a socket", f"{attached.capacity / 2**30:.6g} GiB", base)
    else:
        capacity = draft.assume("memory of a socket", f"{_CAPACITY_GIB} GiB")
    bytes_per_s = float(str(rate["value"]).split()[0]) * 1e9
    draft.parts["host-memory"] = {
        "kind": "memory", "title": "memory of a socket, as achieved", "type": "ddr5", "width_bits": 64, "efficiency": 1.0,
        "transfers": f"{bytes_per_s / 8e6:.6g} MT/s", "write_cost": _write_cost(draft), "source": rate["source"],
    }  # fmt: skip
    if {node.kind for node in own} == {"dram", "hbm"}:
        draft.assumptions.append("HBM and DRAM of a socket: taken as one tier of both capacities")
    return {"part": "host-memory", "capacity": capacity, "bandwidth": rate}


def _read_rate(draft: Draft, layout: Layout, base: str, num: int, grid: Grid) -> dict[str, Any]:
    local = grid.local(grid.bandwidth)
    if local:
        total = sum(figure.value for figure in local) / num
        return draft.measured(gb_per_s(total), local, "reads of a socket")
    whole = draft.of("system_bandwidth", write_share=0.0) or draft.of("loaded_latency", write_share=0.0)
    if whole:
        rate = max(
            figure.value if figure.quantity != "loaded_latency" else float(figure.at["bandwidth_bytes_per_s"])
            for figure in whole
        )
        return draft.measured(gb_per_s(rate / num), whole, "reads of a socket")
    stream = draft.of("stream")
    if stream:
        # Triad and Add read two arrays and write one: the closest that STREAM has to reads
        best = max(stream, key=lambda figure: figure.value)
        return draft.measured(gb_per_s(best.value / num), [best], f"STREAM {best.at['kernel']} of a socket")
    told = [node for node in layout.nodes if node.kind == "dram" and node.bandwidth_bytes_per_s > 1e9]
    if told:
        rate = sum(node.bandwidth_bytes_per_s for node in told) / num
        return {
            "value": gb_per_s(rate),
            "source": draft.cite("datasheet", f"{layout.source}: memory attributes of the firmware"),
        }
    part: Any = catalogue_of(base).parts[base] if base else None
    if part is not None and part.memory is not None:
        return draft.assume(
            "memory bandwidth of a socket", gb_per_s(part.memory.bandwidth * _EFFICIENCY), f"0.8 of {base}'s peak"
        )
    if part is not None and part.memory_channels:
        peak = part.memory_channels * part.memory_transfers * 8.0
        why = f"0.8 of the peak of {base} with all {part.memory_channels} channels populated"
        return draft.assume("memory bandwidth of a socket", gb_per_s(peak * _EFFICIENCY), why)
    return draft.assume("memory bandwidth of a socket", gb_per_s(_RATE))


def _write_cost(draft: Draft) -> Any:
    """k of B = Bmax / (1 + k w), from reads alone and reads mixed with writes."""
    reads, mixed = draft.of("system_bandwidth", write_share=0.0), draft.of("system_bandwidth", write_share=0.5)
    if reads and mixed and mixed[0].value > 0:
        cost = min(2.0, max(0.0, 2.0 * (reads[0].value / mixed[0].value - 1.0)))
        return draft.measured(f"{cost:.4g}", [*reads, *mixed], "cost of a written byte above a read one") | {
            "value": round(cost, 4)
        }
    return draft.assume("cost of a written byte above a read one", 0.14, "DDR5 with two ranks")


def _latency(draft: Draft, layout: Layout, base: str, grid: Grid) -> dict[str, Any]:
    local = grid.local(grid.latency)
    curve = draft.of("loaded_latency", write_share=0.0)
    rates = [float(figure.at["bandwidth_bytes_per_s"]) for figure in curve]
    if curve and min(rates) > _LOW_LOAD * max(rates):
        curve = []  # a part of the curve that does not reach down to idle tells neither end of it
    told = [node.latency_s for node in layout.nodes if node.kind == "dram" and node.latency_s > 0]
    if local:
        idle = draft.measured(f"{sum(f.value for f in local) / len(local) * 1e9:.5g} ns", local, "idle latency")
    elif curve:
        idle = draft.measured(f"{min(figure.value for figure in curve) * 1e9:.5g} ns", curve, "idle latency")
    elif told:
        cite = draft.cite("datasheet", f"{layout.source}: memory attributes of the firmware")
        idle = {"value": f"{min(told) * 1e9:.5g} ns", "source": cite}
    elif base:
        part: Any = catalogue_of(base).parts[base]
        idle = {
            "value": f"{part.latency.idle * 1e9:.5g} ns",
            "source": draft.cite("datasheet", f"part catalogue of tiersim: {base}"),
        }
    else:
        idle = draft.assume("idle latency of a socket's memory", f"{_LATENCY_NS} ns")
    if len(curve) < 5:
        assumed = draft.assume("rise of latency under load", "a 0.118, c 0.375, k 0.876", "Sapphire Rapids")
        return {"idle": idle, **{key: {"value": value, "source": assumed["source"]} for key, value in _CURVE.items()}}
    a, k = fit_curve([(float(f.at["bandwidth_bytes_per_s"]), f.value) for f in curve])
    fitted = draft.measured(f"a {a:.3g}, k {k:.3g}", curve, "rise of latency under load")["source"]
    c = {"value": _CURVE["c"], "source": draft.assume("rise of latency with writes", _CURVE["c"], "Sapphire Rapids")["source"]}
    return {"idle": idle, "a": {"value": a, "source": fitted}, "c": c, "k": {"value": k, "source": fitted}}


def _join(draft: Draft, names: list[str], grid: Grid) -> None:
    """One link between each two sockets, as fast as reads of the other socket's memory."""
    remote, near = grid.remote(grid.bandwidth), grid.local(grid.latency)
    far = grid.remote(grid.latency)
    rate = (
        draft.measured(gb_per_s(max(figure.value for figure in remote)), remote, "reads of another socket's memory")
        if remote
        else draft.assume("link between two sockets", gb_per_s(_SOCKET_RATE))
    )
    if far and near:
        added = max(1.0, (sum(f.value for f in far) / len(far) - sum(f.value for f in near) / len(near)) * 1e9)
        latency = draft.measured(f"{added:.4g} ns", far, "another socket's memory: added latency")
    else:
        latency = draft.assume("latency added by another socket", f"{_SOCKET_NS} ns")
    draft.parts["socket-link"] = {
        "kind": "link", "title": "between two sockets, as achieved", "type": "upi", "lane_bandwidth": rate, "lanes": 1,
        "efficiency": 1.0, "latency": latency, "source": rate["source"],
    }  # fmt: skip
    draft.parts["host-cpu"]["sockets"] = {
        "part": "socket-link",
        "lanes": {"value": max(1, len(names) - 1), "source": rate["source"]},
    }
    if len(names) == 2:
        draft.links["sockets"] = {"part": "socket-link", "lanes": 1, "between": names}
    else:
        draft.links["sockets"] = {"part": "socket-link", "lanes": 1, "mesh": names}
