"""Kernels of one layer, the head and the embedding: FLOPs, bytes and shapes per rank and micro-batch.

T tokens, h hidden, a heads, d head width, f feed-forward width, V vocabulary, s sequence, t tensor ranks.
Bytes are those that must cross the device's memory when each kernel reads its inputs and writes its outputs once.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from sim.records import Dtype, Kernel
from sim.workload.step.plan import GEMM_DTYPE, Plan

#: bytes per attention score of eager attention, forward: scores out, softmax in/out, dropout or mask in/out, in again
_EAGER_SCORE_BYTES = 11.0


@dataclass(frozen=True, slots=True)
class Pass:
    """Kernels of one direction of one piece of the model, and how many launches they are."""

    kernels: tuple[Kernel, ...]
    num_launches: float

    def __add__(self, other: Pass) -> Pass:
        return Pass(self.kernels + other.kernels, self.num_launches + other.num_launches)

    def times(self, count: float) -> Pass:
        """The same pass `count` times back to back."""
        if count == 1:
            return self
        return Pass(tuple(replace(kernel, count=kernel.count * count) for kernel in self.kernels), self.num_launches * count)


def _element_bytes(dtype: Dtype) -> float:
    return {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "nf4": 0.5}[dtype]


def gemm(m: float, n: float, k: float, dtype: Dtype, name: str, count: float = 1.0) -> Kernel:
    """[m, k] x [k, n]: 2 m n k FLOPs; inputs in `dtype`, output in 2 bytes (4 for tf32)."""
    size = _element_bytes(dtype)
    return Kernel(
        kind="gemm",
        flops=2.0 * m * n * k,
        read_bytes=size * (m * k + k * n),
        write_bytes=max(2.0, size) * m * n,
        m=round(m),
        n=round(n),
        k=round(k),
        dtype=dtype,
        count=count,
        name=name,
    )


def _both(kernel: Kernel) -> tuple[Kernel, Kernel]:
    """The two backward GEMMs: gradient of the input and of the weight."""
    m, n, k = float(kernel.m), float(kernel.n), float(kernel.k)
    return (
        gemm(m, k, n, kernel.dtype, f"{kernel.name}.dgrad", kernel.count),
        gemm(k, n, m, kernel.dtype, f"{kernel.name}.wgrad", kernel.count),
    )


def elementwise(size_bytes: float, name: str, write_share: float = 0.4) -> Kernel:
    """A memory-bound kernel group of that many bytes."""
    return Kernel(
        kind="elementwise", read_bytes=size_bytes * (1 - write_share), write_bytes=size_bytes * write_share, name=name
    )


def linear_forward(plan: Plan) -> tuple[Kernel, ...]:
    """The four linear maps of a dense layer."""
    tokens, hidden, t = plan.tokens, plan.shape.hidden, plan.tensor
    dtype = GEMM_DTYPE[plan.training.precision]
    return (
        gemm(tokens, (plan.query_width + 2 * plan.kv_width) / t, hidden, dtype, "qkv"),
        gemm(tokens, hidden, plan.query_width / t, dtype, "attention_out"),
        gemm(tokens, plan.mlp_inputs * plan.shape.ffn / t, hidden, dtype, "mlp_in"),
        gemm(tokens, hidden, plan.shape.ffn / t, dtype, "mlp_out"),
    )


def attention_core(plan: Plan) -> tuple[Pass, Pass]:
    """Scores, softmax and values, forward and backward; flash = one kernel each, eager = materialised scores."""
    training, t = plan.training, plan.tensor
    sequence, width = training.sequence_length, plan.query_width / t
    half = 0.5 if training.causal else 1.0
    dtype: Dtype = "fp16" if training.precision == "fp16" else "tf32" if training.precision == "fp32" else "bf16"
    qkv_bytes = 2.0 * plan.tokens * (plan.query_width + 2 * plan.kv_width) / t
    out_bytes = 2.0 * plan.tokens * width
    full = 4.0 * plan.tokens * sequence * width
    if training.attention == "flash":
        variant = training.attention_version or plan.profile.attention_version
        forward = Kernel(
            kind="attention", flops=full * half, read_bytes=qkv_bytes, write_bytes=out_bytes,
            sequence_length=sequence, dtype=dtype, variant=variant, name="attention",
        )  # fmt: skip
        backward = Kernel(
            kind="attention", flops=2.5 * full * half, read_bytes=2 * (qkv_bytes + out_bytes), write_bytes=qkv_bytes,
            sequence_length=sequence, dtype=dtype, variant=variant, name="attention.backward",
        )  # fmt: skip
        return Pass((forward,), 1), Pass((backward,), 2)
    scores = plan.tokens * sequence * plan.shape.heads / t
    batch = plan.tokens / sequence * plan.shape.heads / t
    matmuls = (
        gemm(sequence, sequence, plan.head_width, dtype, "scores", batch),
        gemm(sequence, plan.head_width, sequence, dtype, "values", batch),
    )
    # softmax, mask and dropout; the score matrix written and read by the GEMMs is in their own bytes
    extra = elementwise((_EAGER_SCORE_BYTES - 4.0) * scores, "softmax")
    back = tuple(half for kernel in matmuls for half in _both(kernel))
    return Pass((*matmuls, extra), 6), Pass((*back, elementwise((_EAGER_SCORE_BYTES - 4.0) * scores, "softmax.backward")), 10)


def elementwise_bytes(plan: Plan) -> float:
    """Forward traffic of norms, residuals, rotary embedding and the activation function, each kernel by itself.

    Two norms and two residual additions read and write T h (with sequence parallelism T h / t); the activation reads
    its inputs and writes one output of f / t.
    """
    tokens, t = plan.tokens, plan.tensor
    split = t if plan.training.parallelism.sequence_parallel else 1
    hidden_bytes = 20.0 * tokens * plan.shape.hidden / split
    mlp_bytes = 2.0 * (plan.mlp_inputs + 1) * tokens * plan.shape.ffn / t
    rope = 4.0 if plan.shape.position == "rope" else 0.0
    qkv_bytes = rope * tokens * (plan.query_width + plan.kv_width) / t
    dropout = 10.0 * tokens * plan.shape.hidden / split if plan.training.dropout else 0.0
    return plan.profile.elementwise_traffic * (hidden_bytes + mlp_bytes + qkv_bytes + dropout)


def layer_forward(plan: Plan) -> Pass:
    """One dense layer, forward."""
    core, _ = attention_core(plan)
    work = (*linear_forward(plan), elementwise(elementwise_bytes(plan), "elementwise"))
    return Pass(work, plan.profile.kernels_per_layer - core.num_launches) + core


def layer_backward(plan: Plan) -> Pass:
    """One dense layer, backward, with the recomputation that the plan asks for."""
    _, core = attention_core(plan)
    linear = tuple(half for kernel in linear_forward(plan) for half in _both(kernel))
    work = (*linear, elementwise(2 * elementwise_bytes(plan), "elementwise.backward"))
    return Pass(work, 2 * plan.profile.kernels_per_layer - core.num_launches) + core


def recompute(plan: Plan) -> Pass:
    """What a checkpointed layer runs again before its backward."""
    if plan.training.checkpointing.mode == "selective":
        return attention_core(plan)[0]
    return layer_forward(plan)


def embedding_forward(plan: Plan) -> Pass:
    """Lookup: one read and one write of T h."""
    size = 4.0 * plan.tokens * plan.shape.hidden
    kernel = Kernel(kind="embedding", read_bytes=size / 2, write_bytes=size / 2, name="embedding")
    return Pass((kernel,), 3)


def head_forward(plan: Plan) -> Pass:
    """Last norm, logits and loss, forward."""
    tokens, hidden, vocabulary = plan.tokens, plan.shape.hidden, plan.shape.vocabulary / plan.tensor
    dtype: Dtype = "fp16" if plan.training.precision == "fp16" else "tf32" if plan.training.precision == "fp32" else "bf16"
    logits = replace(gemm(tokens, vocabulary, hidden, dtype, "logits"), kind="logits")
    loss = elementwise(plan.profile.logit_bytes / 2 * tokens * vocabulary, "loss")
    return Pass((logits, loss, elementwise(4.0 * tokens * hidden, "last_norm")), 8)


def head_backward(plan: Plan) -> Pass:
    """Loss and logits, backward."""
    forward = head_forward(plan)
    logits, loss, norm = forward.kernels
    back = tuple(replace(half, kind="logits") for half in _both(logits))
    return Pass((*back, loss, norm), 12)


def optimizer_kernel(num_elements: float, bytes_per_element: float) -> Kernel:
    """AdamW on the device: reads and writes every state once."""
    size = num_elements * bytes_per_element
    return Kernel(kind="optimizer", read_bytes=0.55 * size, write_bytes=0.45 * size, name="adamw")
