"""What an inference job means on its machine: who computes, and what a placement of weights says of llama.cpp's layers."""

from __future__ import annotations

from dataclasses import replace

from sim.placement.effective import class_shares
from sim.placement.plan import Entry
from sim.placement.registry import EXPLICIT
from sim.records import TensorClass
from sim.scenario import Job
from sim.topology.machine import Machine
from sim.topology.view import host_view
from sim.workload.frameworks.inference import INFERENCE_PROFILES
from sim.workload.inference import Inference


def settled(job: Job, machine: Machine) -> Job:
    """The job with its device decided, and weights that lie in host memory given to the CPU where the framework does so.

    llama.cpp and KTransformers compute a layer where its weights are; other frameworks stream them to the GPU.
    """
    inference = job.workload
    if not isinstance(inference, Inference):
        return job
    if inference.device == "auto":
        view = host_view(machine, job.host) if job.host in machine.hosts() else machine
        inference = replace(inference, device="gpu" if view.gpus() else "cpu")
        job = replace(job, workload=inference)
    profile = INFERENCE_PROFILES.get(inference.framework)
    if profile is None or not profile.is_cpu_backend or inference.splits_weights:
        return job
    if inference.is_managed or inference.is_system:  # the GPU loads or faults in what lies there
        return job
    return _by_layers(job, inference)


def _by_layers(job: Job, inference: Inference) -> Job:
    """Shares of weights as layers: the GPU's share of them is on the GPU, the CPU computes the others."""
    weights = [entry for entry in job.placement.entries if entry.tensor_class == TensorClass.WEIGHTS]
    if not weights or any(entry.policy not in EXPLICIT for entry in weights):
        return job
    layers = inference.model.layers
    shares = dict(class_shares(job.placement, layers)[TensorClass.WEIGHTS])
    on_gpu = shares.pop("gpu", 0.0)
    if not shares or any(entry.layers is not None and entry.layers[1] >= layers for entry in weights):
        return job
    moved = Entry(tensor_class=TensorClass.WEIGHTS, shares={tier: share / (1.0 - on_gpu) for tier, share in shares.items()})
    others = tuple(entry for entry in job.placement.entries if entry.tensor_class != TensorClass.WEIGHTS)
    placement = replace(job.placement, entries=(*others, moved))
    return replace(job, workload=replace(inference, gpu_layers=round(on_gpu * layers)), placement=placement)
