"""What a scenario's `measured:` block says beside what its run predicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.experiment import Result
from sim.records import Measured
from sim.study.validation_predict import metric_of_result


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One measured value (SI) and the prediction for it; `error` is predicted / measured - 1."""

    entry: Measured
    predicted: float

    @property
    def error(self) -> float:
        """Signed share of the measured value."""
        return self.predicted / self.entry.value - 1.0

    def to_json(self) -> dict[str, Any]:
        """``{"metric", "measured", "predicted", "error", "within_tolerance", "source"}``, in SI."""
        entry = self.entry
        within = abs(self.error) <= entry.tolerance if entry.tolerance else None
        return {
            "metric": entry.metric, "measured": entry.value, "predicted": self.predicted, "error": self.error,
            "within_tolerance": within, "source": entry.source,
        }  # fmt: skip


def beside(result: Result) -> tuple[Beside, ...]:
    """The entries of a single run, each with its prediction.

    Values of zero have no error and are left out. Raises InputError for a metric that this workload does not have.
    """
    entries = [entry for entry in result.scenario.measured if entry.value]
    return tuple(Beside(entry=entry, predicted=metric_of_result(result, entry.metric)) for entry in entries)


def beside_points(entries: Sequence[Measured], points: Iterable[Mapping[str, Any]]) -> tuple[Beside, ...]:
    """The entries of a sweep, each beside the first point at its `at`; metrics that points don't keep are left out."""
    wanted = [entry for entry in entries if entry.value and entry.at]
    found: dict[int, Beside] = {}
    for point in points if wanted else ():
        for index, entry in enumerate(wanted):
            predicted = point.get(entry.metric, point.get(f"{entry.metric}_s"))
            if index not in found and predicted is not None and is_at(point["parameters"], entry.at):
                found[index] = Beside(entry=entry, predicted=float(predicted))
    return tuple(found[index] for index in sorted(found))


def is_at(parameters: Mapping[str, object], at: Mapping[str, object]) -> bool:
    """Whether a point of a sweep is the one that `at` names, by swept paths or their ends (`batch_size`)."""
    return all(
        any((path == key or path.endswith(f".{key}")) and value == asked for path, value in parameters.items())
        for key, asked in at.items()
    )
