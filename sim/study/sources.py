"""What a comparison or a report can be given: scenarios by name or path, results folders, summaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sim.config.prices import load_prices
from sim.config.scenario_file import ScenarioFile, load_scenario
from sim.config.sweep import Assignment, label_of
from sim.errors import Fault, InputError
from sim.report.findings import short_value
from sim.study.compare import Candidate, candidate_of
from sim.study.names import short_names

SUMMARY = "summary.json"
MAX_CANDIDATES = 24


def candidates_from(source: str, prices: Mapping[str, Any] | None = None, *, is_alone: bool = False) -> list[Candidate]:
    """The candidates of one argument: of a scenario its points, run now; of a results folder or summary, as stored.

    With `is_alone` the points of a sweep go without the name of their scenario.
    Raises InputError if it is neither, or stands for more than :data:`MAX_CANDIDATES` points.
    """
    path = Path(source)
    if path.is_dir() or path.name == SUMMARY:
        return _stored(path / SUMMARY if path.is_dir() else path, is_alone=is_alone)
    file = load_scenario(source)
    return [
        candidate_of(file.resolve(point.overlay, point.parameters), name, prices or prices_of(file))
        for name, point in _named(file, is_alone=is_alone)
    ]


def pairs_from(file: ScenarioFile, prices: Mapping[str, Any] | None = None) -> list[tuple[Candidate, Candidate]]:
    """Every point of the file beside the same point under its ``compare: {baseline: {path: value}}``; [] without the block."""
    overlay = file.compare.get("baseline")
    if overlay is None:
        return []
    if not isinstance(overlay, Mapping):
        raise InputError(
            Fault(what=f"expected {{path: value}}, got {overlay!r}", file=file.document.file, path="compare.baseline")
        )
    shown = ", ".join(f"{name} {label_of(overlay[path])}" for path, name in short_names(overlay).items())
    money = prices or prices_of(file)
    pairs = []
    for name, point in _named(file, is_alone=True):
        base = candidate_of(file.resolve({**point.overlay, **overlay}), f"baseline ({shown})", money)
        pairs.append((base, candidate_of(file.resolve(point.overlay, point.parameters), name, money)))
    return pairs


def prices_of(file: ScenarioFile) -> dict[str, Any] | None:
    """The price overlay that a scenario names."""
    return load_prices(file.prices, Path(file.document.file).parent) if file.prices else None


def _named(file: ScenarioFile, *, is_alone: bool) -> Iterator[tuple[str, Assignment]]:
    plan = file.plan
    if plan is None:
        yield file.name, Assignment({}, {})
        return
    points = list(plan)
    if len(points) > MAX_CANDIDATES:
        what = f"{file.name} has {len(points)} points, a comparison shows at most {MAX_CANDIDATES}"
        raise InputError(Fault(what=what, remedy="narrow the sweep, or look at points.csv"))
    for point in points:
        yield name_of("" if is_alone else file.name, point.parameters), point


def name_of(scenario: str, parameters: Mapping[str, object]) -> str:
    """``cxl-expander: lanes 16, batch size 8``; the scenario alone when nothing is swept; "" leaves it out."""
    if not parameters:
        return scenario
    short = short_names(parameters)
    shown = ", ".join(
        str(value) if path == "topology" else f"{short[path]} {short_value(value)}" for path, value in parameters.items()
    )
    return f"{scenario}: {shown}" if scenario else shown


def read_summary(path: Path) -> dict[str, Any]:
    """A summary.json. Raises InputError for anything else."""
    try:
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(
            Fault(what=f"no results: {reason}", file=str(path), remedy="give a folder that `tiersim run` wrote")
        ) from None
    except msgspec.DecodeError as error:
        raise InputError(
            Fault(what=f"not a summary: {error}", file=str(path), remedy="give a file that `tiersim run` wrote")
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("points"), list) or not isinstance(found.get("scenario"), str):
        raise InputError(
            Fault(what="not a summary: no scenario and points", file=str(path), remedy="give a file that `tiersim run` wrote")
        )
    return found


def _stored(path: Path, *, is_alone: bool) -> list[Candidate]:
    summary = read_summary(path)
    points = summary["points"]
    if len(points) > MAX_CANDIDATES:
        what = f"{len(points)} points, a comparison shows at most {MAX_CANDIDATES}"
        raise InputError(Fault(what=what, file=str(path), remedy="narrow the sweep, or look at points.csv"))
    owners = summary.get("critical_path_s", {}) if len(points) == 1 else {}
    return [
        Candidate(
            name=name_of("" if is_alone and len(points) > 1 else summary["scenario"], point.get("parameters", {})),
            point=point,
            owners_s=owners,
            family=str((point.get("uncertainty") or {}).get("basis", "")),
        )
        for point in points
    ]
