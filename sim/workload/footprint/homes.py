"""Where the bytes of each tensor class are kept, once the framework has had its say."""

from __future__ import annotations

from collections.abc import Mapping

from sim.records import TensorClass
from sim.workload.footprint.behaviour import behaviour
from sim.workload.training import Training

Shares = Mapping[str, float]
Homes = Mapping[TensorClass, Shares]
GPU: Shares = {"gpu": 1.0}


def effective_homes(training: Training, homes: Homes) -> dict[TensorClass, Shares]:
    """Shares of every class over tier roles or names, where a placement leaves some unsaid.

    Master weights follow the optimizer states, and so do the gradients of parameters that the CPU updates (the CPU
    needs them there; ZeRO-Infinity writes them to storage too), unless placed explicitly. `optimizer.offload` is short
    for the placement.
    """
    found: dict[TensorClass, Shares] = {name: homes[name] for name in TensorClass if name in homes}
    if training.optimizer.offload:
        found.setdefault(TensorClass.OPTIMIZER_STATES, {"dram": 1.0})
    if behaviour(training).scheme == "autocast" and TensorClass.WEIGHTS in found:
        # the sharded weights are the master weights: the update runs where they are
        found.setdefault(TensorClass.OPTIMIZER_STATES, found[TensorClass.WEIGHTS])
    states = found.setdefault(TensorClass.OPTIMIZER_STATES, GPU)
    found.setdefault(TensorClass.MASTER_WEIGHTS, states)
    if gpu_share(states) < 1 and _leaves_gradients(training):
        found.setdefault(TensorClass.GRADIENTS, states)
    for name in TensorClass:
        found.setdefault(name, GPU)
    return found


def _leaves_gradients(training: Training) -> bool:
    """Whether gradients leave the GPU with the states: not when the GPU updates, nor (torchao) unless asked to."""
    if training.optimizer.swap_through_gpu:
        return False
    return training.framework != "torchao" or training.offload.overlap_gradients is True


def gpu_share(shares: Shares) -> float:
    """Share of a class that stays in the rank's own GPU memory."""
    return shares.get("gpu", 0.0)
