"""Framework profiles: what a training framework does and costs, declared once per framework, never per run.

A profile holds switches (blocking or overlapped gradient copies, prefetch, bucket sizes) and a few measured constants
(hook time, dispatch time, elementwise traffic). A scenario may set the switches through `Training.offload` and the
like; it never sets a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from sim.errors import Fault, InputError
from sim.held_out import as_unseen

#: traffic to quantise one GEMM input element: read 2 bytes, write the row-wise and the transposed copy (and scales)
_CAST_BYTES = {"fp8": 4.0, "mxfp8": 8.5, "nvfp4": 3.1}

Graphs = Literal["none", "dense", "whole"]
#: CPU and GPU time of a kernel inside a CUDA graph (assumed 2 to 6 us)
GRAPH_LAUNCH_S = 6e-6
#: share of the expert exchange that runs beside the other half of the batch, where a framework or the user overlaps them
HIDDEN_EXCHANGE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one framework does in a step. Times in seconds, sizes in elements or bytes as named."""

    name: str
    source: str
    # kernels
    elementwise_traffic: float = 1.0  # multiplies the minimal traffic of norms, residuals, activations (unfused eager > 1)
    recomputes_operations: bool = False  # selective recomputation keeps every other GEMM and the attention core's output
    compiled_traffic: float = 0.7  # the same when the compiler fuses
    has_fused_blocks: bool = False  # RMS norm, rotary embedding and gate are one kernel each without a compiler
    softmax_traffic: float = 1.0  # the same of the softmax of eager attention
    loss_traffic: float = 1.0  # the same of the loss
    cast_bytes: Mapping[str, float] = field(default_factory=lambda: dict(_CAST_BYTES))  # per quantised GEMM input, by precision
    dispatch_s_per_kernel: float = 6e-6  # CPU time to launch one kernel; hidden unless the GPU is faster
    #: what is launched as CUDA graphs: nothing, all but what the number of routed tokens decides (the experts, and the half
    #: of the routing that follows the exchange), or whole iterations
    cuda_graphs: Graphs = "none"
    small_kernels_per_layer: float = 12.0  # forward launches of a layer besides GEMMs and attention; backward twice
    routing_kernels: float = 80.0  # the same of a mixture of experts: router, permutation, dispatch and their undoing
    kernels_per_expert: float = 6.0  # and of each local expert
    has_fused_experts: bool = False  # biases, clamps and activation of the experts are part of their grouped GEMMs
    has_fused_adapters: bool = False  # an adapter's dropout, scaling and addition cost no pass over the activations
    attention_version: str = ""  # kernel generation; "" = the part's default
    # data parallel
    overlap_gradient_reduce: bool = True
    overlap_parameter_gather: bool = False
    stage2_gathers_each: bool = False  # FSDP's SHARD_GRAD_OP: weights are gathered for every micro-batch
    reduce_dtype_bytes: float = 2.0
    bucket_elements: int = 200_000_000
    prefetch_layers: int = 1  # ZeRO-3 / FSDP: layers gathered ahead
    collective_compute_share: float = 0.15  # of the multiprocessors, while a collective runs beside compute
    # model parallel: share of the communication that is hidden behind the kernels
    send_fixed_s: float = 0.0  # host time of one send between stages
    is_send_blocking: bool = False  # the sender computes again only when its send is done
    tensor_overlap: float = 0.0
    gathers_quantised: bool = False  # sequence parallelism gathers inputs after they are quantised; scatters stay 16-bit
    context_overlap: float = 0.8
    attends_in_rings: bool = False  # context parallelism: one kernel per block of the ring, merged in fp32 by others
    expert_overlap: float = 0.0
    exchanges_by_node: bool = False  # DeepEP and its like: a token crosses the network once per node, not once per expert
    fuses_routing: bool = False  # tokens are permuted and quantised by the exchange itself
    # ZeRO hooks
    hook_forward_s: float = 0.0  # per dense layer; a mixture of experts has hooks on every expert's modules; compiled: none
    hook_backward_s: float = 0.0  # the same
    gathers_experts: bool = False  # ZeRO 3: experts are gathered one by one when they are called, not ahead
    step_fixed_s: float = 0.0
    micro_batch_fixed_s: float = 0.0
    # offload
    copy_share: float = 1.0  # of a copy's own rate that copies inside a step reach
    overlap_gradient_copy: bool = False
    inline_gradient_copy: bool = False  # ZeRO 1 and 2: not overlapped means in the GPU's order, without the host waiting
    flushed_gradient_bytes: float = 0.0  # per element of a copy that the host does not cast; 0 = as computed with
    holds_gradient_copy: bool = False  # ZeRO 3: gradients that leave are reduced before the next layer is computed again, and
    # an overlapped copy ends before its gradients exist: both are on one stream
    late_gradient_bytes: float = 0.0  # per element of gradients that leave for the CPU's update only, and of the weights that
    # return; 0 = gradients leave in the backward pass
    pins_activations: bool = True  # activation checkpoints that leave the GPU go to page-locked memory
    overlap_activation_copy: bool = False  # activation checkpoints move to the host beside compute
    overlap_update: bool = False  # CPU update of a sub-group overlaps the copies of its neighbours
    pins_returned_weights: bool = True  # updated weights return from page-locked memory
    host_cast_bytes: float = 0.0  # host traffic per element of updated weights whose copy back blocks: PyTorch converts there;
    # where it does not block, fp32 crosses the link and the GPU converts (Copy.cu)
    always_unscales: bool = False  # gradients are divided by the loss scale before the update, whatever it is
    sub_group_elements: int = 1_000_000_000
    host_gradient_bytes_per_element: float = 10.0  # host traffic of a blocking gradient flush: 16 bits read,
    # fp32 written and read for ownership
    update_bytes_per_element: float = 28.0  # CPU optimizer: host traffic, read and write
    fused_update_bytes_per_element: float = 0.0  # the same below ZeRO 3, where differently; its copies then overlap
    update_write_share: float = 0.43
    is_updated_by_torch: bool = False  # the CPU optimizer is torch's: one pass per operation unless it is asked to fuse
    threads_per_rank: int = 0  # of the host where several processes run (OMP_NUM_THREADS); 0 = the rank's share of the cores
    binds_cores: bool = True  # host threads stay near their memory; `offload.cores_bound` overrides it
    gpu_update_bytes_per_element: float = 30.0
    #: field -> tables of measurements ("publication" or "publication/table") that it was fitted on
    fitted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: field -> what its siblings do, where it is held out and that is not the default of a plain framework
    priors: Mapping[str, float] = field(default_factory=dict)


_DEEPSPEED = Profile(
    name="deepspeed-zero",
    source="DeepSpeed stage 1/2/3 sources (gradients reach a page-locked fp32 partition; updated weights are cast and copied "
    "by a blocking copy_, which PyTorch stages in pageable memory; 44 B per updated parameter, counted); hook times, "
    "copies at 0.83 of their own rate (20.8 of 25 GB/s) fitted on Deep Optimizer States logs (arXiv 2410.21316)",
    elementwise_traffic=2.0,
    attention_version="flash2",
    copy_share=0.83,
    inline_gradient_copy=True,
    flushed_gradient_bytes=4.0,
    holds_gradient_copy=True,
    pins_returned_weights=False,
    always_unscales=True,  # unscale_and_clip_grads
    host_cast_bytes=8.0,  # fp32 read, 16 bits written and read for ownership
    fused_update_bytes_per_element=30.0,  # Adam writes the 16-bit weights too and copies tile by tile (arXiv 2101.06840)
    binds_cores=False,  # its launcher binds only when told to
    hook_forward_s=2.2e-3,
    hook_backward_s=4.5e-3,
    gathers_experts=True,
    bucket_elements=500_000_000,
    fitted=dict.fromkeys(
        (
            "hook_forward_s",
            "hook_backward_s",
            "copy_share",
            "holds_gradient_copy",
        ),
        ("deep-optimizer-states",),
    ),
    # steps that a compiler frees of hooks are 4 ms per layer shorter (70B on H100, DeepCompile's blog), a third of it forward
    priors={"hook_forward_s": 1.3e-3, "hook_backward_s": 2.7e-3},
)
#: the training loop of Megatron around DeepSpeed holds each step and each micro-batch for a while, whatever the model
_DEEPSPEED_MEGATRON = replace(
    _DEEPSPEED,
    name="deepspeed-megatron",
    source="DeepSpeed ZeRO under Megatron-DeepSpeed's training loop and with Megatron's kernels (fused norms, softmax and "
    "activations); seconds outside forward, backward and step fitted on Deep Optimizer States logs (arXiv 2410.21316)",
    step_fixed_s=0.17,
    micro_batch_fixed_s=0.29,
    elementwise_traffic=1.3,
    has_fused_blocks=True,
    fitted={**_DEEPSPEED.fitted} | dict.fromkeys(("step_fixed_s", "micro_batch_fixed_s"), ("deep-optimizer-states",)),
)
#: modules without a compiler or fused kernels, whoever trains them: seconds per launch, small kernels of a layer
_EAGER_LAUNCH_S, _EAGER_KERNELS = 18e-6, 38.0
_DEEPSPEED_HF = replace(
    _DEEPSPEED,
    name="deepspeed-hf",
    source="DeepSpeed under Hugging Face Trainer or Accelerate; launches as those of `hf-trainer`; checkpoints leave by "
    "Tensor.to('cpu'), which allocates pageable memory (unsloth_zoo/gradient_checkpointing.py)",
    pins_activations=False,
    dispatch_s_per_kernel=_EAGER_LAUNCH_S,
    small_kernels_per_layer=_EAGER_KERNELS,
)
_MEGATRON = Profile(
    name="megatron",
    source="Megatron-LM / Megatron-Core sources; eager PyTorch takes the CPU 10 to 20 us per launch",
    dispatch_s_per_kernel=20e-6,
    elementwise_traffic=1.3,
    has_fused_blocks=True,
    has_fused_adapters=True,
    reduce_dtype_bytes=4.0,
    overlap_gradient_reduce=True,
    overlap_parameter_gather=True,
    binds_cores=False,  # torchrun and srun bind threads only when told to
    late_gradient_bytes=4.0,  # HybridDeviceOptimizer.step copies fp32 gradients and parameters through page-locked memory
)
_FSDP = Profile(
    name="fsdp",
    source="PyTorch FSDP: offloaded gradients leave by non-blocking copies (_runtime_utils.py), torch's optimizer updates them "
    "on the CPU, and torchrun and accelerate start each of several processes with one thread (distributed/run.py); "
    "share of the multiprocessors that a collective takes fitted on llm-foundry",
    elementwise_traffic=1.5,
    stage2_gathers_each=True,
    collective_compute_share=0.4,
    overlap_gradient_copy=True,
    is_updated_by_torch=True,
    threads_per_rank=1,
    attends_in_rings=True,
    fitted={"collective_compute_share": ("llm-foundry",)},
)

_MEGATRON_DEEPSPEED = replace(
    _MEGATRON,
    name="megatron-deepspeed",
    source="Megatron-DeepSpeed of 2022 (eager, unfused softmax); constants fitted on vTrain's single-node runs",
    elementwise_traffic=2.0,
    softmax_traffic=3.2,
    dispatch_s_per_kernel=55e-6,
    send_fixed_s=1e-3,
    is_send_blocking=True,
    late_gradient_bytes=0.0,
    fitted=dict.fromkeys(
        ("elementwise_traffic", "softmax_traffic", "dispatch_s_per_kernel", "send_fixed_s", "is_send_blocking"), ("vtrain",)
    ),
    # unfused blocks as by DeepSpeed; Megatron's forward_torch_softmax moves 34 B per score (cast to fp32 6, masked_fill 9,
    # softmax 8, cast back 6, dropout 5) where one fused kernel moves 9; eager launches as by Megatron
    priors={
        "elementwise_traffic": _DEEPSPEED.elementwise_traffic,
        "softmax_traffic": 34 / 9,
        "dispatch_s_per_kernel": _MEGATRON.dispatch_s_per_kernel,
    },
)
#: published runs of dense models on which the share of hidden tensor-parallel communication was set (half of it without them)
_DENSE_RUNS = ("nvidia-dgx-cloud", "nvidia-nemo-2407", "megatron-lm-h100")
_MEGATRON_CORE = replace(
    _MEGATRON,
    name="megatron-core",
    source="Megatron-Core with Transformer Engine; a launch takes the CPU 30 us (default recipe of Moonlight)",
    dispatch_s_per_kernel=30e-6,
    fitted={"dispatch_s_per_kernel": ("megatron-bridge-skills",), "tensor_overlap": _DENSE_RUNS},
    priors={"dispatch_s_per_kernel": _MEGATRON.dispatch_s_per_kernel, "tensor_overlap": 0.5},
    attention_version="cudnn",
    elementwise_traffic=1.0,
    reduce_dtype_bytes=2.0,
    tensor_overlap=0.6,
    gathers_quantised=True,
)
_MEGATRON_BRIDGE = replace(
    _MEGATRON_CORE,
    name="megatron-bridge",
    source="Megatron Bridge on Megatron-Core, performance recipes with CUDA graphs of attention, router and what precedes "
    "the exchange (cuda_graph_scope of scripts/performance/configs); experts are launched one by one, as by Megatron",
    dispatch_s_per_kernel=_MEGATRON.dispatch_s_per_kernel,
    cuda_graphs="dense",
    fitted={"tensor_overlap": _DENSE_RUNS},
    priors={"tensor_overlap": 0.5},
)
_LLM_FOUNDRY = replace(
    _FSDP,
    name="llm-foundry",
    source="MosaicML llm-foundry with Composer: PyTorch FSDP, Triton FlashAttention 1",
    threads_per_rank=0,  # Composer's launcher leaves OMP_NUM_THREADS alone
    attention_version="flash1",
)

_EAGER_MODELS = replace(
    _FSDP,
    name="hf-trainer",
    source="modules of transformers and litgpt without a compiler: 50 kernels a layer forward besides those of adapters, 18 us "
    "of Python and driver each, which is the 0.9 ms that a layer of a decode takes to launch (frameworks/inference.py)",
    attention_version="flash2",
    dispatch_s_per_kernel=_EAGER_LAUNCH_S,
    small_kernels_per_layer=_EAGER_KERNELS,
)
PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        _DEEPSPEED,
        _DEEPSPEED_HF,
        _DEEPSPEED_MEGATRON,
        _MEGATRON,
        _MEGATRON_CORE,
        _MEGATRON_DEEPSPEED,
        replace(_MEGATRON, name="megatron-2021", source="Megatron-LM of 2021 (SC21): fused softmax, bias and dropout kernels"),
        replace(_MEGATRON, name="megatron-2022", source="Megatron-LM of 2022: fused softmax and dropout, sequence parallel"),
        replace(_MEGATRON_CORE, name="nemo", source="NeMo on Megatron-Core"),
        _MEGATRON_BRIDGE,
        replace(
            _MEGATRON_BRIDGE,
            name="megatron-bridge-26.06",
            source="Megatron Bridge from container 26.06 on: expert exchange "
            "beside the other half of the batch, permutation and quantisation fused into it (release notes)",
            expert_overlap=HIDDEN_EXCHANGE,
            fuses_routing=True,
            cuda_graphs="whole",
            has_fused_experts=True,
            fitted={**_MEGATRON_BRIDGE.fitted, "expert_overlap": ("nvidia-megatron-bridge",)},
            priors={**_MEGATRON_BRIDGE.priors, "expert_overlap": 0.5},
        ),
        _FSDP,
        _LLM_FOUNDRY,
        replace(
            _FSDP,
            name="torchtitan",
            source="torchtitan: FSDP2, selective checkpointing by operation",
            attention_version="flash2",
            recomputes_operations=True,
        ),
        replace(
            _FSDP,
            name="nemo-automodel",
            source="NeMo AutoModel: PyTorch FSDP2 with Transformer Engine's norms, maps and attention, fused rotary embedding, "
            "DeepEP",
            attention_version="cudnn",
            exchanges_by_node=True,
            has_fused_blocks=True,
            elementwise_traffic=1.0,
        ),
        replace(_FSDP, name="torchtune", attention_version="flash2"),
        replace(
            _EAGER_MODELS,
            name="litgpt",
            source="litgpt finetune/*.py on Lightning Fabric: PyTorch, FSDP where there are several GPUs",
        ),
        *(replace(_EAGER_MODELS, name=name) for name in ("hf-trainer", "llama-factory", "accelerate")),
        replace(
            _FSDP,
            name="unsloth",
            source="unsloth kernels/*.py: norms, rotary embedding, gate and adapters are one Triton kernel each, the loss is "
            "computed from hidden states in blocks; unsloth_zoo gradient_checkpointing.py: checkpoints leave by non-blocking "
            "copies to page-locked buffers",
            attention_version="flash2",
            elementwise_traffic=1.0,
            has_fused_blocks=True,
            has_fused_adapters=True,
            overlap_activation_copy=True,
            is_updated_by_torch=False,
            threads_per_rank=0,
        ),
        replace(_FSDP, name="pytorch", source="PyTorch without a framework around it", attention_version="flash2"),
        replace(_FSDP, name="ddp", source="PyTorch DistributedDataParallel", attention_version="flash2"),
        replace(
            _FSDP,
            name="torchao",
            source="torchao CPUOffloadOptimizer: fused Adam in the parameters' own 16 bits, no master weights; gradients leave "
            "on a stream of their own, each parameter is updated by itself (10 M elements: a matrix of some billion-parameter "
            "model) and copied back beside the next",
            attention_version="flash2",
            sub_group_elements=10_000_000,
            is_updated_by_torch=False,
            threads_per_rank=0,
            update_bytes_per_element=14.0,
            overlap_update=True,
        ),
        replace(
            _FSDP,
            name="auto",
            source="generic: PyTorch eager with sharding as asked, a fused CPU optimizer",
            attention_version="flash2",
            overlap_gradient_copy=False,
            is_updated_by_torch=False,
            threads_per_rank=0,
        ),
    )
}


#: what a framework does unless it is told otherwise, where that is an input of the job: name -> block -> key -> value
DEFAULTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {"unsloth": {"checkpointing": {"offload": True}}}

#: what people call the profiles
_ALSO_CALLED = {
    "deepspeed": "deepspeed-zero", "zero": "deepspeed-zero", "huggingface": "hf-trainer", "hf": "hf-trainer",
    "transformers": "hf-trainer", "trl": "hf-trainer", "peft": "hf-trainer", "axolotl": "hf-trainer",
    "llamafactory": "llama-factory", "torch": "pytorch", "lightning": "pytorch",
    "ms-swift": "hf-trainer", "swift": "hf-trainer", "fastchat": "hf-trainer", "open-instruct": "hf-trainer",
    "xtuner": "deepspeed-hf", "lmflow": "deepspeed-hf", "openrlhf": "deepspeed-hf", "zero2": "deepspeed-zero",
    "zero3": "deepspeed-zero", "colossalai": "deepspeed-zero", "gpt-neox": "deepspeed-megatron", "neox": "deepspeed-megatron",
    "pytorch-lightning": "pytorch", "fabric": "pytorch", "lit-gpt": "litgpt", "nanogpt": "ddp",
    "fsdp2": "fsdp", "verl": "fsdp", "fairseq": "fsdp", "llama-recipes": "fsdp", "llama-cookbook": "fsdp", "olmo-core": "fsdp",
    "composer": "llm-foundry", "mosaic": "llm-foundry",
    "automodel": "nemo-automodel", "megatron-lm": "megatron", "mcore": "megatron-core", "slime": "megatron",
}  # fmt: skip


#: ways to train that no profile describes, and what to write for the nearest that one does
_NOT_MODELLED = dict.fromkeys(
    ("dp", "dataparallel", "data-parallel"),
    "nn.DataParallel, one process that copies the model to every GPU in each step, is not modelled and slower than one process "
    "per GPU: write ddp",
)


def remedy(name: str) -> str:
    """What to write instead of an unknown framework name."""
    if name.lower() in _NOT_MODELLED:
        return _NOT_MODELLED[name.lower()]
    meant = _ALSO_CALLED.get(name.lower()) or next(iter(get_close_matches(name, PROFILES, n=1)), "")
    return f"did you mean {meant!r}?" if meant else f"use one of {', '.join(sorted(PROFILES))}"


def profile(name: str) -> Profile:
    """The profile of that name, with a plain framework's values for what is held out; InputError with a suggestion."""
    if name in PROFILES:
        return as_unseen(PROFILES[name])
    raise InputError(Fault(what=f"unknown framework {name!r}", remedy=remedy(name), path="workload.training.framework"))
