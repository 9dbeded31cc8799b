"""Kineto JSON -> typed events in integer nanoseconds.

Three dialects of time exist: integer microseconds (to 2023; durations are truncated), epoch microseconds with a fraction
(early 2024; more digits than a double holds) and microseconds relative to `baseTimeNanoseconds` (since mid 2024). All
become nanoseconds since the first event. A damaged file gives up the whole events before the damage, and says so.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.interchange.groups import listed_ranks
from sim.units import format_bytes

#: category (lower case) of any dialect -> kind of event here; other categories carry nothing that is used
KINDS = {
    "kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset",
    "mtia_ccp_events": "kernel", "cuda_runtime": "call", "runtime": "call", "cuda_driver": "call", "mtia_runtime": "call",
    "xpu_runtime": "call", "xpu_driver": "call", "privateuse1_runtime": "call", "privateuse1_driver": "call",
    "hpu_op": "kernel", "concurrent_kernel": "kernel",
    "cpu_op": "op", "operator": "op", "user_annotation": "annotation", "cuda_sync": "sync", "cuda_profiler_range": "range",
}  # fmt: skip
GPU_KINDS = frozenset({"kernel", "memcpy", "memset"})
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*(-?\d+)(\.\d+)?')
#: above 2**43 us (101 days) a double no longer resolves a nanosecond: the digits are read exactly
_EXACT_ABOVE_US = 2**43
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")
_BETWEEN = re.compile(r"[\s,]*")
#: template arguments of a kernel name go on for kilobytes; what tells it from others stands in front
MAX_NAME = 240


class Event(msgspec.Struct, gc=False):
    """One event of interest; `pid`/`tid` are the CPU thread, or for GPU events the device and stream as a viewer shows them."""

    kind: str  # kernel memcpy memset call op annotation sync range
    name: str
    start_ns: int
    end_ns: int
    pid: int | str
    tid: int | str
    args: msgspec.Raw


class Header(msgspec.Struct):
    """What a trace says about itself; every key may be absent."""

    gpu_names: tuple[str, ...] = ()
    memory_bytes: float = 0.0
    backend: str = ""
    rank: int | None = None
    world_size: int = 1
    groups: dict[str, list[int]] = {}  # process group name -> its ranks


class Recording(msgspec.Struct):
    """All events of interest of one rank, sorted by start, and what was wrong with the file."""

    file: str
    header: Header
    events: list[Event]
    notes: list[str]
    num_events: int
    is_integer_us: bool


class _Raw(msgspec.Struct, gc=False):
    """An event as written. `ts`/`dur`: int, float, Decimal (exact dialect) or missing, in microseconds."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _ExactRaw(_Raw, gc=False):
    ts: Decimal | None = None
    dur: Decimal | None = None


class _Info(msgspec.Struct):
    deviceProperties: Any = None  # noqa: N815
    distributedInfo: Any = None  # noqa: N815


class _Document(_Info):
    traceEvents: Sequence[_Raw] = ()  # noqa: N815


class _ExactDocument(_Document):
    traceEvents: Sequence[_ExactRaw] = ()  # noqa: N815


def clean_name(name: str) -> str:
    """A name fit for a terminal, a file and a page: no control characters, bounded length."""
    plain = _CONTROL.sub(" ", name)
    return plain if len(plain) <= MAX_NAME else plain[: MAX_NAME - 1] + "…"


def looks_like(content: bytes) -> bool:
    """Whether the content is (the beginning of) a Kineto or Chrome trace."""
    head = content[: 2**16].lstrip()
    return head[:1] in (b"{", b"[") and (b'"traceEvents"' in content or (b'"ph"' in head and b'"ts"' in head))


def read_recording(content: bytes, file: str) -> Recording:
    """Parse one rank's trace from the bytes of its JSON (object with `traceEvents`, or a bare list of events).

    Raises InputError when it is no such trace or holds no complete event of interest; damage is salvaged and noted.
    """
    document, notes = _decode(content, file)
    num_events = len(document.traceEvents)
    events, dropped, is_integer_us = _typed(document.traceEvents)
    notes += [f"{count} events ignored: {what}" for what, count in sorted(dropped.items())]
    if not events:
        raise InputError(_nothing(document, notes, file))
    document.traceEvents = ()
    first_ns = min(event.start_ns for event in events)
    for event in events:
        event.start_ns -= first_ns
        event.end_ns -= first_ns
    # the name decides between events of one interval, so that the order of the file does not matter
    events.sort(key=lambda event: (event.start_ns, -event.end_ns, event.name))
    return Recording(
        file=file, header=_header(document), events=events, notes=notes, num_events=num_events, is_integer_us=is_integer_us
    )


def _decode(content: bytes, file: str) -> tuple[_Document, list[str]]:
    start = content[:64].lstrip()[:1]
    if start not in (b"{", b"["):
        raise InputError(Fault(what="is not JSON", remedy="expected a PyTorch profiler trace", file=file))
    first = _FIRST_TIME.search(content)
    is_exact = bool(first and first[2] and int(first[1]) > _EXACT_ABOVE_US)
    try:
        if start == b"[":
            kind: type[Any] = list[_ExactRaw] if is_exact else list[_Raw]
            return _Document(traceEvents=msgspec.json.decode(content, type=kind)), []
        document = msgspec.json.decode(content, type=_ExactDocument if is_exact else _Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _salvage(content, file, error)
    if b'"traceEvents"' not in content:
        what, remedy = "is JSON without 'traceEvents'", "expected a PyTorch profiler trace; see `tiersim import trace --help`"
        raise InputError(Fault(what=what, remedy=remedy, file=file))
    return document, []


def _salvage(content: bytes, file: str, error: Exception) -> tuple[_Document, list[str]]:
    """Whole events of a damaged file, one by one, with the tolerant parser of the standard library.

    It accepts NaN, Infinity and control characters in strings; bytes that are not UTF-8 are replaced.
    """
    text = content.decode("utf-8", errors="replace")
    marker = re.search(r'"traceEvents"\s*:\s*\[', text)
    if marker is None and (other := re.search(r'"traceEvents"\s*:\s*([^\s\[])', text)):
        what = f"'traceEvents' is no list: it begins with {other[1]!r}"
        raise InputError(Fault(what=what, remedy="expected a PyTorch profiler trace", file=file)) from error
    at = marker.end() if marker else text.find("[") + 1
    decoder = json.JSONDecoder(strict=False)
    events: list[_Raw] = []
    while at < len(text):
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        if text[at : at + 1] != "{":
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            break
        events.append(_from_object(value))
    if not events:
        what = f"holds no complete event ({error})"
        raise InputError(Fault(what=what, remedy="record it again, or copy it again", file=file)) from error
    if text[at : at + 1] == "]":
        note = f"not strict JSON ({error}): read with the tolerant parser"
    else:
        lost = 1 - at / len(text)
        note = f"damaged file: {len(events):,} whole events read, the last {lost:.1%} of {format_bytes(len(content))} lost"
    document = _Document(traceEvents=events)
    for key in ("distributedInfo", "deviceProperties"):
        found = re.search(rf'"{key}"\s*:\s*', text)
        if found:
            try:
                setattr(document, key, decoder.raw_decode(text, found.end())[0])
            except (json.JSONDecodeError, RecursionError):
                continue
    return document, [note]


def _from_object(value: dict[str, Any]) -> _Raw:
    raw = _Raw(**{key: value[key] for key in ("ts", "dur", "pid", "tid") if key in value})
    raw.name, raw.ph, raw.cat = (str(value.get(key, "")) for key in ("name", "ph", "cat"))
    if isinstance(value.get("args"), dict):
        # NaN and Infinity are not JSON: msgspec writes them as null
        raw.args = msgspec.Raw(msgspec.json.encode(value["args"]))
    return raw


def _ns(us: Any) -> int | None:
    """Microseconds as written -> integer nanoseconds; None when they are missing or not a number."""
    kind = type(us)
    if kind is int:
        return int(us * 1000)
    if kind is not float and kind is not Decimal:
        return None
    try:
        rounded: int = round(us * 1000)
    except (ValueError, OverflowError, ArithmeticError):  # not a number, or without end
        return None
    return rounded


def _typed(raws: Sequence[_Raw]) -> tuple[list[Event], Counter[str], bool]:
    events: list[Event] = []
    dropped: Counter[str] = Counter()
    names: dict[str, str] = {}
    kinds: dict[str, str | None] = {}
    has_fraction = False
    for raw in raws:
        if raw.ph != "X":
            continue
        kind = kinds[raw.cat] if raw.cat in kinds else kinds.setdefault(raw.cat, KINDS.get(raw.cat.lower()))
        if kind is None:
            continue
        start_ns, duration_ns = _ns(raw.ts), _ns(raw.dur)
        if start_ns is None or duration_ns is None:
            dropped["no time or duration"] += 1
            continue
        if duration_ns < 0:
            dropped["negative duration"] += 1
            continue
        if kind in GPU_KINDS and not has_fraction:
            has_fraction = not isinstance(raw.ts, int) or bool(duration_ns % 1000)
        name = names[raw.name] if raw.name in names else names.setdefault(raw.name, clean_name(raw.name))
        pid = raw.pid if isinstance(raw.pid, int | str) else 0
        tid = raw.tid
        if type(tid) is not int:
            tid = tid if isinstance(tid, int | str) else 0
            if kind not in GPU_KINDS and isinstance(tid, str) and tid.lstrip("-").isdigit():
                tid = int(tid)  # the 2021 dialect writes thread numbers as strings in some rows
        events.append(Event(kind, name, start_ns, start_ns + duration_ns, pid, tid, raw.args))
    return events, dropped, not has_fraction


def _header(document: _Document) -> Header:
    head = Header()
    devices = document.deviceProperties
    if isinstance(devices, list):
        known = [device for device in devices if isinstance(device, dict)]
        head.gpu_names = tuple(clean_name(str(device["name"])) for device in known if device.get("name"))
        sizes = [device.get("totalGlobalMem") for device in known]
        head.memory_bytes = float(next((size for size in sizes if isinstance(size, int | float)), 0))
    info = document.distributedInfo
    if isinstance(info, dict):
        head.backend = clean_name(str(info.get("backend", "")))
        head.rank = info["rank"] if isinstance(info.get("rank"), int) else None
        size = info.get("world_size")
        head.world_size = size if isinstance(size, int) and size > 0 else 1
        for group in info.get("pg_config") or ():
            if isinstance(group, dict) and (ranks := listed_ranks(group.get("ranks"))):
                head.groups[str(group.get("pg_name", ""))] = ranks
    return head


def _nothing(document: _Document, notes: Sequence[str], file: str) -> Fault:
    if notes:
        return Fault(what=f"has no usable CPU or GPU event: {'; '.join(notes)}", remedy="record it again", file=file)
    if document.traceEvents and not any(raw.cat for raw in document.traceEvents):
        what = f"has {len(document.traceEvents)} events and none with a category ('cat')"
        remedy = "record with torch.profiler: traces of its predecessor, of JAX and of TensorFlow are not read"
        return Fault(what=what, remedy=remedy, file=file)
    categories = Counter(raw.cat or raw.ph for raw in document.traceEvents)
    found = ", ".join(f"{count} {clean_name(name)}" for name, count in categories.most_common(4)) or "nothing"
    remedy = "record with activities CPU and CUDA: torch.profiler.profile(activities=[...])"
    return Fault(what=f"has no CPU or GPU events (found {found})", remedy=remedy, file=file)
