"""The resolved plan of a training step: dimensions, ranks, and which layers live where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sim.errors import InputError
from sim.laws.cpu import UNBOUND_SHARE
from sim.records import Dtype, TensorClass
from sim.workload import shapes
from sim.workload.consistency import faults_of
from sim.workload.footprint.behaviour import behaviour
from sim.workload.footprint.counts import RankParameters, adapter_targets, chunk_layers, is_moe_layer, rank_parameters
from sim.workload.footprint.states import optimizer_bytes
from sim.workload.frameworks import GRAPH_LAUNCH_S, Graphs, Profile
from sim.workload.shape import ModelShape
from sim.workload.shapes import ParameterCount
from sim.workload.training import Training

#: dtype of the matrix multiplications
GEMM_DTYPE: dict[str, Dtype] = {
    "fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Everything the emitters need to know about one training step; derived once, read by all."""

    training: Training
    homes: Mapping[TensorClass, str]
    profile: Profile
    num_micro_batches: int  # written out; fewer than gradient_accumulation where the rest only repeats
    gpu_share: float = 0.0  # of the optimizer states that stay on the GPU while the rest is offloaded
    state_edges: tuple[int, ...] = ()  # layers whose optimizer states lie elsewhere than those of the layer before

    @property
    def shape(self) -> ModelShape:
        """The model."""
        return self.training.model

    @cached_property
    def count(self) -> ParameterCount:
        """Parameters of the model by part."""
        return shapes.parameters(self.shape)

    @cached_property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank (a context-parallel rank holds its part of the sequence)."""
        return self.training.batch_size * self.training.sequence_length / self.training.parallelism.context

    @property
    def tensor(self) -> int:
        """Tensor-parallel ranks."""
        return self.training.parallelism.tensor

    @property
    def sequence_split(self) -> int:
        """Ranks that share norms and residuals: the tensor ranks with sequence parallelism."""
        return self.tensor if self.training.parallelism.sequence_parallel else 1

    @property
    def score_share(self) -> float:
        """Share of the score matrix that is computed: half of it under a causal mask."""
        causal = self.training.causal
        return 0.5 if (self.shape.causal if causal is None else causal) else 1.0

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return self.training.parallelism.pipeline

    @cached_property
    def everyone(self) -> int:
        """Ranks that hold the same parameters: data-parallel times context-parallel."""
        return self.training.parallelism.data * self.training.parallelism.context

    @property
    def shards(self) -> int:
        """Ranks over which ZeRO shards: the shard group, or all data-parallel (and context-parallel) ranks."""
        return min(self.training.parallelism.shard_group or self.everyone, self.everyone)

    @property
    def replicas(self) -> int:
        """Copies of a sharded model (hybrid sharding), across which gradients are reduced too."""
        return self.everyone // self.shards

    @property
    def expert(self) -> int:
        """Expert-parallel ranks."""
        return self.training.parallelism.expert

    @property
    def is_expert_wide(self) -> bool:
        """The expert group spans the tensor ranks too: each expert is whole on one rank."""
        return self.expert > self.everyone

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return max(1, self.everyone * (self.tensor if self.is_expert_wide else 1) // self.expert)

    @property
    def zero_stage(self) -> int:
        """ZeRO stage as asked."""
        return self.training.parallelism.zero_stage

    @property
    def world(self) -> int:
        """All ranks."""
        return self.everyone * self.tensor * self.stages

    @cached_property
    def targets(self) -> frozenset[str]:
        """Matrices with an adapter; empty for full fine-tuning."""
        return adapter_targets(self.training) if self.training.adapter.type != "none" else frozenset()

    @property
    def is_frozen(self) -> bool:
        """The base weights receive no gradient."""
        return self.training.adapter.type != "none"

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight as computed with."""
        return self.training.element_bytes

    @cached_property
    def kept_bytes(self) -> float:
        """Bytes of one weight, and of its gradient, as a rank keeps them: fp32 under autocast."""
        return 4.0 if self.scheme == "autocast" and not self.is_frozen else self.weight_bytes

    @property
    def scheme(self) -> str:
        """Which copies of the weights exist: "mixed", "autocast" or "pure" (footprint/behaviour.py)."""
        return behaviour(self.training).scheme

    @property
    def threads(self) -> int:
        """Host threads of a rank; 0 = its share of the cores."""
        asked = self.training.offload.cores_per_rank
        return asked or (self.profile.threads_per_rank if self.world > 1 else 0)

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of fp32 master weights and optimizer states per parameter."""
        return 4.0 + optimizer_bytes(self.training, 4.0)

    @cached_property
    def kept_share(self) -> float:
        """Share of the weights on storage of which a copy stays in host memory (DeepSpeed's max_in_cpu, per rank)."""
        limit = self.training.offload.max_in_cpu_elements
        kept = behaviour(self.training).nvme_kept_elements if limit is None else limit
        shards = self.shards if self.zero_stage == 3 else 1
        return min(1.0, kept / max(1.0, self.rank_parameters(0).total / shards))

    @property
    def cuda_graphs(self) -> Graphs:
        """What is launched as CUDA graphs."""
        return self.training.cuda_graphs or self.profile.cuda_graphs

    @property
    def dispatch_s(self) -> float:
        """CPU time to launch a kernel of what a CUDA graph may hold."""
        return self.profile.dispatch_s_per_kernel if self.cuda_graphs == "none" else GRAPH_LAUNCH_S

    @property
    def expert_dispatch_s(self) -> float:
        """The same of what the number of routed tokens decides."""
        return GRAPH_LAUNCH_S if self.cuda_graphs == "whole" else self.profile.dispatch_s_per_kernel

    @property
    def is_bound(self) -> bool:
        """Whether ranks keep to their own cores and the memory beside them."""
        bound = self.training.offload.cores_bound
        return self.profile.binds_cores if bound is None else bound

    @property
    def host_slowdown(self) -> float:
        """Factor on host work whose threads wander over NUMA nodes; 1 where ranks are bound to their cores."""
        return 1.0 if self.is_bound else 1.0 / UNBOUND_SHARE.get()

    def home(self, tensor_class: TensorClass) -> str:
        """Where the placement keeps the class: "gpu", "host" or "storage"."""
        return self.homes.get(tensor_class, "gpu")

    def is_moe(self, layer: int) -> bool:
        """Whether the layer is a mixture of experts."""
        return is_moe_layer(self.shape, layer)

    def num_moe(self, block: range) -> int:
        """Mixture-of-experts layers in a block."""
        first = self.shape.layers - shapes.num_moe_layers(self.shape)
        return max(0, block.stop - max(block.start, first))

    def rank_parameters(self, stage: int) -> RankParameters:
        """Parameters of one rank of a stage before ZeRO shards them."""
        return rank_parameters(self.training, stage)

    @cached_property
    def dense_layer_parameters(self) -> float:
        """Parameters of one dense layer on one rank."""
        return self.count.dense_layer / self.tensor

    @cached_property
    def moe_layer_parameters(self) -> float:
        """Parameters of one mixture-of-experts layer on one rank, without its routed experts."""
        return (self.count.moe_layer - self.count.experts * self.count.expert) / self.tensor

    @cached_property
    def routed_layer_parameters(self) -> float:
        """Routed experts of one layer on one rank."""
        split = self.expert if self.is_expert_wide else self.expert * self.tensor
        return self.count.experts * self.count.expert / split

    def block_parameters(self, block: range) -> float:
        """Parameters of a block of layers on one rank that all data-parallel ranks hold."""
        num_moe = self.num_moe(block)
        return (len(block) - num_moe) * self.dense_layer_parameters + num_moe * self.moe_layer_parameters

    def block_routed(self, block: range) -> float:
        """Routed experts of a block on one rank."""
        return self.num_moe(block) * self.routed_layer_parameters

    def trained_block(self, block: range) -> tuple[float, float]:
        """Parameters of a block that receive gradients on one rank: held by all data-parallel ranks, and routed."""
        if self.is_frozen:
            return self.adapter_parameters * len(block), 0.0
        trained = range(max(block.start, self.shape.layers - (self.training.trainable_layers or self.shape.layers)), block.stop)
        return (self.block_parameters(trained), self.block_routed(trained)) if trained else (0.0, 0.0)

    @cached_property
    def adapter_parameters(self) -> float:
        """Adapter parameters of one layer on one rank."""
        ranked = self.rank_parameters(0)
        return ranked.adapter / ranked.layers

    @cached_property
    def embedding_parameters(self) -> float:
        """Input embedding on one rank of the first stage."""
        return self.count.embedding / self.tensor

    @cached_property
    def head_parameters(self) -> float:
        """Last norm and output projection on one rank of the last stage; a tied projection there is a copy."""
        own = self.count.head / self.tensor + self.count.final_norm
        is_copy = self.shape.tied_embeddings and self.stages > 1
        return own + (self.shape.vocabulary * self.shape.hidden / self.tensor if is_copy else 0.0)

    def chunk_layers(self, stage: int, chunk: int) -> range:
        """Layers of one model chunk of a stage; empty where the chunk is the embedding or the output projection alone."""
        return chunk_layers(self.training, stage, chunk)


def resolve(
    training: Training,
    homes: Mapping[TensorClass, str],
    profile: Profile,
    num_micro_batches: int | None = None,
    gpu_share: float = 0.0,
    state_edges: tuple[int, ...] = (),
) -> Plan:
    """Check what only the whole plan can tell, and return it. Raises InputError with every fault."""
    faults = faults_of(training)
    if faults:
        raise InputError(faults)
    return Plan(training, homes, profile, num_micro_batches or training.gradient_accumulation, gpu_share, state_edges)
