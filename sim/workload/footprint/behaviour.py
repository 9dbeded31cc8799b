"""How frameworks use memory: what they keep, in which type, which buffers they allocate. One row per framework.

These are switches of the software, each with its source; a scenario may override the ones that are options of the
framework (`workload.training.offload`), never the constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sim.units import GIB
from sim.workload.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Memory behaviour of one framework. Sizes in bytes or elements as named.

    scheme: "mixed" = 16-bit weights beside fp32 master weights; "autocast" = fp32 weights, 16-bit copies while in use;
    "pure" = everything in the training precision, no master weights.
    """

    name: str
    source: str
    scheme: Literal["mixed", "autocast", "pure"] = "mixed"
    gradient_bytes: float = 2.0  # of one gradient as accumulated (mixed)
    has_gradient_buffers: bool = False  # gradient storage exists from init on, not from the backward pass
    has_lazy_states: bool = True  # optimizer states appear at the first update
    keeps_quantised_inputs: bool = True  # bitsandbytes' products with quantised weights keep their inputs for backward
    dequantised_bytes: float = 2.0  # per element of the quantised matrix that is in use
    quantises_head: bool = False  # and not the blocks' matrices only
    joins_attention: bool = False  # q, k, v are one product with one dropout for its adapters
    unquantised_bytes: float = 2.0  # per parameter of a quantised base that is not quantised (embeddings, head, norms)
    # buffers
    bucket_elements: float = 0.0  # reduce bucket, allocated from init on
    num_buckets: int = 1
    reduce_copy_bytes: float = 2.0  # per bucket element, while a bucket is reduced
    prefetch_elements: float = 0.0  # ZeRO-3: gathered ahead
    max_live_elements: float | None = None  # ZeRO-3: kept gathered; None = two layers (FSDP)
    persistence_elements: float = 0.0  # ZeRO-3: smaller parameters stay gathered
    update_copy_bytes: float = 0.0  # per locally updated parameter (a sub-group's with ZeRO-3): fp32 gradients of a GPU update
    is_foreach: bool = False  # the GPU optimizer makes one parameter-sized temporary unless fused
    # activations
    is_fused: bool = False  # own fused kernels: no rotary copies, gated product recomputed; GEMM inputs in fp8 if trained so
    norm_copy_bytes: float = 0.0  # per token, hidden element and norm: fp32 copies kept by eager norms
    score_saved_bytes: float = 2.0  # per attention score kept for backward (eager attention, no dropout)
    score_live_bytes: float = 4.0  # per attention score while one layer computes
    selective: Literal["scores", "operations"] = "scores"  # what selective recomputation drops, keeps
    logit_bytes: float = 14.0  # per logit at the loss (full, eager)
    # host
    host_rank_bytes: float = 3.5 * GIB  # interpreter, CUDA runtime, libraries: resident per rank
    has_flat_partitions: bool = False  # ZeRO-1/2: master weights, gradients and 16-bit copy page-locked, one flat buffer each
    mirrors_states: bool = False  # the GPU keeps master weights and gradients beside those of the CPU's update
    host_master_extra_bytes: float = 0.0  # per parameter that the CPU updates: a second fp32 copy
    host_gradient_bytes: float = 2.0  # per parameter: flat buffer that receives offloaded gradients; 0 = none
    moves_whole_model: bool = False  # a model built whole is moved to every GPU before ZeRO-3 partitions it (engine.py)
    nvme_kept_elements: float = 0.0  # weights offloaded to NVMe of which this many elements stay in host memory
    keeps_pinned_parameters: bool = False  # blocks of offloaded parameters stay in the pinned allocator's cache
    has_flat_blocks: bool = False  # FSDP1: a block's offloaded shard and its gradient, frozen or not, are page-locked whole
    is_gathered_with_pipeline: bool = False  # with pipeline stages weights stay gathered, gradients unsharded
    keeps_frozen_gathered: bool = (
        False  # sharded weights under adapters stay gathered (FSDP with use_orig_params, PEFT's guide)
    )
    fragmentation: float = 0.02  # of allocated bytes, held by the caching allocator on top
    rounds_pinned: bool = True  # page-locked buffers take the next power of two
    load: Literal["all", "first", "sharded"] = "all"  # ranks that build a full copy of the weights on the host


_PYTORCH = Behaviour(
    name="pytorch",
    source="PyTorch 2: optimizers in torch/optim/adamw.py (states created lazily, foreach default on CUDA)",
    is_foreach=True,
    load="all",
)
_DEEPSPEED = Behaviour(
    name="deepspeed-zero",
    source="DeepSpeed zero/stage3.py, stage_1_and_2.py, docs/config-json (defaults in elements); constants checked on "
    "the Deep Optimizer States logs (arXiv 2410.21316)",
    has_gradient_buffers=True,
    has_lazy_states=False,
    bucket_elements=5e8,
    reduce_copy_bytes=2.0,
    prefetch_elements=5e7,
    max_live_elements=1e9,
    persistence_elements=1e5,
    update_copy_bytes=4.0,
    host_gradient_bytes=4.0,  # stage3.py: zeros in gradient_accumulation_dtype, fp32 with bf16
    moves_whole_model=True,
    nvme_kept_elements=1e9,  # offload_config.py, max_in_cpu
    keeps_pinned_parameters=True,
    has_flat_partitions=True,
    fragmentation=0.12,  # gathers and releases of many sizes; reserved over allocated was 1.0-1.4 in reports
    load="all",
)
_MEGATRON = Behaviour(
    name="megatron",
    source="Megatron-LM / Megatron-Core distributed optimizer: bf16 weights, fp32 main gradients, fp32 master and moments",
    gradient_bytes=4.0,
    has_gradient_buffers=True,
    is_fused=True,
    logit_bytes=10.0,
    mirrors_states=True,  # HybridDeviceOptimizer updates copies
    host_master_extra_bytes=4.0,  # HybridDeviceOptimizer: fp32 parameters beside the CPU optimizer's master copies
    load="sharded",
)
_NEMO = replace(
    _MEGATRON,
    name="nemo",
    source="NeMo and Megatron-Bridge recipes on Megatron-Core: gradients reduced and kept in bf16, fp8 weights as the only "
    "copy, fused vocabulary-parallel loss",
    gradient_bytes=2.0,
    logit_bytes=6.0,
)
_FSDP = Behaviour(
    name="fsdp",
    source="PyTorch FSDP: fp32 sharded parameters, 16-bit gathered ones, fp32 sharded gradients; offloaded shards and a "
    "gradient for each of them are page-locked (_flat_param.py, init_flat_param_attributes)",
    scheme="autocast",
    has_flat_blocks=True,
    is_gathered_with_pipeline=True,
    host_gradient_bytes=0.0,
    load="first",
)
_TORCHTUNE = Behaviour(
    name="torchtune",
    source="torchtune recipes: weights, gradients and Adam moments in bf16; RMSNorm computes in fp32",
    scheme="pure",
    norm_copy_bytes=4.0,
    host_gradient_bytes=0.0,
    keeps_quantised_inputs=False,  # torchao's LinearNF4 keeps the weight only
    load="first",
)
_HF_TRAINER = Behaviour(
    name="hf-trainer",
    source="transformers Trainer and PEFT; RMSNorm in fp32; logits cast to fp32 and shifted before the loss; "
    "prepare_model_for_kbit_training casts what is not quantised to fp32 (peft/utils/other.py)",
    unquantised_bytes=4.0,
    scheme="autocast",
    is_foreach=True,
    norm_copy_bytes=4.0,
    score_saved_bytes=6.0,
    score_live_bytes=12.0,
    has_flat_blocks=True,  # sharded by FSDP
    load="all",
)

#: framework name -> behaviour
BEHAVIOURS: dict[str, Behaviour] = {
    row.name: row
    for row in (
        _PYTORCH,
        _DEEPSPEED,
        _MEGATRON,
        _FSDP,
        _TORCHTUNE,
        replace(
            _TORCHTUNE,
            name="litgpt",
            source="litgpt with bf16-true: everything in bf16, RMSNorm in fp32, one matrix for q, k and v; bitsandbytes "
            "(MatMul4Bit) keeps the input of every product and writes what it dequantises as fp16, then as bf16; "
            "the head is quantised",
            keeps_quantised_inputs=True,
            dequantised_bytes=4.0,
            quantises_head=True,
            joins_attention=True,
            keeps_frozen_gathered=True,
            load="sharded",
        ),
        _HF_TRAINER,
        replace(_FSDP, name="torchtitan", has_flat_blocks=False, load="sharded", selective="operations"),
        replace(
            _FSDP,
            name="llm-foundry",
            source="llm-foundry: FSDP with pure 16-bit compute, fused cross-entropy in place of the logits",
            logit_bytes=4.0,
        ),
        replace(
            _HF_TRAINER,
            name="llama-factory",
            source="LlamaFactory: transformers' Trainer, its own preparation of models (model/model_utils/checkpointing.py), "
            "which casts nothing to fp32 unless asked",
            unquantised_bytes=2.0,
        ),
        replace(
            _HF_TRAINER,
            name="unsloth",
            source="unsloth and unsloth_zoo: Triton kernels for RMSNorm, rotary embedding, gated product and adapters; "
            "logits are never stored (cut cross-entropy)",
            is_fused=True,
            unquantised_bytes=2.0,
            keeps_quantised_inputs=False,
            norm_copy_bytes=0.0,
            logit_bytes=0.0,
            load="sharded",
        ),
        _NEMO,
        replace(_NEMO, name="megatron-bridge"),
        replace(_NEMO, name="megatron-bridge-26.06"),
        replace(_DEEPSPEED, name="megatron-deepspeed", logit_bytes=10.0),
        replace(_PYTORCH, name="ddp"),
        replace(
            _PYTORCH,
            name="torchao",
            source="torchao CPUOffloadOptimizer: everything in bf16, parameters and gradients mirrored on the host",
            scheme="pure",
            is_foreach=False,
        ),
    )
}


def behaviour(training: Training) -> Behaviour:
    """The behaviour of the job's framework; for `auto` (and names without a row) the one that its plan implies."""
    name = training.framework
    if name in BEHAVIOURS:
        return BEHAVIOURS[name]
    parallelism = training.parallelism
    if name.startswith("deepspeed") or training.optimizer.offload:
        return _DEEPSPEED
    if name.startswith("megatron"):
        return _MEGATRON
    if parallelism.tensor > 1 or parallelism.pipeline > 1:
        return replace(_MEGATRON, mirrors_states=False)
    if parallelism.zero_stage == 3:
        return replace(_FSDP, scheme="mixed")
    if parallelism.zero_stage:
        return _DEEPSPEED
    return _PYTORCH
