"""Scenario: a machine, a workload, a placement, options. Frozen: one scenario is one question with one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from sim.placement.plan import Placement
from sim.records import Measured, Step
from sim.topology.machine import Machine
from sim.units import Doc, Seconds
from sim.workload.inference import Inference
from sim.workload.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to replay, not what."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    level: Annotated[Literal["summary", "full"], Doc("records: totals, or every rate and occupancy over time")] = "summary"
    backend: Annotated[Literal["auto", "python", "numba"], Doc("kernel of the replay")] = "auto"
    monitor_interval_s: Annotated[Seconds, Ge(0), Doc("above 0: sample utilisation and occupancy, e.g. '1 s'")] = 0.0
    is_folded: Annotated[bool, Doc("replay identical ranks as one representative")] = True
    verify: Annotated[bool, Doc("check every invariant of the replay")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload kept in a trace file; `experiment` reads it when the run starts."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One workload on one host of the machine, from `start_s` on."""

    workload: Training | Inference | Step | Trace
    placement: Placement = field(default_factory=Placement)
    host: str = ""
    start_s: float = 0.0
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One resolved point: what `experiment.run` takes."""

    name: str
    machine: Machine
    jobs: tuple[Job, ...]
    options: Options = field(default_factory=Options)
    measured: tuple[Measured, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)  # of the sweep point
    claim: Mapping[str, object] = field(default_factory=dict)  # article scenarios
    question: str = ""  # the file's leading comment
    assumptions: tuple[str, ...] = ()  # stated by the file, or left open by its short form

    @property
    def job(self) -> Job:
        """The only job of a single-job scenario."""
        (job,) = self.jobs
        return job
