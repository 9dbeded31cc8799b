"""Kinds of changes that may make a job fit, mild ones first; each yields its alternatives from the smallest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.placement.capacity import TierNeed
from sim.placement.plan import Placement
from sim.records import TensorClass
from sim.topology.machine import Machine
from sim.workload.footprint import behaviour
from sim.workload.footprint.host import SUB_GROUP_ELEMENTS
from sim.workload.formats import WEIGHT_BYTES
from sim.workload.frameworks.inference import INFERENCE_PROFILES
from sim.workload.inference import Inference
from sim.workload.shapes import num_moe_layers
from sim.workload.training import Training

Workload = Training | Inference


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Inputs to set, by dotted path as in a scenario file."""

    settings: Mapping[str, Any]
    note: str = ""


def families_of(
    workload: Workload, placement: Placement, machine: Machine, before: Mapping[str, TierNeed]
) -> Iterator[Iterator[Change]]:
    """Kinds of changes, mild ones first; each yields its alternatives from the smallest to the largest."""
    if isinstance(workload, Inference):
        yield from _inference_families(workload, machine)
        return
    own = {machine.memory_tier(gpu) for gpu in machine.gpus()}
    is_gpu = any(need.verdict == "does_not_fit" for name, need in before.items() if name in own)
    is_host = any(need.verdict == "does_not_fit" for name, need in before.items() if name not in own)
    yield _saves(workload)
    if is_host:
        yield from _host_families(workload)
        yield _loader_sizes(workload)
    if is_gpu:
        yield from _activation_families(workload)
        yield _zero_stages(workload)
        yield _tensor_splits(workload, machine)
    yield _placements(workload, placement, machine)
    yield from _size_families(workload)
    if is_gpu:
        yield _optimizers(workload)
    yield _adapters(workload)


def _host_families(training: Training) -> Iterator[Iterator[Change]]:
    path = "workload.training"
    yield (Change(settings={f"{path}.load.ranks": ranks}) for ranks in ("first", "sharded") if training.load.ranks != ranks)
    exact = Change(settings={f"{path}.offload.round_pinned": False}, note="exact pinned buffers")
    pageable = Change(settings={f"{path}.offload.pin_memory": False}, note="slower copies")
    yield iter([exact, pageable])
    if training.offload.buffer_elements:
        half = [training.offload.buffer_elements // factor for factor in (2, 5, 10)]
        yield (Change(settings={f"{path}.offload.buffer_elements": size}) for size in half)
    if behaviour(training).has_flat_partitions and training.parallelism.zero_stage == 3:
        now = training.offload.sub_group_elements or SUB_GROUP_ELEMENTS
        smaller = [size for size in (500_000_000, 200_000_000, 100_000_000) if size < now]
        yield (Change(settings={f"{path}.offload.sub_group_elements": size}) for size in smaller)
    count = training.offload.state_buffer_count or 0
    fewer = [size for size in (64, 32, 16, 8, 4) if size < count]  # an update needs four
    yield (Change(settings={f"{path}.offload.state_buffer_count": size}) for size in fewer)


def _saves(training: Training) -> Iterator[Change]:
    """Saves that gather less."""
    path, save = "workload.training.save", training.save
    if save.every and save.gathered == "gpu":
        yield Change(settings={f"{path}.gathered": "host"})
    if save.every and save.gathered != "none" and training.parallelism.zero_stage == 3:
        yield Change(settings={f"{path}.gathered": "none"}, note="each rank writes its shard")
    if save.every and save.merged:
        yield Change(settings={f"{path}.merged": False}, note="merged afterwards, on another machine")


def _loader_sizes(training: Training) -> Iterator[Change]:
    """Fewer batches ahead, then fewer loader workers."""
    path, data = "workload.training.data", training.data
    if data is not None and data.workers:
        for ahead in range(data.prefetch - 1, 0, -1):
            yield Change(settings={f"{path}.prefetch": ahead})
        for workers in range(data.workers - 1, -1, -1):
            yield Change(settings={f"{path}.prefetch": 1, f"{path}.workers": workers})


def _activation_families(training: Training) -> Iterator[Iterator[Change]]:
    path, plan = "workload.training", training.checkpointing
    if training.attention == "eager":
        yield iter([Change(settings={f"{path}.attention": "flash"})])
    if training.loss == "full":
        yield (Change(settings={f"{path}.loss": loss}) for loss in ("fused", "chunked", "fused_linear"))
    if not plan.active:
        yield iter([Change(settings={f"{path}.checkpointing.active": True}, note="recomputes the forward pass")])
    elif plan.mode == "selective" or plan.interval > 1 or plan.layers is not None:
        yield iter([Change(settings={f"{path}.checkpointing.mode": "full", f"{path}.checkpointing.interval": 1,
                                     f"{path}.checkpointing.layers": None})])  # fmt: skip
    if not plan.offload:
        yield iter([Change(settings={f"{path}.checkpointing.active": True, f"{path}.checkpointing.offload": True})])


def _zero_stages(training: Training) -> Iterator[Change]:
    """Higher ZeRO stages, as far as the framework has them (Megatron: its distributed optimizer, stage 1)."""
    split = training.parallelism
    highest = 1 if behaviour(training).is_fused else 2 if split.pipeline > 1 else 3
    if split.data * split.context > 1:
        for stage in range(split.zero_stage + 1, highest + 1):
            yield Change(settings={"workload.training.parallelism.zero_stage": stage})


def _tensor_splits(training: Training, machine: Machine) -> Iterator[Change]:
    """More tensor parallelism within a node in place of data parallelism."""
    path, split, shape = "workload.training.parallelism", training.parallelism, training.model
    if not behaviour(training).is_fused and split.tensor == 1:
        return
    for factor in (2, 4, 8):
        size = split.tensor * factor
        divides = shape.heads % size == 0 and (shape.kv_heads or shape.heads) % size == 0
        if split.data % factor == 0 and divides and size <= len(machine.gpus()):
            yield Change(settings={f"{path}.tensor": size, f"{path}.data": split.data // factor})


def _placements(training: Training, placement: Placement, machine: Machine) -> Iterator[Change]:
    """States, then weights, to each slower tier that the machine has, nearest first.

    DeepSpeed offloads weights, and anything to storage, under ZeRO stage 3 only.
    """
    is_staged = behaviour(training).has_flat_partitions and training.parallelism.zero_stage < 3
    staged = {"workload.training.parallelism.zero_stage": 3} if is_staged else {}
    kinds = {tier.kind for tier in machine.tiers.values()}
    slower = [role for role, kind in (("dram", "dram"), ("cxl", "cxl"), ("pmem", "pmem"), ("nvme", "nvme")) if kind in kinds]
    now = {entry.tensor_class: entry.shares for entry in placement.entries}
    for role in slower:
        if now.get(TensorClass.OPTIMIZER_STATES) != {role: 1.0} and training.adapter.type == "none":
            yield Change(settings={"placement.optimizer_states": role} | (staged if role == "nvme" else {}))
    is_small = training.adapter.type != "none"  # adapters: the states are not worth moving
    for role in slower:
        if now.get(TensorClass.WEIGHTS) != {role: 1.0}:
            states = {} if is_small else {"placement.optimizer_states": role}
            yield Change(settings=states | {"placement.weights": role} | staged)


def _size_families(training: Training) -> Iterator[Iterator[Change]]:
    path = "workload.training"
    yield (_smaller_batch(training, size) for size in range(training.batch_size - 1, 0, -1))
    lengths = range(training.sequence_length - training.sequence_length % 256, 255, -256)
    smaller = [length for length in lengths if length < training.sequence_length]
    yield (Change(settings={f"{path}.sequence_length": length}) for length in smaller)


def _smaller_batch(training: Training, size: int) -> Change:
    """A smaller micro-batch; with more accumulation where that keeps the global batch."""
    path, total = "workload.training", training.batch_size * training.gradient_accumulation
    settings: dict[str, Any] = {f"{path}.batch_size": size}
    if total % size == 0:
        settings[f"{path}.gradient_accumulation"] = total // size
    return Change(settings=settings)


def _optimizers(training: Training) -> Iterator[Change]:
    if training.optimizer.type in ("adamw", "adam"):
        yield Change(settings={"workload.training.optimizer.type": "adamw_8bit"}, note="16-bit weights without master weights")


def _adapters(training: Training) -> Iterator[Change]:
    path = "workload.training.adapter"
    if training.adapter.type == "none":
        yield Change(settings={f"{path}.type": "lora"}, note="trains adapters only")
    if training.adapter.type != "qlora":
        yield Change(settings={f"{path}.type": "qlora", f"{path}.base": "nf4"}, note="trains adapters only")


def _inference_families(inference: Inference, machine: Machine) -> Iterator[Iterator[Change]]:
    path = "workload.inference"
    profile = INFERENCE_PROFILES[inference.framework]
    is_ggml, is_cpu = profile.gemm_variant.startswith("ggml"), inference.device == "cpu"
    kinds = ("q8_0", "q4_0") if is_ggml else ("fp8", "int4")
    yield (Change(settings={f"{path}.kv_cache": kind}) for kind in kinds if inference.kv_cache in ("fp16", "bf16"))
    if inference.buffer_elements:
        half = [inference.buffer_elements // factor for factor in (2, 5, 10)]
        yield (Change(settings={f"{path}.buffer_elements": size}) for size in half)
    yield (Change(settings={f"{path}.batch_size": size}) for size in range(inference.batch_size - 1, 0, -1))
    yield (
        Change(settings={f"{path}.weights": kind})
        for kind in (("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k") if is_ggml else ("int8", "int4"))
        if WEIGHT_BYTES[kind] < WEIGHT_BYTES[inference.weights]
    )
    if profile.is_cpu_backend and not is_cpu:
        mixtures = range(inference.cpu_moe_layers + 1, num_moe_layers(inference.model) + 1)
        note = "their routed experts run on the CPU"
        yield (Change(settings={f"{path}.cpu_moe_layers": num}, note=note) for num in mixtures)
        layers = inference.model.layers if inference.gpu_layers is None else inference.gpu_layers
        note = "the other layers run on the CPU"
        yield (Change(settings={f"{path}.gpu_layers": num}, note=note) for num in range(layers - 1, -1, -1))
    num_seats = len(machine.seats()) if not is_cpu or not machine.gpus() else 1
    sizes = [size for size in (2, 4, 8, 16) if inference.tensor_parallel < size <= num_seats]
    yield (Change(settings={f"{path}.tensor_parallel": size}) for size in sizes if inference.model.heads % size == 0)
    if profile.is_cpu_backend or is_cpu:
        return
    yield (
        Change(settings={"placement.weights": {"gpu": share, "dram": round(1 - share, 2)}}, note="streamed for every pass")
        for share in (0.75, 0.5, 0.25)
    )
