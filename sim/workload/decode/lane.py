"""Writes the passes of one model over its layers: prefetched weights, KV traffic, GPU and CPU layers, stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.records import Category, Kernel, Kind, StepOperation, TensorClass
from sim.workload.decode.sizes import BLOCK_FORMATS, Sizes
from sim.workload.frameworks.inference import inference_profile

#: above this many tokens a pass computes CPU-resident layers on the GPU, copying their weights (llama.cpp, batch > 32)
_COPY_TO_GPU_TOKENS = 32
_CATEGORY: dict[str, Category] = {
    "compute": "compute", "cpu": "compute", "h2d": "transfer", "d2h": "transfer", "collective": "collective",
    "p2p": "collective",
}  # fmt: skip


class Lane:
    """Operations of all pipeline stages; `token` appends one pass (the prefill or one decode token)."""

    def __init__(self, sizes: Sizes, homes: Mapping[TensorClass, str]) -> None:
        self.sizes, self.inference = sizes, sizes.inference
        self.profile = inference_profile(self.inference.framework)
        self.weights_away = homes.get(TensorClass.WEIGHTS, "gpu") != "gpu"
        self.cache_away = homes.get(TensorClass.KV_CACHE, "gpu") != "gpu"
        pipeline = self.inference.pipeline_parallel
        self.stages = [f"s{stage}" for stage in range(pipeline)] if pipeline > 1 else ["rank"]
        gpu_layers = self.inference.gpu_layers
        self.num_cpu_layers = 0 if gpu_layers is None else sizes.shape.layers - gpu_layers
        self.operations: list[StepOperation] = []
        self._next: dict[str, int] = {}
        self._history: list[str] = []  # compute of each layer, in order, over all passes
        self._last = ""

    def token(self, index: int, phase: str, *, queries: float, context: float) -> None:
        """One pass: `queries` tokens per sequence, attending to `context` tokens."""
        mark = {"phase": phase, "micro_batch": index}
        for layer in range(self.sizes.shape.layers):
            stage = self._stage(layer)
            if layer and self._stage(layer - 1) != stage:
                self._hand_over(self._stage(layer - 1), stage, queries, mark)
            self._layer(stage, layer, queries, context, mark)
        self._head(self.stages[-1], mark)

    def _stage(self, layer: int) -> str:
        return self.stages[layer * len(self.stages) // self.sizes.shape.layers]

    def _layer(self, stage: str, layer: int, queries: float, context: float, mark: Mapping[str, Any]) -> None:
        sizes, inference = self.sizes, self.inference
        tokens = queries * sizes.sequences
        is_cpu = layer < self.num_cpu_layers
        copies = is_cpu and tokens > _COPY_TO_GPU_TOKENS
        read = sizes.layer_bytes * sizes.read_share(tokens)
        ahead = self.profile.prefetch_layers  # 1 = double buffering (FlexGen, section 4.1); 0 = fetched when needed
        window = (self._history[:-ahead] if ahead else self._history)[-1:]
        waits = [self._last]
        if self.weights_away or copies:
            source = "dram" if copies else "home:weights"
            waits.append(
                self._move(stage, "h2d", "fetch weights", read, source, "gpu", window, layer, mark, TensorClass.WEIGHTS)
            )
        earlier = context - queries  # tokens per sequence whose keys and values lie at their home
        attends_on_cpu = self.cache_away and not is_cpu and queries == 1 and self.profile.is_cpu_attention
        if attends_on_cpu:
            waits.append(self._attend_on_cpu(stage, layer, context, mark))
        elif self.cache_away and earlier and not is_cpu:
            size = sizes.sequences * earlier * sizes.kv_bytes_per_token
            waits.append(
                self._move(
                    stage, "h2d", "fetch KV", size, "home:kv_cache", "gpu", window, layer, mark, TensorClass.KV_CACHE
                )
            )  # fmt: skip
        if is_cpu and not copies:
            cache = sizes.sequences * context * sizes.kv_bytes_per_token
            done = self._add(
                stage, "cpu", Kind.HOST_UPDATE, f"layer {layer}", waits, num_elements=read + cache, bytes_per_element=1.0,
                layer=layer, **mark,
            )  # fmt: skip
        else:
            kernels = self._kernels(read, queries, 0.0 if attends_on_cpu else context)
            done = self._add(stage, "compute", Kind.COMPUTE, f"layer {layer}", waits, kernels=kernels, layer=layer, **mark)
        self._history.append(done)
        self._last = done
        if inference.tensor_parallel > 1:
            size = 2.0 * tokens * sizes.shape.hidden
            for half in ("attention", "feed-forward"):
                self._last = self._add(
                    stage, "collective", Kind.COLLECTIVE, f"all-reduce {half}", [self._last], collective="all_reduce",
                    group="tensor", size_bytes=size, layer=layer, **mark,
                )  # fmt: skip
        if self.cache_away and not is_cpu:
            size = tokens * sizes.kv_bytes_per_token
            self._move(stage, "d2h", "store KV", size, "gpu", "home:kv_cache", [done], layer, mark, TensorClass.KV_CACHE)

    def _attend_on_cpu(self, stage: str, layer: int, context: float, mark: Mapping[str, Any]) -> str:
        """Queries to the host, attention over the cache there, values back: the cache itself does not move."""
        sizes = self.sizes
        size = 2.0 * sizes.sequences * sizes.shape.hidden
        sent = self._move(stage, "d2h", "queries", size, "gpu", "dram", [self._last], layer, mark, TensorClass.ACTIVATIONS)
        read = sizes.sequences * context * sizes.kv_bytes_per_token
        done = self._add(
            stage, "cpu", Kind.HOST_UPDATE, "attention", [sent], num_elements=read,
            bytes_per_element=self.profile.cpu_attention_traffic,
            tensor_class=TensorClass.KV_CACHE, layer=layer, **mark,
        )  # fmt: skip
        return self._move(stage, "h2d", "values", size, "dram", "gpu", [done], layer, mark, TensorClass.ACTIVATIONS)

    def _kernels(self, read_bytes: float, queries: float, context: float) -> tuple[Kernel, ...]:
        """One layer: a decode is one stream of weights and cache; a prefill is its GEMMs and its attention."""
        sizes, sequences = self.sizes, self.sizes.sequences
        tokens, hidden = queries * sequences, sizes.shape.hidden
        linear_flops, weights = tokens * sizes.layer_flops_per_token, read_bytes * self.inference.num_batches
        cache = sequences * context * sizes.kv_bytes_per_token
        out = 2.0 * tokens * hidden
        if queries == 1:
            flops = linear_flops + sequences * sizes.attention_flops(1.0, context)
            return (
                Kernel(
                    kind="gemv", flops=flops, read_bytes=weights + cache, write_bytes=out, dtype=self._dtype(), name="layer"
                ),
            )  # fmt: skip
        width = max(1, round(sizes.layer_flops_per_token / (2.0 * hidden)))
        attended = context - queries / 2  # causal: the mean over the rows of a prompt
        return (
            Kernel(
                kind="gemm", flops=linear_flops, read_bytes=weights, write_bytes=2 * out, m=round(tokens), n=width, k=hidden,
                dtype=self._dtype(), variant=self._variant(), name="linear",
            ),
            Kernel(
                kind="attention", flops=sequences * sizes.attention_flops(queries, attended), read_bytes=cache, write_bytes=out,
                sequence_length=round(context), name="attention",
            ),
        )  # fmt: skip

    def _variant(self) -> str:
        """Kernel family of the prefill: block formats have their own."""
        variant = self.profile.gemm_variant
        return f"{variant}-block" if variant and self.inference.weights in BLOCK_FORMATS else variant

    def _dtype(self) -> Any:
        """Arithmetic follows the storage only for formats with native units; block formats are dequantised to 16 bits."""
        return {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4", "mxfp4": "fp4", "fp32": "fp32"}.get(
            self.inference.weights, "fp16"
        )

    def _head(self, stage: str, mark: Mapping[str, Any]) -> None:
        sizes = self.sizes
        if self.num_cpu_layers == sizes.shape.layers:
            self._last = self._add(
                stage, "cpu", Kind.HOST_UPDATE, "logits", [self._last], num_elements=sizes.head_bytes, bytes_per_element=1.0,
                **mark,
            )  # fmt: skip
            return
        kernel = Kernel(
            kind="gemv", flops=sizes.sequences * sizes.head_flops_per_token, read_bytes=sizes.head_bytes,
            write_bytes=4.0 * sizes.sequences * sizes.shape.vocabulary, dtype=self._dtype(), name="logits",
        )  # fmt: skip
        self._last = self._add(stage, "compute", Kind.COMPUTE, "logits", [self._last], kernels=(kernel,), **mark)

    def _hand_over(self, source: str, target: str, queries: float, mark: Mapping[str, Any]) -> None:
        """Send the hidden states to the next stage; the receiver's compute waits for the send."""
        size = 2.0 * queries * self.sizes.sequences * self.sizes.shape.hidden
        self._last = self._add(
            source, "p2p", Kind.COLLECTIVE, f"send to {target}", [self._last], collective="point_to_point", group="pipeline",
            size_bytes=size, target=target, **mark,
        )  # fmt: skip

    def _move(
        self, stage: str, role: str, name: str, size: float, source: str, target: str, after: Iterable[str], layer: int,
        mark: Mapping[str, Any], tensor_class: TensorClass,
    ) -> str:  # fmt: skip
        is_pinned = self.profile.is_pinned if tensor_class == TensorClass.WEIGHTS else self.profile.is_cache_pinned
        return self._add(
            stage, role, Kind.TRANSFER, name, after, size_bytes=size, source=source, target=target, layer=layer,
            tensor_class=tensor_class, rate_share=self.profile.copy_share, is_direct=self.profile.is_direct_storage,
            is_pinned=is_pinned, **mark,
        )  # fmt: skip

    def _add(self, stage: str, role: str, kind: Kind, name: str, after: Iterable[str], **fields: Any) -> str:
        stream = f"{stage}.{role}"
        sequence = self._next.get(stream, 0)
        self._next[stream] = sequence + 1
        identity = f"{stream}.{sequence}"
        waits = tuple(dict.fromkeys(item for item in after if item))
        self.operations.append(
            StepOperation(
                id=identity,
                kind=kind,
                stream=stream,
                sequence=sequence,
                name=name,
                after=waits,
                category=_CATEGORY[role],
                **fields,
            )
        )
        return identity
