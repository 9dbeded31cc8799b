"""Error statistics of predictions against measurements: pure functions of rows.

The error of a row is predicted / measured - 1. Families mix publications of very different length (a CSV of 400
all-reduce sizes beside one sentence of a paper), so every family statistic is weighted: a publication carries at most
`MAX_SHARE` of its family's weight, or an equal share where fewer than 1 / MAX_SHARE publications exist.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: no publication counts for more than this share of a family where others exist
MAX_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Weighted statistics of relative errors (fractions); `n` counts rows."""

    n: int
    median_abs_error: float
    p90_abs_error: float
    worst_abs_error: float
    bias: float  # weighted median of the signed error
    within_10: float  # share of the weight
    within_25: float
    unweighted_median_abs_error: float
    unweighted_p90_abs_error: float


def relative_error(predicted: float, measured: float) -> float:
    """Predicted / measured - 1; both > 0. Infinite when the prediction is not a positive number."""
    if measured <= 0 or not math.isfinite(measured):
        raise ValueError(f"a measured value must be positive, got {measured}")
    return predicted / measured - 1.0 if math.isfinite(predicted) else math.inf


def weighted_quantile(values: Sequence[float], weights: Sequence[float], q: float) -> float:
    """Smallest value such that at least a share `q` of the weight lies at or below it; NaN when empty.

    The median (q = 0.5) of equal weights and an even count is the mean of the middle two, as usual.
    """
    pairs = sorted((v, w) for v, w in zip(values, weights, strict=True) if w > 0)
    if not pairs:
        return math.nan
    total = math.fsum(w for _, w in pairs)
    target = q * total
    tolerance = 1e-12 * total
    cumulated = 0.0
    for index, (value, weight) in enumerate(pairs):
        cumulated += weight
        if cumulated > target + tolerance:
            return value
        if cumulated >= target - tolerance:  # exactly on the boundary: between this one and the next
            following = pairs[index + 1][0] if index + 1 < len(pairs) else value
            return (value + following) / 2 if q == 0.5 else value
    return pairs[-1][0]


def publication_weights(publications: Sequence[str], max_share: float = MAX_SHARE) -> list[float]:
    """Weight of each row of one family, summing to the number of rows.

    Rows weigh the same until their publication would exceed `max_share` of the total; the excess is spread over the
    other publications in proportion to their rows (water filling). With 1 / max_share publications or fewer each
    gets an equal share.
    """
    counts: dict[str, int] = defaultdict(int)
    for name in publications:
        counts[name] += 1
    if not counts:
        return []
    cap = max(max_share, 1.0 / len(counts))
    share = dict.fromkeys(counts, 0.0)
    free = set(counts)
    left = 1.0
    while free:
        rows = sum(counts[name] for name in free)
        over = {name for name in free if left * counts[name] / rows > cap + 1e-12}
        for name in over or free:
            share[name] = cap if over else left * counts[name] / rows
        left -= cap * len(over)
        free -= over or free
    total = len(publications)
    scale = sum(share.values())
    return [total * share[name] / scale / counts[name] for name in publications]


def summarise(errors: Sequence[float], weights: Sequence[float] | None = None) -> ErrorSummary:
    """Statistics of signed relative errors; `weights` default to 1 each."""
    weights = list(weights) if weights is not None else [1.0] * len(errors)
    magnitudes = [abs(e) for e in errors]
    ones = [1.0] * len(errors)
    total = math.fsum(weights) or math.nan

    def share(limit: float) -> float:
        return math.fsum(w for m, w in zip(magnitudes, weights, strict=True) if m <= limit) / total

    return ErrorSummary(
        n=len(errors),
        median_abs_error=weighted_quantile(magnitudes, weights, 0.5),
        p90_abs_error=weighted_quantile(magnitudes, weights, 0.9),
        worst_abs_error=max(magnitudes, default=math.nan),
        bias=weighted_quantile(errors, weights, 0.5),
        within_10=share(0.10),
        within_25=share(0.25),
        unweighted_median_abs_error=weighted_quantile(magnitudes, ones, 0.5),
        unweighted_p90_abs_error=weighted_quantile(magnitudes, ones, 0.9),
    )


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Spearman's rank correlation with mean ranks for ties; NaN when either side is constant or shorter than 3."""
    if len(predicted) < 3:
        return math.nan
    left, right = _ranks(predicted), _ranks(measured)
    mean = (len(left) + 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(left, right, strict=True))
    spread = math.sqrt(sum((x - mean) ** 2 for x in left) * sum((y - mean) ** 2 for y in right))
    return covariance / spread if spread > 0 else math.nan


def ratio_errors(predicted: Sequence[float], measured: Sequence[float]) -> list[float]:
    """Errors of the ratios inside one sweep: each point relative to the sweep's first, predicted over measured - 1.

    A constant factor common to all points cancels: this is the error of a slowdown or a speed-up.
    """
    if not predicted:
        return []
    return [
        (p / predicted[0]) / (m / measured[0]) - 1.0
        for p, m in zip(predicted[1:], measured[1:], strict=True)
        if predicted[0] > 0
    ]


def confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts of (measured, predicted) verdicts: measured -> predicted -> count."""
    table: dict[str, dict[str, int]] = {}
    for measured, predicted in pairs:
        row = table.setdefault(measured, {})
        row[predicted] = row.get(predicted, 0) + 1
    return table


def accuracy(table: Mapping[str, Mapping[str, int]]) -> float:
    """Share of verdicts that agree; NaN for an empty table."""
    total = sum(sum(row.values()) for row in table.values())
    return sum(row.get(name, 0) for name, row in table.items()) / total if total else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop + 1 < len(order) and values[order[stop + 1]] == values[order[start]]:
            stop += 1
        for position in range(start, stop + 1):
            ranks[order[position]] = (start + stop) / 2 + 1
        start = stop + 1
    return ranks
