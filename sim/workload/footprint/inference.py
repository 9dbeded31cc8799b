"""Footprint of an inference job: weights, KV cache, working set of one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.held_out import as_unseen
from sim.records import TensorClass
from sim.workload.footprint.counts import is_moe_layer
from sim.workload.footprint.host import SHARD_FILE_BYTES, pinned_bytes
from sim.workload.footprint.ledger import INFERENCE_MOMENTS, Footprint, Term, system_term
from sim.workload.footprint.pinned import pinned_classes
from sim.workload.formats import KV_BYTES
from sim.workload.frameworks.inference import INFERENCE_PROFILES
from sim.workload.inference import Inference
from sim.workload.shape import ModelShape
from sim.workload.shapes import attended, head_dim, kv_heads, parameters, query_width
from sim.workload.stored import stored_weight

CONTEXT_BYTES = 0.5e9
PASSES = INFERENCE_MOMENTS[1:]
HOST_BYTES = 3.0 * 2.0**30  # interpreter, runtime and libraries of one process


def kv_cache_elements(shape: ModelShape) -> int:
    """Elements cached per token and layer: keys and values, or the compressed latent and its rotary part (MLA)."""
    if shape.attention_type == "mla":
        return shape.kv_lora_rank + shape.qk_rope_head_dim
    return 2 * kv_heads(shape) * head_dim(shape)


def kv_cache_bytes(inference: Inference) -> float:
    """Bytes of the KV cache of all sequences at full length, all ranks together."""
    length = inference.prompt_length + inference.output_length
    sequences = inference.batch_size * inference.num_batches
    shape = inference.model
    return float(shape.layers * kv_cache_elements(shape) * attended(shape, length) * sequences) * KV_BYTES[inference.kv_cache]


def weight_bytes(inference: Inference) -> float:
    """Bytes of all weights in their storage format; 1-D parameters and 16-bit embeddings of block formats are included."""
    return stored_weight(inference).size(parameters(inference.model))


def _placed_bytes(inference: Inference, tier: str, share: float) -> float:
    """Bytes that a share of the weights takes in a tier; page-locked layers may round up."""
    size = weight_bytes(inference) * share
    if tier in ("gpu", "nvme") or not inference.round_pinned or size <= 0:
        return size
    layer = weight_bytes(inference) / inference.model.layers
    return size / layer * pinned_bytes(layer, is_pinned=True, is_rounded=True)


def inference_footprint(
    inference: Inference,
    homes: Mapping[TensorClass, Mapping[str, float]],
    *,
    ranks_per_host: int | None = None,
    reserved_bytes: float = 0.0,
) -> Footprint:
    """Terms of one GPU of the job; a share of the weights on a slower tier streams through two layer buffers."""
    ranks = inference.tensor_parallel * inference.pipeline_parallel
    weights = _weight_shares(inference, homes)
    terms = [
        *_kept_terms(inference, weights, _cache_shares(inference, homes)),
        *_streaming_terms(inference, weights),
        *_pass_terms(inference),
        Term(name="process and libraries", tensor_class=TensorClass.BUFFERS, tier="dram", size_bytes=HOST_BYTES,
             moments=INFERENCE_MOMENTS),
        system_term(reserved_bytes, INFERENCE_MOMENTS),
    ]  # fmt: skip
    if inference.device == "cpu":
        terms = [replace(term, tier="dram") if term.tier == "gpu" else term for term in terms]
    else:
        locked = pinned_classes(inference)
        terms = [replace(term, is_locked=term.tier not in ("gpu", "nvme") and term.tensor_class in locked) for term in terms]
    return Footprint(
        terms=tuple(term for term in terms if term.size_bytes > 0),
        ranks_per_host=min(ranks_per_host or ranks, ranks),
        context_bytes=0.0 if inference.device == "cpu" else CONTEXT_BYTES,
        fragmentation=_fragmentation(inference, terms),
        moments=INFERENCE_MOMENTS,
    )


def _weight_shares(inference: Inference, homes: Mapping[TensorClass, Mapping[str, float]]) -> dict[str, float]:
    """Share of the weights on each tier."""
    weights = dict(homes.get(TensorClass.WEIGHTS, {"gpu": 1.0}))
    if not inference.splits_weights:
        return weights
    # the others are computed on the CPU, where the placement puts them
    elsewhere = {tier: share for tier, share in weights.items() if tier != "gpu"} or {"dram": 1.0}
    whole = sum(elsewhere.values())
    kept = (1.0 - _cpu_share(inference)) * (1.0 - _cpu_expert_share(inference))
    return {"gpu": kept} | {tier: (1.0 - kept) * share / whole for tier, share in elsewhere.items()}


def _cache_shares(inference: Inference, homes: Mapping[TensorClass, Mapping[str, float]]) -> Mapping[str, float]:
    """Share of the KV cache on each tier: beside the layers that use it unless it is placed."""
    on_gpu = 1.0 - inference.num_cpu_layers / inference.model.layers
    return homes.get(TensorClass.KV_CACHE, {"gpu": on_gpu} | ({"dram": 1.0 - on_gpu} if on_gpu < 1 else {}))


def _kept_terms(inference: Inference, weights: Mapping[str, float], cache: Mapping[str, float]) -> list[Term]:
    """Weights and KV cache where they stay, and what of the cache is kept for later requests."""
    ranks = inference.tensor_parallel * inference.pipeline_parallel
    terms = [
        Term(name="weights", tensor_class=TensorClass.WEIGHTS, tier=tier, moments=INFERENCE_MOMENTS,
             size_bytes=_placed_bytes(inference, tier, share) / ranks)
        for tier, share in weights.items()
    ]  # fmt: skip
    terms += [
        Term(name="KV cache", tensor_class=TensorClass.KV_CACHE, tier=tier, moments=PASSES,
             size_bytes=kv_cache_bytes(inference) * share / ranks)
        for tier, share in cache.items()
    ]  # fmt: skip
    if inference.reuse_tier and inference.reused_tokens:
        kept = kv_cache_bytes(inference) * inference.reused_tokens / (inference.prompt_length + inference.output_length)
        terms.append(
            Term(name="KV cache kept for reuse", tensor_class=TensorClass.KV_CACHE, tier=inference.reuse_tier,
                 moments=INFERENCE_MOMENTS, size_bytes=kept / ranks)
        )  # fmt: skip
    return terms


def _streaming_terms(inference: Inference, weights: Mapping[str, float]) -> list[Term]:
    """Buffers of weights that come from slower tiers while a pass runs."""
    terms = []
    if weights.get("gpu", 0.0) < 1.0 - 1e-9 and not inference.splits_weights and not inference.is_system:
        ends = (0, inference.model.layers - 1)
        layer = max(_layer_bytes(inference, layer) for layer in ends) / inference.tensor_parallel
        terms.append(_gpu("buffers of streamed layers", TensorClass.BUFFERS, 2 * layer))
    return terms + _beside_storage(inference, sum(share for tier, share in weights.items() if tier.startswith("nvme")))


def _pass_terms(inference: Inference) -> list[Term]:
    """What the passes themselves take on the GPU."""
    terms = []
    for moment, rows in (("prefill", inference.prompt_length * inference.batch_size), ("decode", inference.batch_size)):
        size = _pass_bytes(inference, rows)
        terms.append(_gpu(f"activations of the {moment}", TensorClass.ACTIVATIONS, size, (moment,)))
    if size := _dequantised_bytes(inference):
        terms.append(_gpu("dequantised matrix", TensorClass.BUFFERS, size, ("prefill",)))
    logits = 6.0 * inference.batch_size * inference.model.vocabulary / inference.tensor_parallel
    return [*terms, _gpu("logits", TensorClass.LOGITS, logits)]


def _beside_storage(inference: Inference, share: float) -> list[Term]:
    """What DeepSpeed's ZeRO-Inference holds in host memory of weights on NVMe (`offload_config.py`): buffers, and a part.

    Page-locked buffers take the next power of two; the checkpoint is read file by file before its weights are written.
    """
    if not share or not inference.framework.startswith("deepspeed"):
        return []
    count, elements = inference.buffer_count or 5, float(inference.buffer_elements or 1e8)
    limit = 1e9 if inference.max_in_cpu_elements is None else float(inference.max_in_cpu_elements)
    kept = min(limit, share * parameters(inference.model).total)
    sizes = (
        ("weight swap buffers", TensorClass.BUFFERS, count * pinned_bytes(2.0 * elements, is_pinned=True, is_rounded=True),
         INFERENCE_MOMENTS, f"{count} buffers x 2 B x {elements:.3g} elements"),
        ("weights kept beside storage", TensorClass.WEIGHTS, 2.0 * kept, INFERENCE_MOMENTS, f"2 B x {kept:.4g} elements"),
        ("checkpoint file being read", TensorClass.BUFFERS, min(weight_bytes(inference), SHARD_FILE_BYTES), ("load",), ""),
    )  # fmt: skip
    return [
        Term(name=name, tensor_class=kind, tier="dram", size_bytes=size, moments=when, formula=formula)
        for name, kind, size, when, formula in sizes
    ]


def _gpu(name: str, kind: TensorClass, size: float, moments: tuple[str, ...] = PASSES) -> Term:
    return Term(name=name, tensor_class=kind, tier="gpu", size_bytes=size, moments=moments)


def _cpu_share(inference: Inference) -> float:
    """Share of all weights that stays with the CPU's layers: theirs, and both ends of the model (llama.cpp, load_tensors)."""
    if not inference.num_cpu_layers:
        return 0.0
    count, stored = parameters(inference.model), stored_weight(inference)
    ends = count.embedding * stored.embedding + count.head * stored.head
    return (ends + (stored.size(count) - ends) * inference.num_cpu_layers / inference.model.layers) / stored.size(count)


def _cpu_expert_share(inference: Inference) -> float:
    """Share of all weights that are experts which the CPU computes."""
    if not inference.cpu_moe_layers:
        return 0.0
    count = parameters(inference.model)
    stored = stored_weight(inference)
    return count.routed * stored.routed / stored.size(count) * inference.cpu_moe_layers / count.moe_layers


def _layer_bytes(inference: Inference, layer: int) -> float:
    count = parameters(inference.model)
    size = count.moe_layer if is_moe_layer(inference.model, layer) else count.dense_layer
    stored = stored_weight(inference)
    routed = count.experts * count.expert if is_moe_layer(inference.model, layer) else 0
    return routed * stored.routed + (size - routed) * stored.other


def _fragmentation(inference: Inference, terms: Sequence[Term]) -> float:
    """Share of the GPU's bytes that its allocator holds on top: blocks that a growing cache has left."""
    profile = INFERENCE_PROFILES.get(inference.framework)
    if profile is None or not profile.outgrown_cache:
        return 0.0
    used = [term for term in terms if term.tier == "gpu" and "decode" in term.moments]
    cache = sum(term.size_bytes for term in used if term.tensor_class is TensorClass.KV_CACHE)
    return as_unseen(profile).outgrown_cache * cache / max(1.0, sum(term.size_bytes for term in used))


def _dequantised_bytes(inference: Inference) -> float:
    """Of the largest quantised matrix, while a prompt is computed: bitsandbytes multiplies one token without a copy."""
    profile = INFERENCE_PROFILES.get(inference.framework)
    if profile is None or not profile.dequantised_bytes or inference.weights != "nf4":
        return 0.0
    shape = inference.model
    largest = shape.vocabulary if profile.quantises_head and not shape.tied_embeddings else shape.ffn
    return profile.dequantised_bytes * largest * shape.hidden / inference.tensor_parallel


def _pass_bytes(inference: Inference, num_tokens: int) -> float:
    """Working set of one layer over those tokens, at most 8192 at a time (chunked prefill), 16-bit elements."""
    shape = inference.model
    width = 4 * shape.hidden + 2 * query_width(shape) + 3 * max(shape.ffn, shape.expert_ffn * shape.experts_per_token)
    return 2.0 * min(num_tokens, 8192) * width / inference.tensor_parallel
