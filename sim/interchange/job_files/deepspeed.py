"""A DeepSpeed configuration (ds_config.json) -> settings of a scenario.

Meanings, defaults and old keys as in deepspeed/runtime/config.py and runtime/zero/config.py, offload_config.py; "auto" as
transformers' HfTrainerDeepSpeedConfig fills it in. Sizes are in elements there and here.
"""

from __future__ import annotations

from sim.errors import Fault, InputError
from sim.interchange.job_files.block import Block
from sim.interchange.job_files.settings import JobSettings, Known

#: keys that are known and change neither memory nor time here, or are not modelled
_INERT = {
    "scheduler", "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "dump_state", "flops_profiler", "tensorboard",
    "wandb", "csv_monitor", "comet", "monitor_config", "comms_logger", "elasticity", "curriculum_learning", "data_efficiency",
    "prescale_gradients", "gradient_predivide_factor", "sparse_gradients", "sparse_attention", "communication_data_type",
    "seq_parallel_communication_data_type", "disable_allgather", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer", "memory_breakdown", "checkpoint", "nebula", "eigenvalue", "progressive_layer_drop",
    "quantize_training", "compression_training", "hybrid_engine", "autotuning", "aio", "timers", "graph_harvesting",
    "use_data_before_expert_parallel_", "dataloader_drop_last", "load_universal_checkpoint", "use_node_local_storage",
    "stage3_gather_16bit_weights_on_model_save", "pipeline", "torch_autocast", "sequence_parallel_size", "vocabulary_size",
    "train_steps", "allgather_size", "checkpointing", "inference", "weight_quantization_config",
}  # fmt: skip
_ZERO_INERT = {
    "contiguous_gradients", "reduce_scatter", "use_multi_rank_bucket_allreduce", "allgather_partitions", "overlap_comm",
    "allgather_bucket_size", "load_from_fp32_weights", "elastic_checkpoint", "stage3_max_reuse_distance",
    "stage3_model_persistence_threshold", "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save", "stage3_module_granularity_threshold",
    "stage3_use_all_reduce_for_fetch_params", "ignore_unused_parameters", "legacy_stage1", "round_robin_gradients",
    "zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
    "zeropp_loco_param", "mics_hierarchical_params_gather", "memory_efficient_linear", "pipeline_loading_checkpoint",
    "override_module_apply", "log_trace_cache_warnings", "enable_sanity_checks", "param_streaming", "leaf_module",
    "zenflow", "save_muon_momentum_buffer_in_memory", "reduce_scatter_dtype", "use_all_gather_base_collective",
    "stage3_allgather_sequential",
}  # fmt: skip
_OFFLOAD_INERT = {
    "nvme_path", "pipeline", "pipeline_read", "pipeline_write", "fast_init", "super_offload", "cpuadam_cores_perc",
}  # fmt: skip
#: DeepSpeed's optimizer -> ours; those that compress or scale keep Adam's two moments
_OPTIMIZERS = {
    "adam": "adam", "adamw": "adamw", "fusedadam": "adamw", "cpuadam": "adamw", "deepspeedcpuadam": "adamw",
    "onebitadam": "adam", "zerooneadam": "adam", "onebitlamb": "adam", "lamb": "adam", "fusedlamb": "adam", "sgd": "sgd",
    "lion": "lion", "muon": "muon", "adagrad": "sgd_momentum", "muadam": "adam", "muadamw": "adamw", "musgd": "sgd",
}  # fmt: skip
_TIERS = {"cpu": "dram", "nvme": "nvme", "none": ""}
_KEYS = {
    "zero_optimization", "fp16", "bf16", "amp", "optimizer", "train_batch_size", "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps", "activation_checkpointing", "tensor_parallel", "compile",
}  # fmt: skip
#: what DeepSpeed does where the file is silent (zero/config.py), in elements
_DEFAULTS = {
    "reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 1e5,
    "stage3_max_live_parameters": 1e9, "sub_group_size": 1e9,
}  # fmt: skip
_OURS = {
    "reduce_bucket_size": "offload.bucket_elements", "stage3_prefetch_bucket_size": "offload.prefetch_elements",
    "stage3_param_persistence_threshold": "offload.persistence_elements",
    "stage3_max_live_parameters": "offload.max_live_elements", "sub_group_size": "offload.sub_group_elements",
}  # fmt: skip


def read_deepspeed(root: Block, known: Known) -> JobSettings:
    """Settings that the configuration asks for.

    Raises InputError with every fault: a file of another kind, a type, a value or a batch that DeepSpeed refuses.
    """
    if not any(key in root.data for key in _KEYS | _INERT):
        keys = ", ".join(list(root.data)[:6])
        raise InputError(Fault(what=f"is not a DeepSpeed configuration: none of its keys ({keys}) is one", file=root.file,
                               remedy="give the file that deepspeed takes as --deepspeed_config"))  # fmt: skip
    found = JobSettings(training={"framework": "deepspeed-zero"})
    _precision(root, known, found)
    _optimizer(root, found)
    stage = _zero(root, known, found)
    _checkpointing(root, found)
    parallel = root.block("tensor_parallel")
    tensor = max(1, parallel.count(parallel.first("autotp_size", "tp_size")) or 1)
    if tensor > 1:
        found.training["parallelism.tensor"] = tensor
    _batch(root, known, found, tensor)
    types = root.block("data_types")
    if (dtype := types.word("grad_accum_dtype")) in ("fp32", "bf16", "fp16"):
        found.training["offload.gradient_dtype"] = dtype
    elif dtype is not None:
        types.fault("grad_accum_dtype", f"expected fp32, bf16 or fp16, got {dtype!r}")
    if root.block("compile").flag("enabled"):
        found.training["compile"] = True
    found.training["parallelism.zero_stage"] = stage
    for block, inert in ((root, _INERT), (parallel, ("tp", "tp_grain_size", "partition_config"))):
        unused, unknown = block.rest(inert, _KEYS)
        found.unused += unused
        found.unknown += unknown
    root.stop()
    return found


def _precision(root: Block, known: Known, found: JobSettings) -> None:
    key = root.first("bf16", "bfloat16")
    bf16, fp16, amp = root.block(key), root.block("fp16"), root.block("amp")
    autos = [block.name("enabled") for block in (bf16, fp16) if block.is_auto("enabled")]
    is_bf16, is_fp16 = bf16.flag("enabled"), fp16.flag("enabled")
    if is_bf16 and is_fp16:
        fp16.fault("enabled", "bf16 and fp16 are both enabled", "DeepSpeed takes one of them")
    if is_bf16 or is_fp16:
        precision = "bf16" if is_bf16 else "fp16"
    elif autos:
        precision = known.precision or "bf16"
        found.resolved.append(f"{' and '.join(autos)}: auto is {precision} ({'as asked' if known.precision else 'assumed'})")
    elif amp.flag("enabled"):
        precision = "fp16"
    else:
        precision = "fp32"
        found.resolved.append("neither bf16 nor fp16 is enabled: trains in fp32")
    found.training["precision"] = precision


def _optimizer(root: Block, found: JobSettings) -> None:
    block = root.block("optimizer")
    name = block.word("type")
    block.asked.update(("params", "legacy_fusion"))
    if name is None:
        found.resolved.append("no optimizer in the file: the script's, taken to be AdamW")
    elif (kind := _OPTIMIZERS.get(name.lower().replace("-", "").replace("_", ""))) is None:
        block.fault("type", f"optimizer {name!r} is not modelled", f"use one of {', '.join(sorted(_OPTIMIZERS))}")
    else:
        found.training["optimizer.type"] = kind
        if kind != name.lower():
            found.resolved.append(f"optimizer.type: {name} has the states of {kind}")


# ------------------------------------------------------------------------------------------------------------------ ZeRO


def _zero(root: Block, known: Known, found: JobSettings) -> int:
    """Stage, offload devices and sizes. Returns the stage."""
    raw = root.get("zero_optimization")
    if isinstance(raw, bool):  # the form of 2020
        stage = int(raw)
        found.resolved.append(f"zero_optimization: {str(raw).lower()} is stage {stage}")
        return stage
    zero = root.block("zero_optimization")
    stage = zero.count("stage") or 0
    if stage > 3:
        zero.fault("stage", f"expected a stage from 0 to 3, got {stage}")
        stage = 0
    _offload(zero, stage, found)
    _sizes(zero, stage, known, found)
    group = zero.get("mics_shard_size")
    if isinstance(group, int) and group > 0:
        found.training["parallelism.shard_group"] = group
    unused, unknown = zero.rest(_ZERO_INERT, _DEFAULTS)
    found.unused += unused
    found.unknown += unknown
    return stage


def _offload(zero: Block, stage: int, found: JobSettings) -> None:
    optimizer, states = _device(zero, "offload_optimizer", ("cpu_offload",), found)
    param, weights = _device(zero, "offload_param", ("cpu_offload_param", "cpu_offload_params"), found)
    old_pin = zero.flag("cpu_offload_use_pin_memory")
    if states and (stage == 0 or (states == "nvme" and stage < 3)):
        found.resolved.append(f"{optimizer.name('device')}: without effect in stage {stage}, states stay on the GPU")
        states = ""
    if weights and stage < 3:
        found.resolved.append(f"{param.name('device')}: without effect below stage 3, weights stay on the GPU")
        weights = ""
    if states:
        found.placement["optimizer_states"] = states
    if weights:
        found.placement["weights"] = weights
    pins = [block.flag("pin_memory") for block, tier in ((optimizer, states), (param, weights)) if tier]
    if pins:
        given = [pin for pin in (*pins, old_pin) if pin is not None]
        found.training["offload.pin_memory"] = any(given)
        if not given:
            found.resolved.append("pin_memory: not given, DeepSpeed's default is false")
        elif len(set(pins)) > 1:
            found.resolved.append("pin_memory differs between states and weights: true is taken for both")
    ratio = optimizer.number("ratio")
    if ratio is not None and states:
        if ratio > 1:
            optimizer.fault("ratio", f"expected a share from 0 to 1, got {ratio:g}")
        elif ratio < 1:
            found.training["optimizer.gpu_fraction"] = round(1 - ratio, 6)
    _swap_buffers(optimizer, param, states, weights, found)
    for block in (optimizer, param):
        unused, unknown = block.rest(_OFFLOAD_INERT, ("buffer_count", "buffer_size", "pin_memory", "ratio"))
        found.unused += unused
        found.unknown += unknown


def _swap_buffers(optimizer: Block, param: Block, states: str, weights: str, found: JobSettings) -> None:
    """NVMe swap buffers; asked for even where they have no effect, so that their keys count as read."""
    state_count, count = optimizer.count("buffer_count", least=1), param.count("buffer_count", least=1)
    size, kept = param.count("buffer_size", least=1), param.count("max_in_cpu")
    if weights == "nvme" and kept is not None:
        found.training["offload.max_in_cpu_elements"] = kept
    if states == "nvme" and state_count:
        found.training["offload.state_buffer_count"] = state_count
    if weights == "nvme" and count:
        found.training["offload.buffer_count"] = count
    if weights == "nvme" and size:
        found.training["offload.buffer_elements"] = size
    if not states and not weights:
        for block in (optimizer, param):
            block.asked.update(("pin_memory", "buffer_count", "buffer_size", "ratio"))


def _device(zero: Block, key: str, old: tuple[str, ...], found: JobSettings) -> tuple[Block, str]:
    """(block of the offload, tier); old boolean keys stand for the CPU."""
    is_plain = isinstance(zero.get(key), bool)
    block = Block({}, zero.file, zero.line_of, (*zero.path, key)) if is_plain else zero.block(key)
    block.faults = zero.faults
    given = {name: zero.flag(name) for name in old}
    if is_plain:
        zero.fault(key, "expected a mapping, got true or false", f'{{"device": "cpu"}}; the old switch is {old[0]!r}')
    device = block.word("device")
    if device is None:
        legacy = next((name for name, value in given.items() if value), "")
        if legacy:
            found.resolved.append(f"{zero.name(legacy)}: true is {key}.device: cpu")
        device = "cpu" if legacy else "none"
    if device not in _TIERS:
        block.fault("device", f"expected cpu, nvme or none, got {device!r}")
        return block, ""
    return block, _TIERS[device]


def _sizes(zero: Block, stage: int, known: Known, found: JobSettings) -> None:
    """Bucket and cache sizes in elements; those of stage 3 are read in every stage and count in stage 3 only."""
    square = known.hidden * known.hidden
    autos = {
        "reduce_bucket_size": (square, "hidden size squared"),
        "stage3_prefetch_bucket_size": (int(0.9 * square), "0.9 x hidden size squared"),
        "stage3_param_persistence_threshold": (10 * known.hidden, "10 x hidden size"),
    }
    for key, default in _DEFAULTS.items():
        is_auto, value = zero.is_auto(key), zero.count(key)
        if stage == 0 or (stage < 3 and key != "reduce_bucket_size"):
            continue
        least = 0 if key in ("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold") else 1
        if is_auto:
            value, rule = autos.get(key, (0, ""))
            if not value:
                zero.fault(key, "'auto' follows from the model, and no model is given" if key in autos else "cannot be 'auto'",
                           "name it with --model" if key in autos else f"DeepSpeed's default is {default:.0e}")  # fmt: skip
                continue
            found.resolved.append(f"{zero.name(key)}: auto is {value:,} ({rule})")
        elif value is None:
            continue  # the profile of the framework has DeepSpeed's default
        found.training[_OURS[key]] = max(value, least)


# ----------------------------------------------------------------------------------------------------------------- batch


def _batch(root: Block, known: Known, found: JobSettings, tensor: int) -> None:
    """train_batch_size = micro-batch x accumulation x ranks: what is missing follows, what contradicts is a fault."""
    total = root.count("train_batch_size", least=1)
    micro = root.count("train_micro_batch_size_per_gpu", least=1)
    steps = root.count("gradient_accumulation_steps", least=1)
    for key, value, asked, name in (
        ("train_micro_batch_size_per_gpu", micro, known.batch_size, "micro"),
        ("gradient_accumulation_steps", steps, known.gradient_accumulation, "steps"),
    ):
        if value is None and asked and (root.is_auto(key) or total is None):
            found.resolved.append(f"{key}: {asked} (as asked)")
            micro, steps = (asked, steps) if name == "micro" else (micro, asked)
        elif value is not None and asked and value != asked:
            root.fault(key, f"is {value}, but {asked} is asked for", "make them equal, or write 'auto'")
    if total is not None:
        ranks = known.gpus // tensor or _ranks(total, micro or 1, steps or 1, known.gpus_at_most // tensor)
        found.gpus = ranks * tensor
        if steps is None:
            steps = total // (micro * ranks) if micro else 1
        micro = micro or total // (max(steps, 1) * ranks)
        if micro * steps * ranks != total:
            what = f"is {total}, but micro-batch {micro} x accumulation {steps} x {ranks} ranks = {micro * steps * ranks}"
            root.fault("train_batch_size", what, "DeepSpeed refuses this; name the number of GPUs with --gpus")
    if micro is None:
        found.resolved.append("micro-batch: not given, 1 is assumed")
    found.training["batch_size"] = max(1, micro or 1)
    found.training["gradient_accumulation"] = max(1, steps or 1)


def _ranks(total: int, micro: int, steps: int, at_most: int) -> int:
    """Most ranks of a machine that a global batch divides by; 1 when none does."""
    return next((ranks for ranks in range(at_most, 0, -1) if total % (micro * steps * ranks) == 0), 1)


def _checkpointing(root: Block, found: JobSettings) -> None:
    block = root.block("activation_checkpointing")
    if block.flag("cpu_checkpointing"):
        found.training |= {"checkpointing.active": True, "checkpointing.offload": True}
        found.resolved.append("activation_checkpointing.cpu_checkpointing: for models that call deepspeed.checkpointing")
    inert = ("partition_activations", "contiguous_memory_optimization", "number_checkpoints", "profile",
             "synchronize_checkpoint_boundary", "synchronize_checkpoint")  # fmt: skip
    unused, unknown = block.rest(inert)
    found.unused += unused
    found.unknown += unknown
