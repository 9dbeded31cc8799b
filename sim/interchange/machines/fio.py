"""fio's JSON (versions 2 and 3, json+, several documents in a row, error lines around it) -> figures of storage."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from sim.errors import Fault, InputError
from sim.interchange.machines.figures import Figure

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmg]?)i?b?$", re.I)
_SCALES = {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30}


def looks_like(text: str) -> bool:
    """Whether fio signed the text, or complained in it."""
    return '"fio version"' in text or text.startswith("fio: ")


def parse(text: str, file: str) -> list[Figure]:
    """Rates and latencies of jobs without error. Raises InputError when no document is whole, or every job failed."""
    document = _last_document(text)
    if document is None:
        what = "has no whole fio result"
        raise InputError(Fault(what=what, remedy="run: fio --output-format=json JOBFILE", file=file))
    shared = document.get("global options")
    jobs = [job for key in ("jobs", "client_stats") for job in document.get(key) or () if isinstance(job, dict)]
    good = [job for job in jobs if not job.get("error") and job.get("jobname") != "All clients"]
    if jobs and not good:
        what = f"every job failed (error {jobs[0].get('error')})"
        raise InputError(Fault(what=what, remedy="repeat the run", file=file))
    return [figure for job in good for figure in _job(job, shared if isinstance(shared, dict) else {}, file)]


def _last_document(text: str) -> dict[str, Any] | None:
    """The last of the documents that `--status-interval` writes one after the other."""
    decoder, found, at = json.JSONDecoder(), None, text.find("{")
    while at >= 0:
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            at += 1
        else:
            if isinstance(value, dict) and "fio version" in value:
                found = value
        at = text.find("{", at)
        if found is not None and '"fio version"' not in text[max(at, 0) :]:
            break
        if found is None and at > 2**16:
            break
    return found


def _job(job: dict[str, Any], shared: dict[str, Any], file: str) -> Iterator[Figure]:
    own = job.get("job options")
    options = shared | (own if isinstance(own, dict) else {})
    block = _size(str(options.get("bs", "4k")).split(",")[0])
    pattern = "random" if "rand" in str(options.get("rw", "")) else "sequential"
    depth = _number(options.get("iodepth"), 1.0) * _number(options.get("numjobs"), 1.0)
    is_direct = str(options.get("direct", "0")) == "1"
    for direction in ("read", "write"):
        side = job.get(direction)
        if not isinstance(side, dict) or not _number(side.get("io_bytes")):
            continue
        rate = _number(side.get("bw_bytes")) or _number(side.get("bw")) * 1024.0
        at = {
            "direction": direction, "block_bytes": block, "depth": depth, "pattern": pattern, "is_direct": float(is_direct),
            "operations_per_s": _number(side.get("iops")),
        }  # fmt: skip
        name = f"{file}: job {str(job.get('jobname', ''))[:60]}, {direction}"
        yield Figure(quantity="storage_bandwidth", value=rate, source=name, at=at)
        latency_s = _latency_s(side)
        if latency_s > 0:
            yield Figure(quantity="storage_latency", value=latency_s, source=name, at=at)


def _latency_s(side: dict[str, Any]) -> float:
    for key, scale in (("lat_ns", 1e-9), ("clat_ns", 1e-9), ("lat", 1e-6), ("clat", 1e-6)):
        table = side.get(key)
        if isinstance(table, dict) and _number(table.get("mean")) > 0:
            return _number(table.get("mean")) * scale
    return 0.0


def _size(text: str) -> float:
    match = _SIZE.match(text.strip())
    return float(match[1]) * _SCALES[match[2].lower()] if match else 4096.0


def _number(value: object, default: float = 0.0) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return default
    return number if math.isfinite(number) else default
