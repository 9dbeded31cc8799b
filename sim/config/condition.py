"""Conditions in a sweep: small expressions over the paths of a scenario, parsed, never evaluated as code.

Allowed: paths, numbers, strings (quantities compare by value: '256 GiB' < '1 TB'), + - * / // %, comparisons, `in`,
and / or / not. A path that is neither swept nor in the file is None.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

    def holds(self, known: Mapping[str, object], base: Mapping[str, object]) -> bool:
        """Evaluate over `known` (dotted path -> value), then `base` (the nested file)."""
        try:
            return bool(_value(self.tree, known, base))
        except (TypeError, ZeroDivisionError) as error:
            raise InputError(
                Fault(what=f"condition {self.text!r} cannot be evaluated: {error}", remedy=_REMEDY, path="sweep.skip")
            ) from error


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
    return Condition(text, tree)


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
    if path in known:
        return known[path]
    value: object = base
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value
