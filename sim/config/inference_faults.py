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
    found += _seat_faults(inference, machine, document, here)
    found += _socket_faults(inference, machine, document, here)
    if inference.reuse_tier:
        try:
            machine.resolve(inference.reuse_tier, machine.seats()[0])
        except InputError as error:
            found += [document.fault((*here, "reuse_tier"), fault.what, fault.remedy) for fault in error.faults]
    return found + _placement_faults(job, inference, document, path)


def _seat_faults(inference: Inference, machine: Machine, document: Document, here: NodePath) -> list[Fault]:
    """Faults of a device that the machine lacks, and of more ranks than seats."""
    found: list[Fault] = []
    is_cpu = inference.device == "cpu"
    kind, per_node = ("sockets", len(machine.seats())) if not machine.gpus() else ("GPUs", len(machine.gpus()))
    num_seats = (1 if is_cpu and machine.gpus() else per_node) * machine.num_nodes
    kind = "sockets" if is_cpu else kind
    ranks = inference.tensor_parallel * inference.pipeline_parallel
    if inference.device == "gpu" and not machine.gpus():
        found.append(document.fault((*here, "device"), f"machine {machine.name} has no GPU", "write device: cpu, or add one"))
    if ranks > num_seats:
        what = f"tensor_parallel x pipeline_parallel = {ranks} {kind}, but the machine has {num_seats}"
        found.append(document.fault(here, what, "lower one, or take a larger machine"))
    return found


def _socket_faults(inference: Inference, machine: Machine, document: Document, here: NodePath) -> list[Fault]:
    """Faults of threads, links and sockets that the host lacks."""
    found: list[Fault] = []
    cores = float(machine.part(machine.host_of(machine.seats()[0])).get("cores", 1))  # type: ignore[arg-type]
    sockets = sum(device.kind == "cpu" for device in machine.devices.values()) if inference.all_sockets else 1
    if inference.threads and inference.threads > cores * sockets:
        owner = "socket has" if sockets == 1 else f"{sockets} sockets have"
        what = f"threads {inference.threads}: the {owner} {cores * sockets:.0f} cores"
        found.append(document.fault((*here, "threads"), what, "use at most as many; leave it out for all"))
    if inference.is_system and machine.gpus() and not _loads_host_memory(machine):
        what = f"{machine.gpus()[0]} cannot load from the host's memory: it has no coherent link to it"
        found.append(document.fault((*here, "is_system"), what, "write is_managed: true, or place weights: dram"))
    if inference.all_sockets and inference.tensor_parallel > 1 and not machine.gpus():
        what = f"all_sockets with tensor_parallel {inference.tensor_parallel}: each rank has a socket of its own"
        found.append(document.fault((*here, "all_sockets"), what, "leave one out"))
    return found


def _placement_faults(job: Job, inference: Inference, document: Document, path: NodePath) -> list[Fault]:
    """Faults of classes that no inference has, and of tiers and layers that contradict the plan."""
    found: list[Fault] = []
    for entry in job.placement.entries:
        where = (*path, "placement", entry.tensor_class.value)
        if entry.tensor_class not in PLACED:
            found.append(document.fault(where, "an inference has none", f"place {' or '.join(item.value for item in PLACED)}"))
        elif inference.device == "cpu" and "gpu" in entry.shares:
            found.append(document.fault(where, "no GPU takes part (device cpu)", "name tiers of the host, such as dram"))
        elif entry.tensor_class == TensorClass.WEIGHTS and inference.gpu_layers is not None and "gpu" in entry.shares:
            what = f"gpu_layers {inference.gpu_layers} says which layers are on the GPU, this where the CPU's lie"
            found.append(document.fault(where, what, "leave gpu out of the shares, or leave gpu_layers out"))
        elif entry.tensor_class == TensorClass.WEIGHTS and inference.cpu_moe_layers and "gpu" in entry.shares:
            what = f"cpu_moe_layers {inference.cpu_moe_layers} says whose experts leave the GPU, this where they lie"
            found.append(document.fault(where, what, "leave gpu out of the shares"))
        elif entry.layers is not None and entry.layers[1] >= inference.model.layers:
            what = f"layers {entry.layers[0]}-{entry.layers[1]}: the model has layers 0-{inference.model.layers - 1}"
            found.append(document.fault(where, what))
    return found


def _loads_host_memory(machine: Machine) -> bool:
    """Whether GPU kernels may load from memory of the system's allocator: one memory, or a coherent link."""
    part = machine.part(machine.gpus()[0])
    return bool(part.get("c2c") or part.get("cpu"))
