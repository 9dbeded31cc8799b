"""The resolved plan of a training step: dimensions, ranks, and which layers live where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sim.errors import Fault, InputError
from sim.records import Dtype, TensorClass
from sim.workload.frameworks import Profile
from sim.workload.shape import ModelShape
from sim.workload.training import Training

#: bytes of one element as stored between kernels
ACTIVATION_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0, "mxfp8": 2.0, "nvfp4": 2.0}
#: dtype of the matrix multiplications
GEMM_DTYPE: dict[str, Dtype] = {
    "fp32": "tf32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Everything the emitters need to know about one training step; derived once, read by all."""

    training: Training
    homes: Mapping[TensorClass, str]
    profile: Profile

    @property
    def shape(self) -> ModelShape:
        """The model."""
        return self.training.model

    @cached_property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank (a context-parallel rank holds its part of the sequence)."""
        return self.training.batch_size * self.training.sequence_length / self.training.parallelism.context

    @property
    def tensor(self) -> int:
        """Tensor-parallel ranks."""
        return self.training.parallelism.tensor

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return self.training.parallelism.pipeline

    @property
    def shards(self) -> int:
        """Ranks over which ZeRO shards: the shard group, or all data-parallel (and context-parallel) ranks."""
        parallelism = self.training.parallelism
        everyone = parallelism.data * parallelism.context
        return min(parallelism.shard_group or everyone, everyone)

    @property
    def replicas(self) -> int:
        """Copies of a sharded model (hybrid sharding), across which gradients are reduced too."""
        parallelism = self.training.parallelism
        return parallelism.data * parallelism.context // self.shards

    @property
    def zero_stage(self) -> int:
        """ZeRO stage; without data-parallel ranks there is nothing to shard."""
        return self.training.parallelism.zero_stage

    @property
    def world(self) -> int:
        """All ranks."""
        parallelism = self.training.parallelism
        return parallelism.data * parallelism.tensor * parallelism.pipeline * parallelism.context

    @cached_property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.shape.head_dim or self.shape.hidden // self.shape.heads

    @cached_property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.head_width * self.shape.heads

    @cached_property
    def kv_width(self) -> int:
        """Width of all key (or value) heads together."""
        return self.head_width * (self.shape.kv_heads or self.shape.heads)

    @property
    def mlp_inputs(self) -> int:
        """Matrices into the feed-forward layer: 1 (GELU) or 2 (SwiGLU)."""
        return 2 if self.shape.mlp == "swiglu" else 1

    @cached_property
    def layer_parameters(self) -> float:
        """Parameters of one dense layer, all tensor ranks together."""
        hidden = self.shape.hidden
        attention = hidden * (2 * self.query_width + 2 * self.kv_width)
        mlp = (self.mlp_inputs + 1) * hidden * self.shape.ffn
        norms = (2 if self.shape.norm == "rmsnorm" else 4) * hidden
        biases = (self.query_width + 2 * self.kv_width if self.shape.attention_bias else 0) + (
            hidden if self.shape.output_bias else 0
        )
        biases += self.mlp_inputs * self.shape.ffn + hidden if self.shape.mlp_bias else 0
        return attention + mlp + norms + biases

    @cached_property
    def embedding_parameters(self) -> float:
        """Parameters of the input embedding (and learned positions)."""
        positions = self.shape.max_positions if self.shape.position == "learned" else 0
        return (self.shape.vocabulary + positions) * float(self.shape.hidden)

    @cached_property
    def head_parameters(self) -> float:
        """Parameters of the output projection and the last norm; the projection may be the embedding itself."""
        norm = (1 if self.shape.norm == "rmsnorm" else 2) * self.shape.hidden
        return norm + (0.0 if self.shape.tied_embeddings else self.shape.vocabulary * float(self.shape.hidden))

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight as computed with."""
        return 4.0 if self.training.precision == "fp32" else 2.0

    def home(self, tensor_class: TensorClass) -> str:
        """Where the placement keeps the class: "gpu", "host" or "storage"."""
        return self.homes.get(tensor_class, "gpu")

    def chunk_layers(self, stage: int, chunk: int) -> range:
        """Layers of one model chunk of a stage, in Megatron's interleaved order; the first chunks take the remainder."""
        parts = self.stages * self.training.parallelism.interleave
        base, extra = divmod(self.shape.layers, parts)
        index = chunk * self.stages + stage
        start = index * base + min(index, extra)
        return range(start, start + base + (1 if index < extra else 0))

    def stage_parameters(self, stage: int) -> float:
        """Parameters of one rank of a stage before ZeRO shards them."""
        chunks = range(self.training.parallelism.interleave)
        total = sum(len(self.chunk_layers(stage, chunk)) for chunk in chunks) * self.layer_parameters
        total += self.embedding_parameters if stage == 0 else 0.0
        total += self.head_parameters if stage == self.stages - 1 else 0.0
        return total / self.tensor


def resolve(training: Training, homes: Mapping[TensorClass, str], profile: Profile) -> Plan:
    """Check what only the whole plan can tell, and return it. Raises InputError with every fault."""
    parallelism, faults = training.parallelism, []
    at = "workload.training.parallelism"
    if training.model.heads % parallelism.tensor:
        faults.append(
            Fault(
                what=f"tensor: {parallelism.tensor} does not divide the {training.model.heads} attention heads",
                remedy="use a divisor",
                path=f"{at}.tensor",
            )
        )
    if training.model.layers < parallelism.pipeline * parallelism.interleave:
        faults.append(
            Fault(
                what=f"{parallelism.pipeline} stages x {parallelism.interleave} chunks need as many layers, "
                f"the model has {training.model.layers}",
                remedy="lower pipeline or interleave",
                path=f"{at}.pipeline",
            )
        )
    if parallelism.interleave > 1 and parallelism.pipeline == 1:
        faults.append(Fault(what="interleave without pipeline stages", remedy="set interleave: 1", path=f"{at}.interleave"))
    if parallelism.interleave > 1 and training.gradient_accumulation % parallelism.pipeline:
        faults.append(
            Fault(
                what=f"interleaving needs gradient_accumulation divisible by the {parallelism.pipeline} stages, "
                f"got {training.gradient_accumulation}",
                remedy=f"use a multiple of {parallelism.pipeline}",
                path="workload.training.gradient_accumulation",
            )
        )
    everyone = parallelism.data * parallelism.context
    if parallelism.shard_group and everyone % parallelism.shard_group:
        faults.append(
            Fault(
                what=f"shard_group {parallelism.shard_group} does not divide the {everyone} data-parallel ranks",
                remedy="use a divisor",
                path=f"{at}.shard_group",
            )
        )
    if faults:
        raise InputError(faults)
    return Plan(training, homes, profile)
