"""Scenario: a machine, a workload, a placement, options. Frozen: one scenario is one question with one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.placement.plan import Placement
from sim.records import Measured, Step
from sim.topology.machine import Machine
from sim.workload.inference import Inference
from sim.workload.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to replay, not what."""

    level: str = "summary"  # records: "summary" | "full"
    backend: str = "auto"  # "auto" | "python" | "numba"
    monitor_interval_s: float = 0.0  # > 0: sample utilisation and occupancy
    is_folded: bool = True  # identical ranks as one representative
    verify: bool = False  # check every invariant of the replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One workload on one host of the machine, from `start_s` on."""

    workload: Training | Inference | Step
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

    @property
    def job(self) -> Job:
        """The only job of a single-job scenario."""
        (job,) = self.jobs
        return job
