"""A part of the catalogue written out again as the block of a topology file, so that single numbers can be replaced."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from sim.topology.parts import Part
from sim.units import Unit

#: dimension -> SI unit that follows the number
_SI = {
    "bytes": "B", "bandwidth": "B/s", "time": "s", "compute": "FLOP/s", "transfers": "T/s", "frequency": "Hz", "power": "W",
}  # fmt: skip


def part_block(part: Part) -> dict[str, Any]:
    """Plain data from which `read_part` makes an equal part again; fields at their default are left out."""
    return _block(part)


def _block(item: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(type(item), include_extras=True)
    block: dict[str, Any] = {}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if value != default:
            block[field.name] = _plain(value, _dimension(hints[field.name]))
    return block


def _plain(value: Any, dimension: str) -> Any:
    if dataclasses.is_dataclass(value):
        return _block(value)
    if isinstance(value, Mapping):
        return {key: _plain(item, dimension) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item, dimension) for item in value]
    if isinstance(value, float) and dimension in _SI:
        return f"{value!r} {_SI[dimension]}"
    return value


def _dimension(hint: Any) -> str:
    """Dimension of an annotated number, also inside a mapping or beside None."""
    if typing.get_origin(hint) is typing.Annotated:
        inner, *extras = typing.get_args(hint)
        return next((extra.dimension for extra in extras if isinstance(extra, Unit)), "") or _dimension(inner)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is not None:
        return next((found for item in typing.get_args(hint) if (found := _dimension(item))), "")
    return ""
