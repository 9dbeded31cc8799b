"""What a CPU computes of a model: whole layers, or the routed experts of layers whose rest is on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sim.records import Kernel, Kind, TensorClass
from sim.workload.decode.sizes import Sizes
from sim.workload.frameworks.inference import InferenceProfile

#: operations after which all threads wait for each other, per layer: norms, projections, rotations, attention, feed-forward;
#: and what a mixture of experts adds (counted in llama.cpp's graph builders)
_DENSE_OPERATIONS = 18
_EXPERT_OPERATIONS = 12

Add = Callable[..., str]


class CpuLayers:
    """Operations of a CPU; `add` appends one (stage, role, kind, name, waits, fields) and returns its identity."""

    def __init__(self, sizes: Sizes, profile: InferenceProfile, add: Add) -> None:
        self.sizes, self.profile, self._add = sizes, profile, add
        self.threads, self.is_spread = float(sizes.inference.threads or 0), sizes.inference.all_sockets
        self.dtype: Any = "int8" if sizes.weight.routed <= 1.0625 else "bf16"

    def layer(
        self, stage: str, layer: int, queries: float, context: float, read_bytes: float, num_passes: int,
        after: Iterable[str], mark: Mapping[str, Any],
    ) -> str:  # fmt: skip
        """A whole layer: its products, its attention and what both read; `num_passes` 0 = a decode token."""
        sizes = self.sizes
        tokens, passes = queries * sizes.sequences, max(1, num_passes)
        operations = _DENSE_OPERATIONS + (_EXPERT_OPERATIONS if sizes.shape.experts else 0)
        done = self._multiply(
            stage, layer, f"layer {layer}", tokens * sizes.layer_flops_per_token, operations * passes, after, mark
        )
        done = self.attention(stage, layer, queries, context, [done], mark, is_prompt=bool(num_passes))
        cache = sizes.sequences * sizes.attended(context) * sizes.kv_bytes_per_token
        done = self._stream(stage, layer, "read KV", cache, TensorClass.KV_CACHE, [done], mark)
        return self._stream(stage, layer, f"layer {layer}", read_bytes * passes, TensorClass.WEIGHTS, [done], mark)

    def attention(
        self, stage: str, layer: int, queries: float, context: float, after: Iterable[str], mark: Mapping[str, Any], *,
        is_prompt: bool = True,
    ) -> str:  # fmt: skip
        """Scores, masked ones too, and values of a prompt, or of one token of every sequence; what it reads comes apart."""
        flops = self.sizes.sequences * self.sizes.attention_flops(queries, context)
        variant, kind = self.profile.gemm_variant, "attention" if is_prompt else "gemv"
        kernel = Kernel(kind=kind, flops=flops, dtype="bf16", variant=variant, name="attention")  # type: ignore[arg-type]
        return self._add(
            stage,
            "cpu",
            Kind.HOST_WORK,
            "attention",
            after,
            kernels=(kernel,),
            num_cores=self.threads,
            is_spread=self.is_spread,
            layer=layer,
            **mark,
        )

    def experts(
        self, stage: str, layer: int, tokens: float, num_passes: int, after: Iterable[str], mark: Mapping[str, Any]
    ) -> str:  # fmt: skip
        """The routed experts of a layer, for tokens whose hidden states have come."""
        sizes, passes = self.sizes, max(1, num_passes)
        read = passes * sizes.routed_bytes * sizes.touched_share(tokens / passes)
        flops = tokens * sizes.routed_flops_per_token
        done = self._multiply(
            stage, layer, "experts", flops, _EXPERT_OPERATIONS * passes, after, mark, fixed_s=self.profile.handover_s
        )
        return self._stream(stage, layer, "experts", read, TensorClass.WEIGHTS, [done], mark)

    def head(self, stage: str, after: Iterable[str], mark: Mapping[str, Any]) -> str:
        """Logits of one token of every sequence."""
        sizes = self.sizes
        done = self._multiply(stage, -1, "logits", sizes.sequences * sizes.head_flops_per_token, 1, after, mark)
        return self._stream(stage, -1, "logits", sizes.head_bytes, TensorClass.WEIGHTS, [done], mark)

    def _multiply(
        self, stage: str, layer: int, name: str, flops: float, operations: int, after: Iterable[str], mark: Mapping[str, Any],
        fixed_s: float = 0.0,
    ) -> str:  # fmt: skip
        kernel = Kernel(
            kind="gemm",
            flops=flops / operations,
            count=operations,
            dtype=self.dtype,
            variant=self.profile.gemm_variant,
            name=name,
        )
        return self._add(
            stage, "cpu", Kind.HOST_WORK, name, after, kernels=(kernel,), num_cores=self.threads, is_spread=self.is_spread,
            layer=layer, fixed_s=fixed_s, **mark,
        )  # fmt: skip

    def _stream(
        self, stage: str, layer: int, name: str, size: float, kind: TensorClass, after: Iterable[str], mark: Mapping[str, Any]
    ) -> str:  # fmt: skip
        """Bytes of a class that the cores read where the placement puts it."""
        return self._add(
            stage, "cpu", Kind.HOST_UPDATE, name, after, num_elements=size, bytes_per_element=1.0, tensor_class=kind,
            num_cores=self.threads, is_spread=self.is_spread, layer=layer, **mark,
        )  # fmt: skip
