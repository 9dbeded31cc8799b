"""A shell script cut into words and operators, with its here-documents; comments and continued lines are gone."""

from __future__ import annotations

import re
from typing import NamedTuple

_OPERATORS = ("<<-", "<<<", ";;", "&&", "||", ">>", "<<", ">&", "<&", "&>", ";", "&", "|", "(", ")", "<", ">", "\n")
_STREAM = re.compile(r"[012]?>&[012-]|2>>?\s*[^\s;&|]+")


class Token(NamedTuple):
    """A word as written (`raw`, with its quotes) or an operator, and its 1-based line."""

    raw: str
    line: int
    is_operator: bool


def closing(text: str, at: int, opening: str, close: str) -> int:
    """Offset behind the bracket that closes the one at `at`; the end of the text where none does."""
    depth, quote = 0, ""
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 2
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == opening:
            depth += 1
        elif letter == close:
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return len(text)


def tokens(text: str) -> tuple[list[Token], dict[int, str]]:
    """(words and operators; body of each here-document by the index of its `<<`). Comments and continued lines are gone."""
    found: list[Token] = []
    documents: dict[int, str] = {}
    waiting: list[int] = []
    at, line = 0, 1
    while at < len(text):
        if text.startswith("\\\n", at):
            at, line = at + 2, line + 1
        elif text[at] in " \t\r":
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        elif text.startswith("((", at) and (not found or found[-1].is_operator or found[-1].raw in ("if", "elif", "while")):
            end = closing(text, at, "(", ")")
            found.append(Token(text[at:end], line, False))
            line, at = line + text.count("\n", at, end), end
        elif stream := _STREAM.match(text, at):  # 2>&1 and the like say where output goes
            at = stream.end()
        elif sign := next((sign for sign in _OPERATORS if text.startswith(sign, at)), ""):
            found.append(Token(sign, line, True))
            if sign in ("<<", "<<-"):
                waiting.append(len(found) - 1)
            at += len(sign)
            if sign == "\n":
                line += 1
                for index in waiting:
                    documents[index], at, line = _document(text, at, line, found, index)
                waiting.clear()
        else:
            end = _word_end(text, at)
            found.append(Token(text[at:end], line, False))
            line, at = line + text.count("\n", at, end), end
    return found, documents


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _document(text: str, at: int, line: int, found: list[Token], index: int) -> tuple[str, int, int]:
    """(body of the here-document of the operator at `index`, offset and line behind it)."""
    mark = found[index + 1].raw.strip("'\"") if index + 1 < len(found) else ""
    body: list[str] = []
    while at < len(text):
        end = _line_end(text, at)
        row = text[at:end]
        at, line = end + 1, line + 1
        if row.strip("\t\r" if found[index].raw == "<<-" else "\r") == mark:
            break
        body.append(row)
    return "\n".join(body), at, line


def _word_end(text: str, at: int) -> int:
    while at < len(text):
        letter = text[at]
        if letter == "\\" and not text.startswith("\\\n", at):
            at += 2
        elif letter == "'":
            end = text.find("'", at + 1)
            at = len(text) if end < 0 else end + 1
        elif letter == '"':
            at = quote_end(text, at)
        elif letter == "`":
            end = text.find("`", at + 1)
            at = len(text) if end < 0 else end + 1
        elif text.startswith("${", at):
            at = closing(text, at + 1, "{", "}")
        elif text.startswith("$(", at) or (letter == "(" and text[at - 1] == "="):
            at = closing(text, text.index("(", at), "(", ")")
        elif letter in " \t\r\n;&|<>()" or text.startswith("\\\n", at):
            break
        else:
            at += 1
    return at


def quote_end(text: str, at: int) -> int:
    """Offset behind the double quote that closes the one at `at`."""
    at += 1
    while at < len(text) and text[at] != '"':
        if text[at] == "\\":
            at += 2
        elif text.startswith("$(", at):
            at = closing(text, at + 1, "(", ")")
        else:
            at += 1
    return min(len(text), at + 1)
