"""Words of a shell script: what a shell would make of quotes, variables, arrays and arithmetic, without running anything."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from sim.errors import Fault, InputError
from sim.interchange.job_files.shell_tokens import closing, quote_end

#: stands in a word on both sides of the name of what only a run would tell
UNKNOWN = "\0"
#: that name for what a command prints
PRINTED = "output_of_a_command"
_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]")
_CHOICE = re.compile(r"^(.+?)\?(.+):(.+)$", re.S)
_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_LARGEST = 10**15
#: characters that one word or text may grow to; variables that double each other grow without bound
_LONGEST = 2**20

Values = dict[str, list[str]]


def expand(raw: str, values: Values) -> list[str]:
    """Words that a raw word stands for; what is not known is marked with UNKNOWN and its name."""
    words: list[str] = []
    current: str | None = None
    at = size = 0
    while at < len(raw):
        letter = raw[at]
        if letter == "'":
            end = raw.find("'", at + 1)
            end = len(raw) if end < 0 else end
            current, at = (current or "") + raw[at + 1 : end], end + 1
        elif letter == '"':
            end = quote_end(raw, at)
            inner = raw[at + 1 : end - 1]
            if found := _every(inner, values):
                size = _grown(size, found)
                words += ([current + found[0]] if current else found[:1]) + found[1:]
                current = None
            else:
                current = (current or "") + quoted(inner, values)
            at = end
        elif letter == "\\":
            current, at = (current or "") + raw[at + 1 : at + 2].replace("\n", ""), at + 2
        elif letter in "$`":
            found, at = _variable(raw, at, values)
            size = _grown(size, found)
            pieces = " ".join(found).split()
            if found and found[0][:1].isspace() and current is not None:
                words.append(current)
                current = None
            for index, piece in enumerate(pieces):
                if index and current is not None:
                    words.append(current)
                    current = None
                current = (current or "") + piece
        else:
            current, at = (current or "") + letter, at + 1
    return words if current is None else [*words, current]


def _grown(size: int, found: list[str]) -> int:
    """The size with what was found; raises InputError beyond what a script's words are."""
    size += sum(map(len, found)) + len(found)
    if size > _LONGEST:
        what = f"has a variable that grows beyond {_LONGEST:,} characters"
        raise InputError(Fault(what=what, remedy="give the command that the script runs"))
    return size


def _every(inner: str, values: Values) -> list[str]:
    """Elements of an array that a quoted word consists of, each a word of its own; [] for any other word."""
    array = re.fullmatch(r"\$\{(\w+)\[@\]\}|\$@", inner)
    return values.get(array[1] or "@", []) if array else []


def quoted(text: str, values: Values) -> str:
    """The text with its variables filled in, as between double quotes or in a here-document."""
    parts: list[str] = []
    at = size = 0
    while at < len(text):
        if text.startswith("\\\n", at):
            at += 2
        elif text[at] == "\\" and text[at + 1 : at + 2] in ("$", '"', "`", "\\"):
            parts.append(text[at + 1])
            at += 2
        elif text[at] in "$`":
            found, at = _variable(text, at, values)
            size = _grown(size, found)
            parts.append(" ".join(found))
        else:
            parts.append(text[at])
            at += 1
    return "".join(parts)


def _variable(text: str, at: int, values: Values) -> tuple[list[str], int]:
    """(values that the `$` or backquote at `at` stands for, offset behind it)."""
    if text[at] == "`":
        end = text.find("`", at + 1)
        end = len(text) if end < 0 else end
        return [unknown(PRINTED)], end + 1
    if text.startswith("$((", at):
        end = closing(text, at + 1, "(", ")")
        return [arithmetic(text[at + 3 : end - 2], values)], end
    if text.startswith("$(", at):
        end = closing(text, at + 1, "(", ")")
        return [unknown(PRINTED)], end
    if text.startswith("${", at):
        end = closing(text, at + 1, "{", "}")
        return _braced(text[at + 2 : end - 1], values), end
    name = _NAME.match(text, at + 1)
    if not name:
        return ["$"], at + 1
    return _looked_up(name[0], values), name.end()


def _looked_up(name: str, values: Values) -> list[str]:
    if name in values:
        return values[name]
    return [unknown(name)]


def unknown(name: str) -> str:
    """The mark of a variable that the script does not set."""
    return UNKNOWN + (name if name.replace("_", "").isalnum() else "shell") + UNKNOWN


def unknown_names(text: str) -> list[str]:
    """Names of what is not known in a word, as a person would write them."""
    names = dict.fromkeys(name for name in text.split(UNKNOWN)[1::2] if name)
    return ["the output of a command" if name == PRINTED else f"${name}" for name in names]


def _braced(inner: str, values: Values) -> list[str]:
    parts = re.fullmatch(r"([#!]?)(\w+|[@*#])(\[[^\]]*\])?(?:(:?[-=+?])(.*)|([#%/:^,].*))?", inner, re.S)
    if not parts or parts[1] == "!":
        return [unknown(re.sub(r"\W.*", "", inner.lstrip("!"), flags=re.S))]
    sign, name, index, rule, other, cut = parts.groups()
    if sign == "#":
        return [str(len(values.get(name, [])) if index else len(" ".join(values.get(name, []))))]
    given = values.get(name)
    if rule:
        is_set = bool(given and any(given)) if rule[0] == ":" else given is not None
        if rule[-1] == "+":
            return expand(other, values) if is_set else []
        if not is_set:
            return [unknown(name)] if rule[-1] == "?" else [quoted(other.strip("\"'"), values)]
    if given is None or (cut and cut[0] != ":" and not given):
        return [unknown(name)]
    if cut:
        return [_cut(" ".join(given), cut) or ""]
    if index and index[1:-1] not in ("@", "*"):
        place = arithmetic(index[1:-1], values)
        return [given[int(place)]] if place.lstrip("-").isdigit() and -len(given) <= int(place) < len(given) else []
    return given


def _cut(value: str, rule: str) -> str:
    """`${name%.json}`, `${name##*/}`, `${name//a/b}`, `${name^^}`; patterns hold plain text and `*`."""
    if rule[:2] in ("^^", ",,"):
        return value.upper() if rule[0] == "^" else value.lower()
    pattern = re.escape(rule.lstrip("#%")).replace(r"\*", ".*?" if rule[1:2] != rule[0] else ".*")
    if rule[0] == "#":
        return re.sub(f"^{pattern}", "", value, count=1)
    if rule[0] == "%":
        return re.sub(f"{pattern}$", "", value, count=1)
    if rule[0] == "/":
        old, new = ([part.replace("\\/", "/") for part in re.split(r"(?<!\\)/", rule.lstrip("/"), maxsplit=1)] + [""])[:2]
        return value.replace(old, new) if rule.startswith("//") else value.replace(old, new, 1)
    return unknown("shell")


def arithmetic(text: str, values: Values) -> str:
    """Value of a shell's whole-number expression; marked as unknown where a variable of it is, or it is none."""
    filled = quoted(text, values)
    filled = re.sub(r"\b[A-Za-z_]\w*", lambda name: " ".join(_looked_up(name[0], values)), filled)
    marked = unknown([*filled.split(UNKNOWN), "shell"][1])
    if UNKNOWN in filled or len(filled) > 1000:
        return marked
    if choice := _CHOICE.match(filled):
        filled = f"({choice[2]}) if ({choice[1]}) else ({choice[3]})"
    try:
        return str(_number(ast.parse(filled.replace("/", "//").strip() or "0", mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return marked


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.IfExp):
        return _number(node.body if _number(node.test) else node.orelse)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        return int(_COMPARISONS[type(node.ops[0])](_number(node.left), _number(node.comparators[0])))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        value = _BINARY[type(node.op)](_number(node.left), _number(node.right))
        if abs(value) <= _LARGEST:
            return value
    raise ValueError
