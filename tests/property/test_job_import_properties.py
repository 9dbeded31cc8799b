"""Whatever a configuration holds, it is read or refused: no other error, and what is read resolves as a scenario."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import scenario_of
from sim.errors import InputError
from sim.study.job_import import Asked, ImportedJob, import_deepspeed, import_huggingface

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 10**13), st.floats(allow_nan=False, allow_infinity=False), st.just("auto"),
    st.sampled_from(["cpu", "nvme", "none", "AdamW", "bf16", "full_shard auto_wrap", "", "1e9"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["enabled", "device", "type", "stage"]), st.booleans(), max_size=2),
)  # fmt: skip


def mappings(*keys: str, **nested: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {}, optional=dict.fromkeys(keys, VALUES) | {key: VALUES | inner for key, inner in nested.items()}
    )


OFFLOAD = mappings("device", "pin_memory", "buffer_count", "buffer_size", "ratio", "nvme_path", "other")
ZERO = mappings(
    "stage", "reduce_bucket_size", "sub_group_size", "stage3_prefetch_bucket_size", "stage3_max_live_parameters", "cpu_offload",
    "cpu_offload_param", "mics_shard_size", "odd", offload_optimizer=OFFLOAD, offload_param=OFFLOAD,
)  # fmt: skip
DEEPSPEED = mappings(
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "steps_per_print", "amp",
    zero_optimization=ZERO, bf16=mappings("enabled"), fp16=mappings("enabled"), optimizer=mappings("type"),
    data_types=mappings("grad_accum_dtype"), tensor_parallel=mappings("autotp_size"),
    activation_checkpointing=mappings("cpu_checkpointing", "partition_activations"),
)  # fmt: skip
HUGGINGFACE = mappings(
    "per_device_train_batch_size", "bf16", "fp16", "optim", "gradient_checkpointing", "fsdp", "model_name_or_path",
    "load_in_4bit", "lora_r", "lora_target", "finetuning_type", "max_length", "torch_dtype", "attn_implementation",
    "distributed_type",
    "num_processes", "num_machines", "mixed_precision", "dataloader_num_workers", deepspeed=DEEPSPEED,
    fsdp_config=mappings("fsdp_sharding_strategy", "fsdp_offload_params"),
    deepspeed_config=mappings("zero_stage", "offload_optimizer_device", "deepspeed_config_file", "gradient_accumulation_steps"),
)  # fmt: skip


def check(read: Callable[[Path, Asked], ImportedJob], data: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(data))
        try:
            job = read(file, Asked(model="llama-2-7b", topology="dgx-a100"))
            scenario_of(job.document).resolve()
        except InputError:
            return
        assert job.document["workload"]["training"].get("batch_size", 1) >= 1


@settings(deadline=None, max_examples=60)
@given(DEEPSPEED)
def test_deepspeed_configurations_are_read_or_refused(data: dict[str, Any]) -> None:
    check(import_deepspeed, data)


@settings(deadline=None, max_examples=60)
@given(HUGGINGFACE)
def test_huggingface_configurations_are_read_or_refused(data: dict[str, Any]) -> None:
    check(import_huggingface, data)
