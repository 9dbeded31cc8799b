"""One curve of the suite: a benchmark over one of its arguments, and the measured rows that stand beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.study.bench import measure
from sim.study.bench_measured import Canonical, canonical, matching
from sim.study.bench_panels import Axis, Curve, Line, Measurement
from sim.study.validation_rows import Row
from sim.topology.machine import Machine
from sim.units import format_bytes

#: lines of one curve: more cannot be told apart
MOST_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line to be: fixed arguments, and values of the knob where they differ from the plan's."""

    name: str
    arguments: Mapping[str, Any]
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A curve: a benchmark over one of its arguments. `metric` is read; with `is_rate` the curve shows knob / metric.

    Measured rows that differ from the first series (`is_each_varied`: from any) in arguments of `variants` only get lines
    of their own.
    """

    name: str
    title: str
    benchmark: str
    over: str
    values: tuple[float, ...] = ()
    metric: str
    series: tuple[Series, ...]
    variants: tuple[str, ...] = ()
    is_each_varied: bool = False
    x: Axis
    y: Axis
    is_rate: bool = False

    def curve(self, machine: Machine, rows: Iterable[Row]) -> Curve:
        """Run it; rows of the same inputs but for the knob stand beside their line."""
        known = matching(machine, rows, self.benchmark, self.metric)
        lines = []
        for series in [*self.series, *self._measured_series(machine, known)][:MOST_LINES]:
            values = series.values or self.values
            points = tuple((x, self._value(machine, series.arguments, x)) for x in values)
            lines.append(Line(name=series.name, points=points, measured=tuple(self._beside(machine, series, known))))
        return Curve(name=self.name, title=self.title, x=self.x, y=self.y, lines=tuple(lines))

    def _own(self, machine: Machine, series: Series) -> Canonical:
        own = canonical(machine, self.benchmark, series.arguments)
        own.pop(self.over, None)
        return own

    def _measured_series(self, machine: Machine, known: Sequence[tuple[Row, Canonical]]) -> list[Series]:
        """Variants of a planned series that were measured, those with most rows first."""
        planned = [self._own(machine, series) for series in self.series]
        counts: dict[str, tuple[int, Series]] = {}
        for _row, found in known:
            rest = {key: value for key, value in found.items() if key != self.over}
            if self.over not in found or rest in planned:
                continue
            for series, own in zip(self.series if self.is_each_varied else self.series[:1], planned, strict=False):
                differing = [key for key in rest if rest[key] != own.get(key)]
                if set(differing) <= set(self.variants):
                    words = [series.name] if self.is_each_varied else []
                    name = ", ".join([*words, *(_words(key, rest[key]) for key in differing)])
                    counts[name] = (counts.get(name, (0,))[0] + 1, Series(name=name, arguments=rest))
                    break
        return [series for _count, series in sorted(counts.values(), key=lambda item: -item[0])]

    def _value(self, machine: Machine, arguments: Mapping[str, Any], x: float) -> float:
        found = measure(machine, self.benchmark, {**arguments, self.over: _whole(x)})[self.metric]
        return x / found if self.is_rate else found

    def _beside(self, machine: Machine, series: Series, known: Sequence[tuple[Row, Canonical]]) -> Iterable[Measurement]:
        own = self._own(machine, series)
        for row, arguments in known:
            rest = dict(arguments)
            x = rest.pop(self.over, None)
            if x is None or rest != own:
                continue
            measured = x / row.measured if self.is_rate else row.measured
            predicted = self._value(machine, series.arguments, x)
            yield Measurement(row=row.id, citation=row.citation, measured=measured, predicted=predicted, x=x)


def _whole(x: float) -> float | int:
    """Counts stay whole numbers."""
    return int(x) if float(x).is_integer() else x


def _words(key: str, value: Any) -> str:
    """An argument for people: shares in percent by tier, sizes in binary units."""
    if isinstance(value, Mapping):
        return ", ".join(f"{100 * share:.0f} % {name}" for name, share in value.items())
    shown = format_bytes(value) if isinstance(value, float) and value >= 1024 else str(value).lower()
    return f"{key.removeprefix('is_').replace('_', ' ')} {shown}"
