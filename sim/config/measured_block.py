"""The `measured:` and `claim:` blocks: what reality, or a document, says about a scenario."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from sim.config.validation import FaultList, refuse_unknown, suggestion
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import InputError
from sim.records import Measured
from sim.units import UNITS, parse

_QUANTITY = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")
#: units of measured values that are not physical dimensions
_COUNTS = {"": 1.0, "1": 1.0, "x": 1.0, "tokens/s": 1.0, "tok/s": 1.0, "samples/s": 1.0, "1/s": 1.0, "IOPS": 1.0}
#: metric of a scenario's `measured:` -> dimensions that its value may have ("" a bare number or a count per second)
METRICS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("step_time", "forward", "backward", "update", "time_to_first_token", "time_per_output_token"), ("time",)),
    **dict.fromkeys(
        ("tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "decode_tokens_per_s", "prefill_tokens_per_s"), ("",)
    ),
    **dict.fromkeys(("tflops_per_gpu", "hardware_tflops_per_gpu"), ("compute",)),
    **dict.fromkeys(("gpu_allocated", "gpu_reserved", "gpu_peak", "host_peak", "host_init_peak", "host_load_peak"), ("bytes",)),
    **dict.fromkeys(("mfu", "offload_penalty"), ("", "fraction")),
}
_KEYS = ("metric", "value", "source", "tolerance", "at", "confidence", "note")
_CLAIM_KEYS = ("id", "stated", "metric", "value", "range", "tolerance", "assumptions", "reason", "at", "against", "verdict")


def si_value(raw: object) -> tuple[float, str]:
    """``"10.9 s"`` -> (10.9, "s"), ``"61 %"`` -> (0.61, "%"): the value in SI and the unit it was written in.

    Raises ValueError for something that is not a number in a known unit.
    """
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return float(raw), ""
    match = _QUANTITY.fullmatch(raw) if isinstance(raw, str) else None
    if match:
        unit = match[2]
        if (one := si_per(unit)) is not None:
            return float(match[1].replace("_", "")) * one, unit
    raise ValueError(f"expected a number in a known unit, got {describe(raw)}")


def si_per(unit: str) -> float | None:
    """SI per `unit` of a measured value; None for an unknown one."""
    return next((table[unit] for table in (_COUNTS, *UNITS.values()) if unit in table), None)


def measured_from(raw: object, document: Document, path: NodePath) -> tuple[Measured, ...]:
    """The entries of `measured:`; raises InputError with every fault."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise InputError(document.fault(path, f"expected a list, got {describe(raw)}", "- {metric, value, source}"))
    faults = FaultList()
    entries: list[Measured] = []
    for index, item in enumerate(raw):
        with faults.collect():
            entries.append(_entry(item, document, (*path, index)))
    faults.stop()
    return tuple(entries)


def _entry(raw: object, document: Document, path: NodePath) -> Measured:
    if not isinstance(raw, Mapping):
        raise InputError(document.fault(path, f"expected a mapping, got {describe(raw)}", "{metric, value, source}"))
    faults = FaultList(refuse_unknown(raw, _KEYS, document, path))
    for key in ("metric", "value", "source"):
        if key not in raw:
            faults.append(document.fault(path, f"missing key {key!r}", "a measured value needs metric, value and source"))
    faults.stop()
    for key in ("metric", "source"):
        if not isinstance(raw[key], str) or not raw[key].strip():
            faults.append(document.fault((*path, key), f"expected a text, got {describe(raw[key])}"))
    faults.stop()
    try:
        value, unit = si_value(raw["value"])
    except ValueError as error:
        raise InputError(document.fault((*path, "value"), str(error), "for example '10.9 s'")) from None
    if str(raw["metric"]) not in METRICS:
        remedy = suggestion(str(raw["metric"]), METRICS)
        raise InputError(document.fault((*path, "metric"), f"unknown metric {raw['metric']!r}", remedy))
    dimensions = METRICS[str(raw["metric"])]
    tables = [_COUNTS if dimension == "" else UNITS[dimension] for dimension in dimensions]
    if not any(unit in table for table in tables):
        what = f"{raw['metric']} is no {describe(raw['value'])}"
        known = next(iter(tables[0])) if dimensions[0] else "no unit"
        raise InputError(document.fault((*path, "value"), what, f"write a value in {known}"))
    try:
        tolerance = parse(raw.get("tolerance", 0), "fraction")
    except ValueError as error:
        raise InputError(document.fault((*path, "tolerance"), str(error))) from None
    if not math.isfinite(value) or value < 0 or not 0 <= tolerance < math.inf:
        what = f"value and tolerance are not negative and finite, got {raw['value']!r} and {raw.get('tolerance', 0)!r}"
        raise InputError(document.fault((*path, "value"), what, "for example {value: 10.9 s, tolerance: 15%}"))
    at = raw.get("at", {})
    if not isinstance(at, Mapping):
        raise InputError(document.fault((*path, "at"), f"expected {{parameter: value}}, got {describe(at)}"))
    return Measured(
        metric=str(raw["metric"]), value=value, unit=unit, source=str(raw["source"]), tolerance=tolerance, at=dict(at)
    )


def claim_from(raw: object, document: Document, path: NodePath) -> Mapping[str, object]:
    """The `claim:` block as it is written, with `value` and `range` in SI; {} when there is none."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InputError(document.fault(path, f"expected a mapping, got {describe(raw)}", "{id, stated, metric, value}"))
    faults = FaultList(refuse_unknown(raw, _CLAIM_KEYS, document, path))
    for key in ("id", "stated"):
        if key not in raw:
            faults.append(document.fault(path, f"missing key {key!r}", "a claim needs its id and what it states"))
    claim = dict(raw)
    try:
        if "value" in raw and not isinstance(raw["value"], bool):
            claim["value"] = si_value(raw["value"])[0]
        if "range" in raw:
            low, high = raw["range"]
            claim["range"] = (si_value(low)[0], si_value(high)[0])
        if "tolerance" in raw:
            claim["tolerance"] = parse(raw["tolerance"], "fraction")
    except (ValueError, TypeError) as error:
        faults.append(document.fault(path, str(error), "value: '10.9 s' or range: [8 GB, 12 GB]"))
    faults.stop()
    return claim
