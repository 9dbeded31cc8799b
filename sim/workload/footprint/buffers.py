"""GPU buffers of the framework: gathered weights, gradient buckets, copies, optimizer temporaries."""

from __future__ import annotations

from collections.abc import Iterator

from sim.records import TensorClass
from sim.workload.footprint.behaviour import Behaviour
from sim.workload.footprint.counts import RankParameters
from sim.workload.footprint.homes import Homes, gpu_share
from sim.workload.footprint.ledger import FROM_INIT, Term
from sim.workload.footprint.residency import StageActivations
from sim.workload.footprint.states import StateBytes
from sim.workload.training import Training

_PASSES = ("forward", "loss", "backward", "backward_end")
_BACKWARD = ("backward", "backward_end")


def gpu_buffers(
    training: Training, rank: RankParameters, how: Behaviour, sizes: StateBytes, homes: Homes, activations: StageActivations
) -> Iterator[Term]:
    """Everything on the GPU that is neither state nor activation."""
    yield from _live_weights(training, rank, how, homes)
    yield from _gradient_buffers(training, rank, how, sizes, homes, activations)
    yield from _update_buffers(training, how, sizes, homes)


def _is_gathered(training: Training, rank: RankParameters, homes: Homes) -> bool:
    is_sharded = training.parallelism.zero_stage == 3 and rank.num_shards > 1
    return is_sharded or gpu_share(homes[TensorClass.WEIGHTS]) < 1


def _live_weights(training: Training, rank: RankParameters, how: Behaviour, homes: Homes) -> Iterator[Term]:
    """Weights in the type they compute in, gathered or copied from their home, or cast (autocast)."""
    each = training.element_bytes
    if _is_gathered(training, rank, homes):
        limit = training.offload.max_live_elements or how.max_live_elements
        number = 2 * rank.layer + rank.head if limit is None else max(limit, rank.layer + rank.head)
        has_pipeline, has_adapter = training.parallelism.pipeline > 1, training.adapter.type != "none"
        if (how.is_gathered_with_pipeline and has_pipeline) or (how.keeps_frozen_gathered and has_adapter):
            number = rank.total
        number = min(number, rank.total)
        yield _buffer("gathered weights", TensorClass.WEIGHTS, each, number, _PASSES)
        prefetch = training.offload.prefetch_elements
        ahead = min(how.prefetch_elements if prefetch is None else prefetch, rank.total)
        yield _buffer("prefetched weights", TensorClass.WEIGHTS, each, ahead, _PASSES)
    elif how.scheme == "autocast" and not training.is_wide and training.adapter.type == "none":
        yield _buffer("16-bit copies of weights", TensorClass.WEIGHTS, 2.0, rank.total, _PASSES)
    if rank.quantised:
        largest = max(rank.largest_linear, rank.head if how.quantises_head else 0.0)
        if training.adapter.stored == "gptq":  # torch.matmul keeps what it multiplied with, one recomputed layer's worth
            largest = rank.layer
        yield _buffer("dequantised layer matrix", TensorClass.BUFFERS, how.dequantised_bytes, largest, _PASSES)


def _gradient_buffers(
    training: Training, rank: RankParameters, how: Behaviour, sizes: StateBytes, homes: Homes, activations: StageActivations
) -> Iterator[Term]:
    """Buckets, copies while one is reduced or leaves for the host, and gradients that were not reduced yet.

    A bucket is reduced when it is full; by then the layers that filled it have given their activations back.
    """
    if not rank.trained:
        return
    stage = training.parallelism.zero_stage
    is_away = gpu_share(homes[TensorClass.GRADIENTS]) < 1
    is_moved = is_away or stage >= 2
    if how.bucket_elements and (stage >= 1 or is_away):
        bucket = min(training.offload.bucket_elements or how.bucket_elements, rank.trained)
        yield _buffer("gradient bucket", TensorClass.BUFFERS, 2.0 * how.num_buckets, bucket, FROM_INIT)
        copy = how.reduce_copy_bytes + (2.0 if is_away else 0.0)
        freed = activations.kept * min(1.0, max(0.0, bucket - rank.head) / max(rank.layer, 1.0) / rank.layers)
        number = max(0.0, bucket - freed / copy)
        yield _buffer("copies of a bucket being reduced", TensorClass.BUFFERS, copy, number, ("backward",))
        rest = rank.trained % bucket or bucket
        yield _buffer("copies of the last bucket", TensorClass.BUFFERS, copy, rest, ("backward_end",))
        yield _buffer("gradients of one layer", TensorClass.GRADIENTS, 2.0, min(rank.layer, rank.trained), _BACKWARD)
        yield _buffer("gradient of the output embedding", TensorClass.GRADIENTS, 2.0, min(rank.head, rank.trained), ("loss",))
    elif is_moved and training.adapter.type == "none":
        each = training.element_bytes
        yield _buffer(
            "gradients before their reduction", TensorClass.GRADIENTS, 2 * each + sizes.gradient, rank.layer, _BACKWARD
        )
        yield _buffer("gradient of the output embedding", TensorClass.GRADIENTS, each, rank.head, ("loss",))
    elif how.has_gradient_buffers:  # a layer's 16-bit gradients before they are added to the buffers
        yield _buffer("gradients of one layer", TensorClass.GRADIENTS, 2.0, rank.layer, _BACKWARD)


def _update_buffers(training: Training, how: Behaviour, sizes: StateBytes, homes: Homes) -> Iterator[Term]:
    """Temporaries of the optimizer, and staging where the GPU updates states that live elsewhere."""
    sub_group = training.offload.sub_group_elements or 1e9
    share = gpu_share(homes[TensorClass.OPTIMIZER_STATES])
    here = sizes.updated * share
    when = ("update", "first_step")
    if how.update_copy_bytes and share and not training.is_wide:
        is_grouped = training.parallelism.zero_stage == 3  # otherwise they replace the 16-bit ones
        number, each = (
            (min(here, sub_group), how.update_copy_bytes) if is_grouped else (here, how.update_copy_bytes - sizes.gradient)
        )
        yield _buffer("fp32 gradients of the update", TensorClass.BUFFERS, max(each, 0.0), number, when)
    is_foreach = training.optimizer.implementation == "foreach" or (
        training.optimizer.implementation == "auto"
        and how.is_foreach
        and training.optimizer.type in ("adamw", "adam", "sgd_momentum")
    )
    if is_foreach and share:
        each = sizes.master or sizes.weight
        yield _buffer("temporaries of the multi-tensor update", TensorClass.BUFFERS, each, here, when)
    is_paged = training.optimizer.type.startswith("paged")  # managed pages are used where they arrive
    if share < 1 and not is_paged and (training.optimizer.gpu_fraction or training.optimizer.swap_through_gpu):
        number = min(sub_group, sizes.updated)
        yield _buffer("staging of sub-groups updated on the GPU", TensorClass.BUFFERS, 12.0, number, FROM_INIT)


def _buffer(name: str, kind: TensorClass, each: float, number: float, when: tuple[str, ...]) -> Term:
    return Term(
        name=name, tensor_class=kind, tier="gpu", size_bytes=each * number, moments=when,
        formula=f"{each:.3g} B x {number:.4g} elements",
    )  # fmt: skip
