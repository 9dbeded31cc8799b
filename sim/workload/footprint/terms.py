"""All terms of one rank of a pipeline stage."""

from __future__ import annotations

from sim.records import TensorClass
from sim.workload.footprint.behaviour import behaviour
from sim.workload.footprint.buffers import gpu_buffers
from sim.workload.footprint.counts import rank_parameters
from sim.workload.footprint.homes import Homes
from sim.workload.footprint.host import HostTerms
from sim.workload.footprint.ledger import Term
from sim.workload.footprint.residency import gpu_activations, stage_activations
from sim.workload.footprint.states import gpu_states, state_bytes
from sim.workload.training import Training

KEPT = TensorClass.ACTIVATIONS


def stage_terms(training: Training, homes: Homes, stage: int, reserved_bytes: float = 0.0) -> tuple[Term, ...]:
    """Terms of one rank of the stage: its GPU, then its host and storage; `homes` must name every class.

    `reserved_bytes` of each host are in use before the job starts.
    """
    how, rank = behaviour(training), rank_parameters(training, stage)
    sizes = state_bytes(training, rank, how)
    return (
        *gpu_states(training, rank, how, homes),
        *gpu_buffers(training, rank, how, sizes, homes, stage_activations(training, homes, stage)),
        *gpu_activations(training, how, homes, stage),
        *HostTerms(training, rank, how, sizes, homes, stage, reserved_bytes),
    )
