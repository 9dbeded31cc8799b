"""Which tensor classes a framework keeps in page-locked host memory."""

from __future__ import annotations

from sim.records import TensorClass
from sim.workload.footprint.behaviour import behaviour
from sim.workload.frameworks.inference import inference_profile
from sim.workload.inference import Inference
from sim.workload.training import Training


def pinned_classes(workload: Training | Inference) -> frozenset[TensorClass]:
    """Classes whose host copies are page-locked: what copy engines move, unless the job or its framework says otherwise."""
    if isinstance(workload, Inference):
        if workload.gpu_layers is not None or workload.is_managed:  # a mapped file, or the driver's own pages
            return frozenset()
        profile = inference_profile(workload.framework)
        kinds = {TensorClass.WEIGHTS: profile.is_pinned, TensorClass.KV_CACHE: profile.is_cache_pinned}
        return frozenset(name for name, is_pinned in kinds.items() if is_pinned)
    if workload.offload.pin_memory is False:
        return frozenset()
    found = {TensorClass.WEIGHTS, TensorClass.GRADIENTS, TensorClass.ACTIVATIONS}
    optimizer = workload.optimizer
    if optimizer.gpu_fraction or optimizer.swap_through_gpu:
        found |= {TensorClass.MASTER_WEIGHTS, TensorClass.OPTIMIZER_STATES}
    if behaviour(workload).has_flat_partitions and workload.parallelism.zero_stage in (1, 2):
        found.add(TensorClass.MASTER_WEIGHTS)
    return frozenset(found)
