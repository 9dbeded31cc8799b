"""Benchmarks between pairs: who reaches which memory, how fast and how late; copies between every two GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sim.errors import InputError
from sim.study.bench import measure
from sim.study.bench_measured import matching
from sim.study.bench_panels import Axis, Matrix, Measurement, Unsuited
from sim.study.validation_rows import Row
from sim.topology.machine import Machine

#: processors of one kind, and memories, that a matrix shows; larger machines repeat themselves
MOST = 8
_NOT_LOADED = ("nvme", "pmem")


def bandwidth_matrix(machine: Machine, rows: Sequence[Row]) -> Matrix:
    """Saturating reads of every memory by every processor, one pair at a time (MLC's matrix, GPUs included)."""
    value = Axis(label="reads", dimension="bandwidth")
    return _loads(machine, rows, "bandwidth_matrix", "Reads of each memory by each processor", "memory_bandwidth", value)


def latency_matrix(machine: Machine, rows: Sequence[Row]) -> Matrix:
    """Pointer chase from every processor through every memory, idle."""
    value = Axis(label="idle latency", dimension="time")
    return _loads(machine, rows, "latency_matrix", "Idle latency of each memory from each processor", "memory_latency", value)


def _loads(machine: Machine, rows: Sequence[Row], name: str, title: str, benchmark: str, value: Axis) -> Matrix:
    metric = "latency" if benchmark == "memory_latency" else "bandwidth"
    initiators, tiers, note = _shown(machine)
    cells: dict[tuple[str, str], float] = {}
    for device in initiators:
        for tier in tiers:
            if not reaches(machine, device, tier):
                continue
            try:
                cells[device, tier] = measure(machine, benchmark, {"device": device, "tier": tier})[metric]
            except InputError:
                continue
    measured = {}
    for row, found in matching(machine, rows, benchmark, metric):
        at = (str(found.get("device")), str(found.get("tier")))
        if at in cells and not found.get("write_share") and found.get("sockets", 1) == 1 and found.get("cores") is None:
            measured[at] = Measurement(row=row.id, citation=row.citation, measured=row.measured, predicted=cells[at])
    return Matrix(
        name=name, title=title, rows=tuple(initiators), columns=tuple(tiers), axes=("processor", "memory"), value=value,
        cells=cells, measured=measured, note=note,
    )  # fmt: skip


def _shown(machine: Machine) -> tuple[list[str], list[str], str]:
    """Processors and memories of the matrix, and what was left out."""
    cpus = [name for name, device in machine.devices.items() if device.kind == "cpu"]
    gpus = list(machine.gpus())
    expanders = [name for name, device in machine.devices.items() if device.kind == "cxl"]
    parts = [cpus[:MOST], gpus[:MOST], expanders[:MOST]]
    kept = {name for part in parts for name in part}
    tiers = [name for name, tier in machine.tiers.items() if tier.kind not in _NOT_LOADED and tier.device in kept]
    hidden = len(cpus) + len(gpus) + len(expanders) - len(kept)
    return parts[0] + parts[1], tiers, f"{hidden} more devices not shown" if hidden else ""


def reaches(machine: Machine, device: str, tier: str) -> bool:
    """Whether loads of the device go to that memory: over coherent links, or those of a GPU over PCIe to host memory.

    A core reads a PCIe device's memory uncached, a word at a time; nobody runs a bandwidth test that way.
    """
    owner = machine.tiers[tier].device
    if owner == device:
        return True
    try:
        hops = machine.access(device, tier).hops
    except InputError:
        return False
    steps = {frozenset(step) for step in pairwise(hops)}
    links = {edge.link for edge in machine.edges if frozenset((edge.source, edge.target)) in steps}
    if "pcie" not in links:
        return True
    return machine.device(device).kind == "gpu" and machine.device(owner).kind in ("cpu", "cxl")


def gpu_copy_matrix(machine: Machine, rows: Sequence[Row]) -> Matrix:
    """A 1 GiB copy between every two GPUs, one pair at a time (nvbandwidth, p2pBandwidthLatencyTest)."""
    if len(machine.gpus()) < 2:
        raise Unsuited("no GPU" if not machine.gpus() else "a single GPU")
    gpus = machine.gpus()[: 2 * MOST]
    cells = {}
    for source in gpus:
        for target in gpus:
            if source == target:
                continue
            try:
                arguments = {"source": source, "target": target, "initiator": source}
                cells[source, target] = measure(machine, "copy", arguments)["bandwidth"]
            except InputError:  # no way between GPUs of different hosts
                continue
    if not cells:
        raise Unsuited("no way between the GPUs")
    hidden = len(machine.gpus()) - len(gpus)
    tiers = {machine.memory_tier(gpu): gpu for gpu in gpus}
    measured = {}
    for row, found in matching(machine, rows, "copy", "bandwidth"):
        at = (tiers.get(str(found.get("source")), ""), tiers.get(str(found.get("target")), ""))
        if at in cells and not found.get("beside") and found.get("uses_copy_engine") and float(found["size"]) >= 2.0**26:
            measured[at] = Measurement(row=row.id, citation=row.citation, measured=row.measured, predicted=cells[at])
    return Matrix(
        name="gpu_copy", title="Copies between GPUs, one pair at a time", rows=tuple(gpus), columns=tuple(gpus),
        axes=("from", "to"), value=Axis(label="copy", dimension="bandwidth"), cells=cells, measured=measured,
        note=f"{hidden} more GPUs not shown" if hidden else "",
    )  # fmt: skip
