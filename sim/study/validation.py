"""Predicted against measured: run validation rows on the local processes and sum up the errors.

One run answers all measured values of a table row. Rows that cannot be predicted are kept with their reason:
a field missing in the source, data that is not trusted, or inputs that the simulator refuses.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from sim.engine import load_compiled
from sim.errors import TiersimError
from sim.held_out import hold_out
from sim.metrics.errors import (
    ErrorSummary,
    accuracy,
    confusion,
    publication_weights,
    rank_correlation,
    ratio_errors,
    relative_error,
    summarise,
)
from sim.study.pool import without_interrupts
from sim.study.validation_predict import Prediction, predict
from sim.study.validation_rows import FAMILIES, Row

_CHUNK = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One row and what was predicted for it; `error` is signed, predicted / measured - 1 (verdicts: 0 right, 1 wrong)."""

    row: Row
    predicted: Prediction
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """One row without a prediction. `kind`: missing (a field of the source), doubtful (its data), refused (by us)."""

    row: Row
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Rows that differ in one knob: do they rank, and do their ratios to the first agree?"""

    name: str
    family: str
    n: int
    rank_correlation: float
    ratio_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a validation run found."""

    outcomes: tuple[Outcome, ...]
    skipped: tuple[Skipped, ...]
    overall: ErrorSummary
    families: Mapping[str, ErrorSummary]
    sweeps: tuple[Sweep, ...]
    verdicts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def ratio_median(self) -> float:
        """Median |error| of the ratios inside all sweeps."""
        return summarise([error for sweep in self.sweeps for error in sweep.ratio_errors]).median_abs_error


def run_rows(
    rows: Sequence[Row],
    *,
    num_workers: int = 0,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    held_out: Iterable[str] = (),
) -> Report:
    """Predict all rows (on `num_workers` processes, default one per CPU; 1 = in this process) and sum up.

    Constants that were fitted on the tables `held_out` are replaced by what one would assume without them.
    """
    skipped = [Skipped(row=row, kind=kind, reason=text) for row in rows for kind, text in [_excuse(row)] if text]
    wanted = [row for row in rows if not _excuse(row)[1]]
    groups: dict[str, list[Row]] = {}
    for row in wanted:
        groups.setdefault(row.run_key, []).append(row)
    outcomes: list[Outcome] = []
    total, done = len(groups), 0
    for results in _chunks_run(list(groups.values()), num_workers or _usable_cpus(), tuple(held_out)):
        for group, found in results:
            done += 1
            for row in group:
                if isinstance(found, str):
                    skipped.append(Skipped(row=row, kind="refused", reason=found))
                else:
                    outcomes.append(_outcome(row, found[row.metric]))
            on_progress(done, total)
    order = {row.id: index for index, row in enumerate(rows)}
    outcomes.sort(key=lambda outcome: order[outcome.row.id])
    skipped.sort(key=lambda item: order[item.row.id])
    return report_of(outcomes, skipped)


def left_out(
    rows: Sequence[Row], *, num_workers: int = 0, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Report:
    """Predict each family with constants that were fitted without its own tables: the error on what was never seen."""
    parts = []
    for family in FAMILIES:
        mine = [row for row in rows if row.family == family]
        if mine:
            tables = sorted({row.table for row in mine})
            parts.append(run_rows(mine, num_workers=num_workers, held_out=tables))
            on_progress(sum(len(part.outcomes) + len(part.skipped) for part in parts), len(rows))
    return report_of([o for part in parts for o in part.outcomes], [s for part in parts for s in part.skipped])


def report_of(outcomes: Sequence[Outcome], skipped: Sequence[Skipped] = ()) -> Report:
    """Statistics of outcomes; pure."""
    numeric = [outcome for outcome in outcomes if not outcome.row.verdict]
    families: dict[str, ErrorSummary] = {}
    all_errors: list[float] = []
    all_weights: list[float] = []
    for family in FAMILIES:
        mine = [outcome for outcome in outcomes if outcome.row.family == family]
        if not mine:
            continue
        weights = publication_weights([outcome.row.publication for outcome in mine])
        errors = [outcome.error for outcome in mine]
        families[family] = summarise(errors, weights)
        if family != "fit_verdict":
            all_errors += errors
            all_weights += weights
    pairs = [(outcome.row.verdict, _as_published(outcome)) for outcome in outcomes if outcome.row.verdict]
    return Report(
        outcomes=tuple(outcomes),
        skipped=tuple(skipped),
        overall=summarise(all_errors, all_weights),
        families=families,
        sweeps=tuple(_sweeps(numeric)),
        verdicts=confusion(pairs),
    )


def verdict_accuracy(report: Report) -> float:
    """Share of fit verdicts that agree ("tight" counts as fits)."""
    return accuracy(report.verdicts)


def _excuse(row: Row) -> tuple[str, str]:
    if row.missing:
        return "missing", f"the source lacks: {row.missing}"
    return ("doubtful", f"doubtful data: {row.doubtful}") if row.doubtful else ("", "")


def _outcome(row: Row, predicted: Prediction) -> Outcome:
    if row.verdict:
        agrees = (row.verdict == "does_not_fit") == (predicted == "does_not_fit")
        return Outcome(row=row, predicted=predicted, error=0.0 if agrees else 1.0)
    assert isinstance(predicted, float | int)
    return Outcome(row=row, predicted=float(predicted), error=relative_error(float(predicted), row.measured))


def _as_published(outcome: Outcome) -> str:
    """A prediction in the words of publications, which know no "tight"."""
    return "does_not_fit" if outcome.predicted == "does_not_fit" else "fits"


def _sweeps(outcomes: Sequence[Outcome]) -> Iterator[Sweep]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.row.sweep and math.isfinite(outcome.error):
            groups.setdefault(outcome.row.sweep, []).append(outcome)
    for name, group in groups.items():
        if len(group) < 2:
            continue
        predicted = [float(outcome.predicted) for outcome in group]
        measured = [outcome.row.measured for outcome in group]
        yield Sweep(
            name=name,
            family=group[0].row.family,
            n=len(group),
            rank_correlation=rank_correlation(predicted, measured),
            ratio_errors=tuple(ratio_errors(predicted, measured)),
        )


# ------------------------------------------------------------------------------------------------------------- running

_Found = dict[str, Prediction] | str


def _chunks_run(
    groups: Sequence[list[Row]], num_workers: int, held_out: tuple[str, ...]
) -> Iterator[list[tuple[list[Row], _Found]]]:
    chunks = [groups[start : start + _CHUNK] for start in range(0, len(groups), _CHUNK)]
    # what is held out is chosen before anything is loaded: in fresh processes
    if not held_out and (num_workers <= 1 or len(chunks) <= 1):
        _prepare(held_out)
        yield from map(_run_chunk, chunks)
        return
    workers, context = max(1, min(num_workers, len(chunks))), get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare, initargs=(held_out,)) as pool:
        with without_interrupts():
            futures = [pool.submit(_run_chunk, chunk) for chunk in chunks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _prepare(held_out: tuple[str, ...]) -> None:
    hold_out(held_out)
    load_compiled()


def _run_chunk(chunk: Iterable[list[Row]]) -> list[tuple[list[Row], _Found]]:
    return [(group, _run_group(group)) for group in chunk]


def _run_group(group: Sequence[Row]) -> _Found:
    first = group[0]
    try:
        return predict(first.kind, first.inputs, dict.fromkeys(row.metric for row in group), file=first.file)
    except TiersimError as error:
        return f"{type(error).__name__}: {' | '.join(str(error).splitlines()[:3])}"


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
