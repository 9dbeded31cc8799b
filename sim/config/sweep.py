"""The sweep grammar: from the `sweep:` block of a scenario to a sequence of assignments. Pure; reads no file.

    sweep:
      workload.training.batch_size: [1, 2, 4, 8]                          # list
      topology.cxl0.link.lanes: {from: 4, to: 16, factor: 2}              # geometric range
      topology.cpu0.memory.bandwidth: {from: 100 GB/s, to: 800 GB/s, points: 8, scale: log}
      placement: [{optimizer_states: dram}, {label: mixed, value: {optimizer_states: {dram: 60%, cxl0: 40%}}}]
      zip: {workload.training.model: [llama-2-7b, llama-2-13b], workload.training.batch_size: [16, 8]}
      choices: {machine: {today: {topology: epyc-9554p-2x4090}, later: {topology: epyc-turin-2x5090}}}
      skip: ["workload.training.parallelism.data * workload.training.parallelism.tensor != 8"]
      sample: {method: latin_hypercube, points: 200, seed: 7}             # draw from the space, not the full grid

Axes multiply (the last one varies fastest); `zip` and `choices` are one axis each.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sim.config.condition import Condition, parse_condition
from sim.config.span import Span, is_range, span_of, values_of
from sim.errors import Fault, InputError

_RESERVED = ("zip", "choices", "skip", "sample")
_METHODS = ("random", "latin_hypercube")
_EXAMPLE = "for example {workload.training.batch_size: [1, 2, 4]} or {from: 1, to: 8, step: 1}"
_CHOICES = "for example {machine: {today: {topology: a}, later: {topology: b}}}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One point of a sweep: what tables show (name -> scalar), and what is set in the file (dotted path -> raw value)."""

    parameters: Mapping[str, object]
    overlay: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Axis:
    """One independent direction: either a list of options or a continuous span of one path."""

    name: str
    options: tuple[Assignment, ...] = ()
    span: Span | None = None

    def at(self, quantile: float) -> Assignment:
        """The option at `quantile` in [0, 1): continuous on a span, by index on a list."""
        if self.span is not None:
            value = self.span.at(quantile)
            return Assignment({self.name: value}, {self.name: value})
        return self.options[min(int(quantile * len(self.options)), len(self.options) - 1)]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A parsed sweep. Iterating yields its assignments, lazily; `num_points` is their number before `skip`."""

    axes: tuple[Axis, ...]
    skip: tuple[Condition, ...] = ()
    method: str = "grid"
    num_samples: int = 0
    seed: int = 0
    base: Mapping[str, object] | None = None

    @property
    def num_points(self) -> int:
        """Points before `skip` conditions are applied."""
        if self.method != "grid":
            return self.num_samples
        total = 1
        for axis in self.axes:
            total *= len(axis.options)
        return total

    @property
    def names(self) -> frozenset[str]:
        """Every name and every dotted path that a point of the sweep sets."""
        options = [option for axis in self.axes for option in axis.options]
        return frozenset(axis.name for axis in self.axes).union(*((*o.parameters, *o.overlay) for o in options))

    def __iter__(self) -> Iterator[Assignment]:
        for parts in self._combinations():
            point = _joined(parts)
            if not self.is_skipped(point):
                yield point

    def is_skipped(self, point: Assignment) -> bool:
        """True if any `skip` condition holds at `point`; names not swept are looked up in the rest of the file."""
        if not self.skip:
            return False
        known = {**point.parameters, **point.overlay}
        return any(condition.holds(known, self.base or {}) for condition in self.skip)

    def _combinations(self) -> Iterator[Sequence[Assignment]]:
        if self.method == "grid":
            yield from itertools.product(*(axis.options for axis in self.axes))
            return
        draw = random.Random(self.seed)
        if self.method == "latin_hypercube":
            strata = [draw.sample(range(self.num_samples), self.num_samples) for _ in self.axes]
            for i in range(self.num_samples):
                yield [
                    axis.at((column[i] + draw.random()) / self.num_samples)
                    for axis, column in zip(self.axes, strata, strict=True)
                ]
            return
        for _ in range(self.num_samples):
            yield [axis.at(draw.random()) for axis in self.axes]


def _joined(parts: Sequence[Assignment]) -> Assignment:
    parameters: dict[str, object] = {}
    overlay: dict[str, object] = {}
    for part in parts:
        parameters.update(part.parameters)
        overlay.update(part.overlay)
    return Assignment(parameters, overlay)


def parse_sweep(raw: object, base: Mapping[str, object] | None = None, *, is_searched: bool = False) -> Sweep:
    """Parse the `sweep:` block. `base` is the rest of the file, for `skip` conditions on values that are not swept.

    `is_searched`: the axes span the space of a search, so continuous ranges are allowed. Raises InputError with every
    fault found; paths in faults start at "sweep".
    """
    if not isinstance(raw, Mapping):
        raise InputError(Fault(what=f"a sweep is a mapping of paths to values, got {raw!r}", remedy=_EXAMPLE, path="sweep"))
    faults: list[Fault] = []
    method, num_samples, seed = _gathered(faults, ("grid", 0, 0), _sampling, raw.get("sample"))
    is_continuous = is_searched or method != "grid"
    axes: list[Axis] = []
    for name, value in raw.items():
        if name not in _RESERVED:
            axes += _gathered(faults, [], _plain, str(name), value, is_continuous)
    axes += _gathered(faults, [], _zipped, raw.get("zip"))
    axes += _gathered(faults, [], _choices, raw.get("choices"))
    skip: list[Condition] = _gathered(faults, [], _conditions, raw.get("skip"))
    faults += _overlaps(axes)
    if not axes and not faults:
        faults.append(Fault(what="the sweep names no path", remedy=_EXAMPLE, path="sweep"))
    sweep = Sweep(tuple(axes), tuple(skip), method, num_samples, seed, base)
    faults += [fault for condition in skip for fault in condition.unknown_names(sweep.names, base or {})]
    if faults:
        raise InputError(faults)
    return sweep


def label_of(value: object) -> object:
    """How a swept value is shown in a table: scalars as they are, blocks in one short line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_inner(label_of(inner))}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(str(label_of(item)) for item in value)
    return value


def _inner(label: object) -> str:
    return f"({label})" if isinstance(label, str) and "," in label else str(label)


_T = TypeVar("_T")


def _gathered(faults: list[Fault], default: _T, reader: Callable[..., _T], *arguments: object) -> _T:
    try:
        return reader(*arguments)
    except InputError as error:
        faults += error.faults
        return default


def _plain(name: str, value: object, is_continuous: bool) -> list[Axis]:
    path = f"sweep.{name}"
    if is_range(value):
        assert isinstance(value, Mapping)
        if is_continuous and not {"step", "factor", "points"} & set(value):
            return [Axis(name, span=span_of(value, path))]
        return [Axis(name, tuple(Assignment({name: v}, {name: v}) for v in values_of(value, path)))]
    if not isinstance(value, list) or not value:
        raise InputError(Fault(what=f"expected a list or a range, got {value!r}", remedy=_EXAMPLE, path=path))
    return [Axis(name, _options(name, value, path))]


def _options(name: str, values: Sequence[object], path: str) -> tuple[Assignment, ...]:
    """Options of one path; blocks may be written ``{label: ..., value: ...}``; equal labels are told apart by number."""
    options: list[Assignment] = []
    seen: set[object] = set()
    for index, value in enumerate(values):
        is_labelled = isinstance(value, Mapping) and set(value) == {"label", "value"}
        shown = value["label"] if isinstance(value, Mapping) and is_labelled else label_of(value)
        setting = value["value"] if isinstance(value, Mapping) and is_labelled else value
        if (repr(type(shown)), shown) in seen:
            if setting in [option.overlay[name] for option in options]:
                raise InputError(Fault(what=f"{shown!r} is listed twice", remedy="drop one", path=f"{path}[{index}]"))
            shown = f"{shown} #{index + 1}"
        seen.add((repr(type(shown)), shown))
        options.append(Assignment({name: shown}, {name: setting}))
    return tuple(options)


def _zipped(raw: object) -> list[Axis]:
    axes: list[Axis] = []
    for index, group in enumerate(raw if isinstance(raw, list) else [raw] if raw is not None else []):
        path = f"sweep.zip[{index}]"
        if not isinstance(group, Mapping) or not group:
            raise InputError(Fault(what=f"zip takes a mapping of paths to lists, got {group!r}", path=path))
        columns = [_plain(str(name), value, False)[0].options for name, value in group.items()]
        lengths = {str(name): len(column) for name, column in zip(group, columns, strict=True)}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError(Fault(what=f"zipped lists differ in length: {found}", remedy="give one value per row", path=path))
        axes.append(Axis("+".join(map(str, group)), tuple(_joined(row) for row in zip(*columns, strict=True))))
    return axes


def _choices(raw: object) -> list[Axis]:
    if raw is None:
        return []
    if not isinstance(raw, Mapping):
        raise InputError(Fault(what=f"choices takes a mapping, got {raw!r}", remedy=_CHOICES, path="sweep.choices"))
    axes: list[Axis] = []
    for name, blocks in raw.items():
        path = f"sweep.choices.{name}"
        if not isinstance(blocks, Mapping) or not blocks:
            raise InputError(Fault(what=f"expected options by name, got {blocks!r}", remedy=_CHOICES, path=path))
        for label, block in blocks.items():
            if not isinstance(block, Mapping):
                raise InputError(Fault(what=f"an option sets paths, got {block!r}", remedy=_CHOICES, path=f"{path}.{label}"))
        axes.append(Axis(str(name), tuple(Assignment({str(name): label}, dict(block)) for label, block in blocks.items())))
    return axes


def _conditions(raw: object) -> list[Condition]:
    texts = raw if isinstance(raw, list) else [raw] if raw is not None else []
    return [parse_condition(text, f"sweep.skip[{index}]") for index, text in enumerate(texts)]


def _sampling(raw: object) -> tuple[str, int, int]:
    if raw is None:
        return "grid", 0, 0
    path = "sweep.sample"
    if not isinstance(raw, Mapping) or not set(raw) <= {"method", "points", "seed"} or "points" not in raw:
        raise InputError(
            Fault(what=f"expected {{method, points, seed}}, got {raw!r}", remedy="for example {points: 100}", path=path)
        )
    method, num, seed = raw.get("method", "latin_hypercube"), raw["points"], raw.get("seed", 0)
    faults: list[Fault] = []
    if method not in _METHODS:
        faults.append(Fault(what=f"unknown method {method!r}", remedy=f"one of {', '.join(_METHODS)}", path=f"{path}.method"))
    for key, value, least in (("points", num, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            faults.append(Fault(what=f"expected a whole number from {least} up, got {value!r}", path=f"{path}.{key}"))
    if faults:
        raise InputError(faults)
    return str(method), int(str(num)), int(str(seed))


def _overlaps(axes: Sequence[Axis]) -> list[Fault]:
    """Two axes that set the same path would overwrite each other; a path inside another axis' block refines it."""
    owners: dict[str, int] = {}
    clashes: list[str] = []
    for index, axis in enumerate(axes):
        paths = {axis.name} if axis.span else {path for option in axis.options for path in option.overlay}
        clashes += [path for path in sorted(paths) if owners.setdefault(path, index) != index]
    return [Fault(what=f"{path!r} is set by two axes", remedy="keep one", path="sweep") for path in clashes]
