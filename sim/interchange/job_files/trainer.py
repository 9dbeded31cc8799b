"""TrainingArguments (JSON or YAML), with the model, PEFT and quantisation keys that scripts put beside them -> settings.

Names as in transformers/training_args.py, trl's SFTConfig and ModelConfig, peft's LoraConfig, LLaMA-Factory's and
axolotl's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import Fault, InputError
from sim.interchange.job_files.block import Block
from sim.interchange.job_files.settings import JobSettings

#: `optim` -> our optimizer; the rest of TrainingArguments' names are refused
_OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_apex_fused": "adamw",
    "adamw_torch_xla": "adamw", "adamw_bnb_8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit",
    "adamw_torch_8bit": "adamw_8bit", "paged_adamw_8bit": "paged_adamw_8bit", "paged_adamw_32bit": "adamw",
    "paged_adamw": "adamw", "adamw": "adamw", "adafactor": "adafactor", "sgd": "sgd", "lion_32bit": "lion",
    "paged_lion_32bit": "lion",
}  # fmt: skip
_LENGTHS = ("max_seq_length", "max_length", "cutoff_len", "model_max_length", "block_size", "max_seq_len", "seq_length",
            "sequence_length", "sequence_len")  # fmt: skip
_TARGETS = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "gate_proj": "gate", "up_proj": "up", "down_proj": "down",
    "query_key_value": "q", "dense": "o", "c_attn": "q", "wq": "q", "wk": "k", "wv": "v", "wo": "o", "w1": "gate",
    "w2": "down", "w3": "up", "fc1": "up", "fc2": "down", "dense_h_to_4h": "up", "dense_4h_to_h": "down",
}  # fmt: skip
_FUSED = {
    "query_key_value": ("q", "k", "v"),
    "c_attn": ("q", "k", "v"),
    "qkv_proj": ("q", "k", "v"),
    "gate_up_proj": ("gate", "up"),
}
_MARKS = {
    "per_device_train_batch_size", "gradient_accumulation_steps", "model_name_or_path", "output_dir", "optim",
    "learning_rate", "num_train_epochs", "max_steps", "gradient_checkpointing", "lora_r", "lora_rank", "peft_type",
    "finetuning_type", "per_gpu_train_batch_size", "micro_batch_size", "sequence_len",
}  # fmt: skip
#: what changes nothing here; TrainingArguments has over a hundred such, known by their beginnings
_INERT_STARTS = (
    "adam_", "eval", "logging_", "lr_", "learning_rate", "warmup_", "report_to", "save_", "push_to_hub", "hub_", "seed",
    "data_seed", "do_", "num_train_epochs", "max_steps", "weight_decay", "max_grad_norm", "output_dir", "overwrite",
    "run_name", "ddp_", "dataset", "data_", "dataloader_", "group_by_length", "length_column", "label", "metric",
    "greater_is_better", "load_best", "remove_unused", "resume_from", "preprocessing_", "template", "packing",
    "per_device_eval", "lora_alpha", "lora_bias", "bnb_4bit_", "optim_args", "local_rank",
    "disable_tqdm", "prediction_loss", "skip_", "full_determinism", "neftune", "include_", "torch_empty_cache",
    "tokenizer", "trust_remote", "use_fast", "chat_template", "plot_", "stage", "val_size", "max_samples", "use_peft",
    "use_cpu", "no_cuda", "fp16_opt", "fp16_backend", "half_precision", "gradient_checkpointing_kwargs", "task_type",
    "bias", "inference_mode", "modules_to_save", "fan_in", "lora_task", "revision", "auto_find_batch", "batch_eval",
    "past_index", "log_", "ignore_data_skip", "sharded_ddp", "bf16_full_eval", "fp16_full_eval", "accelerator_config",
    "streaming", "instruct", "text_", "use_reentrant", "quantization_method", "lora_target_parameters", "jit_mode",
    "ray_", "mp_parameters", "average_tokens", "eos_", "pad", "assistant_only", "completion_only", "use_legacy",
    "liger_kernel", "restore_", "predict_", "model_type", "sample_packing", "num_epochs", "saves_per_epoch", "wandb_",
    "special_tokens", "xformers", "use_dora", "use_rslora", "neat_packing", "upcast_", "galore", "use_galore", "badam",
    "use_badam", "loftq", "layers_", "megatron_", "auto_mapping", "corda", "eva_", "plugins", "liger_", "lora_model_dir",
    "early_stopping", "debug", "dp_", "tf32", "use_adam_mini", "pissa", "lora_qkv", "lora_mlp", "lora_o_",
    "strict", "val_set_size", "is_",
)  # fmt: skip


def read_trainer(root: Block) -> tuple[JobSettings, Mapping[str, Any] | str | None]:
    """(settings, DeepSpeed configuration: the mapping itself, the name of its file, or None).

    Raises InputError with every fault, and for a file that is none of these.
    """
    if not any(key in root.data for key in _MARKS):
        what = f"holds no training arguments: none of its keys ({', '.join(list(root.data)[:6])}) is one"
        remedy = "give an accelerate YAML, or TrainingArguments as JSON or YAML"
        if "zero_optimization" in root.data:
            what, remedy = "is a DeepSpeed configuration", "use `tiersim import deepspeed`"
        elif "architectures" in root.data or "hidden_size" in root.data:
            what, remedy = "is the config.json of a model", "name it with --model FILE"
        raise InputError(Fault(what=what, remedy=remedy, file=root.file))
    found = JobSettings(training={"framework": "llama-factory" if "finetuning_type" in root.data else "hf-trainer"})
    found.model = root.word(root.first("model_name_or_path", "base_model_name_or_path", "base_model")) or ""
    _batch(root, found)
    _numbers(root, found)
    _memory(root, found)
    _adapter(root, found)
    _fsdp(root, found)
    for ours, keys in (("tensor", ("tensor_parallel_size", "tp_size")), ("context", ("context_parallel_size",))):
        if (size := root.count(root.first(*keys), least=1)) and size > 1:
            found.training[f"parallelism.{ours}"] = size
    deepspeed = root.get("deepspeed")
    if deepspeed is not None and not isinstance(deepspeed, (str, Mapping)):
        root.fault("deepspeed", "expected the name of a file or a mapping")
    inert = [key for key in root.data if key.startswith(_INERT_STARTS)]
    unused, unknown = root.rest(inert, (*_MARKS, *_LENGTHS, "fsdp", "deepspeed", "bf16", "fp16", "torch_compile"))
    found.unused += unused
    found.unknown += unknown
    root.stop()
    return found, deepspeed


def _batch(root: Block, found: JobSettings) -> None:
    key = root.first("per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size")
    if (micro := root.count(key, least=1)) is None:
        micro = 8
        found.resolved.append("per_device_train_batch_size: not given, the Trainer's default is 8")
    found.training["batch_size"] = micro
    found.training["gradient_accumulation"] = root.count("gradient_accumulation_steps", least=1) or 1
    if length := root.count(root.first(*_LENGTHS), least=1):
        found.training["sequence_length"] = length


def _numbers(root: Block, found: JobSettings) -> None:
    is_bf16 = True if root.is_auto("bf16") else root.flag("bf16")  # axolotl: where the GPU has it
    is_fp16 = root.flag("fp16")
    if is_bf16 and is_fp16:
        root.fault("fp16", "bf16 and fp16 are both set", "the Trainer takes one of them")
    found.training["precision"] = (
        "bf16" if is_bf16 or root.flag("pure_bf16") else "fp16" if is_fp16 else "tf32" if root.flag("tf32") else "fp32"
    )
    dtype = root.word(root.first("torch_dtype", "dtype"))
    if dtype in ("bfloat16", "float16", "bf16", "fp16") and found.training["precision"] in ("fp32", "tf32"):
        found.training["precision"] = "bf16" if dtype.startswith("b") else "fp16"
        found.resolved.append(f"weights are loaded in {dtype}: trains in it")
    key = root.first("optim", "optimizer")
    name = (root.word(key) or "").lower()
    if name and name not in _OPTIMIZERS:
        root.fault(key, f"optimizer {name!r} is not modelled", f"use one of {', '.join(_OPTIMIZERS)}")
    elif name:
        found.training["optimizer.type"] = _OPTIMIZERS[name]
        if "fused" in name:
            found.training["optimizer.implementation"] = "fused"
    elif root.flag("adafactor"):
        found.training["optimizer.type"] = "adafactor"


def _memory(root: Block, found: JobSettings) -> None:
    key = root.first("gradient_checkpointing", "use_gradient_checkpointing")
    is_moved = root.flag("use_unsloth_gc")
    if root.get(key) in ("unsloth", "offload", "offload_disk") or is_moved:  # checkpoints move to the host
        found.training |= {"checkpointing.active": True, "checkpointing.offload": True}
    elif root.flag(key):
        found.training["checkpointing.active"] = True
    elif "finetuning_type" in root.data and root.get(key) is None:  # LLaMA-Factory recomputes unless told not to
        is_off = bool(root.flag("disable_gradient_checkpointing"))
        found.training["checkpointing.active"] = not is_off
        if not is_off:
            found.resolved.append("activation checkpointing: on, as LLaMA-Factory does unless disable_gradient_checkpointing")
    if root.flag("torch_compile"):
        found.training["compile"] = True
    root.asked.add("disable_gradient_checkpointing")
    if root.flag(root.first("use_liger_kernel", "use_liger", "enable_liger_kernel", "liger_fused_linear_cross_entropy")):
        found.training["loss"] = "fused_linear"
    attention = root.get(root.first("attn_implementation", "flash_attn", "flash_attention", "sdp_attention"))
    if attention is not None:
        is_eager = str(attention).lower() in ("eager", "disabled", "false")
        found.training["attention"] = "eager" if is_eager else "flash"
    workers = root.count("dataloader_num_workers")
    if workers is not None:
        found.training["data.workers"] = workers


def _adapter(root: Block, found: JobSettings) -> None:
    """LoRA and QLoRA, by any of the names that scripts use."""
    rank_key = root.first("lora_r", "lora_rank", "r")
    rank = root.count(rank_key, least=1)
    dropout = root.number("lora_dropout")
    kind = (root.word("peft_type") or root.word("finetuning_type") or root.word("adapter") or "").lower()
    is_lora = kind in ("lora", "qlora") or (not kind and bool(root.flag("use_peft") or (rank and rank_key != "r")))
    if kind == "freeze":  # LLaMA-Factory: the last layers alone
        found.training["trainable_layers"] = root.count("freeze_trainable_layers", least=1) or 2
    root.asked.add("freeze_trainable_layers")
    if kind not in ("", "lora", "qlora", "full", "none", "freeze"):
        key = next(name for name in ("peft_type", "finetuning_type", "adapter") if name in root)
        root.fault(key, f"{kind!r} is not modelled", "lora, qlora or full")
    bits = root.count("quantization_bit")
    is_4bit, is_8bit = root.flag("load_in_4bit") or bits == 4, root.flag("load_in_8bit") or bits == 8
    if not is_lora:
        if is_4bit or is_8bit:
            root.fault(
                "load_in_4bit" if is_4bit else "load_in_8bit", "a quantised base cannot be trained", "add a LoRA adapter"
            )
        return
    found.training["adapter.type"] = "qlora" if is_4bit or is_8bit or kind == "qlora" else "lora"
    if found.training["adapter.type"] == "qlora":
        found.training["adapter.base"] = "int8" if is_8bit else "nf4"
        double = root.flag(root.first("bnb_4bit_use_double_quant", "double_quantization", "use_bnb_nested_quant"))
        if double is not None:
            found.training["adapter.double_quantization"] = double
    if rank:
        found.training["adapter.rank"] = rank
    if dropout is not None and not 0 <= dropout < 1:
        root.fault("lora_dropout", f"must be at least 0 and below 1, got {dropout:g}")
    elif dropout:
        found.training["adapter.dropout"] = dropout
    targets = root.get(root.first("lora_target_modules", "lora_target", "target_modules"))
    if root.flag("lora_target_linear"):
        found.training["adapter.targets"] = ["all"]
    elif targets is not None:
        found.training["adapter.targets"] = _targets(root, targets)


def _targets(root: Block, given: Any) -> list[str]:
    names = (
        [name.strip() for name in given.split(",")]
        if isinstance(given, str)
        else list(given)
        if isinstance(given, list)
        else []
    )
    if any(name in ("all", "all-linear", "all_linear") for name in names):
        return ["all"]
    ours: list[str] = []
    for name in names:
        ours += _FUSED.get(name, (_TARGETS[name],) if name in _TARGETS else ())
    if not ours:
        key = next(key for key in ("lora_target_modules", "lora_target", "target_modules") if key in root)
        root.fault(key, f"none of the modules is known: {given!r}", f"{', '.join(sorted(_TARGETS))} or 'all-linear'")
    return list(dict.fromkeys(ours))


def _fsdp(root: Block, found: JobSettings) -> None:
    raw = root.get("fsdp")
    options = raw if isinstance(raw, list) else str(raw or "").replace(",", " ").split()
    block = root.block("fsdp_config") if isinstance(root.data.get("fsdp_config"), Mapping) else None
    root.asked.update(("fsdp_config", "fsdp_version"))
    if not options and block is not None and block.data and "base_model" in root.data:  # axolotl's form of 2025
        options = ["full_shard" if block.flag("reshard_after_forward") is not False else "shard_grad_op"]
    if not options or options == ["True"]:
        return
    words = [str(word) for word in options]
    stages = {"full_shard": 3, "shard_grad_op": 2, "no_shard": 0, "hybrid_shard": 3, "hybrid_shard_zero2": 2}
    stage = next((stages[word] for word in words if word in stages), None)
    if stage is None or any(word not in (*stages, "auto_wrap", "offload") for word in words):
        root.fault("fsdp", f"expected {', '.join(stages)} with auto_wrap or offload, got {' '.join(words)!r}")
        return
    found.training |= {"framework": "fsdp", "parallelism.zero_stage": stage}
    is_moved = block is not None and block.flag(block.first("offload_params", "fsdp_offload_params"))
    if "offload" in words or is_moved:
        found.placement |= {"weights": "dram", "optimizer_states": "dram"}
    if block is not None and block.flag(block.first("activation_checkpointing", "fsdp_activation_checkpointing")):
        found.training["checkpointing.active"] = True
