"""Kernels of one layer, the head and the embedding: FLOPs, bytes and shapes per rank and micro-batch.

T tokens, h hidden, f feed-forward width, V vocabulary, s sequence, t tensor ranks. Bytes are those that must cross the
device's memory when each kernel reads its inputs and writes its outputs once.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from sim.laws.kernels import RING, TILE
from sim.records import Dtype, Kernel
from sim.workload import shapes
from sim.workload.step import linear
from sim.workload.step.plan import Plan
from sim.workload.step.work import Pass, elementwise, gemm

#: traffic per attention score besides the GEMMs' own, forward: softmax in and out, dropout in, mask and out
_SOFTMAX_BYTES, _DROPOUT_BYTES = 4.0, 5.0
#: traffic per logit of loss forward and backward (bytes): fp32 upcast and log-softmax, one fused kernel, chunks, none
_LOSS_BYTES = {"full": 24.0, "half": 16.0, "fused": 12.0, "chunked": 16.0, "fused_linear": 4.0}


class _Cost(NamedTuple):
    """Bytes per element, forward: of a norm, of a rotary embedding, of a gate beyond its inputs and output."""

    norm: float
    rope: float
    gate: float


#: an expert's bias is added to its tokens by torch.split, mul, add, cat and cast, with fp32 in between, and its inputs are
#: clamped and joined again: bytes per element forward, a third of forward and backward together (counted in
#: Megatron-Core's TEGroupedMLP: 64 B per output element, 36 B per element of the expert's width)
_BIASED_OUT, _CLAMPED_IN = 21.0, 12.0
#: one kernel each
_FUSED = _Cost(4.0, 4.0, 0.0)
#: one kernel per tensor operation, as eager Hugging Face and Meta code runs them: a norm casts to fp32 (6 B), squares (8),
#: averages (4), scales (8), casts back (6) and multiplies by its weight (4); rotary: two products (12), rotation (5), sum (6);
#: a gate writes and reads its activation (4)
_EAGER = _Cost(36.0, 23.0, 4.0)


def core_dtype(plan: Plan) -> Dtype:
    """Number format outside the quantised GEMMs."""
    return {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16"}.get(plan.training.precision, "bf16")  # type: ignore[return-value]


def attention_core(plan: Plan) -> tuple[Pass, Pass]:
    """Scores, softmax and values, forward and backward; flash = one kernel each, eager = materialised scores."""
    training, t, shape = plan.training, plan.tensor, plan.shape
    sequence, dtype = training.sequence_length, core_dtype(plan)
    q, k, v, o = shapes.query_width(shape), shapes.key_width(shape), shapes.value_width(shape), shapes.output_width(shape)
    qkv_bytes, out_bytes = 2.0 * plan.tokens * (q + k + v) / t, 2.0 * plan.tokens * o / t
    if training.attention == "flash":
        variant = training.attention_version or plan.profile.attention_version
        if training.parallelism.context > 1 and plan.profile.attends_in_rings:
            variant += RING
        keys, windowed = shapes.mean_keys(shape, sequence, plan.score_share)
        share = shapes.windowed_layers(shape) if windowed < keys else 0.0
        # a window is computed in whole tiles, one more than it is wide
        spans = ((1.0 - share, keys), (share, min(keys, windowed + TILE)))
        forward = tuple(
            Kernel(
                kind="attention",
                flops=2.0 * plan.tokens * seen * (q + o) / t,
                read_bytes=qkv_bytes,
                write_bytes=out_bytes,
                sequence_length=round(seen / plan.score_share),
                k=round(o / shape.heads),
                dtype=dtype,
                variant=variant,
                count=count,
                name="attention",
            )
            for count, seen in spans
            if count
        )
        back = {"read_bytes": 2 * (qkv_bytes + out_bytes), "write_bytes": qkv_bytes, "name": "attention.backward"}
        return Pass(forward, 1), Pass(tuple(replace(part, flops=2.5 * part.flops, **back) for part in forward), 2)
    return _eager_core(plan, dtype)


def _eager_core(plan: Plan, dtype: Dtype) -> tuple[Pass, Pass]:
    """Batched GEMMs over the score matrix of every head, and the softmax between them."""
    shape, sequence = plan.shape, plan.training.sequence_length
    heads = plan.tokens / sequence * shape.heads / plan.tensor
    inner, outer = shapes.query_width(shape) / shape.heads, shapes.output_width(shape) / shape.heads
    matmuls = (
        gemm(sequence, sequence, inner, dtype, "scores", heads),
        gemm(sequence, outer, sequence, dtype, "values", heads),
    )
    back = tuple(
        half
        for kernel in matmuls
        for half in (
            gemm(kernel.m, kernel.k, kernel.n, dtype, f"{kernel.name}.dgrad", heads),
            gemm(kernel.k, kernel.n, kernel.m, dtype, f"{kernel.name}.wgrad", heads),
        )
    )
    each = _SOFTMAX_BYTES + (_DROPOUT_BYTES if plan.training.dropout else 0.0)
    softmax = plan.profile.softmax_traffic * each * plan.tokens * sequence * shape.heads / plan.tensor
    # a batched GEMM is one launch: its count is the number of heads, so its launch time is counted once by the dispatch
    return (
        Pass((*_batched(matmuls), elementwise(softmax, "softmax")), 5),
        Pass((*_batched(back), elementwise(1.5 * softmax, "softmax.backward")), 8),
    )


def _batched(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Batched GEMMs as one kernel each with all heads' work."""
    return tuple(
        replace(
            kernel,
            flops=kernel.flops * kernel.count,
            read_bytes=kernel.read_bytes * kernel.count,
            write_bytes=kernel.write_bytes * kernel.count,
            count=1.0,
        )
        for kernel in kernels
    )


def elementwise_bytes(plan: Plan, *, is_moe: bool) -> float:
    """Forward traffic of norms, residuals, rotary embedding, activation function and expert routing.

    Two norms and two residual additions read and write T h (shared by the tensor ranks with sequence parallelism); the
    activation reads its inputs and writes one output; routing permutes the tokens of each expert there and back.
    """
    tokens, t, shape, split = plan.tokens, plan.tensor, plan.shape, plan.sequence_split
    cost = _EAGER if _is_piecewise(plan) else _FUSED
    hidden_bytes = (2 * cost.norm + 12.0 + (10.0 if plan.training.dropout else 0.0)) * tokens * shape.hidden / split
    rope = cost.rope if shape.position == "rope" else 0.0
    qkv_bytes = rope * tokens * (shapes.query_width(shape) + shapes.key_width(shape)) / t
    inputs = shapes.num_mlp_matrices(shape) - 1
    each = 2.0 * (inputs + 1) + (cost.gate if inputs == 2 else 0.0)
    if not is_moe:
        mlp_bytes = each * tokens * shape.ffn / t
    else:
        copies = linear.expert_tokens(plan)
        mlp_bytes = each * (copies * shape.expert_ffn / (1 if plan.is_expert_wide else t))
        mlp_bytes += each * tokens * shape.shared_expert_ffn / t
        mlp_bytes += 0.0 if plan.profile.fuses_routing else 8.0 * copies * shape.hidden
        if shape.mlp_bias and not plan.profile.has_fused_experts:
            mlp_bytes += copies * (_BIASED_OUT * shape.hidden + _CLAMPED_IN * shape.expert_ffn)
    return _traffic(plan) * (hidden_bytes + mlp_bytes + qkv_bytes)


def _is_piecewise(plan: Plan) -> bool:
    """Whether RMS norms, rotary embeddings and gates run as one kernel per tensor operation, with fp32 in between."""
    return plan.shape.norm == "rmsnorm" and not plan.profile.has_fused_blocks and not plan.training.compile


def _traffic(plan: Plan) -> float:
    if plan.training.compile:
        return plan.profile.compiled_traffic
    return 1.0 if _is_piecewise(plan) else plan.profile.elementwise_traffic


def layer_forward(plan: Plan, *, is_moe: bool) -> Pass:
    """One layer, forward."""
    core, _ = attention_core(plan)
    maps = linear.forward(plan, linear.layer_maps(plan, is_moe=is_moe))
    return maps + core + _rest(plan, is_moe=is_moe)


def _rest(plan: Plan, *, is_moe: bool) -> Pass:
    """Memory-bound kernels of a layer, forward."""
    return Pass((elementwise(elementwise_bytes(plan, is_moe=is_moe), "elementwise"),), _rest_launches(plan, is_moe=is_moe))


def layer_backward(plan: Plan, *, is_moe: bool) -> Pass:
    """One layer, backward."""
    _, core = attention_core(plan)
    maps = linear.backward(plan, linear.layer_maps(plan, is_moe=is_moe))
    size = 2 * elementwise_bytes(plan, is_moe=is_moe)
    rest = Pass((elementwise(size, "elementwise.backward"),), 2 * _rest_launches(plan, is_moe=is_moe))
    return maps + core + rest


def _rest_launches(plan: Plan, *, is_moe: bool) -> float:
    """Small kernels of a layer besides GEMMs and the attention core."""
    profile = plan.profile
    routing = 0.0
    if is_moe:
        experts = profile.routing_kernels / 2 + profile.kernels_per_expert * plan.shape.experts / plan.expert
        routing = profile.routing_kernels / 2 + experts * plan.expert_dispatch_s / plan.dispatch_s
    return (profile.small_kernels_per_layer + routing) * (0.4 if plan.training.compile else 1.0)


def recompute(plan: Plan, *, is_moe: bool) -> Pass:
    """What a checkpointed layer runs again before its backward."""
    if plan.training.checkpointing.mode == "full":
        return layer_forward(plan, is_moe=is_moe)
    if not plan.profile.recomputes_operations:
        return attention_core(plan)[0]
    return linear.forward(plan, linear.layer_maps(plan, is_moe=is_moe)).times(0.5) + _rest(plan, is_moe=is_moe)


def embedding(plan: Plan) -> Pass:
    """Lookup (or the scatter of its gradient): one read and one write of T h."""
    size = 4.0 * plan.tokens * plan.shape.hidden / plan.sequence_split
    return Pass((Kernel(kind="embedding", read_bytes=size / 2, write_bytes=size / 2, name="embedding"),), 3)


def _head(plan: Plan) -> tuple[Kernel, Kernel, Kernel]:
    tokens, hidden, vocabulary = plan.tokens, plan.shape.hidden, plan.shape.vocabulary / plan.tensor
    logits = replace(gemm(tokens, vocabulary, hidden, core_dtype(plan), "logits"), kind="logits")
    loss = elementwise(_LOSS_BYTES[plan.training.loss] * plan.profile.loss_traffic / 2 * tokens * vocabulary, "loss")
    return logits, loss, elementwise(4.0 * tokens * hidden / plan.sequence_split, "last_norm")


def head_forward(plan: Plan) -> Pass:
    """Last norm, logits and loss, forward."""
    return Pass(_head(plan), 8)


def head_backward(plan: Plan) -> Pass:
    """Loss and logits, backward; a fused linear loss computes its logits again."""
    logits, loss, norm = _head(plan)
    m, n, k = float(logits.m), float(logits.n), float(logits.k)
    halves = [gemm(m, k, n, logits.dtype, "logits.dgrad")]
    if not plan.is_frozen:
        halves.append(gemm(k, n, m, logits.dtype, "logits.wgrad"))
    if plan.training.loss == "fused_linear":
        halves.append(logits)
    return Pass((*(replace(half, kind="logits") for half in halves), loss, norm), 12)


def optimizer_kernel(num_elements: float, bytes_per_element: float) -> Kernel:
    """AdamW on the device: reads and writes every state once."""
    size = num_elements * bytes_per_element
    return Kernel(kind="optimizer", read_bytes=0.55 * size, write_bytes=0.45 * size, name="adamw")
