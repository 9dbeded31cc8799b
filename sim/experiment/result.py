"""What one scenario came to, and how it reads as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from sim.experiment.neighbours import PoolLatency
from sim.experiment.overflow import file_cache_bytes
from sim.metrics import Summary
from sim.metrics.claim import is_of_sweep, verdict_of
from sim.metrics.inference import InferenceTimes
from sim.metrics.pooling import PoolUse, host_memory
from sim.metrics.uncertainty import Band
from sim.placement.capacity import verdict
from sim.records import Program, Replay, Step
from sim.scenario import Scenario
from sim.workload.footprint import layer_figures
from sim.workload.training import Training

if TYPE_CHECKING:
    from sim.experiment.tiering import TieringStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one scenario came to.

    `program` and `replay` are what the pictures are drawn from. `summary` describes the replay even when the workload
    does not fit (`fits` false, `reason` says where): then it is what the step would be if memory were larger.
    `offload_penalty` = step time / step time with everything in the fastest tier; `penalty_base` says whether that fits.
    """

    scenario: Scenario
    step: Step
    program: Program
    replay: Replay
    summary: Summary
    fits: bool
    reason: str = ""
    offload_penalty: float = 1.0
    penalty_base: str = ""
    fastest: Summary | None = None  # of the same job with everything in the fastest tier
    inference: InferenceTimes | None = None
    band: Band = field(default_factory=Band)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    jobs: tuple[Result, ...] = ()  # of a scenario with several jobs: one each, from the one simulation they share
    tiering: tuple[TieringStep, ...] = ()  # under a policy that moves pages: the steps up to the steady one
    shown: str = ""  # which part of the step `program` and `replay` hold, where it is not all of it
    steps_s: tuple[float, ...] = ()  # of a job with several steps: how long each took
    contention: float = 1.0  # of a job: its time beside the others / its time alone
    pools: Mapping[str, PoolUse] = field(default_factory=dict)  # divided among the hosts of several jobs
    pool_latency: Mapping[str, PoolLatency] = field(default_factory=dict)  # of a job: its loads from each of the pools

    def to_pandas(self) -> Any:
        """The operations of the replay as a pandas frame, one row each (extra `table`); times in s, sizes in bytes."""
        from sim.experiment.frames import frame

        by_id = {operation.id: operation for operation in self.program.operations}
        return frame(
            {
                "id": record.id, "stream": by_id[record.id].stream, "kind": by_id[record.id].kind.value,
                "category": by_id[record.id].category, "phase": by_id[record.id].phase, "name": by_id[record.id].name,
                "ready_s": record.ready_s, "start_s": record.start_s, "end_s": record.end_s,
                "size_bytes": by_id[record.id].size_bytes, "flops": by_id[record.id].flops,
            }
            for record in self.replay.operations
        )  # fmt: skip

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, the times and where they go."""
        from sim.report.html import fragment
        from sim.report.tables import point_blocks

        return fragment(self.scenario.name, point_blocks(self.point()))

    @property
    def subject(self) -> str:
        """What the times are of: a training "step", or the "answer" of an inference."""
        return "step" if self.inference is None else "answer"

    def plot_step(self) -> Any:
        """The step stream by stream, as matplotlib axes."""
        from sim.report.findings import of_step
        from sim.report.gantt import timeline_figure

        finding = of_step(self.scenario.name, self.summary, fits=self.fits, subject=self.subject)
        return timeline_figure(self.program, self.replay, finding=finding).axes[0]

    def plot_breakdown(self) -> Any:
        """Where the step goes, beside everything in the fastest tier, as matplotlib axes."""
        from sim.report.bars import breakdown_figure
        from sim.report.findings import of_breakdown

        rows = [(self.scenario.name, self.summary.breakdown_s)]
        if self.fastest is not None:
            rows.append(("everything in\nthe fastest tier", self.fastest.breakdown_s))
        finding = of_breakdown(self.scenario.name, self.summary.breakdown_s, subject=self.subject)
        return breakdown_figure(rows, finding=finding, subject=self.subject).axes[0]

    def plot_memory(self) -> Any:
        """Peak bytes of every tier by tensor class, as matplotlib axes."""
        from sim.report.bars import tiers_figure
        from sim.report.findings import of_tiers

        return tiers_figure(self.summary.tiers, finding=of_tiers(self.scenario.name, self.summary.tiers)).axes[0]

    def point(self) -> dict[str, Any]:
        """The point as `--json` and `summary.json` show it: stable names, SI units."""
        summary, fits = self.summary, self.fits
        body: dict[str, Any] = {
            "parameters": dict(self.scenario.parameters),
            "fits": fits,
            "step_time_s": summary.step_time_s if fits else None,
            "tokens_per_s": summary.tokens_per_s if fits else None,
            "mfu": summary.mfu if fits else None,
            "offload_penalty": self.offload_penalty if fits else None,
            "offload_penalty_base": self.penalty_base,
            "bound_by": summary.bound_by if fits else None,
            "uncertainty": self.band.around(summary.step_time_s) if fits else None,
            "breakdown_s": summary.breakdown_s if fits else None,
        } | _used(summary)
        if isinstance(self.scenario.jobs[0].workload, Training):
            body["layer"] = layer_figures(self.scenario.jobs[0].workload)
        if self.inference is not None:
            del body["mfu"], body["step_time_s"]
            body |= self._answer(self.inference)
        if self.tiering:
            body["tiering"] = [to_builtins(row) for row in self.tiering]
        if self.pools:
            body |= self._pooled()
        if self.jobs:
            body["contention"] = self.contention if fits else None
            body["jobs"] = {
                result.scenario.job.name: result.point()
                | {
                    "contention": result.contention,
                    "steps_s": list(result.steps_s),
                    "pool_latency": {name: to_builtins(row) for name, row in result.pool_latency.items()},
                }
                for result in self.jobs
            }
        if not fits:
            body |= {"reason": self.reason, "step_time_if_it_fitted_s": summary.step_time_s}
        unbuilt = {device.part_name for device in self.scenario.machine.devices.values() if device.is_hypothetical}
        if unbuilt:
            body["hypothetical"] = sorted(unbuilt)
        if self.scenario.claim and not is_of_sweep(self.scenario.claim):
            body["claim"] = verdict_of(self.scenario.claim, body)
        return body

    def _answer(self, times: InferenceTimes) -> dict[str, Any]:
        """What an answer has in place of a step's times, and the memory that it needs beside the page cache."""
        fits, job, machine = self.fits, self.scenario.jobs[0], self.scenario.machine
        cached = file_cache_bytes(job, machine)
        storage = [name for name, tier in machine.tiers.items() if tier.kind in ("nvme", "pmem")]
        tiers = self.summary.tiers.items()
        needed = sum(use.peak_bytes * use.multiplicity for name, use in tiers if name not in storage)
        return {
            "time_to_first_token_s": times.time_to_first_token_s if fits else None,
            "time_per_output_token_s": times.time_per_output_token_s if fits else None,
            "tokens_per_s": times.tokens_per_s if fits else None,
            "uncertainty": self.band.around(times.total_s) if fits else None,
            "memory": {"needed_bytes": needed, "page_cache_bytes": cached, "total_bytes": needed + cached},
        }

    def _pooled(self) -> dict[str, Any]:
        """What the hosts' memory and the pools that they share hold."""
        local = [name for name, tier in self.scenario.machine.tiers.items() if tier.kind in ("dram", "lpddr")]
        memory = host_memory(self.summary.tiers, local, self.pools)
        return {
            "host_memory": to_builtins(memory) | {"saved": memory.saved},
            "pools": {name: to_builtins(pool) | {"own_peaks_bytes": pool.own_peaks_bytes} for name, pool in self.pools.items()},
        }


def _used(summary: Summary) -> dict[str, Any]:
    """What of each tier, channel and socket's cores was used."""
    return {
        "tiers": {
            name: {
                "capacity_bytes": tier.capacity_bytes,
                "peak_bytes": tier.peak_bytes,
                "peak_phase": tier.peak_phase,
                "verdict": verdict(tier.peak_bytes, tier.capacity_bytes),
                "by_class": dict(tier.by_class),
            }
            for name, tier in summary.tiers.items()
        },
        "channels": {
            name: {"bandwidth_bytes_per_s": use.bandwidth_bytes_per_s, "bytes": use.bytes, "utilisation": use.utilisation}
            for name, use in summary.channels.items()
        },
        "cores": {
            name: {"cores": use.bandwidth_bytes_per_s, "busy_core_s": use.bytes, "utilisation": use.utilisation}
            for name, use in summary.cores.items()
        },
    }
