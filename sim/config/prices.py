"""Price overlays: what a machine, an hour, a kilowatt-hour cost, each number with currency, date and source.

    currency: EUR
    date: 2026-01-15
    source: quotation 4711 of a reseller        # of every entry that has none of its own
    parts:
      rtx-4090: {value: 1900}
      dram: {value: 4.2, per: GiB, source: spot market}    # a part, or a kind of memory tier
    per_hour:
      dgx-h100: {value: 24, source: list price of a cloud}
    electricity: {value: 0.24}                  # per kWh

tiersim ships no prices: they age, and nobody could trust them.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.config.validation import FaultList, refuse_unknown
from sim.config.yaml_source import Document, NodePath, describe, read_yaml
from sim.errors import InputError

_KEYS = ("currency", "date", "source", "parts", "per_hour", "electricity")
_ENTRY_KEYS = ("value", "per", "currency", "date", "source")
_UNITS = ("piece", "GiB")


def load_prices(path: str | Path, relative_to: Path | None = None) -> dict[str, Any]:
    """Read a price overlay: ``{currency, parts: {name: (value, unit)}, per_hour: {machine: value}, electricity}``.

    Raises InputError with every fault: an entry without value, currency, date or source is one.
    """
    target = Path(path)
    if relative_to is not None and not target.is_absolute() and (relative_to / target).is_file():
        target = relative_to / target
    return prices_from(read_yaml(target))


def prices_from(document: Document) -> dict[str, Any]:
    """The overlay of a document that was read; as :func:`load_prices`."""
    data = document.data
    faults = FaultList(refuse_unknown(data, _KEYS, document, ()))
    currency = data.get("currency")
    if not isinstance(currency, str) or not currency:
        faults.append(document.fault((), "missing key 'currency'", "one currency for the whole file, such as EUR"))
    parts: dict[str, tuple[float, str]] = {}
    per_hour: dict[str, float] = {}
    electricity = 0.0
    for key in ("parts", "per_hour"):
        if not isinstance(data.get(key, {}), Mapping):
            faults.append(document.fault((key,), f"expected a mapping, got {describe(data[key])}"))
    faults.stop()
    for name, raw in data.get("parts", {}).items():
        with faults.collect():
            value = _value(raw, document, ("parts", name))
            parts[str(name)] = (value, str(raw.get("per", "piece")))
    for name, raw in data.get("per_hour", {}).items():
        with faults.collect():
            per_hour[str(name)] = _value(raw, document, ("per_hour", name))
    if "electricity" in data:
        with faults.collect():
            electricity = _value(data["electricity"], document, ("electricity",))
    faults.stop()
    return {"currency": currency, "parts": parts, "per_hour": per_hour, "electricity": electricity}


def _value(raw: object, document: Document, path: NodePath) -> float:
    if not isinstance(raw, Mapping):
        raise InputError(document.fault(path, f"expected {{value, source}}, got {describe(raw)}"))
    faults = FaultList(refuse_unknown(raw, _ENTRY_KEYS, document, path))
    value = raw.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        faults.append(document.fault((*path, "value"), f"expected a price above 0, got {describe(value)}"))
    if raw.get("per", "piece") not in _UNITS:
        faults.append(document.fault((*path, "per"), f"unknown unit {raw['per']!r}", f"one of {', '.join(_UNITS)}"))
    own, common = raw.get("currency"), document.data.get("currency")
    if own is not None and own != common:
        faults.append(
            document.fault((*path, "currency"), f"{own!r} in a file of {common!r}", "convert it, and say so in source")
        )
    for key in ("date", "source"):
        if not raw.get(key, document.data.get(key)):
            faults.append(document.fault(path, f"a price without {key}", f"write {key}: here or once at the top"))
    date = raw.get("date", document.data.get("date"))
    if date is not None and not _is_date(date):
        faults.append(document.fault((*path, "date"), f"expected a date, got {describe(date)}", "write it as 2026-01-15"))
    faults.stop()
    return float(str(value))


def _is_date(value: object) -> bool:
    if isinstance(value, datetime.date):
        return True
    try:
        datetime.date.fromisoformat(str(value))
    except ValueError:
        return False
    return True
