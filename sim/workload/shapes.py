"""Built-in model shapes, and the parameters that follow from a shape."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from sim.errors import Fault, InputError
from sim.workload.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a shape, by part (counts, not bytes).

    Per-layer parts: `attention`, `mlp` (dense feed-forward), `expert` (one routed expert), `shared_expert` (all shared
    ones of a layer), `router`, `norm` (all norms of a layer). `active` counts what one token visits.
    """

    total: int
    active: int
    embedding: int  # token and learned position embeddings, and their norm
    head: int  # output embedding; 0 when tied
    final_norm: int
    attention: int
    mlp: int
    expert: int
    shared_expert: int
    router: int
    norm: int
    dense_layers: int
    moe_layers: int
    experts: int

    @property
    def dense_layer(self) -> int:
        """Parameters of one layer without experts."""
        return self.attention + self.norm + self.mlp

    @property
    def moe_layer(self) -> int:
        """Parameters of one mixture-of-experts layer, all its experts."""
        return self.attention + self.norm + self.router + self.shared_expert + self.experts * self.expert

    @property
    def layers(self) -> int:
        """Parameters of all transformer blocks together."""
        return self.dense_layers * self.dense_layer + self.moe_layers * self.moe_layer

    @property
    def layer(self) -> float:
        """Mean parameters of one transformer block."""
        return self.layers / (self.dense_layers + self.moe_layers)

    @property
    def routed(self) -> int:
        """Parameters of all routed experts of the model: what expert parallelism splits."""
        return self.moe_layers * self.experts * self.expert


def head_dim(shape: ModelShape) -> int:
    """Width of one head (with MLA: of the part of q and k without rotary embedding)."""
    return shape.head_dim or shape.hidden // shape.heads


def kv_heads(shape: ModelShape) -> int:
    """Key/value heads."""
    return shape.kv_heads or shape.heads


def query_width(shape: ModelShape) -> int:
    """Elements of all queries of one token."""
    rope = shape.qk_rope_head_dim if shape.attention_type == "mla" else 0
    return shape.heads * (head_dim(shape) + rope)


def key_width(shape: ModelShape) -> int:
    """Elements of all keys of one token, as the attention kernel sees them."""
    return query_width(shape) if shape.attention_type == "mla" else kv_heads(shape) * head_dim(shape)


def value_width(shape: ModelShape) -> int:
    """Elements of all values of one token, as the attention kernel sees them."""
    return shape.heads * shape.v_head_dim if shape.attention_type == "mla" else kv_heads(shape) * head_dim(shape)


def output_width(shape: ModelShape) -> int:
    """Elements of the attention result of one token, before the output projection."""
    return shape.heads * (shape.v_head_dim if shape.attention_type == "mla" else head_dim(shape))


def num_mlp_matrices(shape: ModelShape) -> int:
    """3 for gated feed-forward layers, 2 otherwise."""
    return 3 if shape.mlp == "swiglu" else 2


def num_moe_layers(shape: ModelShape) -> int:
    """Layers whose feed-forward part is a mixture of experts."""
    if not shape.experts:
        return 0
    return shape.layers if shape.moe_layers is None else min(shape.moe_layers, shape.layers)


def _norm(shape: ModelShape, width: int) -> int:
    has_bias = shape.norm == "layernorm" if shape.norm_bias is None else shape.norm_bias
    return width * (2 if has_bias else 1)


def _attention(shape: ModelShape) -> int:
    h, a, d = shape.hidden, shape.heads, head_dim(shape)
    if shape.attention_type == "mla":
        rope, rank, v = shape.qk_rope_head_dim, shape.kv_lora_rank, shape.v_head_dim
        q_rank = shape.q_lora_rank
        queries = h * q_rank + q_rank + q_rank * a * (d + rope) if q_rank else h * a * (d + rope)
        return queries + h * (rank + rope) + rank + rank * a * (d + v) + a * v * h
    q, k, v = query_width(shape), key_width(shape), value_width(shape)
    count = h * (q + k + v) + q * h
    count += (q + k + v) * shape.attention_bias + h * shape.output_bias
    count += 2 * d * shape.qk_norm + a * shape.attention_sinks
    return count


def _feed_forward(shape: ModelShape, width: int) -> int:
    matrices = num_mlp_matrices(shape)
    biases = (width * (matrices - 1) + shape.hidden) * shape.mlp_bias
    return matrices * shape.hidden * width + biases


@lru_cache(maxsize=256)
def parameters(shape: ModelShape) -> ParameterCount:
    """Exact parameter count of a shape, by part (no framework needed).

    Source of the structure: the models' reference implementations in Hugging Face transformers.
    """
    h = shape.hidden
    moe = num_moe_layers(shape)
    embedding = shape.vocabulary * h + (_norm(shape, h) if shape.embedding_norm else 0)
    if shape.position == "learned":
        embedding += shape.max_positions * h
    head = (0 if shape.tied_embeddings else shape.vocabulary * h) + shape.vocabulary * shape.head_bias
    expert = _feed_forward(shape, shape.expert_ffn) if moe else 0
    shared = _feed_forward(shape, shape.shared_expert_ffn) if moe and shape.shared_expert_ffn else 0
    shared += h * shape.shared_expert_gate
    count = ParameterCount(
        total=0,
        active=0,
        embedding=embedding,
        head=head,
        final_norm=_norm(shape, h) if shape.norms_per_layer else 0,
        attention=_attention(shape),
        mlp=_feed_forward(shape, shape.ffn) if moe < shape.layers else 0,
        expert=expert,
        shared_expert=shared if moe else 0,
        router=shape.experts * (h + shape.router_bias) if moe else 0,
        norm=shape.norms_per_layer * _norm(shape, h),
        dense_layers=shape.layers - moe,
        moe_layers=moe,
        experts=shape.experts if moe else 0,
    )
    total = embedding + head + count.final_norm + count.layers + shape.extra_parameters
    idle = moe * (count.experts - shape.experts_per_token) * expert
    values = {field.name: getattr(count, field.name) for field in fields(count)}
    return ParameterCount(**(values | {"total": total, "active": total - idle}))


def builtin_names() -> tuple[str, ...]:
    """All built-in model names, in alphabetical order (aliases left out)."""
    return tuple(sorted(_rows()))


def builtin(name: str) -> ModelShape:
    """The built-in shape of that name or alias, as its publisher writes it (any case, organisation, tuning and version).

    Raises InputError with the closest names when there is none.
    """
    key = _found(name)
    if not key:
        raise InputError(Fault(what=f"unknown model {name[:60]!r}", remedy=_nearest(name), path="model"))
    return ModelShape(name=key, **_rows()[key])


def _found(name: str) -> str:
    """The row of a published name; empty when there is none."""
    from sim.workload.models import ALIASES, spellings

    keys = (ALIASES.get(spelling, spelling) for spelling in spellings(name))
    return next((key for key in keys if key in _rows()), "")


def _nearest(name: str) -> str:
    """What to write in place of a name that is not built in."""
    from sim.workload.models import ALIASES, spellings, without_format

    if key := _found(without_format(name)):
        return f"write {key}, and how it is stored with `weights` (inference) or `adapter.base` (training)"
    close = difflib.get_close_matches(spellings(name)[-1], [*_rows(), *ALIASES], n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "see `tiersim list models`, give the path of its config.json, or write an inline shape"


@lru_cache(maxsize=1)
def _rows() -> Mapping[str, Mapping[str, Any]]:
    from sim.workload.models import rows

    return rows()


def from_huggingface(config: Mapping[str, Any], name: str = "") -> ModelShape:
    """The shape that a Hugging Face config.json (parsed) describes; see :mod:`sim.workload.shapes_huggingface`."""
    from sim.workload.shapes_huggingface import shape_of

    return shape_of(config, name)


def windowed_layers(shape: ModelShape) -> float:
    """Share of the layers whose queries see a window only."""
    if not shape.sliding_window:
        return 0.0
    return 1.0 - (shape.layers // shape.full_attention_every) / shape.layers if shape.full_attention_every else 1.0


def mean_keys(shape: ModelShape, sequence: float, share: float) -> tuple[float, float]:
    """Keys that a query sees in a whole sequence, in the mean, in layers without and with a window.

    `share` is 0.5 under a causal mask; of a window of W keys the first W queries of s see fewer: W - W^2 / 2 s.
    """
    window = shape.sliding_window
    if not window or window >= sequence:
        return share * sequence, share * sequence
    return share * sequence, 2.0 * share * window * (1.0 - 0.5 * window / sequence)


def attended(shape: ModelShape, context: float) -> float:
    """Keys that a query at a context of that many tokens sees, in the mean over the layers; also what a cache must keep."""
    if not shape.sliding_window or context <= shape.sliding_window:
        return context
    windowed = windowed_layers(shape)
    return (1.0 - windowed) * context + windowed * shape.sliding_window
