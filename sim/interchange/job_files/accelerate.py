"""The YAML that `accelerate config` writes -> settings of a scenario (accelerate/commands/config, utils/dataclasses.py)."""

from __future__ import annotations

from sim.interchange.job_files.block import Block
from sim.interchange.job_files.settings import JobSettings

_INERT = {
    "compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "main_training_function", "main_process_ip",
    "main_process_port", "machine_rank", "rdzv_backend", "same_network", "tpu_env", "tpu_use_cluster", "tpu_use_sudo",
    "use_cpu", "use_xpu", "gpu_ids", "commands", "command_file", "tpu_name", "tpu_zone", "mpirun_config", "ipex_config",
    "fp8_config", "tpu_vm", "tpu_env_vars", "main_process", "num_cpu_threads_per_process",
}  # fmt: skip
_FSDP_INERT = {
    "fsdp_auto_wrap_policy", "fsdp_backward_prefetch", "fsdp_backward_prefetch_policy", "fsdp_forward_prefetch",
    "fsdp_min_num_params", "fsdp_state_dict_type", "fsdp_sync_module_states", "fsdp_transformer_layer_cls_to_wrap",
    "fsdp_use_orig_params", "fsdp_version", "fsdp_mixed_precision_policy",
}  # fmt: skip
_DEEPSPEED_INERT = {
    "gradient_clipping", "deepspeed_multinode_launcher", "deepspeed_hostfile", "deepspeed_inclusion_filter",
    "deepspeed_exclusion_filter", "zero3_save_16bit_model", "offload_optimizer_nvme_path", "offload_param_nvme_path",
    "deepspeed_moe_layer_cls_names",
}  # fmt: skip
_MEGATRON_INERT = {"megatron_lm_gradient_clipping", "megatron_lm_num_micro_batches"}
#: sharding strategy, by name and by number -> ZeRO stage
_SHARDING = {
    "FULL_SHARD": 3, "1": 3, "SHARD_GRAD_OP": 2, "2": 2, "NO_SHARD": 0, "3": 0, "HYBRID_SHARD": 3, "4": 3,
    "HYBRID_SHARD_ZERO2": 2, "5": 2,
}  # fmt: skip
_TIERS = {"cpu": "dram", "nvme": "nvme", "none": ""}


def is_accelerate(root: Block) -> bool:
    """Whether the file has the marks of `accelerate config`."""
    return any(key in root.data for key in ("compute_environment", "distributed_type", "num_machines"))


_INERT_SPLIT = ("parallelism_config_cp_comm_strategy", "parallelism_config_cp_backend", "parallelism_config_sp_backend",
                "parallelism_config_sp_seq_length", "parallelism_config_sp_seq_length_is_variable",
                "parallelism_config_sp_attn_implementation")  # fmt: skip
_INERT_DYNAMO = ("dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph", "dynamo_use_regional_compilation")


def read_accelerate(root: Block) -> tuple[JobSettings, str]:
    """(settings, name of the DeepSpeed configuration that the file points to or ""). Raises InputError with every fault."""
    found = JobSettings()
    kind = (root.word("distributed_type") or "NO").upper()
    found.gpus = root.count("num_processes", least=1) or 0
    found.nodes = root.count("num_machines", least=1) or 0
    precision = (root.word("mixed_precision") or "no").lower()
    if precision not in ("no", "fp16", "bf16", "fp8"):
        root.fault("mixed_precision", f"expected no, fp16, bf16 or fp8, got {precision!r}")
    else:
        found.training["precision"] = "fp32" if precision == "no" else precision
    dynamo = root.block("dynamo_config")
    if (dynamo.word("dynamo_backend") or "NO").upper() != "NO":
        found.training["compile"] = True
    other = _launched(kind, root, found)
    split = root.block("parallelism_config")
    _split(split, found)
    absent = {"deepspeed_config", "fsdp_config", "megatron_lm_config"} - root.asked  # of another launcher
    for block, known in ((root, _INERT | absent), (split, _INERT_SPLIT), (dynamo, _INERT_DYNAMO)):
        unused, unknown = block.rest(known)
        found.unused += unused
        found.unknown += unknown
    root.stop()
    return found, other


def _launched(kind: str, root: Block, found: JobSettings) -> str:
    """Adds what the file says of its launcher; returns the name of the DeepSpeed configuration that it points to, or ""."""
    if kind == "DEEPSPEED":
        return _deepspeed(root.block("deepspeed_config"), found)
    if kind == "FSDP":
        _fsdp(root.block("fsdp_config"), found)
    elif kind == "MEGATRON_LM":
        _megatron(root.block("megatron_lm_config"), found)
    elif kind in ("NO", "MULTI_GPU"):
        found.training |= {"framework": "hf-trainer", "parallelism.zero_stage": 0}
        if kind == "NO":
            found.gpus = 1
    else:
        root.fault("distributed_type", f"{kind} is not modelled", "DEEPSPEED, FSDP, MEGATRON_LM, MULTI_GPU or NO")
    return ""


def _split(split: Block, found: JobSettings) -> None:
    """Adds what `parallelism_config` says: sizes of the groups that share a model."""
    for key, ours in (
        ("parallelism_config_tp_size", "tensor"),
        ("parallelism_config_cp_size", "context"),
        ("parallelism_config_sp_size", "context"),
    ):
        if (size := split.count(key, least=1)) and size > 1:
            found.training[f"parallelism.{ours}"] = size
    copies, shards = (split.count(f"parallelism_config_dp_{part}_size", least=1) for part in ("replicate", "shard"))
    if copies and copies > 1:
        found.training["parallelism.shard_group"] = shards or 1


def _fsdp(block: Block, found: JobSettings) -> None:
    key = block.first("fsdp_sharding_strategy", "fsdp_reshard_after_forward")
    raw = block.get(key)
    strategy = "FULL_SHARD" if raw in (None, True) else "SHARD_GRAD_OP" if raw is False else str(raw).upper()
    strategy = {"TRUE": "FULL_SHARD", "FALSE": "SHARD_GRAD_OP"}.get(strategy, strategy)  # the switch of FSDP 2
    if strategy not in _SHARDING:
        block.fault(key, f"expected a sharding strategy, got {raw!r}", ", ".join(name for name in _SHARDING if len(name) > 1))
        return
    found.training |= {"framework": "fsdp", "parallelism.zero_stage": _SHARDING[strategy]}
    if (strategy.startswith("HYBRID") or strategy in ("4", "5")) and found.gpus and found.nodes:
        found.training["parallelism.shard_group"] = max(1, found.gpus // found.nodes)
    if block.flag("fsdp_offload_params"):
        found.placement |= {"weights": "dram", "optimizer_states": "dram"}
    if block.flag("fsdp_activation_checkpointing"):
        found.training["checkpointing.active"] = True
    is_once = block.flag("fsdp_cpu_ram_efficient_loading")
    if is_once is not None:
        found.training["load.ranks"] = "first" if is_once else "all"
    unused, unknown = block.rest(_FSDP_INERT)
    found.unused += unused
    found.unknown += unknown


def _deepspeed(block: Block, found: JobSettings) -> str:
    """DeepSpeed's part as accelerate writes it; the name of a separate file, if it has one."""
    found.training["framework"] = "deepspeed-zero"
    other = block.word("deepspeed_config_file") or ""
    stage = block.count("zero_stage")
    if stage is not None and stage > 3:
        block.fault("zero_stage", f"expected a stage from 0 to 3, got {stage}")
    if not other:
        found.training["parallelism.zero_stage"] = 2 if stage is None else stage  # accelerate's default
        if stage is None:
            found.resolved.append("deepspeed_config.zero_stage: not given, accelerate's default is 2")
    if steps := block.count("gradient_accumulation_steps", least=1):
        found.training["gradient_accumulation"] = steps
    for key, kind in (("offload_optimizer_device", "optimizer_states"), ("offload_param_device", "weights")):
        device = block.word(key) or "none"
        if device not in _TIERS:
            block.fault(key, f"expected cpu, nvme or none, got {device!r}")
        elif tier := _TIERS[device]:
            is_idle = (stage or 2) < 3 and (kind == "weights" or tier == "nvme")
            if is_idle:
                found.resolved.append(f"{block.name(key)}: without effect below stage 3")
            else:
                found.placement[kind] = tier
    if block.flag("zero3_init_flag") is False and stage == 3:
        found.training["load.ranks"] = "all"
        found.resolved.append("deepspeed_config.zero3_init_flag: false, every rank builds the whole model first")
    unused, unknown = block.rest(_DEEPSPEED_INERT)
    found.unused += unused
    found.unknown += unknown
    return other


def _megatron(block: Block, found: JobSettings) -> None:
    found.training["framework"] = "megatron"
    for key, ours in (("megatron_lm_tp_degree", "parallelism.tensor"), ("megatron_lm_pp_degree", "parallelism.pipeline")):
        if size := block.count(key, least=1):
            found.training[ours] = size
    if block.flag("megatron_lm_sequence_parallelism"):
        found.training["parallelism.sequence_parallel"] = True
    if block.flag("megatron_lm_recompute_activations"):
        found.training |= {"checkpointing.active": True, "checkpointing.mode": "selective"}
    found.training["parallelism.zero_stage"] = 1 if block.flag("megatron_lm_use_distributed_optimizer") else 0
    unused, unknown = block.rest(_MEGATRON_INERT)
    found.unused += unused
    found.unknown += unknown
