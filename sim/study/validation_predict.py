"""What the simulator says about one validation row: a scenario's metric, or a microbenchmark's result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sim.config import scenario_of
from sim.config.topology_block import machine_from_block
from sim.config.yaml_source import Document
from sim.errors import Fault, InputError
from sim.experiment import Result, run
from sim.metrics.phases import phase_seconds
from sim.scenario import Scenario
from sim.study.bench import measure
from sim.study.fit import assess
from sim.workload.footprint.ledger import MOMENTS, STEP_MOMENTS
from sim.workload.training import Training

Prediction = float | str


def predict(kind: str, inputs: Mapping[str, Any], metrics: Iterable[str], *, file: str = "") -> dict[str, Prediction]:
    """Metric -> predicted value (SI; "verdict" -> a word) of one set of inputs.

    `kind` is "scenario" or "bench"; relative paths in the inputs start at `file`. Raises InputError for inputs that
    cannot be simulated or a metric that they do not have.
    """
    wanted = list(metrics)
    if kind == "bench":
        return _bench(inputs, wanted, file)
    times = [metric for metric in wanted if metric not in _MEMORY]
    scenario = scenario_of({**inputs, "name": "validation"}, file=file).resolve()
    found: dict[str, Prediction] = {}
    if times:
        asked = replace(scenario, options=replace(scenario.options, is_whole=needs_whole(times)))
        result = run(asked, with_penalty="offload_penalty" in times)
        found |= {metric: metric_of_result(result, metric) for metric in times}
    if len(times) < len(wanted):
        found |= _memory(scenario, [metric for metric in wanted if metric in _MEMORY])
    return found


#: metrics that are counted on the records of the whole step
_PHASES = frozenset({"forward", "backward", "update"})
#: metrics that the memory plan answers without a replay
_MEMORY = ("gpu_allocated", "gpu_reserved", "gpu_peak", "host_peak", "host_init_peak", "host_load_peak", "verdict")


def needs_whole(metrics: Iterable[str]) -> bool:
    """Whether any of the metrics is counted on the records of the whole step."""
    return not _PHASES.isdisjoint(metrics)


def metric_of_result(result: Result, metric: str) -> float:
    """What a run says of a metric that tables and scenarios measure, in SI; InputError where its workload has none."""
    if metric in _MEMORY and metric != "verdict":
        return float(_memory(result.scenario, [metric])[metric])
    if metric == "mfu":
        return result.summary.mfu
    if metric == "offload_penalty":
        return result.offload_penalty
    return _of_result(result, metric)


def _of_result(result: Result, metric: str) -> float:
    summary, workload = result.summary, result.scenario.job.workload
    if metric in ("forward", "backward", "update"):
        return phase_seconds(result.program, result.replay).get(metric, 0.0)
    if metric == "step_time":
        return summary.step_time_s
    if metric == "tokens_per_s":
        return result.inference.tokens_per_s if result.inference else summary.tokens_per_s
    if isinstance(workload, Training):
        return _of_training(result, workload, metric)
    times = result.inference
    if times is not None:
        if metric == "decode_tokens_per_s":
            return times.decode_tokens_per_s
        if metric == "time_to_first_token":
            return times.time_to_first_token_s
        if metric == "time_per_output_token":
            return times.time_per_output_token_s
        if metric == "prefill_tokens_per_s":
            return workload.prompt_length * workload.batch_size / times.time_to_first_token_s  # type: ignore[union-attr]
    raise InputError(Fault(what=f"no metric {metric!r} for this workload"))


def _of_training(result: Result, training: Training, metric: str) -> float:
    summary, split = result.summary, training.parallelism
    num_ranks = split.data * split.tensor * split.pipeline * split.context
    if metric == "tokens_per_s_per_gpu":
        return summary.tokens_per_s / num_ranks
    if metric == "samples_per_s":
        return summary.tokens_per_s / training.sequence_length
    if metric == "tflops_per_gpu":
        return result.step.model_flops / summary.step_time_s / num_ranks
    if metric == "hardware_tflops_per_gpu":
        recompute = 4 / 3 if training.checkpointing.active and training.checkpointing.mode == "full" else 1.0
        return recompute * result.step.model_flops / summary.step_time_s / num_ranks
    raise InputError(Fault(what=f"no metric {metric!r} for training"))


def _memory(scenario: Scenario, metrics: Iterable[str]) -> dict[str, Prediction]:
    """Peaks of a training or inference job as its framework, nvidia-smi and free would print them, and the verdict."""
    fit = assess(scenario, with_suggestions=False)
    found = fit.footprint
    step = STEP_MOMENTS if found.moments == MOMENTS else found.moments
    allocated = found.allocated_peak("gpu", step).size_bytes
    values: dict[str, Prediction] = {
        "gpu_allocated": allocated,
        "gpu_reserved": allocated * (1.0 + found.fragmentation),
        "gpu_peak": found.peak("gpu", step).size_bytes,
        "host_peak": found.peak("dram", step).size_bytes,
        "host_init_peak": found.peak("dram", (*found.moments[:2], *step)).size_bytes,
        "host_load_peak": found.peak("dram", ("load",)).size_bytes,
        "verdict": fit.verdict,
    }
    return {metric: values[metric] for metric in metrics}


def _bench(inputs: Mapping[str, Any], metrics: Iterable[str], file: str) -> dict[str, Prediction]:
    arguments = {key: value for key, value in inputs.items() if key not in ("topology", "benchmark")}
    document = Document(file=file, data={"topology": inputs.get("topology")}, positions={})
    machine = machine_from_block(inputs.get("topology"), document, ("topology",))
    found = measure(machine, str(inputs.get("benchmark")), arguments)
    if missing := [metric for metric in metrics if metric not in found]:
        what = f"benchmark {inputs.get('benchmark')!r} has no metric {missing[0]!r}"
        raise InputError(Fault(what=what, remedy=f"it has {', '.join(found)}"))
    return {metric: found[metric] for metric in metrics}
