"""Turns the annotated dataclasses of the other rooms into strict validators, and pydantic's errors into faults.

A dataclass field carries its unit, bound and meaning as `Annotated` metadata; pydantic reads it directly. Validation is
strict: no string becomes a number, no boolean an integer. Every fault of a block is reported, each with its line.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sim.config.foreign_keys import meant_by
from sim.config.near_names import of_family, plain, sharing
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import Fault, InputError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def adapter(cls: Hashable) -> TypeAdapter[Any]:
    """The pydantic validator of an annotated dataclass (built once)."""
    from pydantic import TypeAdapter

    return TypeAdapter(cast(type, cls))


def validate(cls: type[T], data: object, document: Document, path: NodePath = ()) -> T:
    """An instance of `cls` from plain data that stands at `path` of `document`.

    Raises InputError with one fault per defect: unknown keys (with a suggestion), missing keys, wrong types, units and bounds.
    """
    from pydantic import ValidationError

    try:
        valid: T = adapter(cast(Hashable, cls)).validate_json(json.dumps(_whole_numbers(data)), strict=True)
    except ValidationError as error:
        faults = [_fault(cls, dict(item), document, path) for item in error.errors(include_url=False)]
        raise InputError(sorted(faults, key=lambda fault: fault.line)) from None
    return valid


class FaultList(list[Fault]):
    """Collects faults over several blocks, so that all are reported at once.

    ``with faults.collect(): block = read(...)`` goes on after an InputError; ``faults.stop()`` raises what was collected.
    """

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep the faults of an InputError raised inside instead of letting it out."""
        try:
            yield
        except InputError as error:
            self.extend(error.faults)

    def stop(self) -> None:
        """Raise InputError if there is any fault."""
        if self:
            raise InputError(self)


def unknown_key(key: str, known: Iterable[str], document: Document, path: NodePath) -> Fault:
    """The fault of a key that is not one of `known`; `path` ends in the key."""
    return document.fault(path, f"unknown key {key!r}", suggestion(key, known))


def suggestion(word: str, known: Iterable[str], label: str = "known") -> str:
    """``did you mean 'batch_size'?``, or the list of what is known when nothing is near."""
    names = sorted(known)
    if meant := meant_by(word, names):
        return meant
    ours = plain(word)
    begun = [ours] if ours in names else [name for name in names if re.match(rf"{re.escape(ours)}(?![a-z0-9])", name)]
    if begun:  # 'h100' -> 'h100-pcie', 'h100-sxm'
        return f"did you mean {' or '.join(map(repr, begun[:4]))}?"
    near, family = sharing(word, names), of_family(word, names)
    if near and family and not set(near) & set(family):  # 'cxl-ddr5-256' is on CXL before it is DDR5
        near = family
    near = near or get_close_matches(word, names, n=1, cutoff=0.6)
    if not near:  # a word inside another: 'zero' -> 'zero_stage'
        near = [name for name in names if len(word) > 2 and (word in name or name in word)][:1]
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(names[:24]) + (", ..." if len(names) > 24 else "")
    return f"{label}: {shown}" if names else ""


def fault_of(error: object, document: Document, path: NodePath, otherwise: str = "") -> Fault:
    """The fault of an error that ends in its remedy, ``..., write it as '0-19'``; `otherwise` is that of one without."""
    what, _, remedy = str(error).partition(", write ")
    return document.fault(path, what, f"write {remedy}" if remedy else otherwise)


def refuse_unknown(data: Mapping[str, object], known: Iterable[str], document: Document, path: NodePath) -> list[Fault]:
    """One fault per key of `data` that is not `known`."""
    names = tuple(known)
    return [unknown_key(key, names, document, (*path, key)) for key in data if key not in names]


def _whole_numbers(value: object) -> object:
    """8.0 -> 8, so that a sweep's arithmetic may fill an integer field; larger than 2**53 stays as it is."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole_numbers(item) for item in value]
    return value


_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "dataclass_type": "a mapping",
}
_YES_NO = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _fault(cls: type, error: dict[str, Any], document: Document, path: NodePath) -> Fault:
    loc: NodePath = tuple(error["loc"])
    here, kind, value, context = (*path, *loc), error["type"], error["input"], error.get("ctx", {})
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return unknown_key(str(loc[-1]), _field_names(cls, loc[:-1]), document, here)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        meaning = _meaning(cls, loc)
        return document.fault(here, f"missing key {str(loc[-1])!r}", f"add it: {meaning}" if meaning else "")
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return document.fault(here, f"must be {words} {_in_full(context[key])}, got {describe(value)}")
    if kind == "literal_error":
        choices = typing.get_args(_annotation(cls, loc)) or tuple(str(context["expected"]).replace("'", "").split(", "))
        names = [str(choice) for choice in _flat(choices)]
        near = get_close_matches(str(value), names, n=1)
        what = f"must be one of {', '.join(names)}, got {describe(value)}"
        return document.fault(here, what, f"did you mean {near[0]!r}?" if near else "")
    if kind in _TYPES:
        hint = f"write {_YES_NO[str(value).lower()]}" if kind == "bool_type" and str(value).lower() in _YES_NO else ""
        is_in_place = kind == "dataclass_type" and isinstance(value, (str, int)) and value is not False
        if is_in_place and (names := _field_names(cls, loc)):  # the first of a block is what people write in place of it
            hint = f"write {{{names[0]}: {str(value).lower() if value is True else value}}}; known keys: {', '.join(names)}"
        return document.fault(here, f"expected {_TYPES[kind]}, got {describe(value)}", hint)
    if kind == "value_error":
        return fault_of(context["error"], document, here)
    return document.fault(here, f"{error['msg'].lower()}, got {describe(value)}")


def _in_full(bound: float) -> str:
    """A bound as people write it: 1048576, 0.5, 1e+20."""
    return f"{bound:.0f}" if float(bound).is_integer() and abs(bound) < 1e15 else f"{bound:g}"


def _flat(choices: Iterable[object]) -> list[object]:
    """Members of nested Literals; None (of an optional) is left out."""
    flat: list[object] = []
    for choice in choices:
        inner = typing.get_args(choice)
        flat.extend(_flat(inner) if inner else [] if choice is type(None) else [choice])
    return flat


@cache
def _hints(cls: type, extras: bool) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=extras)


def _annotation(cls: type, loc: NodePath, *, extras: bool = False) -> Any:
    """The type at `loc` below a dataclass, without Annotated unless `extras`; None when it is not a declared field."""
    current: Any = cls
    for index, part in enumerate(loc):
        if isinstance(part, int):
            arguments = typing.get_args(current)
            current = arguments[0] if arguments else None
            continue
        owner = _dataclass_in(current)
        if owner is None:
            return None
        current = _hints(owner, extras and index == len(loc) - 1).get(part)
    return current


def _dataclass_in(annotation: Any) -> type | None:
    """The dataclass of ``X``, ``X | None`` or ``Annotated[X, ...]``."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for argument in typing.get_args(annotation):
            if found := _dataclass_in(argument):
                return found
    return None


def _field_names(cls: type, loc: NodePath) -> list[str]:
    owner = _dataclass_in(_annotation(cls, loc))
    return [field.name for field in dataclasses.fields(owner)] if owner else []


def _meaning(cls: type, loc: NodePath) -> str:
    metadata = getattr(_annotation(cls, loc, extras=True), "__metadata__", ())
    return next((item.text for item in metadata if hasattr(item, "text")), "")
