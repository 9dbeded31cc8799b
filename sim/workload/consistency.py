"""What only the whole training block can tell: splits that do not divide, layers and matrices that the model lacks."""

from __future__ import annotations

from collections.abc import Iterator

from sim.errors import Fault
from sim.workload.training import Training

#: matrices that can get an adapter, and names for several
ADAPTER_TARGETS = ("q", "k", "v", "o", "gate", "up", "down", "all", "attention", "mlp")

#: is it wrong, the key below `workload.training`, what is wrong, what to write instead
_Check = tuple[bool, str, str, str]


def faults_of(training: Training) -> list[Fault]:
    """Every fault of the block, with its path; empty for a possible one."""
    checks = (*_splits(training), *_pipeline(training), *_experts(training), *_layers(training))
    return [
        Fault(what=what, remedy=remedy, path=f"workload.training.{key}") for is_wrong, key, what, remedy in checks if is_wrong
    ]


def _splits(training: Training) -> Iterator[_Check]:
    split, model = training.parallelism, training.model
    everyone = split.data * split.context
    what = f"tensor: {split.tensor} does not divide the {model.heads} attention heads"
    yield model.heads % split.tensor > 0, "parallelism.tensor", what, "use a divisor"
    what = f"context: {split.context} does not divide the {training.sequence_length} tokens of a sequence"
    yield training.sequence_length % split.context > 0, "parallelism.context", what, "use a divisor"
    group = split.shard_group or 1
    what = f"shard_group {group} does not divide the {everyone} data-parallel ranks"
    yield everyone % group > 0, "parallelism.shard_group", what, "use a divisor"
    is_away = bool(split.reduce_once) and training.optimizer.offload
    what = "reduce_once: gradients that are reduced in the last micro-batch cannot leave the GPU before (FSDP's no_sync)"
    yield is_away, "parallelism.reduce_once", what, "set optimizer.offload: false or leave reduce_once out"


def _pipeline(training: Training) -> Iterator[_Check]:
    split, layers = training.parallelism, training.model.layers
    parts = split.pipeline * split.interleave
    what = f"{split.pipeline} stages x {split.interleave} chunks need as many layers, the model has {layers}"
    yield layers < parts and layers + 2 != parts, "parallelism.pipeline", what, "lower pipeline or interleave"
    is_alone = split.interleave > 1 and split.pipeline == 1
    yield is_alone, "parallelism.interleave", "interleave without pipeline stages", "set interleave: 1"
    steps = training.gradient_accumulation
    what = f"interleaving needs gradient_accumulation divisible by the {split.pipeline} stages, got {steps}"
    is_uneven = split.interleave > 1 and steps % split.pipeline > 0
    yield is_uneven, "parallelism.interleave", what, f"use a multiple of {split.pipeline}"


def _experts(training: Training) -> Iterator[_Check]:
    split, experts = training.parallelism, training.model.experts
    ranks = split.data * split.context * split.tensor
    at, is_split = "parallelism.expert", split.expert > 1
    yield is_split and not experts, at, f"expert: {split.expert}, but the model has no experts", "set expert: 1"
    what = f"expert: {split.expert} does not divide the {ranks} ranks of a pipeline stage"
    yield is_split and ranks % split.expert > 0, at, what, "use a divisor"
    what = f"expert: {split.expert} does not divide the {experts} experts"
    yield is_split and experts > 0 and experts % split.expert > 0, at, what, "use a divisor"


def _layers(training: Training) -> Iterator[_Check]:
    layers, checkpointing = training.model.layers, training.checkpointing
    counts = (
        ("trainable_layers", training.trainable_layers or 0),
        ("checkpointing.interval", checkpointing.interval if checkpointing.active else 0),
        ("checkpointing.layers", checkpointing.layers or 0),
    )
    for key, count in counts:
        what = f"{count} layers, the model has {layers}"
        yield count > layers, key, what, f"use at most {layers}"
    unknown = [target for target in training.adapter.targets if target not in ADAPTER_TARGETS]
    what = f"unknown matrix {', '.join(map(repr, unknown))}"
    yield bool(unknown), "adapter.targets", what, f"use some of {', '.join(ADAPTER_TARGETS)}"
    is_full = training.adapter.type == "qlora" and training.adapter.base in ("bf16", "fp32")
    yield (
        is_full,
        "adapter.base",
        "qlora keeps the frozen weights in 4 or 8 bits, got " + str(training.adapter.base),
        "use nf4, int8 or gptq, or type: lora",
    )
