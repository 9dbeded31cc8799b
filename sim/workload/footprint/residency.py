"""Activation residency of a pipeline stage: how many bytes of activations each moment of the step finds on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.records import TensorClass
from sim.workload.footprint.activations import (
    checkpoint_plan,
    element_bytes,
    layer_activations,
    logits_bytes,
    selected_activations,
    tokens,
)
from sim.workload.footprint.behaviour import Behaviour
from sim.workload.footprint.counts import is_moe_layer, stage_layers
from sim.workload.footprint.homes import Homes
from sim.workload.footprint.ledger import Term
from sim.workload.training import Training

#: layers whose activations or checkpoints are on the GPU at once while they stream to and from the host
STREAMED_LAYERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StageActivations:
    """Bytes of one micro-batch on one stage, and how many micro-batches it holds.

    kept: from forward to backward, on the GPU; away: of it, on the host; num_away pieces; block: what the block whose
    backward runs needs besides `kept` (recomputed activations, transients); passes: micro-batches in flight.
    """

    kept: float
    away: float
    num_away: int
    block: float
    streamed: float
    passes: float


def in_flight(training: Training, stage: int) -> float:
    """Micro-batches whose activations a stage holds at once: 1F1B, or interleaved (in units of whole stages)."""
    parallelism, num = training.parallelism, training.gradient_accumulation
    stages, chunks = parallelism.pipeline, parallelism.interleave
    if chunks == 1:
        return float(min(stages - stage, num))
    passes = 2 * (stages - stage - 1) + (chunks - 1) * stages + 1
    return min(passes, num * chunks) / chunks


def activation_layers(training: Training) -> range:
    """Layers whose activations move to the host (`offload.activation_layers`: "all", "0-15", "7")."""
    text = training.offload.activation_layers
    if not text:
        return range(0)
    if text.strip() == "all":
        return range(training.model.layers)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def stage_activations(training: Training, homes: Homes, stage: int) -> StageActivations:
    """Activation bytes of a stage for one micro-batch, split into what stays and what leaves the GPU."""
    layers = stage_layers(training, stage)
    recomputed, interval = checkpoint_plan(training, len(layers))
    moved = activation_layers(training)
    to_host = training.checkpointing.offload or homes[TensorClass.ACTIVATIONS].get("gpu", 0.0) < 1
    kept = away = block = largest = 0.0
    num_away = 0
    is_selective = training.checkpointing.active and training.checkpointing.mode == "selective"
    for position, layer in enumerate(layers):
        sizes = layer_activations(training, is_moe_layer(training.model, layer))
        selected = selected_activations(training, is_moe_layer(training.model, layer)) if is_selective else sizes.saved
        block = max(block, sizes.live + sizes.saved - selected)
        if position < recomputed:
            size = sizes.checkpoint if position % interval == 0 else 0.0
            leaves = size > 0 and (to_host or layer in moved)
            block = max(block, sizes.saved * interval + sizes.live)
        else:
            size = selected
            leaves = layer in moved or (to_host and not training.checkpointing.offload)
        if leaves and size > 0:
            away, num_away, largest = away + size, num_away + 1, max(largest, size)
        else:
            kept += size
    return StageActivations(
        kept=kept,
        away=away,
        num_away=num_away,
        block=block,
        streamed=min(num_away, STREAMED_LAYERS) * largest,
        passes=in_flight(training, stage),
    )


def gpu_activations(training: Training, how: Behaviour, homes: Homes, stage: int) -> Iterator[Term]:
    """Activations, logits and loss on the GPU of one rank of a stage."""
    sizes = stage_activations(training, homes, stage)
    is_last = stage == training.parallelism.pipeline - 1
    full = sizes.kept * sizes.passes
    yield _term("activations kept for backward", full, ("forward", "loss", "backward"))
    rest = max(0.0, full - sizes.kept) if sizes.kept else 0.0
    yield _term("activations of later micro-batches", rest, ("backward_end",))
    yield _term("activations on their way to the host", sizes.streamed, ("forward", "loss", "backward", "backward_end"))
    yield _term("block being differentiated", sizes.block, ("backward", "backward_end"))
    if not is_last:
        return
    split = training.parallelism.tensor if training.parallelism.sequence_parallel else 1
    final = tokens(training) * training.model.hidden * (2 * element_bytes(training) + how.norm_copy_bytes) / split
    yield _term("final norm", final, ("loss", "backward"))
    yield Term(
        name="logits and loss",
        tensor_class=TensorClass.LOGITS,
        tier="gpu",
        size_bytes=logits_bytes(training),
        moments=("loss",),
        formula=f"{tokens(training):.0f} tokens x {training.model.vocabulary} / {training.parallelism.tensor} x "
        f"{logits_bytes(training) / (tokens(training) * training.model.vocabulary / training.parallelism.tensor):.3g} B",
    )


def _term(name: str, size: float, when: tuple[str, ...]) -> Term:
    return Term(name=name, tensor_class=TensorClass.ACTIVATIONS, tier="gpu", size_bytes=size, moments=when)
