"""One run: a scenario in, a result out. Joins the rooms; knows no physics and prints nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sim.errors import InputError
from sim.metrics import Summary, TierUse, summarise
from sim.metrics.claim import is_of_sweep, verdict_of
from sim.metrics.inference import InferenceTimes, inference_times
from sim.metrics.uncertainty import Band, band_of
from sim.placement.capacity import capacity_plan, needs_sentence, verdict
from sim.placement.effective import effective_placement
from sim.placement.plan import Placement
from sim.records import Program, Replay, Step, TensorClass
from sim.scenario import Job, Scenario, Trace
from sim.topology.machine import Machine
from sim.workload.inference import Inference
from sim.workload.training import Training

#: tier kinds that count as storage for a workload
_STORAGE = ("nvme",)


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
    contention: float = 1.0  # of a job: its time beside the others / its time alone

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
            "tiers": {
                name: {
                    "capacity_bytes": tier.capacity_bytes,
                    "peak_bytes": tier.peak_bytes,
                    "peak_phase": tier.peak_phase,
                    "verdict": verdict(tier.peak_bytes, tier.capacity_bytes),
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
        if self.inference is not None:
            del body["mfu"], body["step_time_s"]
            times = self.inference
            body |= {
                "time_to_first_token_s": times.time_to_first_token_s if fits else None,
                "time_per_output_token_s": times.time_per_output_token_s if fits else None,
                "tokens_per_s": times.tokens_per_s if fits else None,
                "uncertainty": self.band.around(times.total_s) if fits else None,
            }
        if self.jobs:
            body["jobs"] = {
                result.scenario.job.name: result.point() | {"contention": result.contention} for result in self.jobs
            }
        if not fits:
            body |= {"reason": self.reason, "step_time_if_it_fitted_s": summary.step_time_s}
        if self.scenario.claim and not is_of_sweep(self.scenario.claim):
            body["claim"] = verdict_of(self.scenario.claim, body)
        return body


def run(scenario: Scenario, *, with_penalty: bool = True) -> Result:
    """Simulate one scenario.

    `with_penalty` also replays the same job with everything in the fastest tier, for the offload penalty. Raises
    InputError for a scenario that no machine can run, InternalError for an impossible result.
    """
    jobs = tuple(placed(_loaded(job), scenario.machine) for job in scenario.jobs)
    scenario = dataclasses.replace(scenario, jobs=jobs)
    if len(scenario.jobs) > 1:
        return _run_together(scenario)
    if scenario.job.host:
        scenario = _on_host(scenario, scenario.job)
    step, program = prepare(scenario)
    replay = _replayed(program, scenario)
    summary = summarise(program, replay)
    summary = msgspec.structs.replace(summary, tiers=_peaks(scenario, summary))
    reasons = _overflows(summary)
    times = _inference(scenario, program, replay)
    seconds = times.total_s if times else summary.step_time_s
    penalty, base, fastest = _penalty(scenario, seconds) if with_penalty else (1.0, "", None)
    return Result(
        scenario=scenario,
        step=step,
        program=program,
        replay=replay,
        summary=summary,
        fits=not reasons,
        reason="; ".join(reasons),
        offload_penalty=penalty,
        penalty_base=base,
        fastest=fastest,
        inference=times,
        band=band_of(scenario.job.workload),
        assumptions=(*scenario.assumptions, *scenario.machine.assumptions, *step.notes, *program.notes),
        warnings=scenario.machine.warnings,
    )


def _on_host(scenario: Scenario, job: Job) -> Scenario:
    """The scenario of one job alone on its own host's view of the machine."""
    from sim.topology.view import host_view

    hosts = scenario.machine.hosts()
    host = job.host or hosts[0]
    machine = host_view(scenario.machine, host) if len(hosts) > 1 or job.host else scenario.machine
    return dataclasses.replace(scenario, machine=machine, jobs=(dataclasses.replace(job, host="", start_s=0.0),))


def _run_together(scenario: Scenario) -> Result:
    """All jobs of the scenario in one simulation; the result holds one result per job."""
    from sim.program.merge import Part, merge, of_job

    alone = [_on_host(scenario, job) for job in scenario.jobs]
    prepared = [prepare(item) for item in alone]

    def parts() -> list[Part]:
        rows = zip(scenario.jobs, prepared, strict=True)
        return [Part(name=job.name, program=program, start_s=job.start_s) for job, (_, program) in rows]

    try:
        program = merge(parts(), scenario.name)
    except InputError:  # ranks that share a channel with another job are no longer alike: write each by itself
        unfolded = dataclasses.replace(scenario.options, is_folded=False)
        prepared = [prepare(dataclasses.replace(item, options=unfolded)) for item in alone]
        program = merge(parts(), scenario.name)
    replay = _replayed(program, scenario)
    results = []
    for part, item, (step, own) in zip(parts(), alone, prepared, strict=True):
        seen = of_job(part, replay)
        single = run(item)
        summary, times = summarise(own, seen), _inference(item, own, seen)
        base = single.inference.total_s if single.inference else single.summary.step_time_s
        contention = (times.total_s if times else summary.step_time_s) / base
        results.append(
            dataclasses.replace(
                single, step=step, program=own, replay=seen, summary=summary, inference=times, contention=contention,
                offload_penalty=single.offload_penalty * contention,
                scenario=dataclasses.replace(item, jobs=(dataclasses.replace(item.job, name=part.name),)),
            )
        )  # fmt: skip
    whole = summarise(program, replay)
    reasons = _overflows(whole)
    return dataclasses.replace(
        results[0], scenario=scenario, program=program, replay=replay, summary=whole, inference=None, fits=not reasons,
        reason="; ".join(reasons), offload_penalty=max(result.offload_penalty for result in results),
        penalty_base="the slowest job", jobs=tuple(results), contention=max(result.contention for result in results),
    )  # fmt: skip


def _inference(scenario: Scenario, program: Program, replay: Replay) -> InferenceTimes | None:
    workload = scenario.job.workload
    if not isinstance(workload, Inference):
        return None
    num_sequences = workload.batch_size * workload.num_batches
    return inference_times(program, replay, output_length=workload.output_length, num_sequences=num_sequences)


def prepare(scenario: Scenario) -> tuple[Step, Program]:
    """The logical step of the scenario's job and its lowering onto the machine, without replaying it."""
    from sim.program import lower

    job = placed(_loaded(scenario.job), scenario.machine)
    step = step_of(job, scenario.machine)
    placement = effective_placement(job.placement, job.workload)
    return step, lower(step, scenario.machine, placement, is_folded=scenario.options.is_folded)


def placed(job: Job, machine: Machine) -> Job:
    """The job with every placement policy answered: sizes come from the step that offloads those classes."""
    from sim.placement.demand import demands
    from sim.placement.policies import EXPLICIT
    from sim.placement.resolve import needs_policy, resolve

    if not needs_policy(job.placement) or not machine.gpus():
        return job
    entries = job.placement.entries
    offloaded = tuple(item if item.policy in EXPLICIT else dataclasses.replace(item, shares={"dram": 1.0}) for item in entries)
    step = step_of(dataclasses.replace(job, placement=Placement(entries=offloaded)), machine)
    sizes = demands(step, len(machine.gpus()))
    return dataclasses.replace(job, placement=resolve(job.placement, machine, sizes, machine.gpus()[0]))


def step_of(job: Job, machine: Machine) -> Step:
    """The operations of the job's step, before a machine is chosen (but for where its tensors live)."""
    from sim.workload import decode, step

    workload = _loaded(job).workload
    kinds = homes(effective_placement(job.placement, workload), machine)
    if isinstance(workload, Training):
        return step.generate(workload, kinds)
    if isinstance(workload, Inference):
        return decode.generate(workload, kinds)
    assert isinstance(workload, Step)
    return on_machine(workload, machine)


def on_machine(step: Step, machine: Machine) -> Step:
    """A recorded step with its kernel times as they would be on this machine; a generated step as it is."""
    from sim.program.rescale import is_recorded, rescaled

    if not is_recorded(step):
        return step
    from sim.config.parts import load_parts, part_names

    name = step.source_part
    source = dataclasses.asdict(load_parts([name]).parts[name]) if name in part_names() else None
    return rescaled(step, machine, source)


def homes(placement: Placement, machine: Machine) -> dict[TensorClass, str]:
    """Tensor class -> "gpu", "host" or "storage": the slowest kind of tier that holds a share of it."""
    order = ("gpu", "host", "storage")
    gpus = machine.gpus()
    kinds: dict[TensorClass, str] = {}
    for entry in placement.entries:
        for tier in entry.shares:
            kind = _home(machine, tier, gpus[0] if gpus else "")
            kinds[entry.tensor_class] = max(kinds.get(entry.tensor_class, "gpu"), kind, key=order.index)
    return kinds


def _home(machine: Machine, tier: str, gpu: str) -> str:
    name = machine.resolve(tier, gpu)
    if gpu and name == machine.memory_tier(gpu):
        return "gpu"
    return "storage" if machine.tiers[name].kind in _STORAGE else "host"


def _loaded(job: Job) -> Job:
    """The job with its trace file read, if its workload is one."""
    if not isinstance(job.workload, Trace):
        return job
    from sim.interchange.load import load_trace

    return dataclasses.replace(job, workload=load_trace(job.workload.path))


def _replayed(program: Program, scenario: Scenario) -> Replay:
    from sim.engine import replay, run_checked

    options = scenario.options
    if options.verify:
        return run_checked(program, capacity="observe", backend=options.backend)
    return replay(program, level=options.level, backend=options.backend, capacity="observe")


def _peaks(scenario: Scenario, summary: Summary) -> dict[str, TierUse]:
    """Peak of every tier over the whole life of the job: the capacity plan, or the replayed step where that is more."""
    tiers = dict(summary.tiers)
    job = scenario.job
    if not isinstance(job.workload, (Training, Inference)):
        return tiers
    for name, need in capacity_plan(job.workload, job.placement, scenario.machine).items():
        seen = tiers.get(name)
        if seen is None or need.peak_bytes > seen.peak_bytes:
            tiers[name] = TierUse(
                capacity_bytes=need.capacity_bytes,
                peak_bytes=need.peak_bytes,
                peak_phase=need.phase,
                by_class=dict(need.by_class),
                multiplicity=seen.multiplicity if seen else 1,
            )
    return tiers


def _overflows(summary: Summary) -> list[str]:
    """One sentence per tier whose peak exceeds its capacity."""
    return [
        needs_sentence(name, tier.peak_bytes, tier.capacity_bytes, tier.peak_phase, tier.by_class)
        for name, tier in summary.tiers.items()
        if tier.peak_bytes > tier.capacity_bytes
    ]


def _penalty(scenario: Scenario, seconds: float) -> tuple[float, str, Summary | None]:
    """Offload penalty of a job that takes `seconds`, what it is measured against, and that run."""
    twin = fastest_twin(scenario)
    if twin is None:
        return 1.0, "this placement is the fastest tier", None
    _step, program = prepare(twin)
    replay = _replayed(program, dataclasses.replace(twin, options=dataclasses.replace(scenario.options, level="summary")))
    fast = summarise(program, replay)
    times = _inference(twin, program, replay)
    base = "everything in the fastest tier"
    if _overflows(msgspec.structs.replace(fast, tiers=_peaks(twin, fast))):
        base += ", which does not fit: unbounded capacity is assumed"
    return seconds / (times.total_s if times else fast.step_time_s), base, fast


def fastest_twin(scenario: Scenario) -> Scenario | None:
    """The scenario with every tensor in the fastest tier; None if it already is."""
    jobs = tuple(
        dataclasses.replace(job, placement=Placement(), workload=_without_offload(job.workload)) for job in scenario.jobs
    )
    return None if jobs == scenario.jobs else dataclasses.replace(scenario, jobs=jobs)


def _without_offload(workload: Training | Inference | Step | Trace) -> Training | Inference | Step | Trace:
    if not isinstance(workload, Training):
        return workload
    optimizer = dataclasses.replace(workload.optimizer, offload=False, swap_through_gpu=False, gpu_fraction=0.0)
    return dataclasses.replace(
        workload,
        optimizer=optimizer,
        checkpointing=dataclasses.replace(workload.checkpointing, offload=False),
        offload=dataclasses.replace(workload.offload, activation_layers=None),
    )
