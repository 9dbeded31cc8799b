"""Weights, master weights, gradients and optimizer states: bytes per rank and tier, sharded as the plan says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.records import TensorClass
from sim.workload.footprint.behaviour import Behaviour
from sim.workload.footprint.counts import RankParameters, quantised_bytes
from sim.workload.footprint.homes import Homes
from sim.workload.footprint.ledger import FROM_FIRST_STEP, FROM_INIT, STEP_MOMENTS, Term
from sim.workload.training import Training

#: fp32 optimizer state per trained parameter, bytes; 8-bit and factored states do not follow the element type.
#: AdamW two moments; Dettmers et al. 2022 (arXiv 2110.02861) 8-bit moments with one fp32 scale per 256; Adafactor rows
#: and columns (Shazeer and Stern 2018); Lion and Muon one moment
STATE_ELEMENTS = {
    "adamw": 2.0, "adam": 2.0, "sgd": 0.0, "sgd_momentum": 1.0, "lion": 1.0, "muon": 1.0, "adafactor": 0.01,
}  # fmt: skip
STATE_BYTES_8BIT = 2.0 * (1.0 + 4.0 / 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes per parameter of each class, and how many parameters of a rank they apply to (counts, after sharding)."""

    weight: float
    master: float
    gradient: float
    states: float
    kept_weights: float  # parameters of the rank whose weights it keeps
    updated: float  # parameters that the rank updates
    kept_gradients: float  # gradients that the rank keeps between micro-batches


def state_bytes(training: Training, rank: RankParameters, how: Behaviour) -> StateBytes:
    """Bytes per parameter under the framework's scheme, and the rank's share of the parameters under its ZeRO stage."""
    stage = training.parallelism.zero_stage
    trained = rank.sharded(rank.trained_dense + rank.adapter, rank.trained_routed)
    weight, master, gradient, state = _scheme(training, how)
    is_sharded = stage == 3
    is_reduced_each = not (training.parallelism.reduce_once and training.gradient_accumulation > 1)
    return StateBytes(
        weight=weight,
        master=master,
        gradient=gradient,
        states=optimizer_bytes(training, state),
        kept_weights=rank.sharded(rank.dense, rank.routed) if is_sharded else rank.total,
        updated=trained if stage >= 1 else rank.trained,
        kept_gradients=trained if stage >= 2 and is_reduced_each else rank.trained,
    )


def _scheme(training: Training, how: Behaviour) -> tuple[float, float, float, float]:
    """(weight, master weight, gradient, state element) bytes per parameter."""
    if training.is_wide:
        return 4.0, 0.0, 4.0, 4.0
    if how.scheme == "pure" or _is_stochastic(training):
        return 2.0, 0.0, 2.0, 2.0
    if how.scheme == "autocast":
        return 4.0, 0.0, 4.0, 4.0
    if training.optimizer.precision == "bf16":
        return 2.0, 2.0, how.gradient_bytes, 2.0
    return 2.0, 4.0, how.gradient_bytes, 4.0


def _is_stochastic(training: Training) -> bool:
    """8-bit Adam and Adafactor are used on 16-bit weights without master weights."""
    return training.optimizer.type in ("adamw_8bit", "paged_adamw_8bit", "adafactor")


def optimizer_bytes(training: Training, element: float) -> float:
    """Bytes of optimizer state per trained parameter, where one element of it has `element` bytes."""
    kind = training.optimizer.type
    if kind in ("adamw_8bit", "paged_adamw_8bit"):
        return STATE_BYTES_8BIT
    return STATE_ELEMENTS[kind] * element


def gpu_states(training: Training, rank: RankParameters, how: Behaviour, homes: Homes) -> Iterator[Term]:
    """Weights, master weights, gradients and states that stay on the GPU."""
    sizes = state_bytes(training, rank, how)
    yield from _weights(training, rank, how, sizes, homes)
    share = 1.0 if how.mirrors_states else homes[TensorClass.MASTER_WEIGHTS].get("gpu", 0.0)
    yield _term(
        "master weights",
        TensorClass.MASTER_WEIGHTS,
        sizes.master * sizes.updated * share,
        FROM_INIT,
        sizes.master,
        sizes.updated,
    )
    share = homes[TensorClass.OPTIMIZER_STATES].get("gpu", 0.0)
    when = FROM_FIRST_STEP if how.has_lazy_states else FROM_INIT
    yield _term(
        "optimizer states",
        TensorClass.OPTIMIZER_STATES,
        sizes.states * sizes.updated * share,
        when,
        sizes.states,
        sizes.updated,
    )
    yield from _gradients(training, rank, how, sizes, homes)
    if training.save.every and training.save.gathered == "gpu" and training.parallelism.zero_stage == 3:
        number = rank.adapter if training.adapter.type != "none" else rank.total
        name = "whole weights gathered for the save"
        yield _term(name, TensorClass.WEIGHTS, sizes.weight * number, ("save",), sizes.weight, number)


def frozen_bytes(training: Training, rank: RankParameters, how: Behaviour, sizes: StateBytes) -> float:
    """Bytes of the frozen base under adapters that a rank keeps: 16 or 32 bits, and the quantised part with its scales."""
    scale = sizes.kept_weights / rank.total if rank.total else 0.0
    stored = training.adapter.stored
    each = {"fp32": 4.0, "nf4": how.unquantised_bytes, "int8": how.unquantised_bytes}.get(stored, 2.0)
    return scale * (each * (rank.total - rank.quantised) + quantised_bytes(training) * rank.quantised)


def _weights(training: Training, rank: RankParameters, how: Behaviour, sizes: StateBytes, homes: Homes) -> Iterator[Term]:
    share = homes[TensorClass.WEIGHTS].get("gpu", 0.0)
    when = FROM_INIT if share < 1 else ("load", *FROM_INIT)
    if training.adapter.type != "none":
        size = frozen_bytes(training, rank, how, sizes)
        each = size / max(sizes.kept_weights, 1.0)
        yield _term("frozen base weights", TensorClass.WEIGHTS, size * share, when, each, sizes.kept_weights)
        trained = sizes.weight + sizes.master
        yield _term("adapters", TensorClass.WEIGHTS, trained * rank.adapter, FROM_INIT, trained, rank.adapter)
        return
    yield _term(
        "weights", TensorClass.WEIGHTS, sizes.weight * sizes.kept_weights * share, when, sizes.weight, sizes.kept_weights
    )
    if how.moves_whole_model and training.parallelism.zero_stage == 3 and training.load.ranks == "all":
        number = rank.total - sizes.kept_weights * share
        name = "whole model before it is partitioned"
        yield _term(name, TensorClass.WEIGHTS, sizes.weight * number, ("init",), sizes.weight, number)


def _gradients(training: Training, rank: RankParameters, how: Behaviour, sizes: StateBytes, homes: Homes) -> Iterator[Term]:
    """Gradient storage: from init where the framework allocates buffers, else as the backward pass produces it."""
    share = 1.0 if how.mirrors_states else homes[TensorClass.GRADIENTS].get("gpu", 0.0)
    number = sizes.kept_gradients
    if how.is_gathered_with_pipeline and training.parallelism.pipeline > 1 and training.gradient_accumulation > 1:
        number = rank.trained  # accumulated before their reduction
    size = sizes.gradient * number * share
    is_kept = how.has_gradient_buffers or training.gradient_accumulation > 1
    if how.has_gradient_buffers and not (how.bucket_elements and training.parallelism.zero_stage == 2):
        when: tuple[str, ...] = FROM_INIT
    elif is_kept:
        when = STEP_MOMENTS
    else:
        when = ("backward_end", "update", "first_step")
        early = min(sizes.kept_gradients, sizes.kept_gradients / max(rank.trained, 1) * (rank.layer + rank.head))
        yield _term(
            "first gradients", TensorClass.GRADIENTS, sizes.gradient * early * share, ("backward",), sizes.gradient, early
        )
    yield _term("gradients", TensorClass.GRADIENTS, size, when, sizes.gradient, number)


def _term(name: str, kind: TensorClass, size: float, when: tuple[str, ...], each: float, number: float) -> Term:
    return Term(
        name=name,
        tensor_class=kind,
        tier="gpu",
        size_bytes=size,
        moments=when,
        formula=f"{each:.3g} B x {number:.4g} parameters",
    )
