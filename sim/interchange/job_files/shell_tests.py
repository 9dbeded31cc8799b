"""Conditions of a shell script: what stands between brackets, true, false or (None) known to a run only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sim.interchange.job_files.shell_tokens import Token
from sim.interchange.job_files.shell_words import PRINTED, UNKNOWN, Values, arithmetic, expand

_COMPARED = {"-eq": "==", "-ne": "!=", "-gt": ">", "-lt": "<", "-ge": ">=", "-le": "<="}


def holds(found: Sequence[Token], at: int, end: int, values: Values) -> bool | None:
    """Truth of a condition; None if it is not known. Of `a && b || c` from left to right, as a shell does."""
    result: bool | None = None
    joined, start = "", at
    for index in range(at, end + 1):
        raw = found[index].raw if index < end else ";"
        is_joint = index == end or (found[index].is_operator and raw in ("&&", "||", ";", "\n"))
        if not is_joint:
            continue
        if index > start:
            one = _one(found, start, index, values)
            if joined == "&&":
                result = False if result is False or one is False else None if result is None or one is None else True
            elif joined == "||":
                result = True if result or one else None if result is None or one is None else False
            else:
                result = one
        joined, start = raw, index + 1
    return result


def _one(found: Sequence[Token], at: int, end: int, values: Values) -> bool | None:
    first = found[at].raw
    if first == "!":
        held = _one(found, at + 1, end, values)
        return None if held is None else not held
    if first.startswith("(("):
        return _compared(first[2:-2], values)
    words: list[str] = []
    for token in found[at:end]:
        words += expand(token.raw, values) or ([""] if token.raw[:1] in "\"'$" else [])
    if words[:1] not in (["["], ["[["], ["test"]):
        return None
    words = [word for word in words[1:] if word not in ("]", "]]")]
    for joint, whole in (("-o", any), ("-a", all)):
        if joint in words:
            place = words.index(joint)
            sides = [_tested(words[:place], values), _tested(words[place + 1 :], values)]
            return None if None in sides else whole(sides)
    return _tested(words, values)


def _compared(text: str, values: Values) -> bool | None:
    """Truth of an arithmetic comparison such as `a >= 2`."""
    parts = re.fullmatch(r"(.+?)(==|!=|>=|<=|>|<)(.+)", text.strip(), re.S)
    if not parts:
        return None
    left, right = arithmetic(parts[1], values), arithmetic(parts[3], values)
    if UNKNOWN in left + right:
        return None
    a, b = int(left), int(right)
    return {"==": a == b, "!=": a != b, ">=": a >= b, "<=": a <= b, ">": a > b, "<": a < b}[parts[2]]


def _tested(words: list[str], values: Values) -> bool | None:
    """Truth of what stands between `[` and `]`."""
    if words[:1] == ["!"]:
        held = _tested(words[1:], values)
        return None if held is None else not held
    if len(words) == 2 and words[0] in ("-z", "-n"):
        is_unset = not words[1] or (UNKNOWN in words[1] and PRINTED not in words[1])
        return is_unset if words[0] == "-z" else not is_unset
    if len(words) != 3 or UNKNOWN in "".join(words):
        return bool(words[0]) if len(words) == 1 and UNKNOWN not in words[0] else None
    left, sign, right = words
    if sign in _COMPARED:
        return _compared(f"{left}{_COMPARED[sign]}{right}", values)
    if sign in ("=", "==", "!="):
        is_equal = bool(re.fullmatch(re.escape(right).replace(r"\*", ".*"), left))
        return is_equal if sign != "!=" else not is_equal
    return None
