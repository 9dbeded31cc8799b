"""The trace file of tiersim: one `Step` as JSON Lines, exact in both directions.

Line 1 is the header (format, version, units, and everything of the step but its operations); each further line is one
`StepOperation`. The order of the lines means nothing: streams run in `sequence` order. Numbers are SI (bytes, s, FLOP).
"""

from __future__ import annotations

import dataclasses
import gzip
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.interchange import source
from sim.records import Home, RankClass, Residency, Step, StepOperation

FORMAT = "tiersim-step"
VERSION = 1
UNITS = "SI: bytes, s, FLOP"
#: more faults than this are counted, not listed
MAX_FAULTS = 20


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First line of a trace file: what it is, and the step without its operations."""

    format: str
    version: int
    units: str
    num_operations: int
    name: str
    rank_classes: tuple[RankClass, ...]
    group_sizes: dict[str, int] = {}
    resident: tuple[Residency, ...] = ()
    placement: tuple[Home, ...] = ()
    model_flops: float = 0.0
    num_tokens: float = 0.0
    source_part: str = ""
    source_step_s: float = 0.0
    origin: str = "generated"
    notes: tuple[str, ...] = ()


def write_step(step: Step, path: str | Path) -> None:
    """Write `step` to `path` as JSON Lines, compressed if it ends in .gz; a killed writer leaves the old file or none.

    The step is checked first: what is written can be read. Raises InputError for a step that is not valid.
    """
    _raise(check_step(step), str(path))
    fields = {name: getattr(step, name) for name in Header.__struct_fields__ if hasattr(step, name)}
    header = Header(format=FORMAT, version=VERSION, units=UNITS, num_operations=len(step.operations), **fields)
    encoder = msgspec.json.Encoder()
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        packed = gzip.GzipFile(scratch, "wb", mtime=0) if path.suffix == ".gz" else scratch.open("wb")
        with packed as file:
            for record in (header, *step.operations):
                file.write(encoder.encode(record) + b"\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def read_step(path: str | Path) -> Step:
    """Read a trace file written by `write_step` (or by hand); gzip is accepted.

    Raises InputError with the line number of every fault: not JSON, unknown or missing keys, wrong version, duplicate
    ids, unknown dependencies, cycles, negative or non-finite amounts, a file that is cut.
    """
    return parse_step(source.read_bytes(path), str(path))


def parse_step(content: bytes, file: str) -> Step:
    """`read_step` for content already in memory; `file` is for the messages."""
    lines = content.split(b"\n")
    header = _header(lines[0], file)
    decoder = msgspec.json.Decoder(StepOperation)
    operations: list[StepOperation] = []
    numbers: list[int] = []
    faults: list[Fault] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            operations.append(decoder.decode(line))
            numbers.append(number)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.append(Fault(what=f"not an operation: {error}", line=number))
    if not faults and len(operations) != header.num_operations:
        what = f"holds {len(operations)} operations, its header promises {header.num_operations}"
        faults.append(Fault(what=what, remedy="the file is cut, or correct num_operations", line=1))
    fields = {name: getattr(header, name) for name in Header.__struct_fields__ if name in Step.__struct_fields__}
    step = Step(operations=tuple(operations), **fields)
    _raise(faults or check_step(step, numbers), file)
    return step


def _header(line: bytes, file: str) -> Header:
    try:
        head = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        head = {}
    if head.get("format") != FORMAT:
        remedy = f'line 1 must be its header, {{"format": "{FORMAT}", "version": {VERSION}, ...}}'
        raise InputError(Fault(what="not a tiersim trace file", remedy=remedy, file=file, line=1))
    if head.get("version") != VERSION or head.get("units") != UNITS:
        what = f"version {head.get('version')!r} in units {head.get('units')!r}"
        remedy = f"this tiersim reads version {VERSION} in units {UNITS!r}: import the recording again"
        raise InputError(Fault(what=what, remedy=remedy, file=file, line=1))
    try:
        return msgspec.json.decode(line, type=Header)
    except msgspec.ValidationError as error:
        raise InputError(Fault(what=f"bad header: {error}", file=file, line=1)) from error


def _raise(faults: Iterable[Fault], file: str) -> None:
    found = [dataclasses.replace(fault, file=file) for fault in faults]
    if found:
        listed = found[:MAX_FAULTS]
        if len(found) > MAX_FAULTS:
            listed.append(Fault(what=f"and {len(found) - MAX_FAULTS} more faults", file=file))
        raise InputError(listed)


def check_step(step: Step, lines: list[int] | None = None) -> list[Fault]:
    """Every fault of a step's structure; `lines[i]` is the line of operation i, for the messages.

    A valid step has unique ids and, per stream, unique sequences; known dependencies; no cycle through dependencies
    and stream order; finite amounts that are not negative; a rank class for every stream.
    """
    number = lines or [0] * len(step.operations)
    faults = list(_identity_faults(step, number))
    faults += _amount_faults(step, number)
    return faults or _cycle_faults(step, number)


def _identity_faults(step: Step, number: list[int]) -> Iterator[Fault]:
    classes = {rank_class.name for rank_class in step.rank_classes}
    ids: dict[str, int] = {}
    slots: dict[tuple[str, int], str] = {}
    for operation, line in zip(step.operations, number, strict=True):
        if operation.id in ids:
            where = f" (first in line {ids[operation.id]})" if line else ""
            yield Fault(what=f"duplicate id {operation.id!r}{where}", remedy="ids are unique in a step", line=line)
        ids.setdefault(operation.id, line)
        slot = (operation.stream, operation.sequence)
        if slot in slots:
            what = f"{operation.id!r} has sequence {operation.sequence} of stream {operation.stream!r}, as {slots[slot]!r} has"
            yield Fault(what=what, remedy="operations of a stream run in sequence order: number them", line=line)
        slots[slot] = operation.id
        if operation.stream.split(".")[0] not in classes:
            what = f"{operation.id!r} is on stream {operation.stream!r}, whose rank class is not in the header"
            yield Fault(what=what, remedy="streams are named '<rank class>.<role>'", line=line)
    for operation, line in zip(step.operations, number, strict=True):
        for name in operation.after:
            if name not in ids:
                what = f"{operation.id!r} waits for unknown operation {name!r}"
                yield Fault(what=what, remedy="name an id of this file or drop the dependency", line=line)


def _amounts(operation: StepOperation) -> Iterator[tuple[str, float]]:
    for name in ("size_bytes", "num_elements", "bytes_per_element", "write_share", "fixed_s", "mapped_bytes"):
        yield name, getattr(operation, name)
    for index, kernel in enumerate(operation.kernels):
        for name in ("flops", "read_bytes", "write_bytes", "count", "recorded_s"):
            yield f"kernels[{index}].{name}", getattr(kernel, name)
    for residency in (*operation.allocates, *operation.frees):
        yield "residency size_bytes", residency.size_bytes


def _amount_faults(step: Step, number: list[int]) -> Iterator[Fault]:
    for operation, line in zip(step.operations, number, strict=True):
        for name, value in _amounts(operation):
            if not 0 <= value < math.inf:
                what = f"{operation.id!r} has {name} {value}"
                yield Fault(what=what, remedy="amounts are finite and not negative", line=line)


def _cycle_faults(step: Step, number: list[int]) -> list[Fault]:
    """Kahn's algorithm over dependencies and stream order; what is left over contains a cycle."""
    index = {operation.id: i for i, operation in enumerate(step.operations)}
    successors: list[list[int]] = [[] for _ in step.operations]
    waits = [0] * len(step.operations)

    def edge(first: int, then: int) -> None:
        successors[first].append(then)
        waits[then] += 1

    previous: dict[str, int] = {}
    for i in sorted(range(len(step.operations)), key=lambda i: step.operations[i].sequence):
        operation = step.operations[i]
        if operation.stream in previous:
            edge(previous[operation.stream], i)
        previous[operation.stream] = i
        for name in operation.after:
            edge(index[name], i)
    ready = deque(i for i, count in enumerate(waits) if not count)
    while ready:
        for then in successors[ready.popleft()]:
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
    if not any(waits):
        return []
    cycle = _one_cycle(successors, waits)
    names = " -> ".join(step.operations[i].id for i in (*cycle, cycle[0]))
    what = f"operations wait for each other in a circle: {names}"
    return [Fault(what=what, remedy="break it: check 'after' against the stream order", line=number[cycle[0]])]


def _one_cycle(successors: list[list[int]], waits: list[int]) -> list[int]:
    """Walk backwards among operations that still wait until one repeats."""
    before: dict[int, int] = {}
    for first, thens in enumerate(successors):
        if waits[first]:
            before.update((then, first) for then in thens if waits[then])
    node = next(iter(before))
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = before[node]
    return path[seen[node] :][::-1]
