"""Activation residency of a pipeline stage: how many bytes of activations each moment of the step finds on the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sim.errors import Fault, InputError
from sim.records import TensorClass
from sim.workload.footprint.activations import (
    checkpoint_plan,
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
_LAYER_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")


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
    num_layers: int


def in_flight(training: Training, stage: int) -> float:
    """Micro-batches whose activations a stage holds at once: 1F1B, or interleaved (in units of whole stages)."""
    parallelism, num = training.parallelism, training.gradient_accumulation
    stages, chunks = parallelism.pipeline, parallelism.interleave
    if chunks == 1:
        return float(min(stages - stage, num))
    passes = 2 * (stages - stage - 1) + (chunks - 1) * stages + 1
    return min(passes, num * chunks) / chunks


def activation_layers(training: Training) -> range:
    """Layers whose activations move to the host (`offload.activation_layers`: "none", "all", "0-15", "7").

    Raises InputError for anything else and for layers that the model lacks.
    """
    text, layers = (training.offload.activation_layers or "none").strip(), training.model.layers
    if text in ("none", "all"):
        return range(layers if text == "all" else 0)
    found = _LAYER_RANGE.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if not first <= last < layers:
        raise InputError(
            Fault(
                what=f"activation_layers {text!r} of a model with layers 0 to {layers - 1}",
                remedy="write 'none', 'all', one layer such as '7' or a range such as '0-15'",
                path="workload.training.offload.activation_layers",
            )
        )
    return range(first, last + 1)


def kept_by_layer(training: Training, homes: Homes, stage: int) -> list[tuple[float, float]]:
    """(bytes on the GPU, bytes on the host) that each layer of a stage keeps from forward to backward, in layer order."""
    layers = stage_layers(training, stage)
    recomputed, interval = checkpoint_plan(training, len(layers))
    moved = activation_layers(training)
    to_host = homes[TensorClass.ACTIVATIONS].get("gpu", 0.0) < 1
    is_selective = training.checkpointing.active and training.checkpointing.mode == "selective"
    found: list[tuple[float, float]] = []
    for position, layer in enumerate(layers):
        is_moe = is_moe_layer(training.model, layer)
        sizes = layer_activations(training, is_moe)
        if position < recomputed:
            size = sizes.checkpoint if position % interval == 0 else 0.0
            leaves = to_host or training.checkpointing.offload or layer in moved
        else:
            size = selected_activations(training, is_moe) if is_selective else sizes.saved
            leaves = layer in moved or (to_host and not training.checkpointing.offload)
        found.append((0.0, size) if leaves else (size, 0.0))
    return found


def _block_bytes(training: Training, stage: int) -> float:
    """What the block whose backward runs needs besides what was kept: recomputed activations and transients."""
    layers = stage_layers(training, stage)
    recomputed, interval = checkpoint_plan(training, len(layers))
    is_selective = training.checkpointing.active and training.checkpointing.mode == "selective"
    block = 0.0
    for position, layer in enumerate(layers):
        is_moe = is_moe_layer(training.model, layer)
        sizes = layer_activations(training, is_moe)
        again = sizes.saved - selected_activations(training, is_moe) if is_selective else 0.0
        block = max(block, sizes.live + (sizes.saved * interval if position < recomputed else again))
    return block


def stage_activations(training: Training, homes: Homes, stage: int) -> StageActivations:
    """Activation bytes of a stage for one micro-batch, split into what stays and what leaves the GPU."""
    kept = kept_by_layer(training, homes, stage)
    moved = [away for _, away in kept if away > 0]
    return StageActivations(
        kept=sum(here for here, _ in kept),
        away=sum(moved),
        num_away=len(moved),
        block=_block_bytes(training, stage),
        streamed=min(len(moved), STREAMED_LAYERS) * max(moved, default=0.0),
        passes=in_flight(training, stage),
        num_layers=len(kept),
    )


def gpu_activations(training: Training, how: Behaviour, homes: Homes, stage: int) -> Iterator[Term]:
    """Activations, logits and loss on the GPU of one rank of a stage."""
    sizes = stage_activations(training, homes, stage)
    is_last = stage == training.parallelism.pipeline - 1
    full = sizes.kept * sizes.passes
    yield _term("activations kept for backward", full, ("forward", "loss", "backward"))
    rest = max(0.0, full - sizes.kept) + sizes.kept / max(sizes.num_layers, 1)
    yield _term("activations of later micro-batches and the first layer", rest, ("backward_end",))
    yield _term("activations on their way to the host", sizes.streamed, ("forward", "loss", "backward", "backward_end"))
    yield _term("block being differentiated", sizes.block, ("backward", "backward_end"))
    if not is_last:
        return
    split = training.parallelism.tensor if training.parallelism.sequence_parallel else 1
    final = tokens(training) * training.model.hidden * (2 * training.element_bytes + how.norm_copy_bytes) / split
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
