"""Parameters on one rank: what its pipeline stage, tensor and expert group leave it, before ZeRO shards them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sim.workload.footprint.behaviour import behaviour
from sim.workload.shape import ModelShape
from sim.workload.shapes import head_dim, key_width, num_moe_layers, output_width, parameters, query_width, value_width
from sim.workload.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Parameters of one rank (counts). `dense` is replicated over all data-parallel ranks, `routed` over fewer.

    `largest_layer` is the largest transformer block, `head` the output embedding (also when tied), `largest_linear` the
    largest matrix of a block. `frozen` of them receive no gradient; `adapter` are the trained adapters, on top.
    """

    dense: float
    routed: float
    layers: int
    layer: float
    head: float
    embedding: float
    largest_linear: float
    num_shards: int
    num_routed_shards: int
    trained_dense: float
    trained_routed: float
    adapter: float
    quantised: float  # of dense + routed: kept in the adapter base's quantised type

    @property
    def total(self) -> float:
        """All base parameters of the rank."""
        return self.dense + self.routed

    @property
    def trained(self) -> float:
        """Parameters that receive gradients."""
        return self.trained_dense + self.trained_routed + self.adapter

    def sharded(self, dense: float, routed: float) -> float:
        """Those parameters split over the ranks that replicate them."""
        return dense / self.num_shards + routed / self.num_routed_shards


def chunk_layers(training: Training, stage: int, chunk: int) -> range:
    """Layers of one model chunk of a stage, in Megatron's interleaved order.

    The first chunks take the remainder; but where two layers more would divide evenly, embedding and output projection
    count as a layer each (Megatron's `account_for_embedding_in_pipeline_split`): the first and the last chunk have one less.
    """
    parts = training.parallelism.pipeline * training.parallelism.interleave
    index, layers = chunk * training.parallelism.pipeline + stage, training.model.layers
    if layers % parts and (layers + 2) % parts == 0 and parts > 1:
        each = (layers + 2) // parts
        return range(max(0, index * each - 1), min(layers, (index + 1) * each - 1))
    base, extra = divmod(layers, parts)
    start = index * base + min(index, extra)
    return range(start, start + base + (1 if index < extra else 0))


def stage_layers(training: Training, stage: int) -> list[int]:
    """Layers of all model chunks of a pipeline stage."""
    return [layer for chunk in range(training.parallelism.interleave) for layer in chunk_layers(training, stage, chunk)]


def num_shards(training: Training) -> int:
    """Ranks over which ZeRO shards dense parameters."""
    everyone = training.parallelism.data * training.parallelism.context
    return min(training.parallelism.shard_group or everyone, everyone)


def is_moe_layer(shape: ModelShape, layer: int) -> bool:
    """Whether the layer is a mixture of experts; dense layers come first, as in DeepSeek."""
    return layer >= shape.layers - num_moe_layers(shape)


@lru_cache(maxsize=512)
def rank_parameters(training: Training, stage: int) -> RankParameters:
    """Parameters of one rank of a pipeline stage, embedding on the first and head on the last."""
    shape, parallelism = training.model, training.parallelism
    count = parameters(shape)
    layers = stage_layers(training, stage)
    num_moe = sum(is_moe_layer(shape, layer) for layer in layers)
    num_dense = len(layers) - num_moe
    tensor, expert = parallelism.tensor, parallelism.expert
    moe_rest = count.moe_layer - count.experts * count.expert
    body = num_dense * count.dense_layer + num_moe * moe_rest
    head = shape.vocabulary * shape.hidden / tensor
    embedding = count.embedding / tensor if stage == 0 else 0.0
    is_last = stage == parallelism.pipeline - 1
    tail = (count.head / tensor + count.final_norm) if is_last else 0.0
    if is_last and shape.tied_embeddings and stage > 0:
        tail += head  # the last stage keeps its own copy of the tied embedding
    dense = body / tensor + embedding + tail
    everyone = parallelism.data * parallelism.context
    # experts are split over the tensor ranks (Megatron's default), unless their group spans the tensor ranks too
    split, spread = (1, tensor) if expert > everyone else (tensor, 1)
    routed = num_moe * count.experts * count.expert / (expert * split)
    replicas = max(1, everyone * spread // expert)
    shards = num_shards(training)
    share = _trained_share(training, len(layers))
    adapter = _adapter(training, len(layers)) / tensor
    linear = body - len(layers) * count.norm - num_moe * count.router
    if is_last and behaviour(training).quantises_head:
        linear += shape.vocabulary * shape.hidden
    has_adapter = training.adapter.type != "none"
    experts = count.experts * count.expert / (expert * split) if num_moe else 0.0
    layer = max(count.dense_layer / tensor if num_dense else 0.0, moe_rest / tensor + experts)
    return RankParameters(
        dense=dense,
        routed=routed,
        layers=len(layers),
        layer=layer,
        head=head if is_last else 0.0,
        embedding=embedding,
        largest_linear=_largest(shape) / tensor,
        num_shards=shards,
        num_routed_shards=max(1, min(replicas, shards)),
        trained_dense=0.0 if has_adapter else dense * share if share < 1 else dense,
        trained_routed=0.0 if has_adapter else routed * share,
        adapter=adapter,
        quantised=(linear / tensor + routed) if training.adapter.is_quantised else 0.0,
    )


def _trained_share(training: Training, layers: int) -> float:
    if training.trainable_layers is None:
        return 1.0
    count = parameters(training.model)
    trained = min(training.trainable_layers, layers) * count.layer
    return min(1.0, trained / count.total)


def _largest(shape: ModelShape) -> float:
    """Elements of the largest matrix of a transformer block."""
    width = max(shape.ffn if num_moe_layers(shape) < shape.layers else 0, shape.expert_ffn, query_width(shape))
    return float(width * shape.hidden)


def matrices(training: Training, stage: int) -> list[tuple[float, int]]:
    """(elements, how many) of the weight matrices of one rank of a stage, before ZeRO shards them; embeddings come last."""
    shape, tensor = training.model, training.parallelism.tensor
    h, layers = shape.hidden, stage_layers(training, stage)
    num_moe = sum(is_moe_layer(shape, layer) for layer in layers)
    q, k, v, o = head_widths(shape)
    is_gated, is_fused = shape.mlp == "swiglu", shape.fused_matrices or training.framework.startswith("megatron")
    # widths of the feed-forward matrices, in units of the inner width: gate and up (or both in one), down
    parts = (2, 1) if is_gated and is_fused else (1, 1, 1) if is_gated else (1, 1)
    found = [(h * width / tensor, len(layers)) for width in ((q + k + v, o) if is_fused else (q, k, v, o))]
    found += [(part * h * shape.ffn / tensor, len(layers) - num_moe) for part in parts]
    if num_moe:
        held = num_moe * shape.experts // training.parallelism.expert
        found += [(part * h * shape.expert_ffn, held) for part in parts]
        found += [(part * h * shape.shared_expert_ffn / tensor, num_moe) for part in parts]
    ends = (stage == 0) + (stage == training.parallelism.pipeline - 1 and not shape.tied_embeddings)
    kept = [(float(size), count) for size, count in found if size and count]
    return [*kept, (shape.vocabulary * h / tensor, ends)]


def layer_tensors(training: Training, stage: int) -> list[float]:
    """Elements that one rank holds of each weight matrix of a layer, in the order of the model."""
    layers, shards = max(1, len(stage_layers(training, stage))), num_shards(training)
    blocks = matrices(training, stage)[:-1]
    return [elements / shards for elements, count in blocks for _ in range(count // layers)]


@lru_cache(maxsize=512)
def sub_groups(training: Training, stage: int, limit: float) -> tuple[float, ...]:
    """Elements of the sub-groups into which ZeRO-3 packs one rank's partitions, in the order of the model.

    A group takes whole tensors and closes once it reaches `limit` elements (DeepSpeed stage3.py, _create_fp16_sub_groups).
    """
    shards, found, size = num_shards(training), [], 0.0
    ends = matrices(training, stage)[-1]
    order = [ends[0] / shards] if stage == 0 else []
    order += layer_tensors(training, stage) * max(1, len(stage_layers(training, stage)))
    order += [ends[0] / shards] * (ends[1] - (stage == 0))
    for elements in order:
        size += elements
        if size >= limit:
            found.append(size)
            size = 0.0
    return (*found, size) if size else tuple(found)


def adapter_targets(training: Training) -> frozenset[str]:
    """Matrices with an adapter, by short name (q k v o gate up down)."""
    attention = ("q", "k", "v", "o")
    feed_forward = ("gate", "up", "down") if training.model.mlp == "swiglu" else ("up", "down")
    names: set[str] = set()
    for target in training.adapter.targets:
        if target == "all":
            names |= {*attention, *feed_forward}
        elif target == "attention":
            names |= set(attention)
        elif target == "mlp":
            names |= set(feed_forward)
        else:
            names.add(target)
    return frozenset(names)


def _adapter(training: Training, layers: int) -> float:
    """Parameters of all adapters of a stage: rank x (in + out) per adapted matrix."""
    if training.adapter.type == "none":
        return 0.0
    shape, rank = training.model, training.adapter.rank
    h, f = shape.hidden, shape.ffn
    widths = {
        "q": h + query_width(shape), "k": h + key_width(shape), "v": h + value_width(shape), "o": output_width(shape) + h,
        "gate": h + f, "up": h + f, "down": f + h,
    }  # fmt: skip
    per_layer = sum(widths.get(name, 0) for name in adapter_targets(training))
    return float(layers * rank * per_layer)


def quantised_bytes(training: Training) -> float:
    """Bytes per quantised base parameter, with its scales.

    nf4: 4 bits + one fp32 scale per 64 (0.5625 B), or with double quantisation 8-bit scales (0.516 B); Dettmers et al.
    2023 (arXiv 2305.14314), section 3. int8: 1 B. gptq: an fp16 scale and a 4-bit zero per 128.
    """
    if training.adapter.stored == "gptq":
        return 0.5 + 2.5 / 128
    if training.adapter.stored == "int8":
        return 1.0
    return 0.5 + (1 / 64 + 4 / (64 * 256) if training.adapter.double_quantization else 4 / 64)


def head_widths(shape: ModelShape) -> tuple[int, int, int, int]:
    """Elements per token of q, k, v and of the attention result."""
    return query_width(shape), key_width(shape), value_width(shape), output_width(shape)


__all__ = [
    "RankParameters", "adapter_targets", "chunk_layers", "head_dim", "head_widths", "is_moe_layer", "num_shards",
    "quantised_bytes", "rank_parameters", "stage_layers", "sub_groups",
]  # fmt: skip
