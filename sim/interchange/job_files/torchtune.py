"""torchtune's recipe configurations (YAML; names of its components as strings) -> settings of a scenario."""

from __future__ import annotations

import re

from sim.interchange.job_files.block import Block
from sim.interchange.job_files.settings import JobSettings

_COMPONENT = "_component_"
#: optimizer component by its last name -> ours
_OPTIMIZERS = {
    "AdamW": "adamw", "Adam": "adamw", "AdamW8bit": "adamw_8bit", "PagedAdamW8bit": "paged_adamw_8bit", "PagedAdamW": "adamw",
    "SGD": "sgd", "CPUOffloadOptimizer": "adamw",
}  # fmt: skip
_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_TARGETS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "output_proj": "o"}
_INERT = {
    "output_dir", "tokenizer", "dataset", "dataset_val", "seed", "shuffle", "checkpointer", "resume_from_checkpoint", "epochs",
    "loss", "max_steps_per_epoch", "device", "metric_logger", "log_every_n_steps", "log_peak_memory_stats", "log_level",
    "profiler", "clip_grad_norm", "lr_scheduler", "custom_sharded_layers", "save_adapter_weights_only",
    "cudnn_deterministic_mode",
    "optimizer_in_bwd", "ac_mode", "ac_option", "run_val_every_n_steps", "batch_size_val", "memory_efficient_fsdp_wrap",
    "enable_async_checkpointing", "low_cpu_ram", "quantizer", "inference", "prompt", "num_output_chunks",
    "data_parallel_replicate_dim",
}  # fmt: skip


def is_torchtune(root: Block) -> bool:
    """Whether a model is named by a component."""
    model = root.data.get("model")
    return isinstance(model, dict) and "torchtune" in str(model.get(_COMPONENT, ""))


def read_torchtune(root: Block) -> JobSettings:
    """Settings of a recipe; the number of GPUs stands on its command line, not in the file. Raises InputError."""
    found = JobSettings(training={"framework": "torchtune", "parallelism.zero_stage": 3})
    model = root.block("model")
    kind, found.model = _model(model.word(_COMPONENT) or "")
    found.training["batch_size"] = root.count("batch_size", least=1) or 1
    found.training["gradient_accumulation"] = root.count("gradient_accumulation_steps", least=1) or 1
    if length := root.block("tokenizer").count("max_seq_len", least=1):
        found.training["sequence_length"] = length
    dtype = root.word("dtype") or "bf16"
    if dtype in _PRECISIONS:
        found.training["precision"] = _PRECISIONS[dtype]
    else:
        root.fault("dtype", f"expected bf16, fp16 or fp32, got {dtype!r}")
    if (is_recomputed := root.flag("enable_activation_checkpointing")) is not None:
        found.training["checkpointing.active"] = is_recomputed
    if root.flag("enable_activation_offloading"):
        found.training |= {"checkpointing.active": True, "checkpointing.offload": True}
    if root.flag("compile"):
        found.training["compile"] = True
    if width := root.count("tensor_parallel_dim", least=1):
        found.training["parallelism.tensor"] = width
    name = _optimizer(root, found)
    if root.flag("fsdp_cpu_offload"):
        found.placement |= {"weights": "dram", "optimizer_states": "dram"}
    elif name == "CPUOffloadOptimizer":
        found.placement |= {"optimizer_states": "dram"}
    if kind:
        _adapter(model, kind, found)
    unused, unknown = root.rest(_INERT)
    found.unused += unused
    found.unknown += unknown
    root.stop()
    return found


def _model(component: str) -> tuple[str, str]:
    """("", "lora" or "qlora"; model): "torchtune.models.llama3_1.lora_llama3_1_8b" is llama-3.1-8b with LoRA."""
    name = component.rsplit(".", 1)[-1]
    kind = next((kind for kind in ("qlora", "lora") if name.startswith(f"{kind}_")), "")
    name = name.removeprefix(f"{kind}_") if kind else name
    name = re.sub(r"(?<=\d)_(?=\d_)", ".", name)  # llama3_1_8b: version 3.1 of 8 billion
    name = re.sub(r"_(?:instruct|base|chat)$", "", name).replace("_", "-")
    return kind, name if name.startswith("qwen") else re.sub(r"^([a-z]+)(?=\d)", r"\1-", name)


def _optimizer(root: Block, found: JobSettings) -> str:
    block = root.block("optimizer")
    name = (block.word(_COMPONENT) or "").rsplit(".", 1)[-1]
    if name and name not in _OPTIMIZERS:
        block.fault(_COMPONENT, f"optimizer {name!r} is not modelled", f"use one of {', '.join(_OPTIMIZERS)}")
    elif name:
        found.training["optimizer.type"] = _OPTIMIZERS[name]
    if block.flag("fused"):
        found.training["optimizer.implementation"] = "fused"
    return name


def _adapter(model: Block, kind: str, found: JobSettings) -> None:
    is_quantised = kind == "qlora" or bool(model.flag("quantize_base"))
    found.training["adapter.type"] = "qlora" if is_quantised else "lora"
    if is_quantised:
        found.training["adapter.base"] = "nf4"
    if rank := model.count("lora_rank", least=1):
        found.training["adapter.rank"] = rank
    targets = model.get("lora_attn_modules")
    ours = [_TARGETS[name] for name in targets if name in _TARGETS] if isinstance(targets, list) else []
    if model.flag("apply_lora_to_mlp"):
        ours += ["gate", "up", "down"]
    if ours:
        found.training["adapter.targets"] = ours
