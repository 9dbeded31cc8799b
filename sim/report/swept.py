"""Values of parameters as a sweep writes them: where they stand on an axis, in which unit, in how many letters."""

from __future__ import annotations

import re

_QUANTITY = re.compile(r"(?P<number>[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)( ?(?P<unit>%|[A-Za-z]+(/s)?))?")


def number_of(value: object) -> float | None:
    """A number, also when it is written with a unit: '48 GB/s' -> 48; words that start with one ('2024 GH200') are not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    match = _QUANTITY.fullmatch(str(value))
    return float(match["number"]) if match else None


def unit_of(value: object) -> str:
    """The unit that a number is written with: '48 GB/s' -> 'GB/s'; empty where there is none."""
    match = _QUANTITY.fullmatch(str(value))
    return (match["unit"] or "") if match else ""


def cut(value: object, most: int) -> str:
    """The text of a value; of more than `most` letters only the beginning, and dots."""
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 2]}..."
