"""Writes the passes of one model over its layers: prefetched weights, KV traffic, GPU and CPU layers, stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from sim.records import Kind, TensorClass
from sim.workload.decode.cpu import CpuLayers
from sim.workload.decode.layer import LayerKernels
from sim.workload.decode.sizes import Sizes
from sim.workload.decode.streams import Streams
from sim.workload.frameworks.inference import inference_profile

#: chunks of a prompt that are written one by one, so that pipeline stages overlap; more are written together
_MAX_CHUNKS = 16


class Lane:
    """The passes of all pipeline stages: `prefill` and `token` write theirs to `streams`."""

    def __init__(self, sizes: Sizes, homes: Mapping[TensorClass, str]) -> None:
        self.sizes, self.inference = sizes, sizes.inference
        self.profile = inference_profile(self.inference.framework)
        self.kernels = LayerKernels(sizes, self.profile)
        placed = homes.get(TensorClass.WEIGHTS, "gpu")
        self.cpu_home = "" if placed == "gpu" else placed  # of the CPU's part; "" = host memory, as nothing says more
        self.weights_home = "gpu" if self.inference.splits_weights else placed  # of the GPU's part
        self.cache_home = homes.get(TensorClass.KV_CACHE, "gpu")
        asked = self.inference.is_prefetched
        default = self.profile.prefetch_layers
        advice = self.inference.managed_advice
        is_moved = self.inference.is_managed and self.weights_home != "gpu"  # by the driver of managed memory
        self.streams = Streams(self.inference, self.profile, is_moved=is_moved)
        self._add, self._read, self._move = self.streams.add, self.streams.read, self.streams.move
        self.cpu = CpuLayers(sizes, self.profile, self._add)
        self.ahead = default if asked is None else max(1, default) if asked else 0
        if is_moved or self.inference.is_system:
            runs_on = self.inference.is_system and bool(self.profile.dispatch_layer_s)  # kernels load while more are launched
            self.ahead = 1 if "prefetch" in advice or runs_on else 0  # a page is asked for when a kernel touches it
        self.is_host_allocated = self.inference.is_system or self.inference.is_managed
        pipeline = self.inference.pipeline_parallel
        self.stages = [f"s{stage}" for stage in range(pipeline)] if pipeline > 1 else ["rank"]
        self.num_cpu_layers = self.inference.num_cpu_layers
        self._history: list[str] = []  # compute of each layer, in order, over all passes
        self._last = ""

    def prefill(self) -> None:
        """The prompt, but for reused tokens, in as many passes as the framework makes of it."""
        inference = self.inference
        computed = inference.prompt_length - inference.reused_tokens
        limit = inference.prefill_tokens or self.profile.prefill_tokens
        num_chunks = max(1, ceil(computed * self.sizes.sequences / limit)) if limit else 1
        written = min(num_chunks, _MAX_CHUNKS, computed) if len(self.stages) > 1 else 1
        for chunk in range(written):
            self._last = ""  # a chunk follows the one before it stage by stage, not as a whole
            context = inference.reused_tokens + computed * (chunk + 1) / written
            self._pass({"phase": "prefill", "micro_batch": 0}, computed / written, context, ceil(num_chunks / written))
        self._head(self.stages[-1], {"phase": "prefill", "micro_batch": 0})

    def token(self, index: int) -> None:
        """One decode token of every sequence."""
        mark = {"phase": "decode", "micro_batch": index}
        self._pass(mark, 1.0, float(self.inference.prompt_length + index), 0)
        self._head(self.stages[-1], mark)

    def _pass(self, mark: Mapping[str, Any], queries: float, context: float, num_passes: int) -> None:
        for layer in range(self.sizes.shape.layers):
            stage = self._stage(layer)
            if layer and self._stage(layer - 1) != stage:
                self._hand_over(self._stage(layer - 1), stage, queries, mark)
            self._layer(stage, layer, queries, context, num_passes, mark)

    def _stage(self, layer: int) -> str:
        """The GPUs share their layers evenly; the CPU's come first, on the host of the first of them."""
        on_gpu = self.sizes.shape.layers - self.num_cpu_layers
        return self.stages[max(0, layer - self.num_cpu_layers) * len(self.stages) // max(1, on_gpu)]

    def _layer(self, stage: str, layer: int, queries: float, context: float, num_passes: int, mark: Mapping[str, Any]) -> None:
        """One layer of one pass; `num_passes` 0 = a decode token, else that many prefill passes written as one."""
        sizes = self.sizes
        tokens = queries * sizes.sequences
        in_pass = tokens / max(1, num_passes)
        is_cpu = layer < self.num_cpu_layers
        limit = self.profile.cpu_batch_tokens
        is_large = bool(limit) and in_pass > limit and self.inference.device != "cpu"  # too much for the CPU: copied to the GPU
        is_copied = is_cpu and is_large
        has_cpu_experts = not is_cpu and layer < sizes.num_expert_layers_on_cpu
        read = sizes.layer_bytes * sizes.read_share(in_pass)
        window = (self._history[: -self.ahead] if self.ahead else self._history)[-1:]
        waits = [self._last, *self._weights(stage, layer, read, num_passes, is_copied, window, mark)]
        if is_copied:
            waits.append(self.cpu.attention(stage, layer, queries, context, waits, mark))
        if has_cpu_experts and is_large:
            waits += self._fetch_experts(stage, layer, in_pass, num_passes, mark)
        attended, on_cpu = self._attend(stage, layer, context, queries, is_cpu, window, mark)
        waits += attended
        if is_cpu and not is_copied:
            done = self.cpu.layer(stage, layer, queries, context, read, num_passes, waits, mark)
        else:
            is_split = has_cpu_experts and not is_large
            here = 0.0 if (is_cpu if num_passes else on_cpu) else context  # what of the cache its own attention reads
            done = self._on_gpu(stage, layer, read, queries, here, num_passes, waits, mark, is_split=is_split)
            if is_split:
                done = self._experts_on_cpu(stage, layer, tokens, num_passes, done, mark)
        self._history.append(done)
        self._last = done
        self._join(stage, layer, tokens, bool(num_passes), mark)
        if self.cache_home != "gpu" and not is_cpu:
            size = tokens * sizes.kv_bytes_per_token
            self._move(stage, "d2h", "store KV", size, "gpu", "home:kv_cache", [done], layer, mark, TensorClass.KV_CACHE)

    def _on_gpu(
        self, stage: str, layer: int, read: float, queries: float, context: float, num_passes: int, waits: Iterable[str],
        mark: Mapping[str, Any], *, is_split: bool,
    ) -> str:  # fmt: skip
        """A layer's kernels; `is_split`: its routed experts are computed elsewhere."""
        sizes, flops = self.sizes, self.sizes.layer_flops_per_token
        if is_split:
            read -= sizes.routed_bytes * sizes.touched_share(queries * sizes.sequences / max(1, num_passes))
            flops -= sizes.routed_flops_per_token
        kernels = (
            self.kernels.prefill(read, num_passes, queries, context, flops)
            if num_passes
            else self.kernels.decode(read, context, flops)
        )
        return self._add(
            stage, "compute", Kind.COMPUTE, f"layer {layer}", waits, kernels=kernels, layer=layer,
            is_host_allocated=self.is_host_allocated,
            dispatch_s=0.0 if num_passes else self._dispatch_s(), fixed_s=self._split_s() * max(1, num_passes),
            **mark,
        )  # fmt: skip

    def _weights(
        self, stage: str, layer: int, read: float, num_passes: int, is_copied: bool, window: list[str], mark: Mapping[str, Any]
    ) -> list[str]:  # fmt: skip
        """What a layer's compute waits for until its weights are where they are needed."""
        size, kind = read * max(1, num_passes), TensorClass.WEIGHTS
        if layer < self.num_cpu_layers:
            return self._from_file(stage, "weights", size, layer, mark, is_copied=is_copied)
        if self.weights_home == "gpu":
            return []
        is_serial = self.profile.is_decode_serial and not num_passes and self.weights_home == "host"
        after = self._history[-1:] if is_serial else window
        fetched = self._move(stage, "h2d", "fetch weights", size, "home:weights", "gpu", after, layer, mark, kind)
        if is_serial:
            self._last = fetched
        return [fetched]

    def _from_file(
        self, stage: str, name: str, size: float, layer: int, mark: Mapping[str, Any], *, is_copied: bool
    ) -> list[str]:
        """The CPU's part of a layer, read from its drive if it lies on one, then copied to the GPU if that computes it."""
        turn = self._history[-1:]  # a mapped file and a copy of it: not before it is the layer's turn
        kind = TensorClass.WEIGHTS
        found = [self._read(stage, f"read {name}", size, kind, turn, layer, mark)] if self.cpu_home == "storage" else []
        if is_copied:
            source = "home:weights" if self.cpu_home == "host" else "dram"
            after = [*turn, *found]
            found = [self._move(stage, "h2d", f"fetch {name}", size, source, "gpu", after, layer, mark, kind, is_mapped=True)]
        return found

    def _fetch_experts(self, stage: str, layer: int, in_pass: float, num_passes: int, mark: Mapping[str, Any]) -> list[str]:
        """The experts that large passes draw come to the GPU."""
        size = self.sizes.routed_bytes * self.sizes.touched_share(in_pass) * max(1, num_passes)
        return self._from_file(stage, "experts", size, layer, mark, is_copied=True)

    def _experts_on_cpu(
        self, stage: str, layer: int, tokens: float, num_passes: int, after: str, mark: Mapping[str, Any]
    ) -> str:
        """Hidden states to the host, its experts, their sums back."""
        sizes, kind = self.sizes, TensorClass.ACTIVATIONS
        size = 4.0 * tokens * sizes.shape.hidden
        read = sizes.routed_bytes * sizes.touched_share(tokens / max(1, num_passes)) * max(1, num_passes)
        staged = self._from_file(stage, "experts", read, layer, mark, is_copied=False)
        sent = self._move(stage, "d2h", "hidden states", size, "gpu", "dram", [after], layer, mark, kind)
        done = self.cpu.experts(stage, layer, tokens, num_passes, [sent, *staged], mark)
        return self._move(stage, "h2d", "expert sums", size, "dram", "gpu", [done], layer, mark, kind)

    def _attend(
        self, stage: str, layer: int, context: float, queries: float, is_cpu: bool, window: list[str], mark: Mapping[str, Any]
    ) -> tuple[list[str], bool]:
        """What attention waits for beside the weights, and whether it runs on the CPU."""
        sizes = self.sizes
        earlier = context - queries  # tokens per sequence whose keys and values lie at their home
        size = sizes.sequences * sizes.attended(earlier) * sizes.kv_bytes_per_token
        if is_cpu or not earlier:
            return [], False
        if self.cache_home == "gpu":
            reused = self.inference.reuse_tier if mark["phase"] == "prefill" else ""
            if not reused or earlier > self.inference.reused_tokens:  # later chunks find the first one's copy
                return [], False
            return [self._move(stage, "h2d", "fetch KV", size, reused, "gpu", window, layer, mark, TensorClass.KV_CACHE)], False
        if queries > 1 or not self.profile.is_cpu_attention or self.inference.kv_cache not in ("fp16", "bf16"):
            kind = TensorClass.KV_CACHE
            return [self._move(stage, "h2d", "fetch KV", size, "home:kv_cache", "gpu", window, layer, mark, kind)], False
        staged = []
        if self.cache_home == "storage":
            staged = [self._read(stage, "read KV", size, TensorClass.KV_CACHE, window, layer, mark)]
        return [self._attend_on_cpu(stage, layer, context, staged, mark)], True

    def _attend_on_cpu(self, stage: str, layer: int, context: float, staged: list[str], mark: Mapping[str, Any]) -> str:
        """Queries to the host, attention over the cache there, values back: the cache itself does not move."""
        sizes, kind = self.sizes, TensorClass.ACTIVATIONS
        size = 2.0 * sizes.sequences * sizes.shape.hidden
        sent = self._move(stage, "d2h", "queries", size, "gpu", "dram", [self._last], layer, mark, kind)
        done = self._add(
            stage, "cpu", Kind.HOST_UPDATE, "attention", [sent, *staged],
            num_elements=sizes.sequences * sizes.attended(context) * sizes.kv_bytes_per_token,
            bytes_per_element=self.profile.cpu_attention_traffic, tensor_class=TensorClass.KV_CACHE, layer=layer, **mark,
        )  # fmt: skip
        return self._move(stage, "h2d", "values", size, "dram", "gpu", [done], layer, mark, kind)

    def _dispatch_s(self) -> float:
        return self.profile.dispatch_layer_s + (self.profile.quantised_layer_s if self.inference.weights == "nf4" else 0.0)

    def _split_s(self) -> float:
        """Seconds per layer and pass in which the host joins the parts of a layer that GPUs split by rows."""
        ranks = self.inference.tensor_parallel
        return ranks * self.profile.split_layer_s if ranks > 1 else 0.0

    def _join(self, stage: str, layer: int, tokens: float, is_prefill: bool, mark: Mapping[str, Any]) -> None:
        """Join the parts of a layer that several GPUs computed."""
        ranks = self.inference.tensor_parallel
        if ranks == 1:
            return
        if self.profile.split_layer_s:
            if is_prefill:  # a decode token's few bytes are in the host's time
                self._copies(stage, layer, tokens, mark)
            return
        size = 2.0 * tokens * self.sizes.shape.hidden
        for half in ("attention", "feed-forward"):
            self._last = self._add(
                stage, "collective", Kind.COLLECTIVE, f"all-reduce {half}", [self._last], collective="all_reduce",
                group="tensor", size_bytes=size, is_fused=self.profile.is_fused_join, layer=layer, **mark,
            )  # fmt: skip

    def _copies(self, stage: str, layer: int, tokens: float, mark: Mapping[str, Any]) -> None:
        """Split by rows: the first GPU sends the fp32 input of every matrix to each other one and gets its rows back."""
        inputs, outputs = self.sizes.matrix_widths
        others = self.inference.tensor_parallel - 1
        for name, width, calls in (("send inputs", inputs, others), ("collect rows", outputs, others / (others + 1))):
            self._last = self._add(
                stage, "collective", Kind.COLLECTIVE, name, [self._last], collective="broadcast", group="tensor",
                size_bytes=4.0 * tokens * width, num_calls=calls, layer=layer, **mark,
            )  # fmt: skip

    def _head(self, stage: str, mark: Mapping[str, Any]) -> None:
        if self.num_cpu_layers:  # llama.cpp takes the head to the GPU after all layers only
            self._last = self.cpu.head(self.stages[0], [self._last], mark)
            return
        self._last = self._add(stage, "compute", Kind.COMPUTE, "logits", [self._last], kernels=(self.kernels.head(),), **mark)

    def _hand_over(self, source: str, target: str, queries: float, mark: Mapping[str, Any]) -> None:
        """Send the hidden states to the next stage; the receiver's compute waits for the send."""
        size = 2.0 * queries * self.sizes.sequences * self.sizes.shape.hidden
        self._last = self._add(
            source, "p2p", Kind.COLLECTIVE, f"send to {target}", [self._last], collective="point_to_point", group="pipeline",
            size_bytes=size, target=target, **mark,
        )  # fmt: skip
