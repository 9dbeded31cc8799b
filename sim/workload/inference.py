"""What an inference job asks for: the inputs of `workload.inference`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from sim.units import Doc, Fraction
from sim.workload.formats import CacheFormat, WeightFormat
from sim.workload.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """Prefill of a prompt and decode of an output, static batch."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    model: Annotated[ModelShape, Doc("built-in name, inline shape, or path of a Hugging Face config.json")]
    prompt_length: Annotated[int, Ge(1), Le(2**24), Doc("tokens of each prompt")] = 512
    output_length: Annotated[int, Ge(1), Le(2**24), Doc("tokens generated per sequence")] = 128
    batch_size: Annotated[int, Gt(0), Le(2**20), Doc("sequences decoded together (per block of `num_batches`)")] = 1
    num_batches: Annotated[int, Gt(0), Le(2**20), Doc("batches per weight pass (FlexGen's zig-zag block)")] = 1
    weights: Annotated[
        WeightFormat, Doc("storage format of the weights; a file's default is as published (fp8, mxfp4), 16 bits otherwise")
    ] = "bf16"
    kv_cache: Annotated[CacheFormat, Doc("storage format of the KV cache")] = "fp16"
    framework: Annotated[str, Doc("profile: per-layer overheads, streaming, overlap")] = "auto"
    is_prefetched: Annotated[
        bool | None, Doc("fetch weights of coming layers beside the compute; default as the framework does")
    ] = None
    prefill_tokens: Annotated[
        int | None,
        Ge(1),
        Doc("tokens of a prompt per pass over the weights (ubatch, max_num_batched_tokens); default the framework's"),
    ] = None
    tensor_parallel: Annotated[int, Ge(1), Doc("GPUs that split each layer")] = 1
    pipeline_parallel: Annotated[int, Ge(1), Doc("GPUs that split the layers")] = 1
    device: Annotated[
        Literal["auto", "gpu", "cpu"],
        Doc("cpu: no GPU takes part (one rank per socket); auto: cpu on machines without a GPU"),
    ] = "auto"
    gpu_layers: Annotated[
        int | None,
        Ge(0),
        Doc("layers on the GPU; the CPU computes the rest where placement.weights puts it (llama.cpp); default all"),
    ] = None
    cpu_moe_layers: Annotated[
        int,
        Ge(0),
        Doc("first layers with experts whose routed experts the CPU computes where placement.weights puts them (n-cpu-moe)"),
    ] = 0
    threads: Annotated[int | None, Ge(1), Doc("cores that compute the CPU's part, per rank; default all that the rank has")] = (
        None
    )
    all_sockets: Annotated[
        bool, Doc("the CPU's part runs on all sockets of the host, each on pages of its own (numa distribute, copies per node)")
    ] = False
    reused_tokens: Annotated[int, Ge(0), Doc("prompt tokens whose KV is fetched from the KV tier instead of computed")] = 0
    reuse_tier: Annotated[str, Doc("tier that keeps the KV of the reused tokens; default where the KV cache lives")] = ""
    is_managed: Annotated[bool, Doc("weights in managed (unified virtual) memory: pages migrate on fault")] = False
    managed_advice: Annotated[
        tuple[Literal["prefetch", "read_mostly", "stay"], ...],
        Doc(
            "hints for managed weights that exceed GPU memory: prefetch (the next layer, cudaMemPrefetchAsync), read_mostly "
            "(what is evicted is not written back), stay (preferred location host: kernels read over the link)"
        ),
    ] = ()
    is_system: Annotated[
        bool,
        Doc(
            "weights from the system's allocator (malloc, hipHostMalloc): smaller pages on an APU; on a superchip in the CPU's "
            "memory, until access counters move them"
        ),
    ] = False
    round_pinned: Annotated[
        bool, Doc("weights in host memory lie in one page-locked buffer per layer, which takes the next power of two (PyTorch)")
    ] = False
    buffer_count: Annotated[int | None, Gt(0), Doc("DeepSpeed: host buffers through which weights on NVMe pass; default 5")] = (
        None
    )
    buffer_elements: Annotated[int | None, Gt(0), Doc("elements (not bytes) of each of them; default 1e8")] = None
    max_in_cpu_elements: Annotated[
        int | None, Ge(0), Doc("DeepSpeed: weights kept in host memory beside NVMe, in elements; default 1e9")
    ] = None
    memory_utilisation: Annotated[Fraction, Gt(0), Le(1), Doc("share of GPU memory that the framework may use")] = 1.0

    @property
    def num_cpu_layers(self) -> int:
        """Layers that the CPU computes whole."""
        if self.device == "cpu":
            return self.model.layers
        return 0 if self.gpu_layers is None else max(0, self.model.layers - self.gpu_layers)

    @property
    def splits_weights(self) -> bool:
        """Whether the CPU computes some of the model: then `placement.weights` says where that part lies."""
        return self.device == "cpu" or self.gpu_layers is not None or self.cpu_moe_layers > 0
