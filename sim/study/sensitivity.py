"""What each resource is worth: two-sided runs around the machine as it is, and where a resource stops binding.

A resource is scaled in the simulation, past the lint, so that 10 % more PCIe is a question one may ask. The answer is
about the model at this point; a step that gets slower with more of something is possible (a scheduling anomaly) and is
reported as such.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from sim.config.scenario_file import ScenarioFile
from sim.config.sweep import Assignment
from sim.experiment import run
from sim.study.pool import Backend, Chunk, Point, Serial
from sim.study.store import Outcome
from sim.topology.scaling import Knob, knobs, scaled

DEFAULT_STEP = 0.1
#: changes below this share of the step are rounding
_NOISE = 1e-9
#: factors of the scan for break-evens: 1/64 to 64 in steps of the square root of two
_SCAN = tuple(2.0 ** (k / 2) for k in range(-12, 13))
#: a resource no longer binds when the step is within this share of what an unlimited one would give
FREE_SHARE = 0.01
_SECTIONS = 8
Progress = Callable[[int, int], None]
#: (knob name, factor) -> (seconds, fits)
Answers = Mapping[tuple[str, float], tuple[float, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Where a resource stops binding. `factor` times what the machine has; None when no scanned factor is enough.

    Of a bandwidth or compute: from there on the step is within 1 % of its limit. Of a capacity: from there on it fits.
    """

    factor: float | None
    is_single: bool = True  # False: the scan crossed the limit several times; `factor` is beyond the last crossing


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """One resource. `low`, `high` and `double` are changes of the step time, as shares of it."""

    knob: Knob
    low: float
    high: float
    double: float
    fits_low: bool
    fits_high: bool
    elasticity: float  # d ln(step time) / d ln(resource)
    break_even: BreakEven | None = None

    @property
    def is_monotone(self) -> bool:
        """False when less and more of it both make the step slower, or both faster."""
        return not (self.low > _NOISE and self.high > _NOISE) and not (self.low < -_NOISE and self.high < -_NOISE)

    @property
    def reach(self) -> float:
        """The larger of the two changes: the length of its bar in a tornado."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class SensitivityStudy:
    """All resources of one scenario, the most valuable first."""

    scenario: str
    step_time_s: float
    fits: bool
    step: float
    rows: tuple[Sensitivity, ...]

    @cached_property
    def finding(self) -> str:
        """``doubling cpu0.dram bandwidth: -31 %; cpu0<->gpu*.pcie bandwidth: -2 %``."""
        best = sorted((row for row in self.rows if row.knob.quantity != "latency"), key=lambda row: row.double)[:3]
        said = [f"{row.knob.name} {100 * row.double:+.0f} %" for row in best if row.double < -0.005]
        return f"doubling {', '.join(said)}" if said else "no single resource is worth doubling"

    def to_json(self) -> dict[str, object]:
        """What ``tiersim sensitivity --json`` prints."""
        return {
            "scenario": self.scenario,
            "step_time_s": self.step_time_s,
            "fits": self.fits,
            "step": self.step,
            "resources": [
                {
                    "name": row.knob.name,
                    "quantity": row.knob.quantity,
                    "value": row.knob.value,
                    "low": row.low,
                    "high": row.high,
                    "double": row.double,
                    "elasticity": row.elasticity,
                    "is_monotone": row.is_monotone,
                    "fits_low": row.fits_low,
                    "fits_high": row.fits_high,
                    "break_even": None if row.break_even is None else dataclasses.asdict(row.break_even),
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True, slots=True)
class ScaledWork:
    """Runs a scenario with one knob scaled; a worker's share of a sensitivity. Picklable."""

    file: ScenarioFile
    overlay: Mapping[str, object]

    def __call__(self, chunk: Chunk) -> list[Outcome]:
        """Outcomes of the chunk; errors are raised: a scaled machine has no right to fail."""
        scenario = self.file.resolve(dict(self.overlay))
        by_name = {knob.name: knob for knob in knobs(scenario.machine)}
        outcomes = []
        for position, point in chunk:
            started = time.perf_counter()
            factor = float(str(point.parameters["factor"]))
            machine = scenario.machine
            if factor != 1.0:
                machine = scaled(machine, by_name[str(point.parameters["knob"])], factor)
            result = run(dataclasses.replace(scenario, machine=machine), with_penalty=False)
            times = result.inference
            seconds = times.total_s if times else result.summary.step_time_s
            outcomes.append(
                Outcome(
                    position=position,
                    key="",
                    status="fits" if result.fits else "does_not_fit",
                    parameters=dict(point.parameters),
                    point=msgspec.json.encode({"seconds": seconds}),
                    seconds=time.perf_counter() - started,
                )
            )
        return outcomes

    def lost(self, point: Point, reason: str) -> Outcome:
        """A worker that died twice on the same factor."""
        raise RuntimeError(f"{point[1].parameters}: {reason}")


def sensitivity(
    file: ScenarioFile,
    overlay: Mapping[str, object] | None = None,
    *,
    step: float = DEFAULT_STEP,
    with_break_even: bool = False,
    backend: Backend | None = None,
    on_progress: Progress | None = None,
) -> SensitivityStudy:
    """Scale every resource of the scenario down and up by `step`, and to its double; sort by what it is worth.

    `with_break_even` also scans factors from 1/64 to 64 and refines the crossing to 0.5 %.
    """
    work = ScaledWork(file, overlay or {})
    runner = _Runner(work, backend or Serial(), on_progress)
    scenario = file.resolve(dict(overlay or {}))
    found = knobs(scenario.machine)
    factors = (1 - step, 1 + step, 2.0, *(_SCAN if with_break_even else ()))
    runner.ask([("", 1.0), *((knob.name, factor) for knob in found for factor in factors if _is_asked(knob, factor))])
    base_s, fits = runner.answers["", 1.0]
    edges = _break_evens(found, runner) if with_break_even else {}
    rows = [_row(knob, runner.answers, base_s, step, edges.get(knob.name)) for knob in found]
    rows.sort(key=lambda row: (-row.reach, row.knob.name))
    return SensitivityStudy(file.name, base_s, fits, step, tuple(rows))


def _is_asked(knob: Knob, factor: float) -> bool:
    """Latencies have no break-even scan: they matter or they do not."""
    return knob.quantity != "latency" or factor not in _SCAN or factor == 2.0


class _Runner:
    """Asks for (knob, factor) pairs, each once."""

    def __init__(self, work: ScaledWork, backend: Backend, on_progress: Progress | None) -> None:
        self.work, self.backend, self.on_progress = work, backend, on_progress
        self.answers: dict[tuple[str, float], tuple[float, bool]] = {}

    def ask(self, pairs: Iterable[tuple[str, float]]) -> None:
        wanted = [pair for pair in dict.fromkeys(pairs) if pair not in self.answers and (pair[1] != 1.0 or not pair[0])]
        points: list[Point] = [
            (index, Assignment({"knob": name, "factor": factor}, {})) for index, (name, factor) in enumerate(wanted)
        ]
        size = max(1, min(16, len(points) // (4 * max(1, self.backend.num_workers))))
        chunks = (points[start : start + size] for start in range(0, len(points), size))
        done = 0
        for outcomes in self.backend.run(self.work, chunks, self.work.lost):
            for outcome in outcomes:
                name, factor = wanted[outcome.position]
                self.answers[name, factor] = msgspec.json.decode(outcome.point)["seconds"], outcome.status == "fits"
            done += len(outcomes)
            if self.on_progress:
                self.on_progress(done, len(points))

    def at(self, name: str, factor: float) -> tuple[float, bool]:
        return self.answers["", 1.0] if factor == 1.0 else self.answers[name, factor]


def _row(knob: Knob, answers: Answers, base_s: float, step: float, edge: BreakEven | None) -> Sensitivity:
    low_s, fits_low = answers[knob.name, 1 - step]
    high_s, fits_high = answers[knob.name, 1 + step]
    double_s, _ = answers[knob.name, 2.0]
    return Sensitivity(
        knob=knob,
        low=low_s / base_s - 1,
        high=high_s / base_s - 1,
        double=double_s / base_s - 1,
        fits_low=fits_low,
        fits_high=fits_high,
        elasticity=(high_s - low_s) / (2 * step * base_s),
        break_even=edge,
    )


def _break_evens(found: Sequence[Knob], runner: _Runner) -> dict[str, BreakEven]:
    """Scan, then refine every bracket in two rounds of equal sections (in the logarithm of the factor)."""
    brackets: dict[str, tuple[float, float]] = {}
    edges: dict[str, BreakEven] = {}
    for knob in found:
        if knob.quantity == "latency":
            continue
        free = [_is_free(knob, runner, factor) for factor in _SCAN]
        if not free[-1]:
            edges[knob.name] = BreakEven(factor=None)
            continue
        first = next((index + 1 for index in range(len(free) - 1, -1, -1) if not free[index]), 0)
        edges[knob.name] = BreakEven(factor=_SCAN[first], is_single=not any(free[:first]))
        if first > 0:
            brackets[knob.name] = (_SCAN[first - 1], _SCAN[first])
    by_name = {knob.name: knob for knob in found}
    for _ in range(2):
        sections = {name: _sections(*bracket) for name, bracket in brackets.items()}
        runner.ask((name, factor) for name, factors in sections.items() for factor in factors)
        for name, factors in sections.items():
            low, high = brackets[name]
            tried = [low, *factors, high]
            last = max(i for i, factor in enumerate(tried[:-1]) if i == 0 or not _is_free(by_name[name], runner, factor))
            brackets[name] = (tried[last], tried[last + 1])
            edges[name] = dataclasses.replace(edges[name], factor=tried[last + 1])
    return edges


def _sections(low: float, high: float) -> list[float]:
    return [low * (high / low) ** (k / _SECTIONS) for k in range(1, _SECTIONS)]


def _is_free(knob: Knob, runner: _Runner, factor: float) -> bool:
    seconds, fits = runner.at(knob.name, factor)
    if knob.quantity == "capacity":
        return fits
    limit_s, _ = runner.at(knob.name, _SCAN[-1])
    return seconds <= limit_s * (1 + FREE_SHARE)
