"""The compiled functions written again in C: their Python uses so little of the language that a short translation holds.

They know rows of numbers, slices of them, whole and floating numbers, branches and loops. A function is translated when a
call of it is met, for the types of that call. Expressions keep their order and brackets, so results agree to the last bit.
Slightly above the house's 300 lines: statements and expressions of one translator call each other, and would not read apart.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from sim.engine.fast.layout import ROWS

_FOLDER = Path(__file__).parent
_MODULES = ("layout", "heaps", "flows", "linking", "fluid", "bound", "loop")
#: the functions that Python calls: what they take besides the state, and what they return
ENTRIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "start_all": ((), "void"),
    "advance": (("double", "int64_t"), "int64_t"),
    "loads": ((), "void"),
}
_STATE = "State *"
_TYPES = {"int": "int64_t", "bool": "int64_t", "float": "double"}
_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>",
    ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
_COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_HEAD = """#include <stdint.h>
#include <math.h>
static inline double larger_f(double a, double b) { return b > a ? b : a; }
static inline int64_t larger_i(int64_t a, int64_t b) { return b > a ? b : a; }
"""


@dataclass(frozen=True, slots=True)
class _Value:
    """An expression in C and its type."""

    text: str
    type: str


@dataclass(slots=True)
class _Program:
    """What is known of the modules, and the functions translated so far."""

    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)  # constants; other names of functions
    returns: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def read(self, module: str) -> None:
        """Functions of a module, and what it imports from modules that are no part of the compiled code."""
        for node in ast.parse((_FOLDER / f"{module}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                if node.name in self.functions:
                    raise ValueError(f"two compiled functions are called {node.name!r}")
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called(node.value) == "inner":
                self.names[ast.unparse(node.targets[0])] = ast.unparse(node.value.args[0])
            elif isinstance(node, ast.ImportFrom) and _is_outside(node.module or ""):
                source = import_module(str(node.module))
                self.names.update({item.name: getattr(source, item.name) for item in node.names})

    def function(self, name: str, types: tuple[str, ...]) -> tuple[str, str]:
        """(name in C, type) of a call with these types."""
        name = str(self.names[name]) if isinstance(self.names.get(name), str) else name
        if name not in self.returns:
            _Function(self, self.functions[name], types).translate()
        return f"k_{name}", self.returns[name]


class _Function:
    """Translates one function."""

    def __init__(self, program: _Program, node: ast.FunctionDef, types: tuple[str, ...]) -> None:
        self.program, self.node = program, node
        told = [_TYPES.get(ast.unparse(one.annotation) if one.annotation else "", own)
                for one, own in zip(node.args.args, types, strict=True)]  # fmt: skip
        self.parameters = {one.arg: type for one, type in zip(node.args.args, told, strict=True)}
        self.types = dict(self.parameters)
        self.result = "void"
        self.lines: list[str] = []
        self.num_temporaries = 0

    def translate(self) -> None:
        """Append the function to the program's."""
        self.block(self.node.body)
        name = self.node.name
        self.program.returns[name] = self.result
        takes = ", ".join(f"{type} {one}" for one, type in self.parameters.items())
        own = [f"{type} {one};" for one, type in self.types.items() if one not in self.parameters]
        self.program.written.append(
            "\n".join((f"static {self.result} k_{name}({takes}) {{", *own, *self.lines, "}"))
        )  # fmt: skip

    # -------------------------------------------------------------------------------------------------- statements

    def block(self, nodes: list[ast.stmt]) -> None:
        """Statements one after the other."""
        for node in nodes:
            getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a text that says what the function does
            self.lines.append(self.value(node.value).text + ";")

    def _assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            values = [self._kept(self.value(item)) for item in node.value.elts]
            for one, value in zip(target.elts, values, strict=True):
                self._set(one, value)
            return
        value = self.value(node.value)
        if len(node.targets) > 1:
            value = self._kept(value)
        for one in node.targets:
            self._set(one, value)

    def _kept(self, value: _Value) -> _Value:
        """The value in a variable of its own: what is assigned beside it cannot change it."""
        self.num_temporaries += 1
        name = f"t{self.num_temporaries}"
        self.types[name] = value.type
        self.lines.append(f"{name} = {value.text};")
        return _Value(name, value.type)

    def _set(self, target: ast.expr, value: _Value) -> None:
        if isinstance(target, ast.Name):
            known = self.types.get(target.id)
            if known is None or (known, value.type) == ("int64_t", "double"):
                self.types[target.id] = value.type
            self.lines.append(f"{target.id} = {value.text};")
        else:
            self.lines.append(f"{self.value(target).text} = {value.text};")

    def _augassign(self, node: ast.AugAssign) -> None:
        target = self.value(node.target)
        value = self.value(ast.BinOp(node.target, node.op, node.value))
        self.lines.append(f"{target.text} = {value.text};")

    def _for(self, node: ast.For) -> None:
        assert isinstance(node.iter, ast.Call)
        assert isinstance(node.target, ast.Name)
        bounds = [self.value(item) for item in node.iter.args]
        start = bounds[0].text if len(bounds) > 1 else "0"
        stop = self._kept(bounds[-1]).text
        one = node.target.id
        self.types.setdefault(one, "int64_t")
        self.lines.append(f"for ({one} = {start}; {one} < {stop}; {one}++) {{")
        self.block(node.body)
        self.lines.append("}")

    def _while(self, node: ast.While) -> None:
        self.lines.append(f"while ({self.value(node.test).text}) {{")
        self.block(node.body)
        self.lines.append("}")

    def _if(self, node: ast.If) -> None:
        self.lines.append(f"if ({self.value(node.test).text}) {{")
        self.block(node.body)
        if node.orelse:
            self.lines.append("} else {")
            self.block(node.orelse)
        self.lines.append("}")

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            self.lines.append("return;")
            return
        value = self.value(node.value)
        self.result = "double" if "double" in (value.type, self.result) else value.type
        self.lines.append(f"return {value.text};")

    def _continue(self, _: ast.Continue) -> None:
        self.lines.append("continue;")

    def _break(self, _: ast.Break) -> None:
        self.lines.append("break;")

    # ------------------------------------------------------------------------------------------------- expressions

    def value(self, node: ast.expr) -> _Value:
        """The expression in C."""
        found: _Value = getattr(self, f"_{type(node).__name__.lower()}")(node)
        return found

    def _constant(self, node: ast.Constant) -> _Value:
        return _literal(node.value)

    def _name(self, node: ast.Name) -> _Value:
        return _Value(node.id, self.types[node.id]) if node.id in self.types else _literal(self.program.names[node.id])

    def _attribute(self, node: ast.Attribute) -> _Value:
        base = self.value(node.value)
        if base.type == _STATE:
            return _Value(f"{base.text}->{node.attr}", _array_type(node.attr))
        kind: Any = ROWS[base.type.removesuffix("_row *")].fields
        return _Value(f"{base.text}->{node.attr}", "double" if kind[node.attr][0].kind == "f" else "int64_t")

    def _subscript(self, node: ast.Subscript) -> _Value:
        base = self.value(node.value)
        if base.text.endswith("->lists"):
            row, *rest = (
                self.value(one).text for one in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
            )
            begin = f"({base.text} + {row} * {base.text}_width)"
            return _Value(f"{begin}[{rest[0]}]", "int64_t") if rest else _Value(begin, "int64_t *")
        index = self.value(node.slice).text
        plain = base.type.removesuffix(" *")
        if plain in ("int64_t", "double"):
            return _Value(f"{base.text}[{index}]", plain)
        return _Value(f"({base.text} + {index})", base.type)

    def _binop(self, node: ast.BinOp) -> _Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Div):
            return _Value(f"((double){left.text} / (double){right.text})", "double")
        return _Value(f"({left.text} {_BINARY[type(node.op)]} {right.text})", _wider(left, right))

    def _unaryop(self, node: ast.UnaryOp) -> _Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return _Value(f"(!{value.text})", "int64_t")
        return _Value(f"(-{value.text})", value.type)

    def _boolop(self, node: ast.BoolOp) -> _Value:
        word = " && " if isinstance(node.op, ast.And) else " || "
        return _Value("(" + word.join(self.value(one).text for one in node.values) + ")", "int64_t")

    def _compare(self, node: ast.Compare) -> _Value:
        left, right = self.value(node.left), self.value(node.comparators[0])
        return _Value(f"({left.text} {_COMPARED[type(node.ops[0])]} {right.text})", "int64_t")

    def _ifexp(self, node: ast.IfExp) -> _Value:
        test, yes, no = (self.value(one) for one in (node.test, node.body, node.orelse))
        return _Value(f"({test.text} ? {yes.text} : {no.text})", _wider(yes, no))

    def _call(self, node: ast.Call) -> _Value:
        name, values = _called(node), [self.value(one) for one in node.args]
        if name == "len":
            return _Value(f"{values[0].text}_num", "int64_t")
        if name == "integer":
            return _Value(values[0].text, "int64_t")
        if name == "abs":
            return _Value(f"fabs({values[0].text})", "double")
        arguments = ", ".join(value.text for value in values)
        if name == "max":
            type = _wider(*values)
            return _Value(f"larger_{'f' if type == 'double' else 'i'}({arguments})", type)
        own, type = self.program.function(name, tuple(value.type for value in values))
        return _Value(f"{own}({arguments})", type)


def _is_outside(module: str) -> bool:
    """Whether constants come from there as Python has them: not from another module of compiled functions."""
    return module == "sim.engine.fast.layout" or (module.startswith("sim.") and not module.startswith("sim.engine.fast"))


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def _literal(value: object) -> _Value:
    if isinstance(value, float):
        return _Value("INFINITY" if value == float("inf") else repr(value), "double")
    assert isinstance(value, int)
    return _Value(str(int(value)) if value >= 0 else f"({value})", "int64_t")


def _wider(left: _Value, right: _Value) -> str:
    return "double" if "double" in (left.type, right.type) else left.type


def _array_type(name: str) -> str:
    return f"{name}_row *" if ROWS[name].fields else ("double *" if ROWS[name].kind == "f" else "int64_t *")


def _struct(name: str, dtype: np.dtype[Any]) -> str:
    fields: Any = dtype.fields
    words = {"f8": "double", "i8": "int64_t", "i1": "int8_t"}
    return "typedef struct {" + " ".join(f"{words[fields[one][0].str[1:]]} {one};" for one in fields) + f"}} {name}_row;"


def c_source() -> str:
    """The whole source."""
    program = _Program()
    for module in _MODULES:
        program.read(module)
    entries = []
    for name, (types, result) in ENTRIES.items():
        own, _ = program.function(name, (_STATE, *types))
        takes = ", ".join(("State *s", *(f"{type} a{i}" for i, type in enumerate(types))))
        gives = ", ".join(("s", *(f"a{i}" for i in range(len(types)))))
        entries.append(f"{result} {name}({takes}) {{ {'return ' if result != 'void' else ''}{own}({gives}); }}")
    structs = [_struct(name, dtype) for name, dtype in ROWS.items() if dtype.fields]
    rows = " ".join(f"{_array_type(name)}{name}; int64_t {name}_num;" for name in ROWS)
    state = f"typedef struct {{{rows} int64_t lists_width;}} State;"
    return "\n".join((_HEAD, *structs, state, *program.written, *entries, ""))
