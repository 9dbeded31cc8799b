"""Scenario files with a `measured:` block as validation rows: what their author measured, without a table of its own."""

from __future__ import annotations

from typing import Any

from sim.config import Document
from sim.config.overlay import overlaid
from sim.config.scenario_file import ScenarioFile, scenario_from
from sim.errors import InputError
from sim.records import Measured
from sim.scenario import Scenario
from sim.study.measured import is_at
from sim.study.validation_rows import Row, family_of
from sim.workload.training import Training

#: keys of a file that are no inputs of a run
_ASIDE = ("name", "question", "measured", "claim", "sweep", "search", "compare", "prices", "assumptions")
#: keys by which a scenario is told from a table
_WORK = frozenset({"measured", "topology", "workload", "training", "inference", "jobs"})


def is_scenario(document: Document) -> bool:
    """Whether the file is a scenario, not a table of measurements."""
    return "tables" not in document.data and not _WORK.isdisjoint(document.data)


def rows_of_scenario(document: Document) -> list[Row]:
    """A row per entry of `measured:`, at the first point of the sweep where its `at` holds; values of zero are left out.

    Raises InputError with the faults of the scenario, or if no point is there, for several jobs, or without any entry.
    """
    file = scenario_from(document)
    if not file.measured:
        remedy = "add measured: [{metric: step_time, value: 1.9 s, source: own run}]"
        raise InputError(document.fault((), "a scenario without measured values", remedy))
    if "jobs" in document.data:
        raise InputError(document.fault(("jobs",), "a measured value of several jobs names none of them", "use workload:"))
    entries = [(index, entry) for index, entry in enumerate(file.measured) if entry.value]
    return [_row(file, index, entry) for index, entry in entries]


def _row(file: ScenarioFile, index: int, entry: Measured) -> Row:
    document = file.document
    overlay: dict[str, Any] = {}
    if (plan := file.plan) is not None:
        point = next((point for point in plan if is_at(point.parameters, entry.at)), None)
        if point is None:
            asked = ", ".join(f"{key} {value}" for key, value in entry.at.items())
            what = f"the sweep has no point at {asked}" if asked else "the sweep has no point"
            raise InputError(document.fault(("measured", index, "at"), what, "name swept values; `skip` leaves points out"))
        overlay = dict(point.overlay)
    inputs = {key: value for key, value in overlaid(document.data, overlay).items() if key not in _ASIDE}
    return Row(
        id=f"{file.name}/measured/{index}.{entry.metric}",
        family=family_of(entry.metric, _family(file.resolve(overlay))),
        publication=file.name,
        document=entry.source,
        metric=entry.metric,
        measured=entry.value,
        unit=entry.unit or "1",
        kind="scenario",
        inputs=inputs,
        assumptions=file.assumptions,
        file=document.file,
    )


def _family(scenario: Scenario) -> str:
    """The family of the times that a scenario's job takes."""
    workload = scenario.job.workload
    if not isinstance(workload, Training):
        return "inference"
    if any(tier != "gpu" for entry in scenario.job.placement.entries for tier in entry.shares):
        return "training_offload"
    return "training_moe" if workload.model.experts else "training_no_offload"
