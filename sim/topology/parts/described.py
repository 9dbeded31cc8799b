"""What all parts share: their title, whether they exist, and the words for bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le

from sim.units import Doc, Fraction, Seconds

STRICT: dict[str, Any] = {"extra": "forbid"}
Count = Annotated[int, Gt(0)]
Efficiency = Annotated[Fraction, Gt(0), Le(1.2)]  # of a raw rate; in-switch reduction exceeds 1 by construction


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What every part of the catalogue says of itself. Unknown keys are errors."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    title: Annotated[str, Doc("name for people")]
    hypothetical: Annotated[bool, Doc("does not exist yet: may exceed today's limits, is listed and hatched in plots")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Loaded latency L0 (1 + (a + c w) u / (1 - k u)): u utilisation of the achievable bandwidth, w write share."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    idle: Annotated[Seconds, Gt(0), Doc("latency of a dependent load on an idle system, core to data and back")]
    a: Annotated[float, Ge(0), Doc("rise with utilisation, reads only")] = 0.0
    c: Annotated[float, Ge(0), Doc("additional rise per unit of write share")] = 0.0
    k: Annotated[float, Ge(0), Le(0.999), Doc("sharpness of the knee; below 1, so that latency is finite at saturation")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """How many lanes or links of one kind a part has."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("link part: the fastest generation supported")]
    lanes: Annotated[int, Gt(0), Doc("lanes (PCIe, CXL) or links (NVLink, xGMI, UPI)")]
