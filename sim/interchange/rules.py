"""Rules that name the tensor class of a recorded copy, so that a placement can move it.

Example: "h2d phase=update min=1MB = optimizer_states".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from sim.errors import Fault, InputError
from sim.records import Kind, Step, StepOperation, TensorClass
from sim.units import parse

_DIRECTION = {"h2d": "dram", "d2h": "gpu"}


class Rule(msgspec.Struct, frozen=True):
    """One rule; empty fields match everything. `source` is the side that is read: "dram" (h2d) or "gpu" (d2h)."""

    tensor_class: TensorClass
    source: str = ""
    phase: str = ""
    name: str = ""  # regular expression on the operation's name
    min_bytes: float = 0.0
    max_bytes: float = float("inf")


def class_of(rules: Iterable[Rule], *, source: str, phase: str, name: str, size_bytes: float) -> TensorClass | None:
    """Tensor class by the first rule that matches; None when none does (the copy stays where it was recorded)."""
    for rule in rules:
        if (
            rule.source in ("", source)
            and rule.phase in ("", phase)
            and rule.min_bytes <= size_bytes <= rule.max_bytes
            and (not rule.name or re.search(rule.name, name))
        ):
            return rule.tensor_class
    return None


def applied(step: Step, rules: Sequence[Rule]) -> Step:
    """The step with the copies that a rule matches at the home of its tensor class; how many is noted."""
    if not rules:
        return step
    counts: Counter[str] = Counter()
    operations = tuple(_placed(op, rules, counts) for op in step.operations)
    notes = tuple(f"copies placed as {name} by rule: {count}" for name, count in sorted(counts.items()))
    return msgspec.structs.replace(step, operations=operations, notes=(*step.notes, *notes))


def _placed(op: StepOperation, rules: Sequence[Rule], counts: Counter[str]) -> StepOperation:
    if op.kind is not Kind.TRANSFER:
        return op
    is_read_from_gpu = op.source == "gpu"
    found = class_of(
        rules, source="gpu" if is_read_from_gpu else "dram", phase=op.phase, name=op.name, size_bytes=op.size_bytes
    )
    if found is None:
        return op
    counts[found.value] += 1
    home = {"target" if is_read_from_gpu else "source": f"home:{found.value}"}
    return msgspec.structs.replace(op, tensor_class=found, **home)


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """Rules as written on the command line: `[h2d|d2h] [phase=P] [name=REGEX] [min=SIZE] [max=SIZE] = CLASS`.

    Raises InputError with what is wrong in which rule.
    """
    return tuple(_one(text) for text in texts)


def _one(text: str) -> Rule:
    condition, _, target = text.rpartition("=")
    known = {c.value: c for c in TensorClass}
    if target.strip() not in known:
        raise InputError(
            Fault(what=f"rule {text!r} ends in no tensor class", remedy=f"end it with '= ' and one of {', '.join(known)}")
        )
    fields: dict[str, object] = {}
    for word in condition.split():
        key, has_value, value = word.partition("=")
        if key in _DIRECTION and not has_value:
            fields["source"] = _DIRECTION[key]
        elif key in ("phase", "name") and value:
            fields[key] = value
        elif key in ("min", "max"):
            try:
                fields[f"{key}_bytes"] = parse(value, "bytes")
            except ValueError as error:
                raise InputError(Fault(what=f"rule {text!r}: {error}")) from error
        else:
            remedy = "write [h2d|d2h] [phase=forward|backward|update] [name=REGEX] [min=SIZE] [max=SIZE] = CLASS"
            raise InputError(Fault(what=f"rule {text!r}: unknown condition {word!r}", remedy=remedy))
    try:
        re.compile(str(fields.get("name", "")))
    except re.error as error:
        raise InputError(Fault(what=f"rule {text!r}: not a regular expression: {error}")) from error
    return msgspec.convert({"tensor_class": target.strip(), **fields}, Rule)
