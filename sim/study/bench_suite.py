"""The standard microbenchmarks of a machine as panels: what a person would run on the real one, and what was measured there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.errors import InputError
from sim.study.bench import measure
from sim.study.bench_copies import copy_load
from sim.study.bench_flows import Load, times
from sim.study.bench_matrices import bandwidth_matrix, gpu_copy_matrix, latency_matrix
from sim.study.bench_measured import matching
from sim.study.bench_panels import Axis, Curve, Line, Panel, Suite, Unsuited
from sim.study.bench_plan import MOST_LINES, Plan, Series
from sim.study.validation_rows import Row
from sim.topology.machine import Machine

_BANDWIDTH = Axis(label="bandwidth", dimension="bandwidth")
_LOADS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
_WRITE_SHARES = (0.0, 1 / 3, 0.5)
_COPY_SIZES = tuple(4096.0 * 4.0**i for i in range(10))  # 4 KiB to 1 GiB
_COLLECTIVE_SIZES = tuple(32768.0 * 4.0**i for i in range(9))  # 32 KiB to 2 GiB
_ELEMENTS = (1e6, 3e6, 1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10)
_DEPTHS = tuple(2.0**i for i in range(9))


# ------------------------------------------------------------------------------------------------------------------- plans


def _cpu(machine: Machine) -> str:
    """The first socket; Unsuited without one."""
    found = next((name for name, device in machine.devices.items() if device.kind == "cpu"), "")
    if not found:
        raise Unsuited("no CPU")
    return found


def _gpus(machine: Machine, num: int) -> tuple[str, ...]:
    gpus = machine.gpus()
    if len(gpus) < num:
        raise Unsuited("no GPU" if not gpus else "a single GPU")
    return gpus


def _loaded_tiers(machine: Machine) -> list[tuple[str, str]]:
    """(initiator, tier): the first socket with one tier of each kind that its cores load from, the nearest first."""
    cpu = _cpu(machine)
    found: dict[str, tuple[str, str]] = {}
    for name, tier in machine.tiers.items():
        if tier.kind not in ("nvme", "pmem") and machine.device(tier.device).kind in ("cpu", "cxl") and tier.kind not in found:
            found[tier.kind] = (cpu, name)
    if not found:
        own = next((name for name, tier in machine.tiers.items() if tier.device in machine.device(cpu).to), "")
        found = {"own": (cpu, own)} if own else {}
    if not found:
        raise Unsuited("no memory that CPU cores load from")
    return list(found.values())


def _by_read_share(machine: Machine, _rows: Sequence[Row]) -> Plan:
    series = tuple(
        Series(name=f"{cpu} on {tier}", arguments={"device": cpu, "tier": tier}) for cpu, tier in _loaded_tiers(machine)
    )
    return Plan(
        name="bandwidth_by_write_share", title="Saturating traffic by share of writes", benchmark="memory_bandwidth",
        over="write_share", values=(0.0, 0.05, 0.1, 0.2, 0.25, 1 / 3, 0.4, 0.5), metric="bandwidth", series=series,
        x=Axis(label="share of writes", dimension="share"), y=_BANDWIDTH,
    )  # fmt: skip


def _loaded_latency(machine: Machine, rows: Sequence[Row]) -> list[Plan]:
    """One plan per tier; where the machine was measured, a line per write share of the measurements."""
    plans = []
    for cpu, tier in _loaded_tiers(machine):
        known = [found for _row, found in matching(machine, rows, "loaded_latency", "latency") if found.get("tier") == tier]
        shares = sorted({float(found["write_share"]) for found in known}) or list(_WRITE_SHARES)
        series = []
        for share in shares[:MOST_LINES]:
            arguments = {"device": cpu, "tier": tier, "write_share": share}
            most = measure(machine, "memory_bandwidth", arguments)["bandwidth"]
            name = f"{100 * (1 - share):.0f} % reads"
            series.append(Series(name=name, arguments=arguments, values=tuple(most * load for load in _LOADS)))
        plans.append(
            Plan(
                name=f"loaded_latency_{tier.replace('.', '_')}",
                title=f"Latency of {tier} from {cpu} under load",
                benchmark="loaded_latency",
                over="load",
                metric="latency",
                series=tuple(series),
                x=Axis(label="traffic beside the chase", dimension="bandwidth"),
                y=Axis(label="latency", dimension="time"),
            )
        )
    return plans


def _host_copy(machine: Machine, _rows: Sequence[Row]) -> Plan:
    gpu = _gpus(machine, 1)[0]
    host, own = machine.resolve("dram", gpu), machine.memory_tier(gpu)
    between = f"between {host} and" if host != own else "within"
    ways = [("host to GPU", host, own), ("GPU to host", own, host)] if host != own else [("copy engine", own, own)]
    series = [
        Series(
            name=f"{label}, {'pinned' if is_pinned else 'pageable'}",
            arguments={"source": source, "target": target, "initiator": gpu, "is_pinned": is_pinned},
        )
        for is_pinned in (True, False)
        for label, source, target in ways
    ]
    return Plan(
        name="host_device_copy", title=f"Copies {between} {own} by size", benchmark="copy", over="size",
        values=_COPY_SIZES, metric="bandwidth", series=tuple(series), variants=("timing",), is_each_varied=True,
        x=Axis(label="size", dimension="bytes", is_log=True), y=_BANDWIDTH,
    )  # fmt: skip


def _collectives(machine: Machine, _rows: Sequence[Row]) -> Plan:
    count = len(_gpus(machine, 2 if machine.num_nodes == 1 else 1)) * machine.num_nodes
    if count < 2:
        raise Unsuited("a single GPU")
    if len({machine.device(gpu).host for gpu in machine.gpus()}) > 1:
        raise Unsuited("the GPUs belong to several hosts")
    kinds = {
        "all-reduce": {"collective": "all_reduce"},
        "all-reduce, ring only": {"collective": "all_reduce", "algorithm": "ring"},
        "all-gather": {"collective": "all_gather"},
        "all-to-all": {"collective": "all_to_all"},
    }
    return Plan(
        name="collectives", title=f"Collectives of {count} GPUs by size", benchmark="collective", over="size",
        values=_COLLECTIVE_SIZES, metric="bus_bandwidth", series=tuple(Series(name=n, arguments=a) for n, a in kinds.items()),
        x=Axis(label="size", dimension="bytes", is_log=True), y=Axis(label="bus bandwidth", dimension="bandwidth"),
    )  # fmt: skip


def _cpu_adam(machine: Machine, _rows: Sequence[Row]) -> Plan:
    cpu = _cpu(machine)
    speeds = {
        tier: measure(machine, "memory_bandwidth", {"device": cpu, "tier": tier, "write_share": 0.4})["bandwidth"]
        for cpu, tier in _loaded_tiers(machine)
    }
    series = [Series(name=f"states in {tier}", arguments={"device": cpu, "shares": {tier: 1.0}}) for tier in speeds]
    if len(speeds) > 1:
        total = sum(speeds.values())
        shares = {tier: speed / total for tier, speed in speeds.items()}
        name = "interleaved " + " : ".join(f"{100 * share:.0f} %" for share in shares.values())
        series.append(Series(name=name, arguments={"device": cpu, "shares": shares}))
    return Plan(
        name="cpu_adam", title=f"Adam update on {cpu} by number of parameters", benchmark="cpu_adam", over="elements",
        values=_ELEMENTS, metric="time", is_rate=True, series=tuple(series),
        variants=("shares", "implementation", "ranks", "is_bound", "sockets"),
        x=Axis(label="parameters", dimension="count", is_log=True), y=Axis(label="parameters updated", dimension="rate"),
    )  # fmt: skip


def _storage(machine: Machine, _rows: Sequence[Row]) -> Plan:
    drive = next((name for name, tier in machine.tiers.items() if tier.kind == "nvme"), "")
    if not drive:
        raise Unsuited("no drive")
    kinds = {
        "read 4 KiB": ("read", 4096.0),
        "read 64 KiB": ("read", 65536.0),
        "read 1 MiB": ("read", 2.0**20),
        "write 1 MiB": ("write", 2.0**20),
    }
    series = tuple(
        Series(name=name, arguments={"tier": drive, "operation": operation, "block": block})
        for name, (operation, block) in kinds.items()
    )
    count = machine.device(machine.media[drive].device).count
    return Plan(
        name="storage", title=f"{drive} ({count} drive{'s' if count > 1 else ''}) by queue depth", benchmark="storage",
        over="queue_depth", values=_DEPTHS, metric="bandwidth", series=series,
        variants=("operation", "block", "target", "jobs"),
        x=Axis(label="blocks in flight", dimension="count", is_log=True),
        y=Axis(label="bandwidth", dimension="bandwidth", is_log=True),
    )  # fmt: skip


def _gpus_at_once(machine: Machine, _rows: Sequence[Row]) -> Curve:
    """Host copies of the first n GPUs at once: what they share (an uplink, a root complex, the host's memory).

    Bytes of all over the time until the last has ended.
    """
    gpus = _gpus(machine, 2)
    lines: dict[str, list[tuple[float, float]]] = {"host to GPU": [], "GPU to host": [], "both ways": []}
    for num in _counts(len(gpus)):
        for label, points in lines.items():
            loads = [load for gpu in gpus[:num] for load in _host_loads(machine, gpu, label)]
            points.append((float(num), sum(load.work for load in loads) / max(times(machine, loads))))
    return Curve(
        name="host_copies_at_once", title="Pinned copies of several GPUs at once, total",
        x=Axis(label="GPUs", dimension="count"),
        y=_BANDWIDTH, lines=tuple(Line(name=label, points=tuple(points)) for label, points in lines.items()),
    )  # fmt: skip


def _counts(num: int) -> list[int]:
    """1 to `num`: all of a node, then doublings."""
    return list(range(1, num + 1)) if num <= 16 else [*(2**i for i in range(num.bit_length()) if 2**i < num), num]


def _host_loads(machine: Machine, gpu: str, label: str) -> list[Load]:
    host, own = machine.resolve("dram", gpu), machine.memory_tier(gpu)
    if host == own:
        raise Unsuited("host and GPU share one memory")
    ends = {"host to GPU": [(host, own)], "GPU to host": [(own, host)], "both ways": [(host, own), (own, host)]}[label]
    return [copy_load(machine, source=source, target=target, initiator=gpu) for source, target in ends]


# ------------------------------------------------------------------------------------------------------------------- suite

Maker = Callable[[Machine, Sequence[Row]], Panel | Plan | list[Plan]]
#: name -> what makes its panel (or panels)
PANELS: dict[str, Maker] = {
    "bandwidth_matrix": bandwidth_matrix,
    "latency_matrix": latency_matrix,
    "bandwidth_by_write_share": _by_read_share,
    "loaded_latency": _loaded_latency,
    "host_device_copy": _host_copy,
    "host_copies_at_once": _gpus_at_once,
    "gpu_copy": gpu_copy_matrix,
    "collectives": _collectives,
    "cpu_adam": _cpu_adam,
    "storage": _storage,
}


def run_suite(
    machine: Machine,
    rows: Sequence[Row] = (),
    *,
    only: Sequence[str] = (),
    on_progress: Callable[[int], None] = lambda _done: None,
) -> Suite:
    """Every panel that the machine can have (or those named in `only`, keys of PANELS), with the rows measured on it.

    Progress is called with the number of panels done. Raises InputError for what the machine cannot simulate at all.
    """
    panels: list[Panel] = []
    skipped: dict[str, str] = {}
    for done, name in enumerate(only or PANELS, start=1):
        try:
            made = PANELS[name](machine, rows)
            listed = made if isinstance(made, list) else [made]
            panels.extend(item.curve(machine, rows) if isinstance(item, Plan) else item for item in listed)
        except Unsuited as reason:
            skipped[name] = str(reason)
        except InputError as error:
            skipped[name] = str(error)
        on_progress(done)
    return Suite(machine=machine.name, title=machine.title, panels=tuple(panels), skipped=skipped)
