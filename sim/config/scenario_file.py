"""Scenario files: YAML in, resolved `Scenario` objects out, with every fault of a file at once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.config.job_faults import job_faults
from sim.config.jobs_block import jobs_from
from sim.config.locate import locate
from sim.config.measured_block import claim_from, measured_from
from sim.config.overlay import overlaid
from sim.config.scenario_keys import (
    KEYS,
    check_study_keys,
    name_of,
    question_of,
    refuse_aside,
    refuse_other_kinds,
    stated_assumptions,
)
from sim.config.short_form import on_all_gpus, written_out
from sim.config.sweep import Assignment, Sweep, parse_sweep
from sim.config.topology_block import machine_from_block
from sim.config.validation import FaultList, refuse_unknown, validate
from sim.config.yaml_source import Document, NodePath, read_yaml
from sim.errors import Fault, InputError
from sim.records import Measured
from sim.scenario import Job, Options, Scenario
from sim.topology.machine import Machine
from sim.workload.inference import Inference


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    """A scenario file that was read: its blocks, and the scenarios that it stands for.

    `sweep`, `compare`, `search` and `prices` are as written; `assumptions` are what the file states or what its short form
    leaves open.
    """

    document: Document
    name: str
    question: str = ""
    sweep: Mapping[str, Any] = field(default_factory=dict)
    compare: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    prices: str = ""
    measured: tuple[Measured, ...] = ()
    claim: Mapping[str, object] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    #: the scenario as written, resolved once when the file is read
    _whole: list[Scenario] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def plan(self) -> Sweep | None:
        """The parsed sweep; None when the file has none. Raises InputError with the faults of the block."""
        if not self.sweep:
            return None
        try:
            return parse_sweep(self.sweep, self.document.data, is_searched=bool(self.search))
        except InputError as error:
            raise InputError([_placed(fault, self.document) for fault in error.faults]) from None

    @property
    def first_overlay(self) -> Mapping[str, object]:
        """The first point of the sweep: a file whose sweep provides what its body leaves open is complete."""
        plan = self.plan
        with self.places_faults():
            first = next(iter(plan), None) if plan is not None else None
        return first.overlay if first is not None else {}

    def resolve(self, overlay: Mapping[str, object] | None = None, parameters: Mapping[str, object] | None = None) -> Scenario:
        """The scenario with every path of `overlay` set; `parameters` names the point (default: the overlay itself).

        Raises InputError with every fault of the point.
        """
        if not overlay and not parameters and self._whole:
            return self._whole[0]
        document = _overlaid(self.document, overlay or {})
        faults = FaultList()
        machine: Machine | None = None
        jobs: tuple[Job, ...] = ()
        options = Options()
        with faults.collect():
            machine = machine_from_block(document.data.get("topology"), document, ("topology",))
        with faults.collect():
            jobs = jobs_from(on_all_gpus(document, machine))
        with faults.collect():
            if "options" in document.data:
                options = validate(Options, document.data["options"], document, ("options",))
        if machine is not None:
            if any(isinstance(job.workload, Inference) for job in jobs):
                from sim.config.inference_jobs import settled

                jobs = tuple(settled(job, machine) for job in jobs)
            faults += job_faults(machine, jobs, document)
        faults.stop()
        assert machine is not None
        scenario = Scenario(
            name=self.name,
            machine=machine,
            jobs=jobs,
            options=options,
            measured=self.measured,
            parameters=dict(parameters if parameters is not None else overlay or {}),
            claim=self.claim,
            question=self.question,
            assumptions=self.assumptions,
        )
        if not overlay and not parameters:
            self._whole.append(scenario)
        return scenario

    @contextmanager
    def places_faults(self) -> Iterator[None]:
        """Faults that only show in a run get this file, and the line of the nearest key that it writes."""
        try:
            yield
        except InputError as error:
            raise type(error)([self._placed(fault) for fault in error.faults]) from None

    def _placed(self, fault: Fault) -> Fault:
        if fault.file:
            return fault
        path: NodePath = tuple(fault.path.split("[")[0].split(".")) if fault.path else ()
        return dataclasses.replace(fault, file=self.document.file, line=self.document.line(path))

    def check(self, *, max_points: int = 200) -> None:
        """Resolve the first `max_points` points of the sweep (or the only scenario); raises InputError with all faults."""
        faults = FaultList()
        baseline = self.compare.get("baseline", {})
        for point in itertools.islice(self.plan or (Assignment({}, {}),), max_points):
            with faults.collect():
                self.resolve(point.overlay, point.parameters)
            with faults.collect():
                if baseline:
                    self.resolve({**point.overlay, **baseline}, point.parameters)
        if faults:
            raise InputError(list(dict.fromkeys(faults)))

    def expand(self) -> Iterator[Scenario]:
        """Every point of the sweep in order, or the one scenario of a file without one."""
        plan = self.plan
        if plan is None:
            yield self.resolve()
            return
        for point in plan:
            yield self.resolve(point.overlay, point.parameters)


def load_scenario(path_or_name: str | Path) -> ScenarioFile:
    """Read a scenario by path or built-in name.

    Raises InputError with every fault of the blocks that don't depend on a sweep point; `resolve` and `expand` check the rest.
    """
    return scenario_from(read_yaml(locate(str(path_or_name), "scenarios")))


def scenario_of(data: Mapping[str, Any], name: str = "scenario", *, file: str = "") -> ScenarioFile:
    """A scenario from plain data in memory; `file` is where relative paths start and what faults name."""
    return scenario_from(Document(file=file or name, data={"name": name} | dict(data), positions={}))


def scenario_from(document: Document) -> ScenarioFile:
    """A scenario from a document that was read; as :func:`load_scenario`."""
    refuse_other_kinds(document)
    faults = FaultList(refuse_unknown(document.data, KEYS, document, ()))
    document, assumptions = written_out(document, faults)
    data = document.data
    name = name_of(document, faults)
    measured: tuple[Measured, ...] = ()
    claim: Mapping[str, object] = {}
    with faults.collect():
        measured = measured_from(data.get("measured"), document, ("measured",))
    with faults.collect():
        claim = claim_from(data.get("claim"), document, ("claim",))
    question = question_of(document, faults)
    stated = stated_assumptions(document, faults)
    check_study_keys(document, faults)
    file = ScenarioFile(
        document=document,
        name=name,
        question=question,
        sweep=data.get("sweep", {}),
        compare=data.get("compare", {}),
        search=data.get("search", {}),
        prices=data.get("prices", ""),
        measured=measured,
        claim=claim,
        assumptions=(*stated, *assumptions),
    )
    _try_first_point(file, faults)
    faults.stop()
    return file


def _try_first_point(file: ScenarioFile, faults: FaultList) -> None:
    """Adds what shows when the first point of the sweep, or the only scenario, is resolved."""
    with faults.collect():
        faults.extend(_unswept(file))
    with faults.collect():
        if not faults:
            file.resolve(file.first_overlay)
        elif isinstance(file.sweep, Mapping):
            file.resolve()


def _unswept(file: ScenarioFile) -> list[Fault]:
    """Faults of measured entries that name a point of the sweep by what is not swept."""
    names = file.plan.names if file.plan is not None else frozenset()
    return [
        file.document.fault(
            ("measured", index, "at"), f"{key!r} is not swept", f"swept: {', '.join(sorted(names)) or 'nothing'}"
        )
        for index, entry in enumerate(file.measured)
        for key in entry.at
        if not any(name == key or name.endswith(f".{key}") for name in names)
    ]


def _overlaid(document: Document, overlay: Mapping[str, object]) -> Document:
    """The document with the paths of `overlay` set; their faults point at the sweep's line."""
    if not overlay:
        return document
    refuse_aside(overlay, document)
    try:
        data = overlaid(document.data, overlay)
    except InputError as error:
        raise InputError([_placed(fault, document) for fault in error.faults]) from None
    positions = dict(document.positions)
    for dotted_path in overlay:
        here = tuple(dotted_path.split("."))
        in_baseline = ("compare", "baseline", dotted_path)
        line = document.position(in_baseline if in_baseline in positions else ("sweep", dotted_path))
        for path in (here, ("topology", "set", dotted_path.removeprefix("topology."))):
            positions[path] = line
    return dataclasses.replace(document, data=data, positions=positions)


def _placed(fault: Fault, document: Document) -> Fault:
    """A fault of a pure parser, with the file and line of its path."""
    parts: NodePath = tuple(fault.path.split("[")[0].split(".", 1)) if fault.path else ()
    return dataclasses.replace(fault, file=document.file, line=document.line(parts))
