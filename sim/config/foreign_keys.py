"""What people call a key in other tools, where spelling does not lead to ours: DeepSpeed, Trainer, axolotl, vLLM, llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: word of another tool -> our key; of several, the one that the block at hand has
_MEANT: Mapping[str, str | tuple[str, ...]] = {
    "acc_steps": "gradient_accumulation", "accumulate_grad_batches": "gradient_accumulation",
    "accumulation": "gradient_accumulation", "attn_implementation": "attention", "block_size": "sequence_length",
    "context": "prompt_length", "context_length": ("sequence_length", "prompt_length"), "context_size": "prompt_length",
    "context_window": "prompt_length", "cp": ("context", "parallelism.context"), "cpus": "cores", "ctx": "prompt_length",
    "ctx_size": "prompt_length", "cutoff_len": "sequence_length", "dataloader_num_workers": "data.workers",
    "deepspeed": "framework", "dimms": "memory.channels", "dp": ("data", "parallelism.data"),
    "dtype": ("precision", "weights"), "ep": ("expert", "parallelism.expert"), "expert_parallel_size": "parallelism.expert",
    "flash_attention": "attention", "gtt": "gpu_limit", "gtt_size": "gpu_limit",
    "threads": ("cores",), "flash_attn": "attention", "gpus": "parallelism.data", "kv": "kv_cache",
    "kv_cache_dtype": "kv_cache", "lora": "adapter", "lora_r": ("rank", "adapter.rank"),
    "lora_rank": ("rank", "adapter.rank"), "lora_target_modules": "adapter.targets", "max_batch_size": "batch_size",
    "max_new_tokens": "output_length", "max_num_batched_tokens": "prefill_tokens", "max_num_seqs": "batch_size",
    "max_seq_len": "sequence_length", "max_seq_length": "sequence_length", "max_tokens": "output_length", "mbs": "batch_size",
    "micro_batch_size": "batch_size", "mixed_precision": "precision", "n_cpu_moe": "cpu_moe_layers", "n_ctx": "prompt_length",
    "n_gpu_layers": "gpu_layers", "ngl": "gpu_layers", "num_ctx": "prompt_length", "num_gpu_layers": "gpu_layers",
    "num_gpus": ("parallelism.data", "tensor_parallel"), "num_train_epochs": "dataset.epochs",
    "num_workers": ("workers", "data.workers"), "parameters": "weights", "params": "weights", "peft": "adapter",
    "per_device_train_batch_size": "batch_size",
    "pipeline_parallel_size": ("pipeline", "pipeline_parallel", "parallelism.pipeline"), "power_limit": "power_cap",
    "pp": ("pipeline", "pipeline_parallel", "parallelism.pipeline"), "qlora": "adapter", "quant": "weights",
    "precision": "weights", "quantization": "weights", "r": "rank", "recompute": "checkpointing", "save_steps": "save.every",
    "seq": "sequence_length", "seq_len": ("sequence_length", "prompt_length"), "seqlen": ("sequence_length", "prompt_length"),
    "stage": "zero_stage", "target_modules": ("targets", "adapter.targets"),
    "tensor_parallel_size": ("tensor", "tensor_parallel", "parallelism.tensor"), "torch_compile": "compile",
    "tp": ("tensor", "tensor_parallel", "parallelism.tensor"), "train_micro_batch_size_per_gpu": "batch_size",
    "ubatch": "prefill_tokens", "ubatch_size": "prefill_tokens", "vram": "capacity", "world_size": "parallelism.data",
    "zero": "parallelism.zero_stage", "zero_optimization": "parallelism.zero_stage", "zero_stage": "parallelism.zero_stage",
}  # fmt: skip

#: word of another tool -> what to write, where that is another block or more than a key
_WRITE: Mapping[str, str] = {
    "activation_checkpointing": "write checkpointing: {active: true}",
    "bf16": "write precision: bf16",
    "4bit": "write adapter: {type: qlora}",
    "cpu_offload": "say where each tensor class lives: placement: {optimizer_states: dram}",
    "cpu_offload_gb": "say how much of the weights stays on the GPU: placement: {weights: {gpu: 70%, dram: 30%}}",
    "dram": "write memory.capacity: what the socket's DIMMs hold together",
    "fp16": "write precision: fp16",
    "gradient_checkpointing": "write checkpointing: {active: true}",
    "gpu": "the machine is the scenario's topology",
    "load_in_4bit": "write adapter: {type: qlora}",
    "load_in_8bit": "write adapter: {type: lora, base: int8}",
    "max_model_len": "a request is prompt_length + output_length tokens long",
    "memlock": "write pinned_limit in the topology: page-locked memory that the system allows",
    "memory_size": "write memory.capacity: what the socket's DIMMs hold together",
    "nvme_path": "say where each tensor class lives: placement: {optimizer_states: nvme}",
    "offload_optimizer": "say where it lives: placement: {optimizer_states: dram}, or optimizer: {offload: true}",
    "offload_param": "say where they live: placement: {weights: dram}",
    "optim": "write optimizer: {type: adamw}",
    "p2p": "write peer_over_pcie: true or false on the GPUs",
    "peer_to_peer": "write peer_over_pcie: true or false on the GPUs",
    "ram": "write memory.capacity: what the socket's DIMMs hold together",
    "shared_memory": "write shared_gpu_memory (lent to full GPUs by Windows) or shared_limit (/dev/shm) in the topology",
    "wddm": "write shared_gpu_memory in the topology: host memory that Windows lends to full GPUs, half of the RAM",
    "shm": "write shared_limit in the topology: what /dev/shm may hold",
    "shm_size": "write shared_limit in the topology: what /dev/shm may hold",
    "host_memory": "write cpu0.memory.capacity: what the socket's DIMMs hold together",
    "iogpu.wired_limit_mb": "write gpu_limit on the GPU: bytes of the shared memory that it may allocate",
    "os": "write what the system limits: memory_limit, pinned_limit, shared_gpu_memory (Windows: half of the RAM each)",
    "windows": "write what it limits: pinned_limit and shared_gpu_memory, half of the RAM each",
    "pages_limit": "write gpu_limit on the GPU: that many pages of 4 KiB",
    "wired_limit": "write gpu_limit on the GPU: bytes of the shared memory that it may allocate",
    "swap": "write placement: {overflow: swap}: a run pages what host memory lacks to storage",
    "ulimit": "write pinned_limit in the topology: page-locked memory that the system allows",
    "use_liger_kernel": "write loss: fused_linear",
    "wsl": "write memory_limit (WSL 2 takes half of the RAM) and pinned_limit in the topology",
}  # fmt: skip


def meant_by(word: str, known: Sequence[str]) -> str:
    """What to write for a key of another tool; empty when the word is none, or the block has no such key."""
    key = word.lower().replace("-", "_")
    options = _MEANT.get(key, ())
    for option in (options,) if isinstance(options, str) else options:
        if option.split(".")[0] in known:
            return f"did you mean {option!r}?"
    return _WRITE.get(key, "")
