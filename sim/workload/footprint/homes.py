"""Where the bytes of each tensor class are kept, once the framework has had its say."""

from __future__ import annotations

from collections.abc import Mapping

from sim.records import TensorClass
from sim.workload.training import Training

Shares = Mapping[str, float]
Homes = Mapping[TensorClass, Shares]
GPU: Shares = {"gpu": 1.0}


def effective_homes(training: Training, homes: Homes) -> dict[TensorClass, Shares]:
    """Shares of every class over tier roles or names, where a placement leaves some unsaid.

    Master weights follow the optimizer states, and so do the gradients of parameters that the CPU updates (the CPU needs
    them there), unless placed explicitly. `optimizer.offload` and `checkpointing.offload` are short for the placement.
    """
    found: dict[TensorClass, Shares] = {name: homes[name] for name in TensorClass if name in homes}
    if training.optimizer.offload:
        found.setdefault(TensorClass.OPTIMIZER_STATES, {"dram": 1.0})
    states = found.setdefault(TensorClass.OPTIMIZER_STATES, GPU)
    found.setdefault(TensorClass.MASTER_WEIGHTS, states)
    away = 1.0 - states.get("gpu", 0.0)
    if away > 0 and not training.optimizer.swap_through_gpu:
        gradients = {"dram": away} | ({"gpu": 1.0 - away} if away < 1 else {})
        found.setdefault(TensorClass.GRADIENTS, gradients)
    for name in TensorClass:
        found.setdefault(name, GPU)
    return found


def gpu_share(shares: Shares) -> float:
    """Share of a class that stays in the rank's own GPU memory."""
    return shares.get("gpu", 0.0)
