"""Conditions in a sweep: small expressions over the paths of a scenario, parsed, never evaluated as code.

Allowed: paths, numbers, strings (quantities compare by value: '256 GiB' < '1 TB'), + - * / // %, comparisons, `in`,
and / or / not. A path that is neither swept nor in the file is None: it may be compared with None, and nothing else.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sim.errors import Fault, InputError
from sim.units import UNITS, parse

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_REMEDY = "compare paths with numbers, strings or each other: 'workload.training.batch_size > 4'"


@dataclass(frozen=True, slots=True)
class Condition:
    """One parsed expression."""

    text: str
    tree: ast.expr
    path: str  # where the file writes it

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted paths that must have a value, in order: all but those that are compared with None."""
        with_none = [
            operand
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Compare)
            for operand in (node.left, *node.comparators)
            if any(isinstance(other, ast.Constant) and other.value is None for other in (node.left, *node.comparators))
        ]
        left_out = {id(node) for operand in with_none for node in ast.walk(operand)}
        left_out |= {id(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        paths = [node for node in ast.walk(self.tree) if isinstance(node, (ast.Name, ast.Attribute))]
        return tuple(dict.fromkeys(_dotted(node) for node in paths if id(node) not in left_out))

    def unknown_names(self, known: Collection[str], base: Mapping[str, object]) -> list[Fault]:
        """A fault for each name that is not `known`, not inside a known block, and not in the nested file."""
        return [
            self._unknown(name, known)
            for name in self.names
            if not any(name == other or name.startswith(f"{other}.") for other in known) and _looked_up(name, {}, base) is None
        ]

    def holds(self, known: Mapping[str, object], base: Mapping[str, object]) -> bool:
        """Evaluate over `known` (dotted path -> value), then `base` (the nested file)."""
        try:
            return bool(_value(self.tree, known, base))
        except (TypeError, ZeroDivisionError) as error:
            what = f"condition {self.text!r} cannot be evaluated: {error}"
            raise InputError(Fault(what=what, remedy=_REMEDY, path=self.path)) from error

    def _unknown(self, name: str, known: Collection[str]) -> Fault:
        """The fault of a name that is not among the `known` ones, nor in the file."""
        near = get_close_matches(name, list(known), n=1, cutoff=0.6)
        remedy = f"did you mean {near[0]!r}?" if near else _REMEDY
        return Fault(what=f"condition {self.text!r}: no {name!r} is swept or in this file", remedy=remedy, path=self.path)


def parse_condition(text: object, path: str) -> Condition:
    """Parse one expression; anything outside the allowed forms is an InputError that names it."""
    if not isinstance(text, str) or len(text) > 1000:
        raise InputError(Fault(what=f"a condition is a string, got {text!r}", remedy=_REMEDY, path=path))
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(
            Fault(what=f"cannot read condition {text!r}: {getattr(error, 'msg', error)}", remedy=_REMEDY, path=path)
        ) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str, bool, type(None))):
            continue
        if not isinstance(node, _ALLOWED):
            raise InputError(
                Fault(what=f"{type(node).__name__} is not allowed in condition {text!r}", remedy=_REMEDY, path=path)
            )
    return Condition(text, tree, path)


_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare, ast.Name, ast.Attribute,
    ast.List, ast.Tuple, ast.Load, *_ARITHMETIC, *_COMPARISONS,
)  # fmt: skip


def _value(node: ast.expr, known: Mapping[str, object], base: Mapping[str, object]) -> Any:
    match node:
        case ast.Constant():
            return comparable(node.value)
        case ast.Name() | ast.Attribute():
            return comparable(_looked_up(_dotted(node), known, base))
        case ast.List() | ast.Tuple():
            return [_value(item, known, base) for item in node.elts]
        case ast.BoolOp():
            test = all if isinstance(node.op, ast.And) else any
            return test(_value(item, known, base) for item in node.values)
        case ast.UnaryOp():
            inner = _value(node.operand, known, base)
            return not inner if isinstance(node.op, ast.Not) else -inner
        case ast.BinOp():
            left, right = _value(node.left, known, base), _value(node.right, known, base)
            if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
                raise TypeError(f"arithmetic needs numbers, got {left!r} and {right!r}")
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.Compare():
            left = _value(node.left, known, base)
            for op, item in zip(node.ops, node.comparators, strict=True):
                right = _value(item, known, base)
                if not _COMPARISONS[type(op)](left, right):
                    return False
                left = right
            return True
        case _:
            raise TypeError(f"{type(node).__name__} has no value")


def comparable(value: object) -> object:
    """A quantity string as its SI number, everything else as it is."""
    if isinstance(value, str) and value[:1].isdigit():
        for dimension in UNITS:
            try:
                return parse(value, dimension)
            except ValueError:
                continue
    return value


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise TypeError("a path is names joined by dots")


def _looked_up(path: str, known: Mapping[str, object], base: Mapping[str, object]) -> object:
    names = path.split(".")
    for end in range(len(names), 0, -1):
        if (block := ".".join(names[:end])) in known:
            return _inside(known[block], names[end:])
    return _inside(base, names)


def _inside(value: object, names: Sequence[str]) -> object:
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value
