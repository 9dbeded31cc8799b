"""Comparison: a baseline against others, and what accounts for the difference.

The difference of two step times is split twice, each split summing to it: by stage (phase and kind of work of the
slowest rank) and by resource (who owns the seconds of the critical path).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.experiment import Result, run
from sim.metrics.stages import stages_s
from sim.scenario import Scenario
from sim.study.budget import Budget, budget_of

#: error of the ratio of two predictions of one model family on one kind of machine: what both get wrong alike cancels
#: (assumed until the sweeps of the validation set it; their ratios inside one publication)
SAME_FAMILY_RATIO_ERROR = 0.05
#: steps whose numbers of tokens differ by less are equal (they come from rounded times and rates)
_EQUAL_TOKENS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One column of a comparison. `stages_s` and `owners_s` are empty when only a summary is known."""

    name: str
    point: Mapping[str, Any]
    stages_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    owners_s: Mapping[str, float] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    power_w: float = 0.0
    family: str = ""

    @property
    def fits(self) -> bool:
        """Whether it fits its machine."""
        return bool(self.point.get("fits"))

    @property
    def seconds(self) -> float:
        """Step time, or time per output token; of a misfit, what it would be with more memory. NaN when unknown."""
        for key in ("step_time_s", "time_per_output_token_s", "step_time_if_it_fitted_s"):
            if self.point.get(key) is not None:
                return float(self.point[key])
        return math.nan

    @property
    def step_tokens(self) -> float:
        """Tokens of a training step; NaN of an answer, or when unknown (a misfit)."""
        seconds, rate = self.point.get("step_time_s"), self.point.get("tokens_per_s")
        return float(seconds * rate) if seconds is not None and rate is not None else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One bar of a waterfall: seconds in the baseline, in the other, and the difference."""

    name: str
    baseline_s: float
    other_s: float

    @property
    def difference_s(self) -> float:
        """Other minus baseline."""
        return self.other_s - self.baseline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One candidate against the baseline. `ratio` = its step time / the baseline's; `ratio_error` is that of the model.

    Where their steps train unequal numbers of tokens (`is_per_token`) `ratio` is that of the times per token. Stages and
    resources are those of whole steps always.
    """

    baseline: Candidate
    candidate: Candidate
    ratio: float
    ratio_error: float
    stages: tuple[Part, ...]
    resources: tuple[Part, ...]
    is_per_token: bool = False

    @property
    def is_within_model_error(self) -> bool:
        """True when the model cannot tell the two apart: the error of the ratio covers 1."""
        return abs(math.log(self.ratio)) <= math.log1p(self.ratio_error) if self.ratio > 0 else False

    @property
    def verdict(self) -> str:
        """``31 % less time``, ``2.1 x slower per token``, ``within model error``, ``does not fit``."""
        if not self.candidate.fits:
            return "does not fit"
        if math.isnan(self.ratio):
            return "unknown"
        of_what = " per token" if self.is_per_token else ""
        if self.is_within_model_error:
            return f"within model error{of_what}"
        if self.ratio >= 2 or self.ratio <= 0.5:
            return f"{max(self.ratio, 1 / self.ratio):.3g} x {'slower' if self.ratio > 1 else 'faster'}{of_what}"
        return f"{100 * abs(self.ratio - 1):.0f} % {'more' if self.ratio > 1 else 'less'} time{of_what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The first candidate is the baseline of all; or each has a baseline of its own (`is_paired`): the same point, changed."""

    baseline: Candidate
    differences: tuple[Difference, ...]
    is_paired: bool = False

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Baseline first; of pairs, only the candidates."""
        return (*(() if self.is_paired else (self.baseline,)), *(difference.candidate for difference in self.differences))

    def to_json(self) -> dict[str, Any]:
        """What ``tiersim compare --json`` prints: stable names, SI units."""
        return {
            "baseline": self.baseline.name,
            "candidates": [
                {
                    "name": candidate.name,
                    **candidate.point,
                    "power_w": candidate.power_w or None,
                    "budget": candidate.budget.to_json(),
                }
                for candidate in self.candidates
            ],
            "differences": [
                {
                    "name": difference.candidate.name,
                    "baseline": difference.baseline.name,
                    "baseline_s": None if math.isnan(difference.baseline.seconds) else difference.baseline.seconds,
                    "ratio": None if math.isnan(difference.ratio) else difference.ratio,
                    "ratio_error": difference.ratio_error,
                    "is_per_token": difference.is_per_token,
                    "verdict": difference.verdict,
                    "stages": [_part(part) for part in difference.stages],
                    "resources": [_part(part) for part in difference.resources],
                }
                for difference in self.differences
            ],
        }


def _part(part: Part) -> dict[str, Any]:
    return {"name": part.name, "baseline_s": part.baseline_s, "other_s": part.other_s, "difference_s": part.difference_s}


def candidate_of(scenario: Scenario, name: str, prices: Mapping[str, Any] | None = None) -> Candidate:
    """Run a scenario and keep what a comparison needs."""
    return candidate_from(run(scenario), name, prices)


def candidate_from(result: Result, name: str, prices: Mapping[str, Any] | None = None) -> Candidate:
    """What a comparison needs of a result."""
    budget = budget_of(result.scenario, result.summary.step_time_s, prices)
    return Candidate(
        name=name,
        point=result.point(),
        stages_s=stages_s(
            result.program, result.replay, stretch=result.inference.stretch(result.replay) if result.inference else None
        ),
        owners_s=result.summary.owners_s,
        budget=budget,
        power_w=budget.power_w,
        family=result.band.basis,
    )


def compare(candidates: Sequence[Candidate]) -> Comparison:
    """Compare candidates with the first of them."""
    baseline, *others = candidates
    return Comparison(baseline=baseline, differences=tuple(_difference(baseline, other) for other in others))


def compare_pairs(pairs: Sequence[tuple[Candidate, Candidate]]) -> Comparison:
    """Compare each candidate with the baseline beside it: (baseline, candidate)."""
    differences = tuple(_difference(baseline, other) for baseline, other in pairs)
    return Comparison(baseline=pairs[0][0], differences=differences, is_paired=True)


def _difference(baseline: Candidate, other: Candidate) -> Difference:
    ratio = other.seconds / baseline.seconds if baseline.seconds > 0 else math.nan
    tokens = other.step_tokens / baseline.step_tokens if baseline.step_tokens > 0 else math.nan
    is_per_token = not math.isnan(tokens) and not math.isclose(tokens, 1.0, rel_tol=_EQUAL_TOKENS)
    stages = _parts(
        {_stage_name(stage): seconds for stage, seconds in baseline.stages_s.items()} or _breakdown(baseline),
        {_stage_name(stage): seconds for stage, seconds in other.stages_s.items()} or _breakdown(other),
    )
    return Difference(
        baseline=baseline,
        candidate=other,
        ratio=ratio / tokens if is_per_token else ratio,
        ratio_error=ratio_error(baseline, other),
        stages=stages,
        resources=_parts(baseline.owners_s, other.owners_s),
        is_per_token=is_per_token,
    )


def _stage_name(stage: tuple[str, str]) -> str:
    phase, category = stage
    return f"{phase}: {category.replace('_', ' ')}" if phase else category.replace("_", " ")


def _breakdown(candidate: Candidate) -> dict[str, float]:
    parts = candidate.point.get("breakdown_s") or {}
    return {key.replace("_", " "): value for key, value in parts.items()}


def _parts(baseline: Mapping[str, float], other: Mapping[str, float]) -> tuple[Part, ...]:
    """Parts of both sides, the largest difference first; parts that are nothing in both are left out."""
    names = [name for name in dict.fromkeys((*baseline, *other)) if baseline.get(name) or other.get(name)]
    parts = [Part(name=name, baseline_s=baseline.get(name, 0.0), other_s=other.get(name, 0.0)) for name in names]
    return tuple(sorted(parts, key=lambda part: (-abs(part.difference_s), part.name)))


def ratio_error(one: Candidate, other: Candidate) -> float:
    """Relative error of the ratio of two predictions: of one family it mostly cancels, of two it adds up in quadrature."""
    bands = [_half_width(candidate) for candidate in (one, other)]
    if one.family and one.family == other.family:
        return min(SAME_FAMILY_RATIO_ERROR, max(bands))
    return math.hypot(*bands)


def _half_width(candidate: Candidate) -> float:
    band = candidate.point.get("uncertainty") or {}
    if "low_s" not in band or "high_s" not in band:
        return 0.2
    return float((band["high_s"] - band["low_s"]) / (band["high_s"] + band["low_s"]))
