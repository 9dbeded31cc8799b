"""`generate`: an Inference and the homes of its tensors in, a prefill and sampled decode tokens out.

Decode tokens differ only by the length of their context, so four are written (first, second, middle, last) and the metrics
integrate between them. A pass over the weights serves `batch_size * num_batches` sequences.
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.errors import InputError
from sim.records import RankClass, Residency, Step, TensorClass
from sim.workload.decode.faults import faults
from sim.workload.decode.lane import Lane
from sim.workload.decode.sizes import Sizes
from sim.workload.inference import Inference


def generate(inference: Inference, homes: Mapping[TensorClass, str], *, is_whole: bool = False) -> Step:
    """Operations of one block of sequences; `homes` per tensor class: "gpu" (default), "host" or "storage".

    `is_whole` writes out every decode token instead of a sample. The step's `num_tokens` are the tokens generated. Operations
    of a decode token carry its index (1 = the first token after the prefill) as `micro_batch`; the prefill is 0. Raises
    InputError for a plan that cannot run.
    """
    if found := faults(inference):
        raise InputError(found)
    sizes = Sizes(inference)
    lane = Lane(sizes, homes)
    lane.prefill()
    for index in range(1, inference.output_length) if is_whole else sampled_tokens(inference.output_length):
        lane.token(index)
    ranks = inference.tensor_parallel
    return Step(
        name=f"{inference.model.name} inference",
        operations=tuple(lane.streams.operations),
        rank_classes=tuple(
            RankClass(name=name, num_ranks=ranks, first_rank=stage * ranks) for stage, name in enumerate(lane.stages)
        ),
        group_sizes={"tensor": ranks, "pipeline": inference.pipeline_parallel, "world": ranks * inference.pipeline_parallel},
        resident=_resident(sizes, homes),
        model_flops=_model_flops(sizes),
        num_tokens=float(sizes.sequences * inference.output_length),
    )


def sampled_tokens(output_length: int) -> tuple[int, ...]:
    """Indices of the decode tokens that are simulated: first, second, middle and last of `output_length - 1` (none for 1).

    The first follows a prefill, which may have fetched for it; from the second on a token follows its like.
    """
    last = output_length - 1
    return tuple(sorted({1, min(2, last), (2 + last) // 2, last})) if last >= 1 else ()


def _resident(sizes: Sizes, homes: Mapping[TensorClass, str]) -> tuple[Residency, ...]:
    """Static bytes per rank: its layers' weights and the KV cache at the last token; those of the CPU's part apart."""
    inference, shape = sizes.inference, sizes.shape
    cpu_home = "dram" if homes.get(TensorClass.WEIGHTS, "gpu") == "gpu" else "home"
    layers = shape.layers / inference.pipeline_parallel
    on_cpu = inference.num_cpu_layers / shape.layers
    weights, head = layers * sizes.layer_bytes, sizes.head_bytes
    with_cpu, with_gpu = (head, 0.0) if on_cpu else (0.0, head)
    experts = layers * sizes.routed_bytes * sizes.num_expert_layers_on_cpu / shape.layers * (1 - on_cpu)
    context = inference.prompt_length + inference.output_length
    cache = layers * sizes.sequences * sizes.attended(context) * sizes.kv_bytes_per_token
    kind, kept = TensorClass.WEIGHTS, TensorClass.KV_CACHE
    cached_by_cpu = "home" if kept in homes and homes[kept] != "gpu" else "dram"
    rows = (
        Residency(
            tensor_class=kind,
            size_bytes=weights * (1 - on_cpu) + with_gpu - experts,
            tier="gpu" if inference.splits_weights else "home",
        ),
        Residency(tensor_class=kept, size_bytes=cache * (1 - on_cpu)),
        Residency(tensor_class=kind, size_bytes=weights * on_cpu + with_cpu + experts, tier=cpu_home),
        Residency(tensor_class=kept, size_bytes=cache * on_cpu, tier=cached_by_cpu),
    )
    return tuple(row for row in rows if row.size_bytes > 0)


def _model_flops(sizes: Sizes) -> float:
    """FLOPs of the whole block: prompt and output tokens through every layer, with attention."""
    inference, shape = sizes.inference, sizes.shape
    ranks = inference.tensor_parallel
    computed = inference.prompt_length - inference.reused_tokens
    outputs = inference.output_length
    context = inference.prompt_length
    per_sequence = (computed + outputs) * shape.layers * sizes.layer_flops_per_token + outputs * sizes.head_flops_per_token
    per_sequence += shape.layers * sizes.attention_flops(computed, context / 2)
    per_sequence += shape.layers * sizes.attention_flops(outputs, context + outputs / 2)
    return per_sequence * sizes.sequences * ranks
