"""Footprints: bytes of every tensor class in every tier at every moment of a job."""

from __future__ import annotations

from collections.abc import Mapping

from sim.records import TensorClass
from sim.workload.footprint.activations import (
    LayerActivations,
    checkpoint_plan,
    layer_activations,
    layer_figures,
    logits_bytes,
    tokens,
)
from sim.workload.footprint.behaviour import Behaviour, behaviour
from sim.workload.footprint.counts import RankParameters, rank_parameters, stage_layers
from sim.workload.footprint.homes import Shares, effective_homes
from sim.workload.footprint.host import pinned_bytes
from sim.workload.footprint.ledger import MOMENTS, Footprint, Peak, Term, phase_of
from sim.workload.footprint.occupancy import with_occupancy
from sim.workload.footprint.residency import stage_activations
from sim.workload.footprint.states import StateBytes, state_bytes
from sim.workload.footprint.terms import stage_terms
from sim.workload.inference import Inference
from sim.workload.training import Training

__all__ = [
    "MOMENTS",
    "Behaviour",
    "Footprint",
    "LayerActivations",
    "Peak",
    "RankParameters",
    "StateBytes",
    "Term",
    "behaviour",
    "checkpoint_plan",
    "effective_homes",
    "footprint",
    "layer_activations",
    "layer_figures",
    "logits_bytes",
    "phase_of",
    "pinned_bytes",
    "rank_parameters",
    "stage_activations",
    "stage_layers",
    "state_bytes",
    "tokens",
    "with_occupancy",
]

#: driver reserve, context and libraries on the GPU, bytes: measured 0.3-1 GB over generations; communicators when there
#: are peers
CONTEXT_BYTES = 0.75e9
COMMUNICATOR_BYTES = 0.4e9
#: share of allocated bytes that the caching allocator holds besides them when every step allocates alike; assumed
STATIC_FRAGMENTATION = 0.02


def footprint(
    workload: Training | Inference,
    homes: Mapping[TensorClass, Mapping[str, float]] | None = None,
    *,
    ranks_per_host: int | None = None,
    reserved_bytes: float = 0.0,
) -> Footprint:
    """Bytes per tier, tensor class and moment.

    `homes` gives the share of each tensor class per tier role or name (default: all on the GPU); `ranks_per_host` is
    how many ranks share one host (default: all, at most 8); `reserved_bytes` of it are in use
    before they start. GPU terms are those of the pipeline stage that needs most.
    """
    if isinstance(workload, Inference):
        from sim.workload.footprint.inference import inference_footprint

        return inference_footprint(workload, homes or {}, ranks_per_host=ranks_per_host, reserved_bytes=reserved_bytes)
    placed = effective_homes(workload, homes or {})
    world = world_size(workload)
    per_host = min(ranks_per_host or min(world, 8), world)
    last = workload.parallelism.pipeline - 1
    candidates = [_of_stage(workload, placed, stage, per_host, reserved_bytes) for stage in sorted({0, last})]
    return max(candidates, key=lambda found: found.peak("gpu").size_bytes)


def world_size(training: Training) -> int:
    """All ranks of the job."""
    parallelism = training.parallelism
    return parallelism.data * parallelism.tensor * parallelism.pipeline * parallelism.context


def _of_stage(
    training: Training, homes: Mapping[TensorClass, Shares], stage: int, ranks_per_host: int, reserved_bytes: float
) -> Footprint:
    how = behaviour(training)
    is_varied = training.parallelism.zero_stage == 3
    return Footprint(
        terms=tuple(term for term in stage_terms(training, homes, stage, reserved_bytes) if term.size_bytes > 0),
        ranks_per_host=ranks_per_host,
        stage=stage,
        context_bytes=CONTEXT_BYTES + (COMMUNICATOR_BYTES if world_size(training) > 1 else 0.0),
        fragmentation=how.fragmentation if is_varied else STATIC_FRAGMENTATION,
        notes=(f"memory behaviour: {how.name} ({how.source})",),
    )
