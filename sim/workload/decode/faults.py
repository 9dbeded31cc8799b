"""What an inference plan asks for that no machine can do."""

from __future__ import annotations

from collections.abc import Iterator

from sim.errors import Fault
from sim.workload import shapes
from sim.workload.frameworks.inference import INFERENCE_PROFILES, remedy
from sim.workload.inference import Inference


def faults(inference: Inference) -> list[Fault]:
    """Every fault of the plan by itself; paths are those of a scenario with one workload."""
    shape = inference.model
    profile = INFERENCE_PROFILES.get(inference.framework)
    found: list[Fault] = []
    if profile is None:
        found.append(_fault("framework", f"unknown framework {inference.framework!r}", remedy(inference.framework)))
    if inference.reused_tokens >= inference.prompt_length:
        what = f"reused_tokens {inference.reused_tokens} leaves nothing of a prompt of {inference.prompt_length} tokens"
        found.append(_fault("reused_tokens", what, "reuse at most prompt_length - 1 tokens"))
    if inference.reuse_tier and not inference.reused_tokens:
        found.append(_fault("reuse_tier", "no token is reused", "give reused_tokens, or leave reuse_tier out"))
    if inference.gpu_layers is not None and inference.gpu_layers > shape.layers:
        what = f"gpu_layers {inference.gpu_layers} of a model with {shape.layers} layers"
        found.append(_fault("gpu_layers", what, "leave it out to compute all layers on the GPU"))
    if inference.cpu_moe_layers > (mixtures := shapes.num_moe_layers(shape)):
        what = f"cpu_moe_layers {inference.cpu_moe_layers} of a model with {mixtures} layers of experts"
        found.append(
            _fault("cpu_moe_layers", what, f"use at most {mixtures}" if mixtures else "leave it out: the model is dense")
        )
    if inference.device == "cpu":
        found += _without_gpu(inference)
    if inference.managed_advice and not inference.is_managed:
        found.append(_fault("managed_advice", "the weights are not in managed memory", "add is_managed: true"))
    if "stay" in inference.managed_advice and len(inference.managed_advice) > 1:
        found.append(_fault("managed_advice", "pages that stay on the host never move", "leave the other hints out, or stay"))
    if inference.is_system and inference.is_managed:
        found.append(_fault("is_system", "the weights are in managed memory already", "leave one of the two out"))
    if inference.pipeline_parallel > shape.layers:
        what = f"pipeline_parallel {inference.pipeline_parallel} of a model with {shape.layers} layers"
        found.append(_fault("pipeline_parallel", what, "use at most one stage per layer"))
    if shape.heads % inference.tensor_parallel and not (profile and profile.split_layer_s):
        what = f"tensor_parallel {inference.tensor_parallel} does not divide the {shape.heads} attention heads"
        found.append(_fault("tensor_parallel", what, "use a divisor; llama.cpp splits rows instead of heads"))
    return found


def _without_gpu(inference: Inference) -> Iterator[Fault]:
    """What asks for a GPU where none takes part."""
    for name, is_asked in (
        ("gpu_layers", bool(inference.gpu_layers)), ("cpu_moe_layers", bool(inference.cpu_moe_layers)),
        ("pipeline_parallel", inference.pipeline_parallel > 1), ("is_managed", inference.is_managed),
        ("is_system", inference.is_system),
    ):  # fmt: skip
        if is_asked:
            yield _fault(name, "no GPU takes part (device cpu)", "leave it out, or take a machine with a GPU")
    if inference.reuse_tier:
        yield _fault("reuse_tier", "a CPU attends to reused KV where placement.kv_cache puts it", "leave reuse_tier out")


def _fault(field: str, what: str, mend: str) -> Fault:
    return Fault(what=what, remedy=mend, path=f"workload.inference.{field}")
