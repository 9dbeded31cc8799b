"""What a sweep's results say besides its points: the question, the machines, what was assumed, warnings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sim.config.scenario_file import ScenarioFile
from sim.config.sweep import Assignment
from sim.errors import TiersimError
from sim.experiment import prepare
from sim.scenario import Scenario
from sim.study.sources import name_of

#: machines that are looked at; a sweep over more says how many it leaves out
_MAX_MACHINES = 24
_MAX_POINTS = 10_000


def head_of(file: ScenarioFile) -> dict[str, Any]:
    """Head of a sweep's summary: names of the machines, assumptions of all of them and of the first point's step."""
    scenarios = list(_one_per_machine(file))
    machines = [scenario.machine for scenario in scenarios]
    names = list(dict.fromkeys(machine.name for machine in machines))
    more = [f"the first {_MAX_MACHINES} machines of the sweep"] if len(machines) == _MAX_MACHINES else []
    prefix = {id(machine): f"{machine.name}: " if len(names) > 1 else "" for machine in machines}
    assumed = [prefix[id(machine)] + text for machine in machines for text in machine.assumptions]
    warnings = [prefix[id(machine)] + text for machine in machines for text in machine.warnings]
    return {
        "scenario": file.name,
        "question": file.question,
        "machine": ", ".join([*names, *more]) + _swept(file),
        "assumptions": list(dict.fromkeys([*file.assumptions, *assumed, *_notes(scenarios)])),
        "warnings": list(dict.fromkeys(warnings)),
    }


def only_machine(file: ScenarioFile) -> tuple[Scenario, str] | None:
    """The first point, if all points run on one machine, and what to say of it where some of its numbers are swept."""
    scenarios = list(_one_per_machine(file))
    if len({scenario.machine.name for scenario in scenarios}) != 1:
        return None
    first = scenarios[0]
    return first, f"the first point, {name_of('', first.parameters)}" if len(scenarios) > 1 else ""


def _swept(file: ScenarioFile) -> str:
    """The parts of the machine that the sweep changes by their paths, in words; "" for none."""
    points = islice(file.plan or (), 1)
    paths = [path.removeprefix("topology.") for point in points for path in point.parameters if path.startswith("topology.")]
    return f"; the sweep changes {', '.join(paths)}" if paths else ""


def _one_per_machine(file: ScenarioFile) -> Iterator[Scenario]:
    """A scenario for each machine of the sweep, as far as it can be resolved."""
    seen: set[str] = set()
    for point in islice(file.plan or (Assignment({}, {}),), _MAX_POINTS):
        swept = {path: value for path, value in point.overlay.items() if path.split(".")[0] in ("topology", "jobs")}
        if repr(swept) in seen:
            continue
        seen.add(repr(swept))
        try:
            yield file.resolve(point.overlay, point.parameters)
        except TiersimError:
            continue  # the point is a row with this reason
        if len(seen) >= _MAX_MACHINES:
            return


def _notes(scenarios: list[Scenario]) -> tuple[str, ...]:
    """What the first step that can be written assumes."""
    for scenario in scenarios:
        if len(scenario.jobs) == 1:
            try:
                return prepare(scenario)[0].notes
            except TiersimError:
                continue
    return ()
