"""Kernels of one layer: a decode is one stream of weights and cache; a prefill is its GEMMs and its attention."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sim.laws.decode import ROUTING, ROUTING_KERNELS
from sim.records import Kernel
from sim.workload.decode.sizes import Sizes
from sim.workload.formats import BLOCK_FORMATS, KV_BYTES, NATIVE, WEIGHT_BYTES
from sim.workload.frameworks.inference import InferenceProfile


class LayerKernels:
    """What one layer, or the head, computes on one GPU under one framework profile."""

    def __init__(self, sizes: Sizes, profile: InferenceProfile) -> None:
        self.sizes, self.profile, self.inference = sizes, profile, sizes.inference
        self.dtype: Any = NATIVE.get(self.inference.weights, "fp16") if profile.is_native else "fp16"
        self.variant = profile.gemm_variant
        if self.variant and self.inference.weights in BLOCK_FORMATS:
            self.variant += "-block"
        self.stream = self.variant or self._unpacking()

    def decode(self, read_bytes: float, context: float, flops_per_token: float) -> tuple[Kernel, ...]:
        """One token of every sequence over `context` tokens of cache (0 = attended elsewhere); FLOPs of its matrices."""
        sizes, sequences = self.sizes, self.sizes.sequences
        cache, unpacked = self._cache(context)
        kernel = Kernel(
            kind="gemv", flops=sequences * (flops_per_token + sizes.attention_flops(1.0, context)),
            read_bytes=read_bytes * self.inference.num_batches + cache, write_bytes=2.0 * sequences * sizes.shape.hidden,
            dtype=self.dtype, variant=self.stream, name="layer",
        )  # fmt: skip
        return (kernel, *self._routing(), *self._dequantise(read_bytes, unpacked))

    def _routing(self) -> tuple[Kernel, ...]:
        """What ggml launches for a mixture's layer beyond a dense one's; the mean over layers with and without experts."""
        sizes = self.sizes
        share = sizes.count.moe_layers / sizes.shape.layers
        if not self.variant.startswith("ggml") or not share:
            return ()
        count = share * (ROUTING_KERNELS + sizes.shape.experts_per_token - 1)
        return (Kernel(kind="gemv", dtype=self.dtype, variant=self.variant + ROUTING, count=count, name="routing"),)

    def prefill(
        self, read_bytes: float, num_passes: int, queries: float, context: float, flops_per_token: float
    ) -> tuple[Kernel, ...]:
        """`queries` tokens of every sequence, the last of `context` (0 = attended elsewhere), in `num_passes` passes."""
        sizes, sequences = self.sizes, self.sizes.sequences
        tokens, hidden = queries * sequences, sizes.shape.hidden
        out = 2.0 * tokens * hidden
        gemm = Kernel(
            kind="gemm", flops=tokens * flops_per_token / num_passes,
            read_bytes=read_bytes * self.inference.num_batches, write_bytes=2 * out / num_passes, m=round(tokens / num_passes),
            n=max(1, round(flops_per_token / (2.0 * hidden))), k=hidden, dtype=self.dtype, variant=self.variant,
            count=num_passes, name="linear",
        )  # fmt: skip
        products = self._by_expert(gemm, flops_per_token)
        if not context:
            return (*products, *self._dequantise(read_bytes, 0.0))
        attended = context - queries / 2  # causal: the mean over the rows of a prompt
        attention = Kernel(
            kind="attention", flops=sequences * sizes.attention_flops(queries, attended),
            read_bytes=num_passes * sequences * sizes.attended(attended) * sizes.kv_bytes_per_token, write_bytes=out,
            sequence_length=round(context), variant=self.profile.attention_variant, name="attention",
        )  # fmt: skip
        return (*products, attention, *self._dequantise(read_bytes, 0.0))

    def _by_expert(self, gemm: Kernel, flops_per_token: float) -> tuple[Kernel, ...]:
        """The products of a prompt; ggml's kernels for experts are slower than those for whole matrices."""
        sizes = self.sizes
        others = sizes.layer_flops_per_token - sizes.routed_flops_per_token
        share = max(0.0, flops_per_token - others) / flops_per_token
        if not self.variant or share < 1e-9:
            return (gemm,)
        dense = replace(gemm, flops=gemm.flops * (1 - share), read_bytes=gemm.read_bytes * (1 - share))
        experts = replace(
            gemm, flops=gemm.flops * share, read_bytes=gemm.read_bytes * share, write_bytes=0.0,
            m=max(1, round(gemm.m * sizes.shape.experts_per_token / sizes.shape.experts)), variant=f"{self.variant}+experts",
            name="experts",
        )  # fmt: skip
        return (dense, experts)

    def head(self) -> Kernel:
        """Logits of one token of every sequence."""
        sizes = self.sizes
        return Kernel(
            kind="gemv", flops=sizes.sequences * sizes.head_flops_per_token, read_bytes=sizes.head_bytes,
            write_bytes=4.0 * sizes.sequences * sizes.shape.vocabulary, dtype=self.dtype, variant=self.stream,
            name="logits",
        )  # fmt: skip

    def _unpacking(self) -> str:
        """Kernel family of a decode whose kernels unpack the weights that they read."""
        weights = self.inference.weights
        if self.profile.dequantise_traffic or weights in ("fp8", "mxfp4", "nvfp4") or WEIGHT_BYTES[weights] > 17 / 16:
            return ""
        return "unpack-8" if WEIGHT_BYTES[weights] > 0.75 else "unpack-4"

    def _cache(self, context: float) -> tuple[float, float]:
        """Bytes that attention moves, and elements unpacked ahead of it."""
        size = self.sizes.sequences * self.sizes.attended(context) * self.sizes.kv_bytes_per_token
        if self.profile.dequantise_traffic and self.inference.kv_cache == "int4":
            elements = size / KV_BYTES["int4"]
            return 2.0 * elements * self.profile.attention_traffic, elements
        return size * self.profile.attention_traffic, 0.0

    def _dequantise(self, read_bytes: float, cache_elements: float) -> tuple[Kernel, ...]:
        traffic, stored = self.profile.dequantise_traffic, WEIGHT_BYTES[self.inference.weights]
        elements = cache_elements + (read_bytes / stored if stored < 1.0 else 0.0)
        if not traffic or not elements:
            return ()
        return (Kernel(kind="elementwise", read_bytes=traffic * elements, name="dequantise"),)
