"""Bytes that one transformer layer keeps for its backward pass, and what it needs while it runs.

The single source of these sizes: the step generator allocates and frees them, the closed form adds them up.
Counting follows Korthikanti et al. 2022 (arXiv 2205.05198), generalised to grouped queries, gated feed-forward layers,
latent attention and mixture-of-experts; bytes per token of one layer, 16-bit elements:

    norms in       2 h each                 q, k, v        2 (q + k + v)
    norms out      2 h each (GEMM inputs)   rotary copies  2 (q + k), eager only
    attention out  2 o                      feed-forward   GELU 4 f, SwiGLU 8 f eager or 6 f fused
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sim.workload.footprint.behaviour import Behaviour, behaviour
from sim.workload.footprint.counts import adapter_targets, head_widths
from sim.workload.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Bytes of one layer, one micro-batch, one rank.

    saved: kept from forward to backward when nothing is recomputed; core: the part of it that selective recomputation
    drops (the attention scores); checkpoint: kept instead when the layer is recomputed; live: extra while the layer
    itself runs forward or backward.
    """

    saved: float
    core: float
    checkpoint: float
    live: float


#: products that take the same input, by what the input is called here
_SAME_INPUT = {"attention": frozenset("qkv"), "feed-forward": frozenset({"gate", "up"}), "down": frozenset({"down"})}


def tokens(training: Training) -> float:
    """Tokens of one micro-batch on one rank (a context-parallel rank holds its part of the sequence)."""
    return training.batch_size * training.sequence_length / training.parallelism.context


@lru_cache(maxsize=1024)
def selected_activations(training: Training, is_moe: bool = False) -> float:
    """Bytes of one layer kept under selective recomputation.

    Megatron recomputes the attention scores only; torchtitan keeps the layer input, the attention result and every
    second matrix product (torchtitan/distributed/activation_checkpoint.py, policy "op").
    """
    sizes = layer_activations(training, is_moe)
    if behaviour(training).selective == "scores":
        return sizes.saved - sizes.core
    shape, parallelism = training.model, training.parallelism
    _, k, _, o = head_widths(shape)
    inner = shape.ffn if not is_moe else shape.shared_expert_ffn + shape.experts_per_token * shape.expert_ffn
    split = parallelism.tensor if parallelism.sequence_parallel else 1
    kept = 2 * shape.hidden / split + (2 * o + k + inner) / parallelism.tensor
    return min(sizes.saved, tokens(training) * training.element_bytes * kept)


@lru_cache(maxsize=1024)
def layer_activations(training: Training, is_moe: bool = False) -> LayerActivations:
    """Activation bytes of one dense or mixture-of-experts layer of the job, per rank and micro-batch."""
    how = behaviour(training)
    t, tensor = tokens(training), training.parallelism.tensor
    sequence_split = tensor if training.parallelism.sequence_parallel else 1
    e = training.element_bytes
    whole, split = _per_token(training, how, is_moe)
    saved = t * e * (whole / sequence_split + split / tensor)
    saved += _masks(training, t, sequence_split)
    core, score_live = _scores(training, how)
    return LayerActivations(
        saved=saved + core,
        core=core,
        checkpoint=t * training.model.hidden * e / sequence_split,
        live=score_live + t * e * 2 * training.model.hidden / sequence_split,
    )


def _per_token(training: Training, how: Behaviour, is_moe: bool) -> tuple[float, float]:
    """Elements kept per token: (held whole by each tensor rank unless sequence-parallel, split over tensor ranks)."""
    shape = training.model
    h = shape.hidden
    q, k, v, o = head_widths(shape)
    adapter, needed = training.adapter, adapter_targets(training)
    is_kept = adapter.type == "none" or (how.keeps_quantised_inputs and adapter.stored in ("nf4", "int8"))
    has_input = {key for key, group in _SAME_INPUT.items() if is_kept or (needed & group and not adapter.dropout)}
    inputs = h * _gemm_input(training, how) * (("attention" in has_input) + ("feed-forward" in has_input))
    inputs += _dropped(training, how, needed)
    copies = 0.0 if training.compile else how.norm_copy_bytes / 2
    whole = shape.norms_per_layer * h * (1 + copies) + (inputs / 2 if training.compile else inputs)
    split = float(q + k + v + o)
    if shape.position == "rope" and not (training.compile or how.is_fused):
        split += q + k
    inner = _inner(training, how, "down" in has_input)
    if not is_moe:
        return whole, split + inner * shape.ffn
    # each tensor rank dispatches its part of the tokens, permuted copies in and out; balanced experts
    routed = shape.experts_per_token * (inner * shape.expert_ffn + 2 * h)
    return whole, split + inner * shape.shared_expert_ffn + routed


def _dropped(training: Training, how: Behaviour, needed: frozenset[str]) -> float:
    """Elements per token that dropout in front of adapters keeps: a copy of the input and a mask of one byte per element."""
    if not training.adapter.dropout:
        return 0.0
    shape = training.model
    attention, gates = needed & _SAME_INPUT["attention"], needed & _SAME_INPUT["feed-forward"]
    copies = shape.hidden * ((min(len(attention), 1) if how.joins_attention else len(attention)) + len(gates))
    own = head_widths(shape)[3] * ("o" in needed) + shape.ffn * ("down" in needed)
    return (1.0 + 1.0 / training.element_bytes) * (copies + own)


def _gemm_input(training: Training, how: Behaviour) -> float:
    """Share of a 16-bit element that a saved GEMM input takes: half where the framework keeps it in fp8."""
    return 0.5 if how.is_fused and training.precision in ("fp8", "mxfp8", "nvfp4") else 1.0


def _inner(training: Training, how: Behaviour, has_down_input: bool) -> float:
    """Elements per token and feed-forward width: pre-activations and the input of the last matrix."""
    down = _gemm_input(training, how) * has_down_input
    if training.model.mlp == "gelu":
        return 1.0 + down
    return (2.0 if training.compile or how.is_fused else 3.0) + down


def _masks(training: Training, t: float, sequence_split: int) -> float:
    """Dropout masks after attention and after the feed-forward layer, one byte each."""
    return 2 * t * training.model.hidden / sequence_split if training.dropout else 0.0


def _scores(training: Training, how: Behaviour) -> tuple[float, float]:
    """Bytes of materialised attention scores: kept for backward, and needed while the layer runs."""
    shape = training.model
    if training.attention == "flash":  # log-sum-exp per head and token, fp32
        return 4.0 * shape.heads * tokens(training) / training.parallelism.tensor, 0.0
    scale = training.element_bytes / 2
    num = shape.heads * tokens(training) * training.sequence_length / training.parallelism.tensor
    saved = how.score_saved_bytes * scale + (1.0 + 2.0 * scale if training.dropout else 0.0)
    return saved * num, max(0.0, how.score_live_bytes - how.score_saved_bytes) * scale * num


def layer_figures(training: Training) -> dict[str, float]:
    """What one dense layer keeps per micro-batch and rank, bytes: all of it, attention scores alone, its checkpoint."""
    sizes = layer_activations(training)
    return {"saved_bytes": sizes.saved, "score_bytes": sizes.core, "checkpoint_bytes": sizes.checkpoint}


def checkpoint_plan(training: Training, num_layers: int) -> tuple[int, int]:
    """(layers of a stage that are recomputed, layers of one recomputed block)."""
    plan = training.checkpointing
    if not plan.active or plan.mode == "selective":
        return 0, 0
    recomputed = num_layers if plan.layers is None else min(plan.layers, num_layers)
    return recomputed, min(plan.interval, recomputed) if recomputed else 0


def logits_bytes(training: Training) -> float:
    """Peak bytes of logits and loss of one micro-batch on a rank of the last stage.

    full: 2 B logits, then in fp32 the softmax, its gradient and the gradient of the logits (14 B; 10 B where the framework
    works in place); half: logits, their shifted copy, softmax and gradient in 16 bits; fused: in place; chunked: the
    logits and one chunk at a time; fused_linear: never materialised. Tensor ranks split the vocabulary.
    """
    how = behaviour(training)
    e = training.element_bytes
    num = tokens(training) * training.model.vocabulary / training.parallelism.tensor
    per_logit = {
        "full": how.logit_bytes, "half": 4 * e, "fused": 2 * e, "chunked": e + 10.0 / training.loss_chunks, "fused_linear": 0.0,
    }[training.loss]  # fmt: skip
    return num * per_logit
