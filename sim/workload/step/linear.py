"""Linear maps of a layer: their GEMMs forward and backward, adapters, quantisation, experts.

T tokens of the rank, t tensor ranks. A trained map has two backward GEMMs (input and weight gradient), a frozen one
one; an adapter of rank r adds [T, k] x [k, r] and [T, r] x [r, n].
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.held_out import Fitted
from sim.records import Kernel
from sim.workload import shapes
from sim.workload.footprint.counts import quantised_bytes
from sim.workload.step.plan import GEMM_DTYPE, Plan
from sim.workload.step.work import Pass, elementwise, gemm

#: bytes moved per weight and pass where AutoGPTQ unpacks with PyTorch's own kernels; fit on Qwen's README (72B, 256 tokens,
#: three passes); without it, counted in qlinear_cuda_old.py: 0.5 read, shifted to 4 written, 4 read and cast to 1; mask,
#: zeros and scales 1 read each, 1, 1 and 2 written
_GPTQ_BYTES = Fitted(21.0, 16.5, ("qwen-readme",))
#: bytes per input and per output element of an adapted matrix, counted in fsdp_qlora's lora.py (as PEFT): dropout of the
#: input (5); the result is cloned (4), the adapter's output scaled (4) and added (6). Backward: dropout and the sum of both
#: inputs' gradients (11); scaling (4)
_ADAPTER_FORWARD, _ADAPTER_BACKWARD = (5.0, 14.0), (11.0, 4.0)


@dataclass(frozen=True, slots=True)
class Linear:
    """[m, k] x [k, n], `count` of them; `parts` are the matrices that an adapter may name."""

    name: str
    m: float
    k: float
    n: float
    parts: tuple[str, ...] = ()
    count: float = 1.0

    @property
    def weights(self) -> float:
        """Elements of the weight matrices."""
        return self.k * self.n * self.count


def attention_maps(plan: Plan) -> tuple[Linear, ...]:
    """Projections around the attention core, per tensor rank."""
    shape, tokens, hidden, t = plan.shape, plan.tokens, plan.shape.hidden, plan.tensor
    out = Linear("attention_out", tokens, shapes.output_width(shape) / t, hidden, ("o",))
    if shape.attention_type != "mla":
        width = shapes.query_width(shape) + shapes.key_width(shape) + shapes.value_width(shape)
        return (Linear("qkv", tokens, hidden, width / t, ("q", "k", "v")), out)
    rank, rope = shape.kv_lora_rank, shape.qk_rope_head_dim
    up = shape.heads * (shapes.head_dim(shape) + shape.v_head_dim) / t
    queries: tuple[Linear, ...] = (Linear("q", tokens, hidden, shapes.query_width(shape) / t, ("q",)),)
    if shape.q_lora_rank:
        queries = (
            Linear("q_down", tokens, hidden, shape.q_lora_rank, ("q",)),
            Linear("q_up", tokens, shape.q_lora_rank, shapes.query_width(shape) / t, ("q",)),
        )
    return (*queries, Linear("kv_down", tokens, hidden, rank + rope, ("k",)), Linear("kv_up", tokens, rank, up, ("v",)), out)


def mlp_maps(plan: Plan, width: float) -> tuple[Linear, ...]:
    """The dense feed-forward layer (or the shared experts) of that width."""
    tokens, hidden, t = plan.tokens, plan.shape.hidden, plan.tensor
    inputs = shapes.num_mlp_matrices(plan.shape) - 1
    names = ("gate", "up") if inputs == 2 else ("up",)
    return (
        Linear("mlp_in", tokens, hidden, inputs * width / t, names),
        Linear("mlp_out", tokens, width / t, hidden, ("down",)),
    )


def expert_tokens(plan: Plan) -> float:
    """Token copies that the rank's experts process in one micro-batch, with a balanced router."""
    return plan.tokens * plan.shape.experts_per_token / (plan.tensor if plan.is_expert_wide else 1)


def expert_maps(plan: Plan) -> tuple[Linear, ...]:
    """Routed experts of one layer on one rank as grouped GEMMs, and the router."""
    shape, split = plan.shape, 1 if plan.is_expert_wide else plan.tensor
    local = shape.experts / plan.expert
    each = expert_tokens(plan) / local
    inputs = shapes.num_mlp_matrices(shape) - 1
    names = ("gate", "up") if inputs == 2 else ("up",)
    return (
        Linear("router", plan.tokens / plan.sequence_split, shape.hidden, shape.experts),
        Linear("expert_in", each, shape.hidden, inputs * shape.expert_ffn / split, names, local),
        Linear("expert_out", each, shape.expert_ffn / split, shape.hidden, ("down",), local),
    )


def layer_maps(plan: Plan, *, is_moe: bool) -> tuple[Linear, ...]:
    """All linear maps of one layer."""
    if not is_moe:
        return (*attention_maps(plan), *mlp_maps(plan, plan.shape.ffn))
    shared = mlp_maps(plan, plan.shape.shared_expert_ffn) if plan.shape.shared_expert_ffn else ()
    return (*attention_maps(plan), *shared, *expert_maps(plan))


def forward(plan: Plan, maps: tuple[Linear, ...]) -> Pass:
    """GEMMs of the maps, with what quantised weights or low-precision inputs cost around them."""
    dtype = GEMM_DTYPE[plan.training.precision]
    kernels = [gemm(item.m, item.n, item.k, dtype, item.name, item.count) for item in maps]
    launches = float(len(maps))
    for item in maps:
        for down, up in _adapters(plan, item):
            kernels += [down, up]
            launches += 4
    kernels += _adapted(plan, maps, _ADAPTER_FORWARD, "adapters")
    kernels += _casts(plan, maps, "forward") + _dequantised(plan, maps, "forward")
    return Pass(tuple(kernels), launches)


def backward(plan: Plan, maps: tuple[Linear, ...]) -> Pass:
    """Input gradients of all maps, weight gradients of the trained ones."""
    dtype = GEMM_DTYPE[plan.training.precision]
    kernels = [gemm(item.m, item.k, item.n, dtype, f"{item.name}.dgrad", item.count) for item in maps]
    launches = float(len(maps))
    if not plan.is_frozen:
        kernels += [gemm(item.k, item.n, item.m, dtype, f"{item.name}.wgrad", item.count) for item in maps]
        launches *= 2
    for item in maps:
        for down, up in _adapters(plan, item):
            kernels += [down, down, up, up]
            launches += 8
    kernels += _adapted(plan, maps, _ADAPTER_BACKWARD, "adapters.backward")
    kernels += _casts(plan, maps, "backward") + _dequantised(plan, maps, "backward")
    return Pass(tuple(kernels), launches)


def _adapters(plan: Plan, item: Linear) -> list[tuple[Kernel, Kernel]]:
    """Down and up projection of each adapted matrix of a map."""
    named = [part for part in item.parts if part in plan.targets]
    rank, width = plan.training.adapter.rank, item.n / max(1, len(item.parts))
    return [
        (
            gemm(item.m, rank, item.k, "bf16", f"{item.name}.lora_a", item.count),
            gemm(item.m, width, rank, "bf16", f"{item.name}.lora_b", item.count),
        )
        for _ in named
    ]


def _adapted(plan: Plan, maps: tuple[Linear, ...], each: tuple[float, float], name: str) -> list[Kernel]:
    """Passes over the inputs and outputs of adapted matrices besides the GEMMs: dropout, scaling, addition."""
    if not plan.is_frozen or plan.profile.has_fused_adapters:
        return []
    size = 0.0
    for item in maps:
        named = sum(part in plan.targets for part in item.parts)
        size += named * item.m * (each[0] * item.k + each[1] * item.n / max(1, len(item.parts))) * item.count
    traffic = plan.profile.compiled_traffic / 2 if plan.training.compile else 1.0
    return [elementwise(traffic * size, name)] if size else []


def _casts(plan: Plan, maps: tuple[Linear, ...], phase: str) -> list[Kernel]:
    """Quantising GEMM inputs to 8 or 4 bits: read 2 bytes, write the row-wise and the transposed copy."""
    size = plan.profile.cast_bytes.get(plan.training.precision, 0.0)
    if not size:
        return []
    if phase == "forward":
        elements = sum(item.m * item.k * item.count for item in maps if not _is_fused(plan, item, "expert_in"))
    else:
        elements = sum(item.m * item.n * item.count for item in maps if not _is_fused(plan, item, "expert_out"))
    weights = sum(item.weights for item in maps) / plan.training.gradient_accumulation
    return [elementwise(size * (elements + (weights if phase == "forward" else 0.0)), f"quantise.{phase}", 0.5)]


def _is_fused(plan: Plan, item: Linear, routed: str) -> bool:
    """Whether the expert exchange hands the map its input (or its output's gradient) quantised."""
    return plan.profile.fuses_routing and item.name == routed


def _dequantised(plan: Plan, maps: tuple[Linear, ...], phase: str) -> list[Kernel]:
    """Frozen 4- or 8-bit weights are written out in 16 bits before each use, by a kernel of its own."""
    if not plan.training.adapter.is_quantised:
        return []
    weights = sum(item.weights for item in maps if item.name != "router")
    each = _GPTQ_BYTES.get() if plan.training.adapter.stored == "gptq" else quantised_bytes(plan.training) + 2.0
    return [elementwise(weights * each, f"dequantise.{phase}", 0.8)]
