"""fio's JSON (versions 2 and 3, json+, several documents in a row, error lines around it) and its report for people
-> figures of storage."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.interchange.machines.figures import Figure

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmg]?)i?b?$", re.I)
#: report for people: "name: (g=0): rw=randread, bs=(R) 4096B-4096B, ..., ioengine=libaio, iodepth=32"
_HEAD = re.compile(
    r"(?m)^(?P<name>.{1,200}?): \(g=(?P<group>\d+)\): rw=(?P<rw>\w+), bs=(?:\(R\) )?(?P<bs>[\d.]+[KMG]?i?B?).*?"
    r"ioengine=(?P<engine>\w+), iodepth=(?P<depth>\d+)"
)
_JOB = re.compile(r"(?m)^(?P<name>.{1,200}?): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): err=\s*(?P<error>\d+)")
_SIDE = re.compile(
    r"(?m)^\s+(?P<way>read|write)\s*: (?:IOPS=(?P<iops>[\d.]+[kM]?), BW=(?P<rate>[\d.]+[KMG]?i?B)/s"
    r"|io=\S+, bw=(?P<old_rate>[\d.]+[KMG]?B)/s, iops=(?P<old_iops>\d+))"
)
_LATENCY = re.compile(r"(?m)^\s+lat \((?P<unit>nsec|usec|msec)\):.*?avg=\s*(?P<mean>[\d.]+)")
_UNITS = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3}
#: engines that need direct I/O to be of use; the report does not tell `direct`
_DIRECT_ENGINES = ("libaio", "io_uring", "io_uring_cmd", "spdk", "windowsaio")
_SCALES = {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30}


def looks_like(text: str) -> bool:
    """Whether fio signed the text, or complained in it."""
    return (
        '"fio version"' in text
        or text.startswith("fio: ")
        or bool((_JOB.search(text) or _HEAD.search(text)) and _SIDE.search(text))
    )


def parse(text: str, file: str) -> list[Figure]:
    """Rates and latencies of jobs without error. Raises InputError when no document is whole, or every job failed."""
    document = _last_document(text)
    if document is None and (_JOB.search(text) or _SIDE.search(text)):
        return list(_of_report(text, file))
    if document is None:
        what = "has no whole fio result"
        raise InputError(Fault(what=what, remedy="run: fio --output-format=json JOBFILE", file=file))
    shared = document.get("global options")
    jobs = [job for key in ("jobs", "client_stats") for job in document.get(key) or () if isinstance(job, dict)]
    good = [job for job in jobs if not job.get("error") and job.get("jobname") != "All clients"]
    if jobs and not good:
        what = f"every job failed (error {jobs[0].get('error')})"
        raise InputError(Fault(what=what, remedy="repeat the run", file=file))
    found = [(job.get("groupid"), _job(job, shared if isinstance(shared, dict) else {}, file)) for job in good]
    return _together([(group, figure) for group, figures in found for figure in figures])


def _together(found: list[tuple[object, Figure]]) -> list[Figure]:
    """Jobs of one group ran side by side: equal ones (`numjobs` without group_reporting) are one, with the sum of rates."""
    groups: dict[object, list[Figure]] = {}
    for place, (group, figure) in enumerate(found):
        alike = {key: value for key, value in figure.at.items() if key != "operations_per_s"}
        key = (place,) if group is None else (group, figure.quantity, figure.source, *sorted(alike.items()))
        groups.setdefault(key, []).append(figure)
    joined = []
    for figures in groups.values():
        first, values = figures[0], [figure.value for figure in figures]
        if first.quantity == "storage_latency":
            joined.append(msgspec.structs.replace(first, value=sum(values) / len(values)))
        else:
            operations = sum(float(figure.at["operations_per_s"]) for figure in figures)
            at = {**first.at, "operations_per_s": operations}
            joined.append(msgspec.structs.replace(first, value=sum(values), at=at))
    return joined


def _of_report(text: str, file: str) -> Iterator[Figure]:
    """fio's report for people. Jobs that failed are left out."""
    heads = list(_HEAD.finditer(text))
    # pasted reports may have lost the lines that tell a job's outcome: what follows its description is its result
    starts = list(_JOB.finditer(text)) or heads
    for index, job in enumerate(starts):
        told = job.groupdict()
        own = [head for head in heads if head["name"].strip() == job["name"].strip() and head.start() <= job.start()]
        if int(told.get("error", 0)) or not own:
            continue
        head, num_jobs = own[-1], int(told.get("jobs", 1))
        body = text[job.end() : starts[index + 1].start() if index + 1 < len(starts) else len(text)]
        sides = list(_SIDE.finditer(body))
        for place, side in enumerate(sides):
            part = body[side.end() : sides[place + 1].start() if place + 1 < len(sides) else len(body)]
            at: dict[str, float | str] = {
                "direction": side["way"], "block_bytes": _size(head["bs"]), "depth": float(head["depth"]) * num_jobs,
                "pattern": "random" if "rand" in head["rw"] else "sequential", "is_mixed": _is_mixed(head["rw"]),
                "is_direct": float(head["engine"] in _DIRECT_ENGINES),
                "operations_per_s": _count(side["iops"] or side["old_iops"]),
            }  # fmt: skip
            name = f"{file}: job {job['name'].strip()[:60]}, {side['way']}"
            rate = _rate(side["rate"]) if side["rate"] else _rate(side["old_rate"].replace("B", "iB"))  # fio 2: KB = 1024
            yield Figure(quantity="storage_bandwidth", value=rate, source=name, at=at)
            if latency := _LATENCY.search(part):
                seconds = float(latency["mean"]) * _UNITS[latency["unit"]]
                yield Figure(quantity="storage_latency", value=seconds, source=name, at=at)


def _nearest_block(size_bytes: float) -> float:
    """The power of two next to what one operation moved; 4 KiB where that is not known."""
    return 2.0 ** round(math.log2(size_bytes)) if size_bytes > 0 else 4096.0


def _is_mixed(pattern: str) -> float:
    """1.0 for jobs that read and write at once: neither rate is what the drive reaches alone."""
    return float(pattern.removeprefix("rand") in ("rw", "readwrite"))


def _count(text: str) -> float:
    return float(text.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(text[-1], 1.0)


def _rate(text: str) -> float:
    """ "48.0MiB" (powers of two) or "50.3MB" (powers of ten) -> bytes."""
    match = re.match(r"([\d.]+)([KMG]?)(i?)B", text)
    if match is None:
        return 0.0
    return float(match[1]) * (1024.0 if match[3] else 1000.0) ** " KMG".index(match[2] or " ")


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
    told_block = options.get("bs", options.get("blocksize"))
    pattern = "random" if "rand" in str(options.get("rw", options.get("readwrite", ""))) else "sequential"
    depth = _number(options.get("iodepth"), 1.0) * _number(options.get("numjobs"), 1.0)
    is_direct = str(options.get("direct", "0")) == "1"
    for key in ("read", "write", "mixed"):
        side = job.get(key)
        direction = "read" if key == "mixed" else key
        if not isinstance(side, dict) or not _number(side.get("io_bytes")):
            continue
        rate = _number(side.get("bw_bytes")) or _number(side.get("bw")) * 1024.0
        operations = _number(side.get("iops"))
        # fio 2 keeps its options to itself: what one operation moved is the block
        block = _size(str(told_block).split(",")[0]) if told_block else _nearest_block(rate / operations if operations else 0.0)
        at: dict[str, float | str] = {
            "direction": direction, "block_bytes": block, "depth": depth, "pattern": pattern, "is_direct": float(is_direct),
            "is_mixed": 1.0 if key == "mixed" else _is_mixed(str(options.get("rw", options.get("readwrite", "")))),
            "operations_per_s": operations,
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
