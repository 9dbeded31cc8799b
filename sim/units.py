"""Quantities with units: parsing, printing, and the metadata that makes a field a quantity.

Inside the simulator every number is SI (bytes, seconds, bytes/s, FLOP/s, hertz, watts); a unit is written where
a person writes or reads it. GB = 1e9 bytes, GiB = 2**30 bytes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

GIB = 2.0**30
GB = 1e9

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _scaled(prefixes: dict[str, float], unit: str, factor: float = 1.0) -> dict[str, float]:
    return {prefix + unit: scale * factor for prefix, scale in prefixes.items()}


_BYTES = _scaled(_DECIMAL, "B") | _scaled(_BINARY, "B") | {"bytes": 1.0, "byte": 1.0}
_BITS = {k: v / 8 for k, v in _scaled(_DECIMAL, "b").items()} | {k: v / 8 for k, v in _scaled(_DECIMAL, "bit").items()}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12, "min": 60.0, "h": 3600.0, "d": 86400.0}

#: dimension -> unit spelling -> factor to SI
UNITS: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "bandwidth": {f"{k}/s": v for k, v in (_BYTES | _BITS).items()} | {f"{p}bps": s / 8 for p, s in _DECIMAL.items()},
    "time": _TIME,
    "compute": _scaled(_DECIMAL, "FLOP/s") | _scaled(_DECIMAL, "FLOPS") | _scaled(_DECIMAL, "OP/s"),
    "transfers": _scaled(_DECIMAL, "T/s"),
    "frequency": _scaled(_DECIMAL, "Hz"),
    "power": {"W": 1.0, "kW": 1e3, "mW": 1e-3, "MW": 1e6},
    "energy": {"J": 1.0, "kWh": 3.6e6, "Wh": 3600.0},
    "fraction": {"%": 0.01},
}
_EXAMPLE = {
    "bytes": "'96 GiB'", "bandwidth": "'64 GB/s'", "time": "'90 ns'", "compute": "'312 TFLOP/s'", "transfers": "'4800 MT/s'",
    "frequency": "'2.4 GHz'", "power": "'700 W'", "energy": "'1 kWh'", "fraction": "'60%' or 0.6",
}  # fmt: skip
_WORDS = {"bytes": "size", "compute": "compute rate", "transfers": "transfer rate"}  # for people; others as they are
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")


def parse(value: object, dimension: str) -> float:
    """Parse ``"64 GB/s"`` into SI; `dimension` is a key of :data:`UNITS`.

    Raises ValueError with what was found and how to mend it. A bare number is an error except for fractions and
    for zero (0 is 0 in every unit).
    """
    word = _WORDS.get(dimension, dimension)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected a {word} such as {_EXAMPLE[dimension]}, got {value!r}")
    if isinstance(value, (int, float)):
        if dimension == "fraction" or value == 0:
            return float(value)
        raise ValueError(f"missing unit: got {value!r}, write a {word} such as {_EXAMPLE[dimension]}")
    match = _NUMBER.match(value)
    if not match:
        raise ValueError(f"expected a {word} such as {_EXAMPLE[dimension]}, got {value!r}")
    number, unit = float(match[1].replace("_", "")), match[2]
    if not unit:
        return parse(number, dimension)
    if unit in UNITS[dimension]:
        size = number * UNITS[dimension][unit]
        if not math.isfinite(size):
            raise ValueError(f"expected a finite {word} such as {_EXAMPLE[dimension]}, got {value!r}")
        return size
    other = next((name for name, table in UNITS.items() if unit in table), None)
    found = f"{unit!r} is a unit of {other}" if other else f"unknown unit {unit!r}"
    alike = {name for name in UNITS[dimension] if name.lower() in (unit.lower(), f"{unit.lower()}b") and not other}
    example = " or ".join(sorted(f"'{number:g} {name}'" for name in alike)) or _EXAMPLE[dimension]
    raise ValueError(f"wrong unit: {found} in {value!r}, write a {word} such as {example}")


@dataclass(frozen=True, slots=True)
class Unit:
    """Field metadata: the value is written with a unit of this dimension and held in SI.

    Pydantic reads the method below by name, so this module needs no import of it.
    """

    dimension: str

    def __get_pydantic_core_schema__(self, _source: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "function-before",
            "function": {"type": "no-info", "function": lambda value: parse(value, self.dimension)},
            "schema": handler(float),
        }

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return {
            "type": ["string", "number"],
            "description": f"{self.dimension}, for example {_EXAMPLE[self.dimension]}",
        }


@dataclass(frozen=True, slots=True)
class Doc:
    """Field metadata: what the input means, in one line (goes into the JSON Schema and `check`)."""

    text: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return dict(handler(schema)) | {"description": self.text}


Bytes = Annotated[float, Unit("bytes")]
BytesPerSecond = Annotated[float, Unit("bandwidth")]
Seconds = Annotated[float, Unit("time")]
FlopPerSecond = Annotated[float, Unit("compute")]
TransfersPerSecond = Annotated[float, Unit("transfers")]
Hertz = Annotated[float, Unit("frequency")]
Watts = Annotated[float, Unit("power")]
Fraction = Annotated[float, Unit("fraction")]


def _engineering(value: float, unit: str, steps: tuple[tuple[float, str], ...]) -> str:
    for scale, prefix in steps:
        if abs(value) >= scale:
            return (
                f"{value / scale:.3g} {prefix}{unit}" if abs(value / scale) < 999.5 else f"{value / scale:,.0f} {prefix}{unit}"
            )
    return f"{value:.3g} {unit}"


def format_bytes(value: float) -> str:
    """``8.05 GiB``: memory capacity, binary prefixes."""
    return _engineering(value, "B", ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki")))


def format_bandwidth(value: float) -> str:
    """``64 GB/s``: bandwidth, decimal prefixes."""
    return _engineering(value, "B/s", ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")))


def format_flops(value: float) -> str:
    """``312 TFLOP/s``."""
    return _engineering(value, "FLOP/s", ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")))


def format_seconds(value: float) -> str:
    """``1.25 s``, ``310 ms``, ``2 us``, ``90 ns``, ``3 h 20 min`` from an hour up."""
    if value >= 3600:
        hours, rest = divmod(round(value / 60), 60)
        return f"{hours} h {rest} min"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if abs(value) >= 0.99995 * scale:  # what rounds to one of the unit is written in it
            return f"{value / scale:.4g} {unit}"
    return f"{value:.3g} s"


def format_rate(value: float) -> str:
    """``17,604`` or ``9.41``: a count per second, four figures below a thousand, all before the point above."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
