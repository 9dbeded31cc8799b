"""A DeepSpeed configuration (ds_config.json) -> settings of a scenario.

Meanings, defaults and old keys as in deepspeed/runtime/config.py; "auto" as transformers' HfTrainerDeepSpeedConfig fills it
in. Sizes are in elements there and here.
"""

from __future__ import annotations

from sim.errors import Fault, InputError
from sim.interchange.job_files.block import Block
from sim.interchange.job_files.deepspeed_zero import read_zero
from sim.interchange.job_files.settings import JobSettings, Known, ranks_that_divide

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
#: DeepSpeed's optimizer -> ours; those that compress or scale keep Adam's two moments
_OPTIMIZERS = {
    "adam": "adam", "adamw": "adamw", "fusedadam": "adamw", "cpuadam": "adamw", "deepspeedcpuadam": "adamw",
    "onebitadam": "adam", "zerooneadam": "adam", "onebitlamb": "adam", "lamb": "adam", "fusedlamb": "adam", "sgd": "sgd",
    "lion": "lion", "muon": "muon", "adagrad": "sgd_momentum", "muadam": "adam", "muadamw": "adamw", "musgd": "sgd",
}  # fmt: skip
_KEYS = {
    "zero_optimization", "fp16", "bf16", "amp", "optimizer", "train_batch_size", "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps", "activation_checkpointing", "tensor_parallel", "compile",
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
    stage = read_zero(root, known, found)
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
        ranks = known.gpus // tensor or ranks_that_divide(total, (micro or 1) * (steps or 1), known.gpus_at_most // tensor)
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
