"""What an inference job means on its machine: who computes, and what a placement of weights says of llama.cpp's layers."""

from __future__ import annotations

from dataclasses import replace

from sim.errors import InputError
from sim.placement.effective import class_shares
from sim.placement.plan import Entry
from sim.placement.registry import EXPLICIT
from sim.records import TensorClass
from sim.scenario import Job
from sim.topology.machine import Machine
from sim.topology.view import job_view
from sim.workload.frameworks.inference import INFERENCE_PROFILES
from sim.workload.inference import Inference


def settled(job: Job, machine: Machine) -> Job:
    """The job with its device decided, and weights that lie in host memory given to the CPU where the framework does so.

    llama.cpp and KTransformers compute a layer where its weights are; other frameworks stream them to the GPU.
    """
    inference = job.workload
    if not isinstance(inference, Inference):
        return job
    view = job_view(machine, job.host if job.host in machine.hosts() else "", job.gpus)
    if inference.device == "auto":
        inference = replace(inference, device="gpu" if view.gpus() else "cpu")
        job = replace(job, workload=inference)
    profile = INFERENCE_PROFILES.get(inference.framework)
    if profile is None or not profile.is_cpu_backend or inference.splits_weights:
        return job
    if inference.is_managed or inference.is_system:  # the GPU loads or faults in what lies there
        return job
    return _by_layers(job, inference, view)


def _by_layers(job: Job, inference: Inference, machine: Machine) -> Job:
    """Shares of weights as layers: the GPU's share of them is on the GPU, the CPU computes the others.

    Where CPU and GPU have one memory, what lies in it is the GPU's.
    """
    weights = [entry for entry in job.placement.entries if entry.tensor_class == TensorClass.WEIGHTS]
    if not weights or any(entry.policy not in EXPLICIT for entry in weights):
        return job
    layers = inference.model.layers
    shares = dict(class_shares(job.placement, layers)[TensorClass.WEIGHTS])
    on_gpu = sum(shares.pop(tier) for tier in tuple(shares) if _is_own(tier, machine))
    if not shares or any(entry.layers is not None and entry.layers[1] >= layers for entry in weights):
        return job
    moved = Entry(tensor_class=TensorClass.WEIGHTS, shares={tier: share / (1.0 - on_gpu) for tier, share in shares.items()})
    others = tuple(entry for entry in job.placement.entries if entry.tensor_class != TensorClass.WEIGHTS)
    placement = replace(job.placement, entries=(*others, moved))
    return replace(job, workload=replace(inference, gpu_layers=round(on_gpu * layers)), placement=placement)


def _is_own(tier: str, machine: Machine) -> bool:
    """Whether a tier is a GPU's own memory; an unknown one is a fault that is told elsewhere."""
    gpus = machine.gpus()
    try:
        return bool(gpus) and machine.resolve(tier, gpus[0]) in {machine.memory_tier(gpu) for gpu in gpus}
    except InputError:
        return False
