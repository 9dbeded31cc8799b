"""One mapping of a configuration file, read key by key: types are checked, keys that nobody asked for are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sim.errors import Fault, InputError

AUTO = "auto"
LineOf = Callable[[tuple[str, ...]], int]


class Block:
    """A mapping at `path` of a file. Getters note what is wrong in `faults`, shared by all blocks of the file.

    "auto" and null count as not given (`is_auto` tells). Whole numbers may be written as floats (5e8), numbers and
    booleans as strings, as command lines and YAML produce them.
    """

    def __init__(self, data: Mapping[str, Any], file: str, line_of: LineOf, path: tuple[str, ...] = ()) -> None:
        self.data, self.file, self.line_of, self.path = data, file, line_of, path
        self.faults: list[Fault] = []
        self.asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self.data.get(key) is not None

    def has(self, *keys: str) -> bool:
        """Whether any of the keys is given."""
        return any(key in self for key in keys)

    def name(self, key: str) -> str:
        """The key with its place, for messages: zero_optimization.stage."""
        return ".".join((*self.path, key))

    def fault(self, key: str, what: str, remedy: str = "") -> None:
        """Note a fault of the key."""
        where = (*self.path, key)
        self.faults.append(
            Fault(what=what, remedy=remedy, path=".".join(where), file=self.file, line=self.line_of(where))
        )  # fmt: skip

    def stop(self) -> None:
        """Raise InputError with the faults of this block and its parts, if there are any."""
        if self.faults:
            raise InputError(sorted(self.faults, key=lambda fault: fault.line))

    def is_auto(self, key: str) -> bool:
        """Whether the file leaves the value to the framework."""
        self.asked.add(key)
        return bool(self.data.get(key) == AUTO)

    def get(self, key: str) -> Any:
        """The value as written; None when absent, null or "auto"."""
        self.asked.add(key)
        value = self.data.get(key)
        return None if value == AUTO else value

    def block(self, key: str) -> Block:
        """The mapping at the key; an empty one when it is absent."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.fault(key, f"expected a mapping, got {_shown(value)}")
            value = None
        part = Block(value or {}, self.file, self.line_of, (*self.path, key))
        part.faults = self.faults
        return part

    def number(self, key: str) -> float | None:
        """A finite number of at least 0."""
        value = self.get(key)
        if isinstance(value, str):
            try:
                value = float(value.replace("_", ""))
            except ValueError:
                self.fault(key, f"expected a number, got {_shown(value)}")
                return None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fault(key, f"expected a number, got {_shown(value)}", _one_run(value))
            return None
        if not 0 <= value < 1e300:
            self.fault(key, f"expected a number of at least 0, got {_shown(value)}")
            return None
        return float(value)

    def count(self, key: str, *, least: int = 0) -> int | None:
        """A whole number of at least `least`."""
        value = self.number(key)
        if value is None:
            return None
        if value != int(value) or value < least:
            self.fault(key, f"expected a whole number of at least {least}, got {_shown(self.data[key])}")
            return None
        return int(value)

    def flag(self, key: str) -> bool | None:
        """A boolean, also written "true", "no", 1 or 0."""
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
        self.fault(key, f"expected true or false, got {_shown(value)}", _one_run(value))
        return None

    def word(self, key: str) -> str | None:
        """A string."""
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value
        self.fault(key, f"expected text, got {_shown(value)}", _one_run(value))
        return None

    def first(self, *keys: str) -> str:
        """The first of the keys that is given, else the first: keys of the same meaning in different tools."""
        self.asked.update(keys)
        return next((key for key in keys if key in self), keys[0])

    def rest(self, inert: Iterable[str], known: Iterable[str] = ()) -> tuple[list[str], list[str]]:
        """(keys given that are known and change nothing here, keys given that the tool does not have), with their lines."""
        inert = set(inert)
        unused, unknown = [], []
        for key in self.data:
            if key in self.asked:
                continue
            line = self.line_of((*self.path, key))
            text = f"{self.name(key)} ({Path(self.file).name}:{line})" if line else self.name(key)
            if key in inert:
                unused.append(text)
                continue
            near = get_close_matches(key, (*inert, *known, *self.asked), n=1, cutoff=0.75)
            unknown.append(f"{text}; did you mean {near[0]!r}?" if near else text)
        return unused, unknown


def _shown(value: object) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_run(value: object) -> str:
    return "keep one value: a list stands for several runs" if isinstance(value, list) else ""
