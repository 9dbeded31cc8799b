"""Ranges in a sweep: numbers with or without a unit, stepped, geometric, linear or logarithmic, or continuous."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sim.errors import Fault, InputError
from sim.units import UNITS, parse

_KEYS = frozenset({"from", "to", "step", "factor", "points", "scale", "integer"})
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")
_MAX_POINTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """A continuous range from `low` to `high`, both in `unit` ("" = a bare number)."""

    low: float
    high: float
    unit: str = ""
    is_log: bool = False
    is_integer: bool = False

    def at(self, quantile: float) -> object:
        """The raw value at `quantile` in [0, 1], written as a person would: 16, 0.25, '48 GB/s'."""
        value = self.low * (self.high / self.low) ** quantile if self.is_log else self.low + (self.high - self.low) * quantile
        return self.write(round(value) if self.is_integer else value)

    def write(self, value: float) -> object:
        """`value` with the span's unit; 12 significant digits, so that 3 * 0.1 reads 0.3; whole numbers as int."""
        tidy = float(f"{value:.12g}")
        number: int | float = int(tidy) if tidy.is_integer() and abs(tidy) < 1e15 else tidy
        return f"{number} {self.unit}".replace(" %", "%") if self.unit else number


def is_range(raw: object) -> bool:
    """True if `raw` is written as a range (a mapping with `from`)."""
    return isinstance(raw, Mapping) and "from" in raw and "to" in raw and set(raw) <= _KEYS


def span_of(raw: Mapping[str, object], path: str) -> Span:
    """The continuous range of ``{from, to}``; the unit of `from` is kept, `to` may use another spelling of it."""
    low, unit = _number(raw["from"], f"{path}.from")
    high, other = _number(raw["to"], f"{path}.to")
    if other != unit:
        high = _converted(raw["to"], other, unit, f"{path}.to")
    scale = raw.get("scale", "log" if "factor" in raw else "linear")
    if scale not in ("linear", "log"):
        raise InputError(Fault(what=f"unknown scale {scale!r}", remedy="write linear or log", path=f"{path}.scale"))
    if scale == "log" and (low <= 0 or high <= 0):
        raise InputError(Fault(what="a logarithmic range needs positive ends", remedy="use scale: linear", path=path))
    if not low < high:
        raise InputError(
            Fault(what=f"empty range: from {raw['from']!r} to {raw['to']!r}", remedy="write the smaller end first", path=path)
        )
    return Span(low, high, unit, scale == "log", bool(raw.get("integer", False)))


def values_of(raw: Mapping[str, object], path: str) -> list[object]:
    """All values of a range, both ends included when the step hits them; duplicates after rounding are dropped."""
    span = span_of(raw, path)
    ways = [key for key in ("step", "factor", "points") if key in raw]
    if len(ways) != 1:
        found = " and ".join(ways) if ways else "none"
        raise InputError(
            Fault(
                what=f"a range needs exactly one of step, factor, points; got {found}",
                remedy="for example {from: 1, to: 8, step: 1}",
                path=path,
            )
        )
    if ways == ["points"]:
        count = _count(raw["points"], f"{path}.points")
        values = [span.at(i / (count - 1)) for i in range(count)]
    else:
        values = _stepped(span, raw, ways[0], path)
    return list(dict.fromkeys(values))


def _stepped(span: Span, raw: Mapping[str, object], way: str, path: str) -> list[object]:
    size, unit = _number(raw[way], f"{path}.{way}")
    if way == "step":
        if unit != span.unit:
            size = _converted(raw[way], unit, span.unit, f"{path}.{way}")
        if size <= 0:
            raise InputError(Fault(what=f"step must be positive, got {raw[way]!r}", path=f"{path}.{way}"))
        count = math.floor((span.high - span.low) / size * (1 + 1e-12) + 1e-9) + 1
    else:
        if unit or size <= 1:
            raise InputError(Fault(what=f"factor must be a bare number above 1, got {raw[way]!r}", path=f"{path}.{way}"))
        count = math.floor(math.log(span.high / span.low) / math.log(size) + 1e-9) + 1
    if count > _MAX_POINTS:
        raise InputError(
            Fault(what=f"{count} values in one range", remedy=f"at most {_MAX_POINTS}; use a larger {way}", path=path)
        )
    values = (span.low + i * size if way == "step" else span.low * size**i for i in range(count))
    return [span.write(round(value) if span.is_integer else value) for value in values]


def _count(raw: object, path: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 2 <= raw <= _MAX_POINTS:
        raise InputError(Fault(what=f"points must be a whole number from 2 to {_MAX_POINTS}, got {raw!r}", path=path))
    return raw


def _number(raw: object, path: str) -> tuple[float, str]:
    if not isinstance(raw, bool):
        if isinstance(raw, (int, float)) and math.isfinite(raw):
            return float(raw), ""
        match = _NUMBER.match(raw) if isinstance(raw, str) else None
        if match and (not match[2] or any(match[2] in table for table in UNITS.values())):
            return float(match[1].replace("_", "")), match[2]
    raise InputError(
        Fault(what=f"expected a number or a quantity, got {raw!r}", remedy="for example 8 or '64 GB/s'", path=path)
    )


def _converted(raw: object, unit: str, target: str, path: str) -> float:
    """`raw`, in `unit`, as a number of `target` units."""
    for dimension, table in UNITS.items():
        if target and unit in table and target in table:
            return parse(raw, dimension) / table[target]
    raise InputError(
        Fault(what=f"{raw!r} is not in the unit of `from` ({target or 'a bare number'})", remedy="use one unit", path=path)
    )
