"""Compact tables of published measurements -> rows, one per measured value. Format: scenarios/validation/README.md.

A table shares one block of inputs (`scenario` or `bench`); each of its rows overrides some of them by dotted path and
gives one or more measured values.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.config import Document
from sim.config.measured_block import si_per
from sim.config.yaml_source import NodePath
from sim.errors import Fault, InputError
from sim.study.validation_notes import Notes, read_notes

FAMILIES = (
    "memory_bandwidth", "loaded_latency", "cxl", "copies", "collectives", "gemm", "nvme", "cpu_adam", "unified_memory",
    "training_no_offload", "training_moe", "training_offload", "footprint_gpu", "footprint_host", "fit_verdict", "inference",
)  # fmt: skip
VERDICTS = ("fits", "tight", "does_not_fit")
#: metrics that belong to a family of their own, whatever the family of their table
_OWN_FAMILY = {
    "gpu_allocated": "footprint_gpu", "gpu_reserved": "footprint_gpu", "gpu_peak": "footprint_gpu",
    "host_peak": "footprint_host", "host_init_peak": "footprint_host", "host_load_peak": "footprint_host",
    "verdict": "fit_verdict",
}  # fmt: skip

#: columns that describe a row instead of an input
_PLAIN = ("id", "sweep", "locate", "confidence", "assumed", "missing", "doubtful", "unexplained")
_INPUTS = ("scenario", "bench")
_FILE_KEYS = {"publication", "document", "tables", *_INPUTS}
_TABLE_KEYS = {
    "id", "family", "document", "locate", "confidence", "assumptions", "sweep", "missing", "doubtful", "unexplained", "is_fast",
    "columns", "rows", *_INPUTS,
}  # fmt: skip
_MEASURED = re.compile(r"^=\s*(?P<metric>[a-z0-9_.]+)\s*(?:\[(?P<unit>[^\]]+)\])?$")
_INPUT = re.compile(r"^(?P<path>[A-Za-z0-9_.\-]+)\s*(?:\[(?P<unit>[^\]]+)\])?$")
#: units of tables beside those of a scenario's `measured:`
_EXTRA_UNITS = {"kIOPS": 1e3, "B params": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published value and everything needed to predict it.

    `measured` is in SI (or a verdict in `verdict`); `inputs` is a scenario block or a microbenchmark block. A row with
    `missing` lacks an input in its source; with `doubtful` its data is not trusted: both are listed, not predicted. What is
    known of an error that no law explains stands in `unexplained`: the row counts as any other.
    """

    id: str
    family: str
    publication: str
    document: str
    metric: str
    measured: float
    unit: str
    kind: str  # "scenario" | "bench"
    inputs: Mapping[str, Any]
    verdict: str = ""
    locate: str = ""
    confidence: str = "read-from-table"
    assumptions: tuple[str, ...] = ()
    sweep: str = ""
    missing: str = ""
    doubtful: str = ""
    unexplained: str = ""
    is_fast: bool = False
    file: str = ""

    @property
    def citation(self) -> str:
        """Document and place in it."""
        return f"{self.document}; {self.locate}" if self.locate else self.document

    @property
    def table(self) -> str:
        """The table that it stands in: "publication/table"."""
        return "/".join(self.id.split("/")[:2])

    @property
    def run_key(self) -> str:
        """Rows with equal keys are answered by one run."""
        return json.dumps([self.kind, self.inputs], sort_keys=True, default=str)


@dataclass(slots=True)
class _Faults:
    document: Document
    found: list[Fault] = field(default_factory=list)

    def add(self, path: NodePath, what: str, remedy: str = "") -> None:
        self.found.append(self.document.fault(path, what, remedy))


def rows_of(document: Document) -> list[Row]:
    """All rows of one file; raises InputError with every fault found."""
    faults = _Faults(document)
    data = document.data
    _unknown_keys(data, _FILE_KEYS, (), faults)
    publication = str(data.get("publication", ""))
    if not publication:
        faults.add(("publication",), "missing", "name the publication in a few lower-case words, for example 'mess-results'")
    rows: list[Row] = []
    for index, table in enumerate(_list(data, ("tables",), faults)):
        path: NodePath = ("tables", index)
        if isinstance(table, Mapping):
            rows.extend(_rows_of_table(data, table, path, publication, faults))
        else:
            faults.add(path, f"expected a table, got {table!r}")
    if faults.found:
        raise InputError(faults.found)
    return rows


def merge(base: Any, change: Any) -> Any:
    """`change` laid over `base`: mappings merge by key, everything else replaces."""
    if isinstance(base, Mapping) and isinstance(change, Mapping):
        merged = dict(base)
        for key, value in change.items():
            merged[key] = merge(merged[key], value) if key in merged else copy.deepcopy(value)
        return merged
    return copy.deepcopy(change)


def set_path(target: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b.c` in nested mappings, creating what is absent; a scalar in the way is replaced by a mapping."""
    if path.startswith("topology.set."):  # its keys are dotted paths themselves
        parents, last = ["topology", "set"], path.removeprefix("topology.set.")
    else:
        *parents, last = path.split(".")
    for name in parents:
        inner = target.get(name)
        if not isinstance(inner, dict):
            inner = {} if inner is None or name != "topology" else {"base": inner}
            target[name] = inner
        target = inner
    target[last] = merge(target.get(last), value) if isinstance(value, Mapping) else value


def family_of(metric: str, family: str) -> str:
    """The family that a metric counts in: its own (memory, verdicts), else that of its table or job."""
    return _OWN_FAMILY.get(metric, family)


def factor(unit: str) -> float:
    """SI per `unit`; ValueError for an unknown one."""
    one = _EXTRA_UNITS.get(unit, si_per(unit))
    if one is None:
        raise ValueError(f"unknown unit {unit!r}")
    return one


def _rows_of_table(
    data: Mapping[str, Any], table: Mapping[str, Any], path: NodePath, publication: str, faults: _Faults
) -> Iterator[Row]:
    _unknown_keys(table, _TABLE_KEYS, path, faults)
    family = table.get("family", "")
    if not table.get("id"):
        faults.add((*path, "id"), "missing", "give the table an id; row ids begin with it")
    if family not in FAMILIES:
        faults.add((*path, "family"), f"unknown family {family!r}", f"one of {', '.join(FAMILIES)}")
    kinds = [kind for kind in _INPUTS if kind in table]
    if len(kinds) != 1:
        faults.add(path, f"expected one of 'scenario' and 'bench', got {' and '.join(kinds) or 'neither'}")
        return
    base = merge(data.get(kinds[0], {}), table[kinds[0]] or {})
    columns = [str(column) for column in _list(table, (*path, "columns"), faults)]
    if not any(column.startswith("=") for column in columns):
        faults.add((*path, "columns"), "no measured column", "write one as '= step_time [s]'")
    notes = read_notes(table.get("unexplained"), lambda what, remedy: faults.add((*path, "unexplained"), what, remedy))
    shared = _Shared(data, table, publication, kinds[0], base, notes, faults)
    for number, cells in enumerate(_list(table, (*path, "rows"), faults)):
        place = (*path, "rows", number)
        if not isinstance(cells, list) or len(cells) != len(columns):
            faults.add(place, f"expected {len(columns)} cells ({', '.join(columns)}), got {cells!r}")
            continue
        yield from shared.rows(dict(zip(columns, cells, strict=True)), number, place)
    if unused := notes.unused():
        faults.add((*path, "unexplained"), f"no row of the table is {unused[0]!r}", "name rows by their id, or id.metric")


@dataclass(slots=True)
class _Shared:
    """What the rows of one table have in common."""

    data: Mapping[str, Any]
    table: Mapping[str, Any]
    publication: str
    kind: str
    base: Any
    notes: Notes
    faults: _Faults

    def rows(self, cells: Mapping[str, Any], number: int, place: NodePath) -> Iterator[Row]:
        inputs: dict[str, Any] = copy.deepcopy(dict(self.base))
        measured: list[tuple[str, str, Any]] = []
        for column, cell in cells.items():
            if column in _PLAIN or cell is None:
                continue
            if match := _MEASURED.match(column):
                measured.append((match["metric"], match["unit"] or "1", cell))
            elif match := _INPUT.match(column):
                set_path(inputs, match["path"], f"{cell} {match['unit']}" if match["unit"] else cell)
            else:
                self.faults.add(place, f"unreadable column {column!r}", "write '= metric [unit]' or 'dotted.path [unit]'")
        has_many = sum(column.startswith("=") for column in cells) > 1
        prefix = f"{self.publication}/{self.table.get('id', '')}/{cells.get('id', number)}"
        for metric, unit, cell in measured:
            value, verdict = self._value(metric, unit, cell, place)
            yield Row(
                id=f"{prefix}.{metric}" if has_many else prefix,
                family=family_of(metric, str(self.table.get("family", ""))),
                publication=self.publication,
                document=str(self.table.get("document") or self.data.get("document", "")),
                metric=metric,
                measured=value,
                unit=unit,
                kind=self.kind,
                inputs=inputs,
                verdict=verdict,
                assumptions=(*self.table.get("assumptions", ()), *([str(cells["assumed"])] if cells.get("assumed") else [])),
                sweep=self._sweep(cells, metric),
                is_fast=self._is_fast(cells, number),
                file=self.faults.document.file,
                unexplained=str(cells.get("unexplained") or self.notes.of(str(cells.get("id", number)), metric)),
                **{name: self._text(cells, name) for name in ("locate", "confidence", "missing", "doubtful")},
            )

    def _text(self, cells: Mapping[str, Any], name: str) -> str:
        return str(cells.get(name) or self.table.get(name, ""))

    def _value(self, metric: str, unit: str, cell: Any, place: NodePath) -> tuple[float, str]:
        if metric == "verdict":
            if cell not in VERDICTS:
                self.faults.add(place, f"unknown verdict {cell!r}", f"one of {', '.join(VERDICTS)}")
            return 1.0, str(cell)
        try:
            value = float(cell) * factor(unit)
        except (TypeError, ValueError):
            self.faults.add(place, f"expected a number in a known unit, got {cell!r} [{unit}]")
            return 1.0, ""
        if not 0 < value < math.inf:
            self.faults.add(place, f"a measured value must be positive, got {cell!r}")
            return 1.0, ""
        return value, ""

    def _sweep(self, cells: Mapping[str, Any], metric: str) -> str:
        name = self._text(cells, "sweep")
        return f"{self.publication}/{self.table.get('id', '')}/{name}.{metric}" if name else ""

    def _is_fast(self, cells: Mapping[str, Any], number: int) -> bool:
        fast = self.table.get("is_fast", False)
        return cells.get("id", number) in fast if isinstance(fast, list) else bool(fast)


def _list(data: Mapping[str, Any], path: NodePath, faults: _Faults) -> Sequence[Any]:
    value = data.get(str(path[-1]))
    if isinstance(value, list) and value:
        return value
    faults.add(path, f"expected a list that is not empty, got {value!r}" if path[-1] in data else "missing")
    return []


def _unknown_keys(data: Mapping[str, Any], known: set[str], path: NodePath, faults: _Faults) -> None:
    for key in data:
        if key not in known:
            faults.add((*path, key), f"unknown key {key!r}", f"one of {', '.join(sorted(known))}")
