"""Strict YAML: a file becomes plain Python data with the line of every node, or faults that say how to mend it.

Scalars follow the YAML 1.2 core schema, not PyYAML's 1.1: ``64e9`` is a number, ``no`` and ``on`` are strings, ``010`` is ten,
dates and sexagesimals stay strings. Repeated keys, tags, merge keys, several documents and non-finite numbers are refused.
The tree is built from parser events with limits on size, depth and nodes, so a hostile file costs a bounded amount of memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sim.config.yaml_text import read_text
from sim.errors import Fault, InputError

MAX_NODES = 500_000  # after aliases are expanded
MAX_DEPTH = 64
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

NodePath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a node is written, 1-based. For a mapping entry: where its key is."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML file: its data, and where each node of it stands.

    `data` is made of dict (string keys), list, str, int, float, bool and None. `positions` maps the path of a node
    (keys and list indices from the top) to its position. `comment` is the comment block at the top of the file.
    """

    file: str
    data: dict[str, Any]
    positions: Mapping[NodePath, Position]
    comment: str = ""

    def position(self, path: NodePath) -> Position:
        """Position of the node at `path`, or of its nearest written ancestor."""
        for end in range(len(path), -1, -1):
            if found := self.positions.get(path[:end]):
                return found
        return Position(0, 0)

    def line(self, path: NodePath) -> int:
        """1-based line of the node at `path`, or of its nearest written ancestor; 0 = unknown."""
        return self.position(path).line

    def fault(self, path: NodePath, what: str, remedy: str = "") -> Fault:
        """A fault that points at the node at `path`."""
        return Fault(what=what, remedy=remedy, path=dotted(path), file=self.file, line=self.line(path))


def dotted(path: NodePath) -> str:
    """``("jobs", 0, "host")`` -> ``"jobs[0].host"``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(path: str | os.PathLike[str]) -> Document:
    """Read one YAML file strictly.

    Raises InputError with every fault that can be told apart: unreadable, too large (checked before reading), binary,
    not UTF-8, syntax, duplicate keys, aliases that expand without bound.
    """
    file = os.fspath(path)
    text = read_text(Path(path), file)
    return parse_yaml(text, file)


def parse_yaml(text: str, file: str) -> Document:
    """As :func:`read_yaml`, from text already in memory; `file` names it in faults."""
    builder = _Builder(file)
    try:
        data = builder.build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"not valid YAML: {error.problem or error.context}"
        raise InputError(Fault(what=what, file=file, line=mark.line + 1 if mark else 0, remedy=_syntax_hint(what))) from None
    except yaml.YAMLError as error:
        raise InputError(Fault(what=f"not valid YAML: {' '.join(str(error).split())}", file=file)) from None
    if builder.faults:
        raise InputError(builder.faults)
    if data is None:
        raise InputError(Fault(what="the file is empty", file=file, remedy="write at least one 'key: value' line"))
    if not isinstance(data, dict):
        what = f"expected 'key: value' lines at the top, got {describe(data)}"
        raise InputError(Fault(what=what, file=file, line=1))
    return Document(file=file, data=data, positions=builder.positions, comment=_leading_comment(text))


def describe(value: object) -> str:
    """What a value is, in words for a fault: ``the list [1, 2]``, ``'64 GB/s'``, ``8``."""
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    kind = "a mapping " if isinstance(value, Mapping) else "the list " if isinstance(value, list) else ""
    return kind + shown


def _syntax_hint(what: str) -> str:
    if "cannot start any token" in what:
        return "indent with spaces, not tabs, and quote values that begin with % @ or `"
    if "mapping values are not allowed" in what:
        return "a value that holds ': ' needs quotes, or the line is indented too far"
    return ""


def _leading_comment(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return "\n".join(lines).strip()


_INT = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*")
_MAX_DIGITS = 18  # what 64 bits hold, as results and databases do
_RADIX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def _scalar(text: str) -> bool | int | float | str | None:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _RADIX.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


class _RefusedError(Exception):
    """The file is refused as a whole; the reason is already in `faults`."""


class _Builder:
    """Builds plain data from parser events and collects faults; one use."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.positions: dict[NodePath, Position] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._num_nodes = 0

    def build(self, events: Iterator[Any]) -> Any:
        """The data of the only document; None if there is none or the file was refused."""
        self._events = events
        data = None
        num_documents = 0
        try:
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent):
                    num_documents += 1
                    if num_documents > 1:
                        self._refuse("holds several documents ('---')", event, "put one document in each file")
                    data = self._node(next(events), ())
        except _RefusedError:
            return None
        except RecursionError:  # unreachable through MAX_DEPTH; kept for a smaller interpreter stack
            self._fault("is nested too deeply", None, ())
        return data

    def _fault(self, what: str, event: Any, path: NodePath, remedy: str = "") -> None:
        line = event.start_mark.line + 1 if event is not None else 0
        self.faults.append(Fault(what=what, file=self.file, line=line, path=dotted(path), remedy=remedy))

    def _refuse(self, what: str, event: Any, remedy: str = "", path: NodePath = ()) -> None:
        self._fault(what, event, path, remedy)
        raise _RefusedError

    def _count(self, num_nodes: int, event: Any) -> None:
        self._num_nodes += num_nodes
        if self._num_nodes > MAX_NODES:
            self._refuse(
                f"expands to more than {MAX_NODES:,} nodes", event, "aliases (*name) multiply their anchor: write them out"
            )

    def _node(self, event: Any, path: NodePath) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        if event.tag not in (None, "!"):
            self._fault(f"the tag {event.tag!r} is not supported", event, path, "remove it")
        self._count(1, event)
        self.positions.setdefault(path, Position(event.start_mark.line + 1, event.start_mark.column + 1))
        if len(path) > MAX_DEPTH:
            self._refuse(f"is nested deeper than {MAX_DEPTH} levels", event)
        before = self._num_nodes - 1
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(path)
        else:
            value = self._mapping(path)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._num_nodes - before)
        return value

    def _alias(self, event: Any, path: NodePath) -> Any:
        if event.anchor not in self._anchors:  # also an alias inside its own anchor
            self._fault(f"alias '*{event.anchor}' has no anchor before it", event, path)
            return None
        value, num_nodes = self._anchors[event.anchor]
        self._count(num_nodes, event)
        self.positions.setdefault(path, Position(event.start_mark.line + 1, event.start_mark.column + 1))
        return value

    def _scalar(self, event: Any, path: NodePath) -> Any:
        text: str = event.value
        if event.style:  # quoted or block: a string
            return text
        if _NOT_FINITE.fullmatch(text):
            self._fault(f"{text!r} is not a finite number", event, path)
            return 0.0
        if _INT.fullmatch(text) and len(text) > _MAX_DIGITS:
            self._fault(f"is a whole number of more than {_MAX_DIGITS} digits", event, path)
            return 0
        return _scalar(text)

    def _sequence(self, path: NodePath) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items))))
        return items

    def _mapping(self, path: NodePath) -> dict[str, Any]:
        items: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse("a key must be a plain word", event, path=path)
            key: str = event.value
            line = event.start_mark.line + 1
            here = (*path, key)
            if key in items:
                self._fault(f"duplicate key {key!r}, first on line {lines[key]}", event, here, "keep one of them")
                here = (*path, f"{key} (repeated)")
            elif key == "<<" and not event.style:
                self._fault("merge keys ('<<') are not supported", event, here, "write the keys out")
            self.positions[here] = Position(line, event.start_mark.column + 1)
            value = self._node(next(self._events), here)
            if key not in items:
                items[key] = value
                lines[key] = line
        return items
