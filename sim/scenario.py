"""Scenario: a machine, a workload, a placement, options. Frozen: one scenario is one question with one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

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
    backend: Annotated[Literal["auto", "python", "numba", "c"], Doc("kernel of the replay")] = "auto"
    monitor_interval_s: Annotated[Seconds, Ge(0), Doc("above 0: sample utilisation and occupancy, e.g. '1 s'")] = 0.0
    is_folded: Annotated[bool, Doc("replay identical ranks as one representative")] = True
    is_whole: Annotated[bool, Doc("replay every micro-batch and every token, also where they only repeat")] = False
    verify: Annotated[bool, Doc("check every invariant of the replay")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recording as workload; `experiment` reads it when the run starts. Options as of `tiersim import trace`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    file: Annotated[tuple[str, ...], Doc("trace file, or one for each rank of the job; relative to the scenario")]
    step: Annotated[int | None, Ge(0), Doc("recorded step, from 0; default the one of median duration")] = None
    rules: Annotated[tuple[str, ...], Doc("tensor class of copies: 'h2d phase=update min=1MB = optimizer_states'")] = ()
    source_part: Annotated[str, Doc("GPU that it was recorded on, if the file does not say")] = ""
    ranks: Annotated[int, Ge(0), Doc("ranks of the job, where the file does not say; 0 = as the file says")] = 0
    element_bytes: Annotated[float, Gt(0), Doc("bytes per element, for Chakra files that count elements")] = 1.0
    stamp: tuple[str, ...] = ()  # size and time of change of each file: a changed file is another workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One workload on one host of the machine, from `start_s` on, or that long after the job `after` has ended.

    One step stands for its life unless it has several.
    """

    workload: Training | Inference | Step | Trace
    placement: Placement = field(default_factory=Placement)
    host: str = ""
    gpus: tuple[str, ...] = ()  # of the host that it may use, as CUDA_VISIBLE_DEVICES; empty = all
    start_s: float = 0.0
    after: str = ""
    steps: int = 1
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
