"""A measured machine as files: its parts, its topology, and its measurements as a validation table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.errors import Fault, InputError
from sim.probe.calibrate import HostMeasurement
from sim.probe.calibrate_gpu import STEP_BATCH, STEP_SEQUENCE, STEP_SHAPE, GpuMeasurement


def write_calibration(folder: Path, name: str, host: HostMeasurement, gpu: GpuMeasurement | None = None) -> list[Path]:
    """Write NAME-parts.yaml, NAME.yaml (topology) and NAME-measured.yaml into `folder`; returns their paths.

    The parts hold what was achieved, not datasheet peaks: the efficiency is 1 and the peak is what the best kernel
    reached, so the topology reproduces this machine and says nothing about others of its kind.
    """
    parts = parts_of(host, gpu)
    cite = f"own measurement on {host.name}, {host.date}, {'; '.join(host.notes)}"
    sources = {"own": {"kind": "microbenchmark", "cite": cite}}
    topology = {
        "title": f"{host.name}, calibrated {host.date}",
        "source": f"own measurement on {host.name}, {host.date}",
        "devices": {"cpu0": {"part": "host-cpu"}} | ({"gpu0": {"part": "device", "to": "cpu0"}} if gpu else {}),
        "sources": sources,
        "parts": parts,
    }
    catalogue = {"sources": sources, "parts": parts}
    files = {
        f"{name}-parts.yaml": catalogue,
        f"{name}.yaml": topology,
        f"{name}-measured.yaml": measured_of(name, host, gpu),
    }
    paths = []
    for file, data in files.items():
        path = folder / file
        write_whole(path, f"# Written by `tiersim calibrate` on {host.date}.\n" + as_yaml(data))
        paths.append(path)
    return paths


def parts_of(host: HostMeasurement, gpu: GpuMeasurement | None = None) -> dict[str, Any]:
    """Part blocks of the host (and the accelerator) by name, quantities as strings with units."""
    read = max(host.stream_bytes_per_s["read"], host.core_read_bytes_per_s)
    copy = host.stream_bytes_per_s["copy"]
    write_cost = max(0.0, min(2.0, 2.0 * read / copy - 2.0))  # a copy is half writes: 1 / copy = (1 + 1 + cost) / (2 read)
    lines = max(1.0, host.core_read_bytes_per_s * host.latency_s / 64.0)
    parts: dict[str, Any] = {
        "host-memory": {
            "kind": "memory", "title": "memory of this host, as achieved", "source": "own", "type": "ddr5",
            "transfers": f"{read / 8e6:.6g} MT/s", "width_bits": 64, "efficiency": 1.0, "write_cost": round(write_cost, 4),
        },
        "host-cpu": {
            "kind": "cpu", "title": f"CPU of {host.name}", "source": "own", "family": "measured", "cores": host.cores,
            "memory": {"part": "host-memory", "capacity": f"{host.memory_bytes / 2**30:.4g} GiB", "bandwidth": _rate(read)},
            "latency": {"idle": f"{host.latency_s * 1e9:.4g} ns"},
            "lines_per_core": round(lines, 2), "core_bandwidth": _rate(host.core_read_bytes_per_s),
            "last_level_cache": f"{host.last_level_cache_bytes / 2**20:.4g} MiB",
        },
    }  # fmt: skip
    if gpu is not None:
        parts |= _gpu_parts(gpu)
        parts["host-cpu"]["pcie"] = {"part": "device-link", "lanes": 1}
    return parts


def _gpu_parts(gpu: GpuMeasurement) -> dict[str, Any]:
    start, rate = gpu.copy_law("h2d")
    _start, back = gpu.copy_law("d2h")
    triad = gpu.stream_bytes_per_s["triad"]
    best: dict[str, float] = {}
    for (dtype, _n), flops in gpu.gemm_flops_per_s.items():
        best[dtype] = max(best.get(dtype, 0.0), flops)
    return {
        "device-memory": {
            "kind": "memory", "title": f"memory of {gpu.name}, as achieved", "source": "own", "type": "hbm3",
            "transfers": f"{triad / 128e6:.6g} MT/s", "width_bits": 1024, "efficiency": 1.0,
        },
        "device-link": {
            "kind": "link", "title": f"host link of {gpu.name}, as achieved", "source": "own", "type": "pcie",
            "lane_bandwidth": _rate(max(rate, back)), "lanes": 1, "efficiency": round(rate / max(rate, back), 4),
            "upward_efficiency": round(back / max(rate, back), 4),
        },
        "device": {
            "kind": "gpu", "title": gpu.name, "source": "own", "vendor": gpu.vendor, "family": "measured",
            "compute": {dtype: f"{flops / 1e12:.4g} TFLOP/s" for dtype, flops in best.items()},
            "memory": {
                "part": "device-memory", "capacity": f"{gpu.memory_bytes / 2**30:.4g} GiB", "bandwidth": _rate(triad),
                "efficiency": 1.0,
            },
            "pcie": {"part": "device-link", "lanes": 1},
            "copy_latency": f"{start * 1e6:.3g} us",
            "kernel_bandwidth": {
                kernel: round(min(1.2, rate_ / triad), 4) for kernel, rate_ in gpu.stream_bytes_per_s.items()
            },
            "gemm_efficiency": dict.fromkeys(best, 1.0),
            "cores": gpu.multiprocessors,
        },
    }  # fmt: skip


def measured_of(name: str, host: HostMeasurement, gpu: GpuMeasurement | None = None) -> dict[str, Any]:
    """The measurements as validation tables that run on the topology beside them."""
    topology = f"./{name}.yaml"
    on = {"topology": topology, "device": "cpu0", "tier": "dram"}
    stream = host.stream_bytes_per_s
    tables: list[dict[str, Any]] = [
        _table("memory", "memory_bandwidth", {"benchmark": "memory_bandwidth", **on},
               ["id", "write_share", "cores", "= bandwidth [GB/s]"],
               [["read", 0, None, stream["read"] / 1e9], ["triad", 0.25, None, stream["triad"] / 1e9],
                ["copy", 0.5, None, stream["copy"] / 1e9], ["one-core", 0, 1, host.core_read_bytes_per_s / 1e9]]),
        _table("latency", "loaded_latency", {"benchmark": "memory_latency", **on}, ["id", "= latency [ns]"],
               [["idle", host.latency_s * 1e9]]),
    ]  # fmt: skip
    if host.adam_s:
        sizes = [[f"n{count}", "size", count, seconds * 1e3] for count, seconds in sorted(host.adam_s.items(), reverse=True)]
        adam = {"benchmark": "cpu_adam", "topology": topology, "device": "cpu0"}
        table = _table("adam", "cpu_adam", adam, ["id", "sweep", "elements", "= time [ms]"], sizes)
        tables.append({**table, "locate": host.adam_by})
    if gpu is not None:
        tables += _gpu_tables(topology, gpu)
    document = f"own measurement on {host.name}, {host.date}, {'; '.join(host.notes)}"
    return {"publication": f"own-{name}", "document": document, "tables": tables}


def _gpu_tables(topology: str, gpu: GpuMeasurement) -> list[dict[str, Any]]:
    ends = {"h2d": ["dram", "gpu"], "d2h": ["gpu", "dram"]}
    kinds = {True: "pinned", False: "pageable"}
    copies = [
        [f"{way}-{kinds[pinned]}-{size}", f"{way}-{kinds[pinned]}", f"{size} B", *ends[way], pinned, rate / 1e9]
        for (way, pinned, size), rate in sorted(gpu.copies_bytes_per_s.items(), key=lambda item: (item[0][:2], -item[0][2]))
    ]  # fmt: skip
    on = {"topology": topology, "device": "gpu0"}
    training = {
        "model": {**STEP_SHAPE, "mlp": "gelu", "norm": "layernorm", "position": "none", "attention_bias": True},
        "sequence_length": STEP_SEQUENCE, "batch_size": STEP_BATCH, "precision": "bf16", "attention": "flash",
    }  # fmt: skip
    return [
        _table("copy", "copies", {"benchmark": "copy", "topology": topology, "initiator": "gpu0"},
               ["id", "sweep", "size", "source", "target", "is_pinned", "= bandwidth [GB/s]"], copies),
        _table("stream", "memory_bandwidth", {"benchmark": "device_stream", **on}, ["id", "kernel", "= bandwidth [GB/s]"],
               [[k, {"init": "write"}.get(k, k), rate / 1e9] for k, rate in gpu.stream_bytes_per_s.items()]),
        _table("gemm", "gemm", {"benchmark": "gemm", **on}, ["id", "dtype", "m", "n", "k", "= throughput [TFLOP/s]"],
               [[f"{d}-{n}", d, n, n, n, flops / 1e12] for (d, n), flops in gpu.gemm_flops_per_s.items()]),
        {
            "id": "step", "family": "training_no_offload", "locate": gpu.software, "confidence": "exact-text",
            "scenario": {"topology": topology, "workload": {"training": training}},
            "columns": ["id", "sweep", "workload.training.checkpointing", "workload.training.optimizer", "= step_time [s]"],
            "rows": [
                ["plain", "variant", None, None, gpu.steps_s["plain"]],
                ["checkpointing", "variant", {"active": True}, None, gpu.steps_s["checkpointing"]],
                ["offload", "variant", None, {"offload": True}, gpu.steps_s["offload"]],
            ],
        },
    ]  # fmt: skip


def _table(name: str, family: str, bench: dict[str, Any], columns: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    return {"id": name, "family": family, "confidence": "exact-text", "bench": bench, "columns": columns, "rows": rows}


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.5g} GB/s"


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all; folders are made. Raises InputError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InputError(Fault(what=f"cannot be written: {error.strerror}", file=str(path))) from error


def as_yaml(data: Any, indent: int = 0) -> str:
    """Plain data as YAML: nested mappings as blocks, rows and other lists of scalars on one line."""
    import json

    pad = " " * indent
    if isinstance(data, dict):
        lines = []
        for key, value in data.items():
            if isinstance(value, dict) and value:
                lines.append(f"{pad}{key}:\n{as_yaml(value, indent + 2)}")
            elif isinstance(value, list) and value and isinstance(value[0], dict | list):
                items = [_item(item, indent + 2) for item in value]
                lines.append(f"{pad}{key}:\n" + "\n".join(items))
            else:
                lines.append(f"{pad}{key}: {json.dumps(value, ensure_ascii=False)}")
        return "\n".join(lines) + ("\n" if indent == 0 else "")
    return f"{pad}{json.dumps(data, ensure_ascii=False)}"


def _item(item: Any, indent: int) -> str:
    import json

    if isinstance(item, dict):
        return " " * indent + "- " + as_yaml(item, indent + 2).lstrip()
    return " " * indent + f"- {json.dumps(item, ensure_ascii=False)}"
