"""Commands of a launch script, found without running it: assignments, conditions and functions are followed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from sim.errors import Fault, InputError
from sim.interchange import source
from sim.interchange.job_files.shell_tests import holds
from sim.interchange.job_files.shell_tokens import Token, tokens
from sim.interchange.job_files.shell_words import UNKNOWN, Values, expand, quoted, unknown_names

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.S)
_OPENING = {"if": "fi", "for": "done", "while": "done", "until": "done", "case": "esac", "{": "}", "select": "done"}
_DECLARING = ("export", "declare", "local", "readonly", "typeset", "set")
#: a script nests no deeper; a function that calls itself ends there too
_DEEPEST = 40
#: commands of one run through a script; more than people write
_MOST = 20_000


@dataclass(slots=True)
class Script:
    """What was found: commands as lists of words, here-documents by the file that takes them, and what was not decided."""

    commands: list[list[str]] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)
    values: Values = field(default_factory=dict)
    folder: Path = field(default_factory=Path)
    steps: int = 0


def read_script(text: str, given: dict[str, str], folder: Path) -> Script:
    """Follow the script with the variables that are given; the shell's own and all that only a run tells stay unknown.

    Scripts that it takes in (`source`) are looked for in `folder`.
    """
    script = Script(values={name: [value] for name, value in given.items()}, folder=folder)
    found, bodies = tokens(text.replace("\r\n", "\n"))
    _Reading(found, bodies, script, frozenset(given), {}).statements(0, len(found), 0)
    return script


class _Reading:
    """One walk through the tokens of a text."""

    def __init__(
        self, found: list[Token], bodies: dict[int, str], script: Script, fixed: frozenset[str],
        functions: dict[str, tuple[_Reading, int, int]],
    ) -> None:  # fmt: skip
        self.found, self.bodies, self.script, self.fixed, self.functions = found, bodies, script, fixed, functions

    def statements(self, at: int, end: int, depth: int) -> None:
        """Follow the tokens from `at` to `end`."""
        while at < end and depth < _DEEPEST:
            token = self.found[at]
            if token.is_operator or token.raw in ("then", "do", "else", "!", "time"):
                at += 1
            elif token.raw in _OPENING:
                last = self._closing(at, end)
                self._compound(at, last, depth + 1)
                at = last + 1
            elif body := self._function(at, end):
                at = body
            else:
                stop = at
                while stop < end and not (
                    self.found[stop].is_operator and self.found[stop].raw in ("\n", ";", "&&", "||", "&", "|", ";;")
                ):
                    stop += 1
                self._simple(at, stop, depth)
                at = stop

    def _closing(self, at: int, end: int) -> int:
        """Index of the word that ends the compound statement at `at`."""
        waiting = [_OPENING[self.found[at].raw]]
        is_start = False
        for index in range(at + 1, end):
            token = self.found[index]
            if not token.is_operator and token.raw == waiting[-1] and is_start:
                waiting.pop()
                if not waiting:
                    return index
            elif not token.is_operator and token.raw in _OPENING and is_start:
                waiting.append(_OPENING[token.raw])
            is_start = (token.is_operator and token.raw not in (">", "<", ">>", "<<")) or token.raw in (
                "then",
                "do",
                "else",
                *_OPENING.values(),
            )
        return end - 1

    def _function(self, at: int, end: int) -> int:
        """Keep the function that is defined at `at`; index behind it, 0 if none is."""
        raws = [token.raw for token in self.found[at : at + 6]]
        start = at + 1 if raws[:1] == ["function"] else at
        head = [token.raw for token in self.found[start + 1 : start + 5]]
        skip = start + 1 + (2 if head[:2] == ["(", ")"] else 0)
        if skip == start + 1 and raws[:1] != ["function"]:
            return 0
        while skip < end and self.found[skip].raw == "\n":
            skip += 1
        if skip >= end or self.found[skip].raw != "{":
            return 0
        last = self._closing(skip, end)
        self.functions[self.found[start].raw] = (self, skip + 1, last)
        return last + 1

    def _compound(self, at: int, last: int, depth: int) -> None:
        word = self.found[at].raw
        if last - at < 2:
            return
        if word == "{":
            self.statements(at + 1, last, depth)
        elif word == "if":
            self._if(at, last, depth)
        elif word == "case":
            self._case(at, last, depth)
        elif word == "for":
            self._for(at, last, depth)

    def _parts(self, at: int, last: int, words: tuple[str, ...]) -> list[int]:
        """Indices of those words that belong to the statement at `at` itself."""
        places, index = [], at + 1
        while index < last:
            raw = self.found[index].raw
            before = self.found[index - 1]
            if raw in _OPENING and (before.is_operator or before.raw in ("then", "do", "else")):
                index = self._closing(index, last)
            elif raw in words and not self.found[index].is_operator:
                places.append(index)
            index += 1
        return places

    def _if(self, at: int, last: int, depth: int) -> None:
        places = self._parts(at, last, ("then", "elif", "else"))
        start = at + 1
        for number, place in enumerate(places):
            following = places[number + 1] if number + 1 < len(places) else last
            word = self.found[place].raw
            if word == "else":
                self.statements(place + 1, following, depth)
                return
            if word == "elif":
                start = place + 1
                continue
            is_true = holds(self.found, start, place, self.script.values)
            if is_true is None:
                self.script.undecided.append(f"line {self.found[start].line}: {self._text(start, place)}")
            elif is_true:
                self.statements(place + 1, following, depth)
                return

    def _text(self, at: int, end: int) -> str:
        """The condition as written, and what of it is not known."""
        whole = "".join(word for token in self.found[at:end] for word in expand(token.raw, self.script.values))
        names = ", ".join(unknown_names(whole))
        written = " ".join(token.raw for token in self.found[at:end] if token.raw not in ("\n", ";"))[:70]
        return f"{written} ({names} not known)" if names else written

    def _case(self, at: int, last: int, depth: int) -> None:
        value = " ".join(expand(self.found[at + 1].raw, self.script.values))
        if UNKNOWN in value:
            self.script.undecided.append(f"line {self.found[at].line}: case ({', '.join(unknown_names(value))} not known)")
            return
        index = at + 3
        while index < last:
            start = index
            while index < last and self.found[index].raw != ")":
                index += 1
            patterns = [
                " ".join(expand(token.raw, self.script.values)) for token in self.found[start:index] if not token.is_operator
            ]
            end = next((i for i in range(index, last) if self.found[i].raw == ";;"), last)
            if any(re.fullmatch(re.escape(p).replace(r"\*", ".*").replace(r"\?", "."), value) for p in patterns):
                self.statements(index + 1, end, depth)
                return
            index = end + 1

    def _for(self, at: int, last: int, depth: int) -> None:
        """The body once, with the first value: a loop over sizes or nodes starts one job several times."""
        start = next((i for i in self._parts(at, last, ("do",))), last)
        name = self.found[at + 1].raw
        words = [
            word
            for token in self.found[at + 3 : start]
            if not token.is_operator
            for word in expand(token.raw, self.script.values)
        ]
        if name.isidentifier() and words:
            if len(words) > 1:
                self.script.undecided.append(f"line {self.found[at].line}: for {name}: the first of {len(words)} values")
            self._assign(name, [words[0]])
            self.statements(start + 1, last, depth)

    def _assign(self, name: str, value: list[str]) -> None:
        if name not in self.fixed:
            self.script.values[name] = value

    def _simple(self, at: int, end: int, depth: int) -> None:
        """An assignment or a command, with what is written to files."""
        self.script.steps += 1
        if self.script.steps > _MOST:
            what = f"has functions or texts that call each other more than {_MOST:,} times"
            raise InputError(Fault(what=what, remedy="give the command that the script runs"))
        plain: list[Token] = []
        target, body = "", -1
        index = at
        while index < end:
            token = self.found[index]
            if token.is_operator and token.raw in (">", ">>", "<", "<<", "<<-", "<<<", ">&", "&>"):
                if token.raw in ("<<", "<<-"):
                    body = index
                elif token.raw in (">", ">>") and index + 1 < end:
                    target = " ".join(expand(self.found[index + 1].raw, self.script.values))
                index += 2
                continue
            if not token.is_operator:
                plain.append(token)
            index += 1
        if body in self.bodies:
            is_literal = self.found[body + 1].raw[:1] in "\"'"
            text = self.bodies[body] if is_literal else quoted(self.bodies[body], self.script.values)
            if target:
                self.script.documents[target] = text
            elif plain and plain[0].raw in ("sbatch", "bash", "sh", "qsub"):
                self._text_of(text, depth)
                return
        rest = self._assignments(plain)
        if rest:
            self._command([word for token in rest for word in expand(token.raw, self.script.values)], depth)

    def _assignments(self, plain: list[Token]) -> list[Token]:
        """Take the assignments in front; what follows them."""
        is_declaring = bool(plain) and plain[0].raw in _DECLARING
        for place, token in enumerate(plain):
            found = _ASSIGNMENT.fullmatch(token.raw)
            if found:
                name, _, adds, raw = found.groups()
                if raw.startswith("("):
                    inner, _ = tokens(raw[1:-1])
                    value = [word for part in inner if not part.is_operator for word in expand(part.raw, self.script.values)]
                    value = self.script.values.get(name, []) + value if adds else value
                else:
                    text = _joined(raw, self.script.values)
                    value = ["".join(self.script.values.get(name, [])[:1]) + text] if adds else [text]
                self._assign(name, value)
            elif not is_declaring:
                return plain[place:]
        return []

    def _text_of(self, text: str, depth: int) -> None:
        """Follow another text in the same shell."""
        found, bodies = tokens(text.replace("\r\n", "\n"))
        _Reading(found, bodies, self.script, self.fixed, self.functions).statements(0, len(found), depth + 1)

    def _command(self, words: list[str], depth: int) -> None:
        if not words or depth >= _DEEPEST:
            return
        if words[0] in self.functions:
            reading, start, last = self.functions[words[0]]
            kept = dict(self.script.values)
            self.script.values |= {str(n): [word] for n, word in enumerate(words[1:10], 1)} | {"@": words[1:], "*": words[1:]}
            reading.statements(start, last, depth + 1)
            for name in ("@", "*", *map(str, range(1, 10))):
                self.script.values.pop(name, None)
                if name in kept:
                    self.script.values[name] = kept[name]
            return
        if words[0] in (".", "source") and len(words) > 1:
            name = words[1].rsplit(UNKNOWN, 1)[-1].lstrip("/") if UNKNOWN in words[1] else words[1]
            if name and (self.script.folder / name).is_file():
                self._text_of(source.text(self.script.folder / name, max_bytes=source.MAX_WRITTEN_BYTES), depth)
            return
        place = next((i for i in range(1, len(words) - 1) if words[i] in ("-c", "-lc")), 0)
        if words[0] == "eval" or place:
            inner = " ".join(words[1:]) if words[0] == "eval" else words[place + 1]
            before = len(self.script.commands)
            self._text_of(inner, depth)
            for command in self.script.commands[before:]:
                command[:0] = words[:place]  # what starts the processes stands in front
            return
        self.script.commands.append(words)


def _joined(raw: str, values: Values) -> str:
    """The value of an assignment: no word splitting."""
    if raw[:1] == '"' and raw.endswith('"') and raw.count('"') == 2:
        return quoted(raw[1:-1], values)
    return " ".join(expand(raw, values))
