"""What only shows when an inference job meets its machine and its placement; every fault at its line."""

from __future__ import annotations

from sim.config.yaml_source import Document, NodePath
from sim.errors import Fault, InputError
from sim.records import TensorClass
from sim.scenario import Job
from sim.topology.machine import Machine
from sim.workload import decode
from sim.workload.inference import Inference

#: what an inference holds that a placement can move
PLACED = (TensorClass.WEIGHTS, TensorClass.KV_CACHE)


def inference_faults(job: Job, machine: Machine, document: Document, path: NodePath) -> list[Fault]:
    """Faults of the plan, of ranks, layers and tiers that are not there, and of classes that no inference has."""
    inference = job.workload
    assert isinstance(inference, Inference)
    here = (*path, "workload", "inference")
    found = [document.fault((*here, item.path.rsplit(".", 1)[1]), item.what, item.remedy) for item in decode.faults(inference)]
    num_gpus = len(machine.gpus()) * machine.num_nodes
    ranks = inference.tensor_parallel * inference.pipeline_parallel
    if ranks > num_gpus:
        what = f"tensor_parallel x pipeline_parallel = {ranks} GPUs, but the machine has {num_gpus}"
        found.append(document.fault(here, what, "lower one, or take a larger machine"))
    if inference.reuse_tier:
        try:
            machine.resolve(inference.reuse_tier, machine.gpus()[0])
        except InputError as error:
            found += [document.fault((*here, "reuse_tier"), fault.what, fault.remedy) for fault in error.faults]
    for entry in job.placement.entries:
        where = (*path, "placement", entry.tensor_class.value)
        if entry.tensor_class not in PLACED:
            found.append(document.fault(where, "an inference has none", f"place {' or '.join(item.value for item in PLACED)}"))
        elif entry.tensor_class == TensorClass.WEIGHTS and inference.gpu_layers is not None and "gpu" in entry.shares:
            what = f"gpu_layers {inference.gpu_layers} says which layers are on the GPU, this where the CPU's lie"
            found.append(document.fault(where, what, "leave gpu out of the shares, or leave gpu_layers out"))
        elif entry.layers is not None and entry.layers[1] >= inference.model.layers:
            what = f"layers {entry.layers[0]}-{entry.layers[1]}: the model has layers 0-{inference.model.layers - 1}"
            found.append(document.fault(where, what))
    return found
