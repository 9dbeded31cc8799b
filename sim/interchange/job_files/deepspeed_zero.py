"""The `zero_optimization` block of a DeepSpeed configuration: stage, what is offloaded where, bucket and cache sizes.

Meanings, defaults and old keys as in deepspeed/runtime/zero/config.py and offload_config.py. Sizes are in elements.
"""

from __future__ import annotations

from sim.interchange.job_files.block import Block
from sim.interchange.job_files.settings import JobSettings, Known

#: keys that are known and change neither memory nor time here, or are not modelled
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
_TIERS = {"cpu": "dram", "nvme": "nvme", "none": ""}
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


def read_zero(root: Block, known: Known, found: JobSettings) -> int:
    """Write stage, offload devices and sizes into `found`, faults into `root`; the stage, 0 to 3."""
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
