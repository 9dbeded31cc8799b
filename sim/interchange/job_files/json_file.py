"""A JSON configuration file with the faults that json.loads lets through: repeated keys, numbers that are not finite."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from sim.errors import Fault, InputError
from sim.interchange.source import written

_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|(?:(?<=\n)|^)[ \t]*#[^\n]*", re.S)
_TRAILING = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_HINTS = ("Expecting value", "Expecting property name")


def read_json(path: Path) -> tuple[dict[str, Any], Callable[[tuple[str, ...]], int]]:
    """(the object at the top, function from a path of keys to its 1-based line).

    Raises InputError for what is no JSON object, repeats a key (DeepSpeed refuses those too) or nests without bound.
    """
    return parse_json(written(path), str(path))


def parse_json(text: str, file: str) -> tuple[dict[str, Any], Callable[[tuple[str, ...]], int]]:
    """The same of a text; `file` names it in messages. Raises InputError like `read_json`."""
    repeated: list[str] = []

    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return dict(pairs)

    def refuse(word: str) -> NoReturn:
        raise InputError(Fault(what=f"{word} is not a finite number", file=file, line=_line_at(text, text.find(word))))

    text = _plain(text)
    try:
        data = json.loads(text, object_pairs_hook=no_repeats, parse_constant=refuse)
    except json.JSONDecodeError as error:
        hint = "templates need their placeholders filled in, with quotes around text" if error.msg.startswith(_HINTS) else ""
        raise InputError(Fault(what=f"is not JSON: {error.msg}", file=file, line=error.lineno, remedy=hint)) from None
    except (RecursionError, ValueError) as error:
        raise InputError(Fault(what=f"is not JSON: {error}", file=file)) from None
    if repeated:
        faults = [
            Fault(what=f"duplicate key {key!r}", file=file, line=_second_line(text, key), remedy="keep one of them")
            for key in dict.fromkeys(repeated)
        ]
        raise InputError(faults)
    if not isinstance(data, dict):
        raise InputError(Fault(what=f"holds a {type(data).__name__} at the top, expected an object", file=file, line=1))
    return data, lambda keys: line_of(text, keys)


def _plain(text: str) -> str:
    """Without comments and trailing commas, which DeepSpeed's reader (hjson) allows; lines keep their numbers."""
    bare = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0]), text)
    return _TRAILING.sub(lambda found: found[0] if found[0].startswith('"') else " " + found[0][1:], bare)


def line_of(text: str, keys: tuple[str, ...]) -> int:
    """Line of the last of `keys`, each looked for behind the one before it; 0 when the first is not there."""
    at = 0
    line = 0
    for key in keys:
        found = re.compile(rf'"{re.escape(key)}"\s*:').search(text, at)
        if not found:
            break
        at, line = found.end(), _line_at(text, found.start())
    return line


def _second_line(text: str, key: str) -> int:
    places = [found.start() for found in re.finditer(rf'"{re.escape(key)}"\s*:', text)]
    return _line_at(text, places[1] if len(places) > 1 else places[0]) if places else 0


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, max(offset, 0)) + 1
