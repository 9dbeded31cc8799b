"""What a training job asks for: the inputs of `workload.training`, each declared once with bound, default, meaning.

`config/` turns these dataclasses into strict validators; nothing here reads files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from sim.units import Bytes, Doc, Fraction, Seconds
from sim.workload.shape import ModelShape

#: input ids and labels, 64-bit integers each: what PyTorch collates for a language model (bytes per token)
TOKEN_BYTES = 16.0
#: tensors that are swapped for a piece of the optimizer states: weights, gradients, two moments
SWAPPED_TENSORS = 4
STRICT: dict[str, Any] = {"extra": "forbid"}
#: a count of tokens, sequences or micro-batches; bounded, so that a typing error is a fault and no plan of hours
Count = Annotated[int, Gt(0), Le(2**24)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The optimizer and where its states live."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    type: Annotated[
        Literal["adamw", "adam", "adamw_8bit", "paged_adamw_8bit", "adafactor", "sgd", "sgd_momentum", "lion", "muon"],
        Doc("update rule; decides bytes of state per trainable parameter"),
    ] = "adamw"
    offload: Annotated[bool, Doc("short for placement.optimizer_states: dram")] = False
    precision: Annotated[
        Literal["fp32", "bf16"],
        Doc("of the states; bf16 = Megatron's precision-aware optimizer: 16-bit moments, master weights as 16-bit remainders"),
    ] = "fp32"
    implementation: Annotated[
        Literal["auto", "fused", "foreach", "for_loop"], Doc("foreach makes one parameter-sized temporary")
    ] = "auto"
    delayed_update: Annotated[bool, Doc("one-step delayed parameter update: the CPU update overlaps the next step")] = False
    gpu_fraction: Annotated[
        Fraction, Ge(0), Le(1), Doc("share of the parameters that the GPU updates although states are offloaded")
    ] = 0.0
    swap_through_gpu: Annotated[
        bool, Doc("states live in host memory or CXL, the update runs on the GPU (copy in, update, copy out)")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """Activation checkpointing: keep fewer activations, recompute the rest."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    active: Annotated[bool, Doc("recompute activations in the backward pass")] = False
    interval: Annotated[int, Ge(1), Doc("one checkpoint every this many layers")] = 1
    mode: Annotated[
        Literal["full", "selective"], Doc("selective recomputes the attention core only; full recomputes the layer")
    ] = "full"
    layers: Annotated[int | None, Ge(0), Doc("checkpoint only this many layers (of each pipeline stage); default all")] = None
    offload: Annotated[bool, Doc("keep the checkpoints in host memory (pinned)")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How ranks split the work; world size = data x tensor x pipeline x context."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    data: Annotated[int, Ge(1), Doc("data-parallel ranks")] = 1
    tensor: Annotated[int, Ge(1), Doc("tensor-parallel ranks")] = 1
    sequence_parallel: Annotated[bool, Doc("split norms and dropouts over the tensor group too (Megatron)")] = False
    pipeline: Annotated[int, Ge(1), Doc("pipeline stages (1F1B)")] = 1
    interleave: Annotated[int, Ge(1), Doc("model chunks per pipeline stage (virtual pipeline)")] = 1
    context: Annotated[int, Ge(1), Doc("context-parallel ranks: split the sequence")] = 1
    expert: Annotated[int, Ge(1), Doc("expert-parallel ranks, inside the data-parallel ones")] = 1
    overlap_experts: Annotated[
        bool | None, Doc("expert all-to-alls run beside the other half of the batch; default as the framework does")
    ] = None
    overlap_tensor: Annotated[
        bool | None,
        Doc(
            "tensor-parallel exchanges run beside their GEMMs (tp_comm_overlap, asynchronous TP); default as the framework does"
        ),
    ] = None
    exchange_by_node: Annotated[
        bool | None,
        Doc("a token goes once to each node that holds experts of it (DeepEP), not once per expert; default by framework"),
    ] = None
    zero_stage: Annotated[int, Ge(0), Le(3), Doc("0 none, 1 optimizer states, 2 and gradients, 3 and weights sharded")] = 0
    reduce_once: Annotated[
        bool | None,
        Doc("ZeRO 2, 3: gradients are reduced in the last micro-batch only (FSDP's no_sync), whole ones kept until then"),
    ] = None
    shard_group: Annotated[
        int | None, Ge(1), Doc("ranks over which states are sharded (hybrid sharding); default all data-parallel ranks")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Parameter-efficient fine-tuning: frozen base, small trained adapters."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    type: Annotated[Literal["none", "lora", "qlora"], Doc("none = full fine-tuning")] = "none"
    rank: Annotated[int, Gt(0), Doc("rank of the adapters")] = 16
    targets: Annotated[
        tuple[str, ...], Doc("matrices that get an adapter: any of q k v o gate up down, or all / attention / mlp")
    ] = ("attention",)
    base: Annotated[
        Literal["bf16", "fp32", "nf4", "int8", "gptq"] | None,
        Doc(
            "precision of the frozen weights; default nf4 with qlora, bf16 otherwise; fp32 = as transformers loads "
            "them unless told; gptq = AutoGPTQ's 4 bits"
        ),
    ] = None
    double_quantization: Annotated[bool, Doc("quantise the quantisation constants too (QLoRA)")] = True
    dropout: Annotated[float, Ge(0), Lt(1), Doc("of the adapters' inputs; above 0 each keeps a copy and a mask")] = 0.0

    @property
    def stored(self) -> str:
        """Precision of the frozen weights."""
        return self.base or ("nf4" if self.type == "qlora" else "bf16")

    @property
    def is_quantised(self) -> bool:
        """Whether adapters stand on weights of fewer than 16 bits."""
        return self.type != "none" and self.stored not in ("bf16", "fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """How offloaded tensors move; *where* they live is the placement's business. None = as the framework does."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    pin_memory: Annotated[bool | None, Doc("page-locked host buffers")] = None
    overlap_gradients: Annotated[bool | None, Doc("gradient copies to the host run beside the backward pass")] = None
    overlap_update: Annotated[bool | None, Doc("sub-groups of the CPU update overlap their own copies")] = None
    round_pinned: Annotated[bool | None, Doc("page-locked buffers take the next power of two, as PyTorch's allocator does")] = (
        None
    )
    gradient_dtype: Annotated[
        Literal["fp32", "bf16", "fp16"] | None,
        Doc("of the host buffer that receives offloaded gradients (DeepSpeed's grad_accum_dtype)"),
    ] = None
    sub_group_elements: Annotated[int | None, Gt(0), Doc("elements per optimizer sub-group")] = None
    bucket_elements: Annotated[int | None, Gt(0), Doc("elements per gradient bucket")] = None
    prefetch_elements: Annotated[int | None, Ge(0), Doc("ZeRO-3: parameters gathered ahead, in elements")] = None
    max_live_elements: Annotated[int | None, Gt(0), Doc("ZeRO-3: parameters kept gathered, in elements")] = None
    persistence_elements: Annotated[int | None, Ge(0), Doc("ZeRO-3: smaller parameters are never sharded")] = None
    buffer_count: Annotated[int | None, Gt(0), Doc("NVMe swap buffers of weights, and of states unless those are given")] = None
    state_buffer_count: Annotated[int | None, Gt(0), Doc("NVMe swap buffers of optimizer states")] = None
    buffer_elements: Annotated[int | None, Gt(0), Doc("elements per NVMe swap buffer")] = None
    max_in_cpu_elements: Annotated[int | None, Ge(0), Doc("weights kept in host memory beside NVMe, in elements")] = None
    activation_layers: Annotated[
        str | None, Doc("layers whose activations move to the host during the forward pass, e.g. '0-15' or 'all'")
    ] = None
    cores_bound: Annotated[bool | None, Doc("ranks are bound to their own cores and NUMA node")] = None
    cores_per_rank: Annotated[int | None, Gt(0), Doc("CPU cores that each rank may use")] = None

    @property
    def num_state_buffers(self) -> int:
        """Swap buffers of optimizer states; by default one sub-group's weights, gradients and two moments."""
        return self.state_buffer_count or self.buffer_count or SWAPPED_TENSORS


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the weights reach the ranks before training. None = as the framework does."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    ranks: Annotated[
        Literal["all", "first", "sharded"] | None,
        Doc("ranks that build a full copy in host memory: all, one per host, or none (each reads its part)"),
    ] = None
    dtype: Annotated[
        Literal["fp32", "fp16", "bf16", "fp8", "int8", "nf4", "mxfp4"] | None,
        Doc("type of that copy; default as published, fp32 where weights are trained in fp32"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPipeline:
    """Storage -> CPU workers -> pinned copy -> GPU."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    workers: Annotated[int, Ge(0), Doc("loader processes per rank; 0 = in the training process")] = 4
    seconds_per_sample: Annotated[Seconds, Ge(0), Doc("CPU time of one sample on one core, e.g. '12 ms'")] = 0.0
    bytes_per_sample: Annotated[Bytes, Ge(0), Doc("bytes read from storage per sample")] = 0.0
    bytes_per_file: Annotated[
        Bytes, Ge(0), Doc("of storage, where samples are packed in files (shards, LMDB); default: each sample is a file")
    ] = 0.0
    output_bytes_per_sample: Annotated[Bytes, Ge(0), Doc("bytes copied to the GPU per sample; default token ids")] = 0.0
    prefetch: Annotated[int, Ge(1), Doc("batches each worker prepares ahead")] = 2
    persistent_workers: Annotated[
        bool, Doc("workers survive the epoch; otherwise each epoch of `dataset` starts them anew")
    ] = True
    storage: Annotated[str, Doc("tier the samples come from")] = "nvme"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint:
    """Writing the training state to storage."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    every: Annotated[int, Ge(0), Doc("steps between checkpoints; 0 = never")] = 0
    asynchronous: Annotated[bool, Doc("copy to host, write in the background")] = False
    to: Annotated[str, Doc("tier that receives it")] = "nvme"
    gathered: Annotated[
        Literal["host", "gpu", "none"],
        Doc(
            "where sharded weights come together at a save: host (of its first rank), gpu (of every rank: FSDP's full state "
            "dict that is not offloaded), none (each rank writes its shard)"
        ),
    ] = "host"
    merged: Annotated[bool, Doc("adapters are merged into a 16-bit copy of the whole model, in host memory")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Lengths of samples in tokens: log-normal, as documents and conversations are; spread 0 = all alike."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    mean: Annotated[float, Gt(0), Doc("mean tokens per sample")]
    spread: Annotated[float, Ge(0), Doc("standard deviation / mean")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Turns step time into hours and useful tokens/s."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    samples: Annotated[int, Gt(0), Doc("samples per epoch")]
    epochs: Annotated[float, Gt(0), Doc("passes over the data")] = 1.0
    length: Annotated[
        Literal["fixed"] | Length, Doc("tokens per sample: fixed = the sequence length, or {mean, spread} of a distribution")
    ] = "fixed"
    packing: Annotated[bool, Doc("samples are packed into full sequences; otherwise padded")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training job (the `workload.training` block)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    model: Annotated[ModelShape, Doc("built-in name, inline shape, or path of a Hugging Face config.json")]
    sequence_length: Annotated[Count, Doc("tokens per sequence")] = 2048
    batch_size: Annotated[Count, Le(2**20), Doc("micro-batch per data-parallel rank, in sequences")] = 1
    gradient_accumulation: Annotated[Count, Le(2**20), Doc("micro-batches per step")] = 1
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"],
        Doc("of the matrix multiplications; tf32 = fp32 tensors on tensor cores, which PyTorch does only when told"),
    ] = "bf16"
    framework: Annotated[str, Doc("profile: what the framework does and costs; see `tiersim list frameworks`")] = "auto"
    attention: Annotated[Literal["flash", "eager"], Doc("flash = one fused kernel; eager = materialised scores")] = "flash"
    attention_version: Annotated[
        Literal["flash1", "flash2", "flash3", "cudnn", "triton"] | None,
        Doc("generation of the fused kernel; default by framework, and the part's default where a part has no such figure"),
    ] = None
    causal: Annotated[bool | None, Doc("causal mask (half the score matrix); default as the model, encoders none")] = None
    compile: Annotated[bool, Doc("operator fusion by a compiler: less elementwise traffic")] = False
    cuda_graphs: Annotated[
        Literal["none", "dense", "whole"] | None,
        Doc("launched as CUDA graphs: nothing, all but routed experts, or whole iterations; default as the framework does"),
    ] = None
    dropout: Annotated[bool, Doc("dropout active (keeps masks)")] = False
    loss: Annotated[
        Literal["full", "half", "fused", "chunked", "fused_linear"], Doc("how logits and loss are computed; half = in 16 bits")
    ] = "full"
    loss_chunks: Annotated[Count, Doc("chunks of the chunked loss (loss: chunked)")] = 8
    optimizer: Optimizer = field(default_factory=Optimizer)
    checkpointing: Checkpointing = field(default_factory=Checkpointing)
    parallelism: Parallelism = field(default_factory=Parallelism)
    adapter: Adapter = field(default_factory=Adapter)
    offload: Offload = field(default_factory=Offload)
    data: Annotated[DataPipeline | None, Doc("input pipeline; default: text, never starved")] = None
    load: Load = field(default_factory=Load)
    save: SaveCheckpoint = field(default_factory=SaveCheckpoint)
    dataset: Annotated[Dataset | None, Doc("turns step time into hours")] = None
    trainable_layers: Annotated[int | None, Ge(1), Doc("train only the last N layers; default all")] = None

    @property
    def is_wide(self) -> bool:
        """Whether weights, activations and gradients have four bytes, whichever units multiply them."""
        return self.precision in ("fp32", "tf32")

    @property
    def element_bytes(self) -> float:
        """Bytes of a weight, an activation or a gradient as computed with."""
        return 4.0 if self.is_wide else 2.0
