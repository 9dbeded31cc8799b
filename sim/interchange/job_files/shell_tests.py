"""Conditions of a shell script: what stands between brackets, true, false or (None) known to a run only."""

from __future__ import annotations

import re

from sim.interchange.job_files.shell_words import PRINTED, UNKNOWN, Values, arithmetic

_COMPARED = {"-eq": "==", "-ne": "!=", "-gt": ">", "-lt": "<", "-ge": ">=", "-le": "<="}


def compared(text: str, values: Values) -> bool | None:
    """Truth of an arithmetic comparison such as `a >= 2`."""
    parts = re.fullmatch(r"(.+?)(==|!=|>=|<=|>|<)(.+)", text.strip(), re.S)
    if not parts:
        return None
    left, right = arithmetic(parts[1], values), arithmetic(parts[3], values)
    if UNKNOWN in left + right:
        return None
    a, b = int(left), int(right)
    return {"==": a == b, "!=": a != b, ">=": a >= b, "<=": a <= b, ">": a > b, "<": a < b}[parts[2]]


def tested(words: list[str], values: Values) -> bool | None:
    """Truth of what stands between `[` and `]`."""
    if words[:1] == ["!"]:
        held = tested(words[1:], values)
        return None if held is None else not held
    if len(words) == 2 and words[0] in ("-z", "-n"):
        is_unset = not words[1] or (UNKNOWN in words[1] and PRINTED not in words[1])
        return is_unset if words[0] == "-z" else not is_unset
    if len(words) != 3 or UNKNOWN in "".join(words):
        return bool(words[0]) if len(words) == 1 and UNKNOWN not in words[0] else None
    left, sign, right = words
    if sign in _COMPARED:
        return compared(f"{left}{_COMPARED[sign]}{right}", values)
    if sign in ("=", "==", "!="):
        is_equal = bool(re.fullmatch(re.escape(right).replace(r"\*", ".*"), left))
        return is_equal if sign != "!=" else not is_equal
    return None
