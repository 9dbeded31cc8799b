"""Model shapes: dense decoder transformers and mixture-of-experts, by their published hyper-parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from sim.units import Doc

#: a dimension of a model; the bound is far above any model, and keeps a typing error from a plan of hours
Dimension = Annotated[int, Gt(0), Le(1_000_000_000)]
#: the same, and 0 where a model has none of it
Size = Annotated[int, Ge(0), Le(1_000_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Hyper-parameters from which parameters, FLOPs, bytes and footprints follow."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    name: Annotated[str, Doc("for people")] = "custom"
    layers: Annotated[int, Gt(0), Le(10_000), Doc("transformer blocks")]
    hidden: Annotated[Dimension, Doc("model width")]
    heads: Annotated[Dimension, Doc("attention heads")]
    kv_heads: Annotated[Dimension | None, Doc("key/value heads (grouped-query attention); default heads")] = None
    head_dim: Annotated[Dimension | None, Doc("default hidden / heads; with MLA the part of q and k without rotation")] = None
    ffn: Annotated[Dimension, Doc("width of the feed-forward layer (of the dense layers in a mixture-of-experts)")]
    vocabulary: Annotated[Dimension, Doc("tokens in the vocabulary")]
    mlp: Annotated[Literal["gelu", "swiglu"], Doc("gelu = 2 matrices, swiglu = 3")] = "swiglu"
    norm: Annotated[Literal["layernorm", "rmsnorm"], Doc("normalisation")] = "rmsnorm"
    position: Annotated[Literal["learned", "rope", "alibi", "none"], Doc("learned adds max_positions x hidden parameters")] = (
        "rope"
    )
    max_positions: Annotated[Size, Doc("longest sequence; parameters only with learned positions")] = 0
    tied_embeddings: Annotated[bool, Doc("input and output embedding share one matrix")] = False
    attention_bias: Annotated[bool, Doc("biases on q, k, v")] = False
    output_bias: Annotated[bool, Doc("bias on the attention output")] = False
    mlp_bias: Annotated[bool, Doc("biases on the feed-forward matrices")] = False
    qk_norm: Annotated[bool, Doc("normalise queries and keys per head")] = False
    norm_bias: Annotated[bool | None, Doc("biases of the norms; default: layernorm yes, rmsnorm no")] = None
    norms_per_layer: Annotated[
        Size, Doc("1 = parallel attention and feed-forward, 4 = norms before and after, 0 = norms without weights")
    ] = 2
    embedding_norm: Annotated[bool, Doc("a norm right after the embedding")] = False
    head_bias: Annotated[bool, Doc("bias on the output embedding")] = False
    causal: Annotated[bool, Doc("a token attends to those before it only; encoders (BERT, vision) attend to all")] = True
    attention_sinks: Annotated[bool, Doc("one learned logit per head")] = False
    sliding_window: Annotated[int, Ge(0), Doc("keys that a query sees in layers with a window; 0 = no window")] = 0
    full_attention_every: Annotated[int, Ge(0), Doc("of layers with windows, every n-th sees all; 0 = none does")] = 0
    attention_type: Annotated[Literal["gqa", "mla"], Doc("mla = DeepSeek multi-head latent attention")] = "gqa"
    q_lora_rank: Annotated[Size, Doc("MLA only")] = 0
    kv_lora_rank: Annotated[Size, Doc("MLA only")] = 0
    qk_rope_head_dim: Annotated[Size, Doc("MLA only")] = 0
    v_head_dim: Annotated[Size, Doc("MLA only")] = 0
    experts: Annotated[Size, Doc("routed experts per MoE layer; 0 = dense")] = 0
    experts_per_token: Annotated[Size, Doc("routed experts that each token visits")] = 0
    group_share: Annotated[
        float, Gt(0), Le(1), Doc("share of the expert groups that one token's experts may lie in (DeepSeek-V3: 4 of 8)")
    ] = 1.0
    expert_ffn: Annotated[Size, Doc("width of one routed expert")] = 0
    shared_expert_ffn: Annotated[Size, Doc("total width of the shared experts")] = 0
    shared_expert_gate: Annotated[bool, Doc("a gate of hidden parameters in front of the shared experts")] = False
    router_bias: Annotated[bool, Doc("one bias per routed expert")] = False
    moe_layers: Annotated[int | None, Ge(0), Doc("layers that are MoE; default all when experts > 0")] = None
    fused_matrices: Annotated[bool, Doc("q, k, v are one matrix, and gate, up another (Megatron)")] = False
    extra_parameters: Annotated[
        int, Ge(0), Le(10**15), Doc("parameters outside this pattern (a masked-language head, a projector)")
    ] = 0
    weight_dtype: Annotated[Literal["fp32", "fp16", "bf16", "fp8", "int8", "nf4", "mxfp4"], Doc("as published")] = "bf16"
    source: Annotated[str, Doc("document the numbers are from")] = ""
