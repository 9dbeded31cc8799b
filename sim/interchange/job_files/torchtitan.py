"""torchtitan's job configurations (TOML) -> settings of a scenario (torchtitan/config/job_config.py, of 2024 to 2026)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.errors import Fault, InputError
from sim.interchange.job_files.block import Block, LineOf
from sim.interchange.job_files.settings import JobSettings, Known
from sim.interchange.source import written

_SECTIONS = ("job", "model", "training", "parallelism", "optimizer", "activation_checkpoint", "experimental", "compile")
#: tables that change nothing here
_INERT_SECTIONS = ("profiling", "metrics", "lr_scheduler", "checkpoint", "comm", "memory_estimation", "fault_tolerance",
                   "debug", "validation", "job", "experimental", "quantize", "float8", "mx", "optimizer",
                   "quantization")  # fmt: skip
_INERT = {
    "model": ("tokenizer_path", "hf_assets_path", "norm_type", "print_after_conversion", "use_flex_attn", "converters"),
    "training": ("steps", "max_norm", "dataset", "dataset_path", "seed", "deterministic", "gc_freq", "gc_debug", "warmup_steps",
                 "mixed_precision_reduce", "dataloader", "debug_moe_force_load_balance"),
    "parallelism": ("pipeline_parallel_schedule", "pipeline_parallel_split_points",
                    "pipeline_parallel_microbatch_size", "enable_loss_parallel", "disable_loss_parallel",
                    "context_parallel_rotate_method", "enable_compiled_autograd", "pipeline_parallel_layers_per_stage",
                    "pipeline_parallel_schedule_csv", "pipeline_parallel_first_stage_less_layers",
                    "pipeline_parallel_last_stage_less_layers", "module_fqns_per_model_part", "expert_tensor_parallel_degree"),
    "activation_checkpoint": ("per_op_sac_force_recompute_mm_shapes_by_fqns", "early_stop", "memory_budget",
                              "visualize_memory_budget_pareto", "determinism_check", "preserve_rng_state", "debug"),
    "compile": ("components", "backend", "model", "loss"),
    "optimizer": ("lr", "beta1", "beta2", "eps", "weight_decay", "early_step_in_backward", "fused"),
}  # fmt: skip
_OPTIMIZERS = {"Adam": "adam", "AdamW": "adamw", "Muon": "muon", "SGD": "sgd"}
_FLAVORS = {
    ("llama3", "8B"): "llama-3.1-8b", ("llama3", "70B"): "llama-3.1-70b", ("llama3", "405B"): "llama-3.1-405b",
    ("llama4", "17bx16e"): "llama-4-scout", ("llama4", "17bx128e"): "llama-4-maverick",
    ("deepseek_v3", "16B"): "deepseek-v2-lite", ("deepseek_v3", "236B"): "deepseek-v2", ("deepseek_v3", "671B"): "deepseek-v3",
    ("gpt_oss", "20b"): "gpt-oss-20b", ("gpt_oss", "120b"): "gpt-oss-120b",
}  # fmt: skip


def read_toml(path: Path) -> tuple[dict[str, Any], LineOf]:
    """(tables of the file, function from a path of keys to its 1-based line). Raises InputError for what is no TOML."""
    text = written(path)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = re.search(r"at line (\d+)", str(error))
        what = f"is not TOML: {re.sub(r' ?[(]at line.*', '', str(error))}"
        raise InputError(Fault(what=what, file=str(path), line=int(place[1]) if place else 0)) from None

    def line_of(keys: tuple[str, ...]) -> int:
        table = re.search(rf"(?m)^\s*\[{re.escape('.'.join(keys[:-1]))}\]", text) if len(keys) > 1 else None
        start = table.end() if table else 0
        found = re.compile(rf"(?m)^\s*\[?{re.escape(keys[-1])}\]?\s*(?:=|$)").search(text, start)
        return text.count("\n", 0, found.start() + 1) + 1 if found else 0

    return data, line_of


def is_torchtitan(root: Block) -> bool:
    """Whether the tables are those of torchtitan."""
    return isinstance(root.data.get("model"), Mapping) and isinstance(root.data.get("training"), Mapping)


def read_torchtitan(root: Block, known: Known) -> JobSettings:
    """Settings of a job; the number of GPUs stands on its command line unless every degree is given. Raises InputError."""
    if not is_torchtitan(root):
        keys = ", ".join(list(root.data)[:6])
        raise InputError(Fault(what=f"is no configuration of torchtitan: its tables are {keys or 'none'}", file=root.file,
                               remedy="a TOML file needs [model] and [training]"))  # fmt: skip
    found = JobSettings(training={"framework": "torchtitan"})
    blocks = {name: root.block(name) for name in _SECTIONS}
    model, training = blocks["model"], blocks["training"]
    name, flavor = model.word("name") or "", model.word("flavor") or ""
    found.model = _FLAVORS.get((name, flavor), f"{name}-{flavor}" if flavor and flavor != "debugmodel" else "")
    found.training["sequence_length"] = training.count("seq_len", least=1) or 2048
    found.training["batch_size"] = training.count(training.first("local_batch_size", "batch_size"), least=1) or 8
    _numbers(blocks, found)
    _parallelism(blocks, known, found)
    _recomputation(blocks["activation_checkpoint"], found)
    optimizer = blocks["optimizer"].word("name") or "AdamW"
    if optimizer not in _OPTIMIZERS:
        blocks["optimizer"].fault("name", f"optimizer {optimizer!r} is not modelled", f"use one of {', '.join(_OPTIMIZERS)}")
    else:
        found.training["optimizer.type"] = _OPTIMIZERS[optimizer]
    if blocks["compile"].flag("enable") or training.flag("compile"):
        found.training["compile"] = True
    if training.flag("enable_cpu_offload"):
        found.placement |= {"weights": "dram", "optimizer_states": "dram"}
    for key, block in blocks.items():
        unused, unknown = block.rest(block.data if key in ("job", "experimental") else _INERT.get(key, ()))
        found.unused += unused
        found.unknown += unknown
    unused, unknown = root.rest(_INERT_SECTIONS)
    found.unused += unused
    found.unknown += unknown
    root.stop()
    return found


def _numbers(blocks: Mapping[str, Block], found: JobSettings) -> None:
    training, converters = blocks["training"], blocks["model"].get("converters")
    names = [str(one) for one in converters] if isinstance(converters, list) else [str(converters or "")]
    kept = training.word("dtype") or "float32"
    if any("mx" in one for one in names):
        precision = "mxfp8"
    elif any("float8" in one for one in names):
        precision = "fp8"
    else:
        precision = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(
            training.word("mixed_precision_param") or "bfloat16", ""
        )
    training.asked.add("mixed_precision_param")
    if not precision or kept not in ("float32", "bfloat16"):
        key = "mixed_precision_param" if not precision else "dtype"
        training.fault(key, f"expected bfloat16 or float32, got {training.data.get(key)!r}")
        return
    found.training["precision"] = precision
    if kept == "bfloat16":
        found.resolved.append("training.dtype: bfloat16 weights and states; states are counted in fp32")


def _parallelism(blocks: Mapping[str, Block], known: Known, found: JobSettings) -> None:
    """Degrees, also under the tables of 2024, where some stood under [training] and [experimental]."""

    def degree(*keys: str) -> int | None:
        for name in ("parallelism", "training", "experimental"):
            for key in keys:
                value = blocks[name].get(key)
                if value is not None and value != -1:
                    return blocks[name].count(key, least=1)
        return None

    others = 1
    for kind in ("tensor", "pipeline", "context"):
        if (size := degree(f"{kind}_parallel_degree") or 1) > 1:
            found.training[f"parallelism.{kind}"] = size
            others *= size
    is_beside = blocks["parallelism"].flag("enable_async_tensor_parallel")
    if "parallelism.tensor" in found.training:  # its plan splits norms over the tensor ranks too
        found.training["parallelism.sequence_parallel"] = True
        if is_beside:
            found.training["parallelism.overlap_tensor"] = True
    if (size := degree("expert_parallel_degree") or 1) > 1:
        found.training["parallelism.expert"] = size
    copies = degree("data_parallel_replicate_degree") or 1
    shards = degree("data_parallel_shard_degree", "data_parallel_degree")
    gpus = known.gpus or (copies * shards * others if shards else 0)
    if known.gpus and shards and copies * shards * others != known.gpus:
        what = f"{copies} x {shards} data-parallel ranks x {others} = {copies * shards * others}, not {known.gpus} GPUs"
        blocks["parallelism"].fault(
            "data_parallel_shard_degree", what, "write -1 for all that are left, or name them with --gpus"
        )
    found.gpus = gpus
    gathered = blocks["parallelism"].word("fsdp_reshard_after_forward") or "default"
    if gathered not in ("default", "always", "never"):
        blocks["parallelism"].fault("fsdp_reshard_after_forward", f"expected default, always or never, got {gathered!r}")
    is_kept = gathered == "never" or (gathered == "default" and "parallelism.pipeline" in found.training)
    found.training["parallelism.zero_stage"] = 0 if shards == 1 else 2 if is_kept else 3
    ranks = (gpus or known.gpus_at_most) // others
    if copies > 1 and ranks and ranks % copies == 0 and ranks > copies:
        found.training["parallelism.shard_group"] = ranks // copies
    micro, total = int(found.training["batch_size"]), blocks["training"].count("global_batch_size", least=1)
    if total and ranks:
        if total % (micro * ranks):
            what = f"is {total}, no multiple of local_batch_size {micro} x {ranks} data-parallel ranks"
            blocks["training"].fault("global_batch_size", what, "torchtitan refuses this; name the number of GPUs with --gpus")
        else:
            found.training["gradient_accumulation"] = total // (micro * ranks)


def _recomputation(block: Block, found: JobSettings) -> None:
    mode, option = block.word("mode") or "selective", block.get("selective_ac_option") or "2"
    if mode not in ("none", "full", "selective", "memory_budget"):
        block.fault("mode", f"expected none, full or selective, got {mode!r}")
    elif mode == "none":
        found.training["checkpointing.active"] = False
    else:
        found.training["checkpointing.active"] = True
        if mode == "selective" and str(option).isdigit():
            found.training["checkpointing.interval"] = max(1, int(str(option)))
        elif mode != "full":
            found.training["checkpointing.mode"] = "selective"
