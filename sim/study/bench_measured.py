"""Published microbenchmarks of one machine: the rows of the validation tables that name it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from sim.config import data_folder
from sim.errors import InputError
from sim.study.bench import BENCHMARKS, plain
from sim.study.bench_copies import tier_of
from sim.study.row_files import read_rows
from sim.study.validation_rows import Row
from sim.topology.machine import Machine

#: families whose rows are microbenchmarks
FAMILIES = ("memory_bandwidth", "loaded_latency", "cxl", "copies", "collectives", "nvme", "cpu_adam", "unified_memory")
_TIERS = ("tier", "source", "target")
Canonical = dict[str, Any]


def rows_of_machine(name: str) -> list[Row]:
    """Trusted microbenchmark rows measured on the built-in machine of that name; tables that do not name it are not read."""
    folder = data_folder() / "scenarios" / "validation"
    files = [path for family in FAMILIES for path in sorted((folder / family).glob("*.yaml"))]
    named = [path for path in files if name in path.read_text(encoding="utf-8")]
    return [row for row in read_rows(named) if _is_on(row, name) and not row.missing and not row.doubtful]


def _is_on(row: Row, name: str) -> bool:
    return row.kind == "bench" and row.inputs.get("topology") in (name, {"base": name})


def canonical(machine: Machine, benchmark: str, arguments: Mapping[str, Any]) -> Canonical:
    """Arguments in one form: defaults written out, quantities in SI, tiers by name; equal inputs compare equal.

    Raises InputError where they name what the machine lacks.
    """
    function, quantities = BENCHMARKS[benchmark]
    found = {
        key: parameter.default
        for key, parameter in inspect.signature(function).parameters.items()
        if key != "machine" and parameter.default is not inspect.Parameter.empty
    }
    found |= {key: plain(value, quantities.get(key)) for key, value in arguments.items() if value is not None}
    found.pop("is_non_temporal", None)  # names a kernel, changes nothing
    if benchmark == "collective" and found.get("ranks") == len(machine.gpus()) * machine.num_nodes:
        found["ranks"] = None
    if benchmark == "storage":
        first = next(iter(machine.devices))
        tiers = found["tier"] if isinstance(found["tier"], list) else [found["tier"]]
        named = [machine.resolve(tier, first) for tier in tiers]
        found["tier"] = named if len(named) > 1 else named[0]
    if found.get("shares", {}) is None:
        found["shares"] = {"dram": 1.0}
    seen_from = str(found.get("initiator") or found.get("device") or next(iter(machine.gpus()), ""))
    for key in _TIERS:
        value = found.get(key)
        if isinstance(value, str) and value and seen_from in machine.devices and benchmark != "storage":
            found[key] = tier_of(machine, value, seen_from)
    if found.get("shares"):
        found["shares"] = {tier_of(machine, name, seen_from): share for name, share in found["shares"].items() if share}
    return found


def matching(machine: Machine, rows: Iterable[Row], benchmark: str, metric: str) -> list[tuple[Row, Canonical]]:
    """Rows of a benchmark and metric with their canonical arguments; those that the machine cannot answer are left out."""
    found = []
    for row in rows:
        if row.inputs.get("benchmark") != benchmark or row.metric != metric:
            continue
        arguments = {key: value for key, value in row.inputs.items() if key not in ("topology", "benchmark")}
        try:
            found.append((row, canonical(machine, benchmark, arguments)))
        except InputError:
            continue
    return found
