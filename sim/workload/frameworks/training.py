"""The profiles of training frameworks, with the source of each and the tables on which its constants were fitted."""

from __future__ import annotations

from dataclasses import replace

from sim.workload.frameworks.training_profile import HIDDEN_EXCHANGE, HIDDEN_TENSOR, Profile

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
    tensor_overlap=HIDDEN_TENSOR,
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
            source="torchtitan: FSDP2, selective checkpointing by operation, gradients reduced in fp32 "
            "(mixed_precision_reduce)",
            reduce_dtype_bytes=4.0,
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
