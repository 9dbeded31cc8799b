"""Bytes and FLOPs of inference: storage formats, KV cache, the experts that a batch touches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sim.held_out import Fitted
from sim.workload import shapes
from sim.workload.formats import KV_BYTES
from sim.workload.inference import Inference
from sim.workload.shape import ModelShape
from sim.workload.stored import StoredWeight, stored_weight

#: t tokens touch as many experts as t^POPULARITY that draw evenly: fit over decodes of 8 and 32 sequences of gpt-oss-120b and
#: Qwen3 30B-A3B on a DGX Spark, whose memory they fill; without them: even draws
POPULARITY = Fitted(0.85, 1.0, ("llamacpp-dgx-spark",))


@dataclass(frozen=True)
class Sizes:
    """What one layer of one tensor-parallel rank holds, reads and computes."""

    inference: Inference

    @property
    def shape(self) -> ModelShape:
        """The model."""
        return self.inference.model

    @cached_property
    def count(self) -> shapes.ParameterCount:
        """Exact parameter counts."""
        return shapes.parameters(self.shape)

    @cached_property
    def weight(self) -> StoredWeight:
        """Bytes of one stored weight."""
        return stored_weight(self.inference)

    @property
    def sequences(self) -> int:
        """Sequences that one pass over the weights serves."""
        return self.inference.batch_size * self.inference.num_batches

    @cached_property
    def layer_bytes(self) -> float:
        """Stored bytes of an average layer on one tensor-parallel rank."""
        others = (self.count.layers - self.count.routed) * self.weight.other / self.shape.layers
        return others / self.inference.tensor_parallel + self.routed_bytes

    @cached_property
    def head_bytes(self) -> float:
        """Stored bytes of the output projection that a pass reads (the embedding itself when tied)."""
        head = self.count.head or self.shape.vocabulary * self.shape.hidden
        each = self.weight.head if self.count.head else self.weight.embedding
        return (head * each + self.count.final_norm * self.weight.other) / self.inference.tensor_parallel

    def read_share(self, tokens: float) -> float:
        """Share of a layer's bytes that `tokens` tokens read: all of a dense layer, the distinct experts of a mixture.

        With k of E experts per token, a pass touches E * (1 - (1 - k/E)^draws) of them in the mean.
        """
        return 1.0 - self.routed_bytes / self.layer_bytes * (1.0 - self.touched_share(tokens))

    def touched_share(self, tokens: float) -> float:
        """Share of a layer's routed experts that `tokens` tokens draw: popular experts are drawn again and again."""
        shape = self.shape
        draws = tokens ** POPULARITY.get() if tokens > 1 else tokens
        return 1.0 - float((1.0 - shape.experts_per_token / shape.experts) ** draws) if shape.experts else 1.0

    @cached_property
    def routed_bytes(self) -> float:
        """Stored bytes of all routed experts of an average layer on one rank."""
        return self.count.routed / self.shape.layers * self.weight.routed / self.inference.tensor_parallel

    @cached_property
    def routed_flops_per_token(self) -> float:
        """Matrix FLOPs per token of the experts that it visits in an average layer, on one rank."""
        visited = self.shape.experts_per_token * self.count.expert * self.count.moe_layers
        return 2.0 * visited / self.shape.layers / self.inference.tensor_parallel

    @cached_property
    def num_expert_layers_on_cpu(self) -> int:
        """Average layers that stand for the mixture layers whose experts the CPU computes."""
        asked = self.inference.cpu_moe_layers
        return round(asked * self.shape.layers / self.count.moe_layers) if asked else 0

    @cached_property
    def layer_flops_per_token(self) -> float:
        """Matrix FLOPs of an average layer per token on one rank, experts that the token visits only."""
        active = self.count.active - self.count.embedding - (self.count.head or 0) - self.count.final_norm
        return 2.0 * active / self.shape.layers / self.inference.tensor_parallel

    @property
    def matrix_widths(self) -> tuple[float, float]:
        """Elements per token that all matrices of a layer read as inputs, and write as outputs (dense layer)."""
        shape = self.shape
        keys = 2.0 * shapes.kv_heads(shape) * shapes.head_dim(shape)
        ups = 2.0 if shape.mlp == "swiglu" else 1.0
        queries = shapes.query_width(shape)
        return (3 + ups) * shape.hidden + queries + shape.ffn, queries + keys + 2.0 * shape.hidden + ups * shape.ffn

    @property
    def head_flops_per_token(self) -> float:
        """FLOPs of the logits of one token on one rank."""
        return 2.0 * self.shape.vocabulary * self.shape.hidden / self.inference.tensor_parallel

    @cached_property
    def kv_bytes_per_token(self) -> float:
        """KV cache of one token in one layer on one rank (latent attention stores its compressed vector)."""
        shape = self.shape
        if shape.attention_type == "mla":
            elements = float(shape.kv_lora_rank + shape.qk_rope_head_dim)
        else:
            heads = max(1.0, shapes.kv_heads(shape) / self.inference.tensor_parallel)
            elements = heads * 2.0 * shapes.head_dim(shape)
        return elements * KV_BYTES[self.inference.kv_cache]

    def attended(self, context: float) -> float:
        """Keys that a query at that context attends to, in the mean over layers with and without a sliding window."""
        return shapes.attended(self.shape, context)

    def attention_flops(self, queries: float, context: float) -> float:
        """Score and value FLOPs of one sequence in one layer on one rank: `queries` rows over `context` keys.

        A single query of latent attention works on the compressed keys and values themselves.
        """
        shape, width = self.shape, 2.0 * shapes.query_width(self.shape)
        context = self.attended(context)
        if shape.attention_type == "mla" and queries == 1:
            width = float(shape.heads * (2 * shape.kv_lora_rank + shape.qk_rope_head_dim))
        return 2.0 * queries * context * width / self.inference.tensor_parallel
