"""torchtitan's TOML becomes a scenario; what it does not have is told with its line."""

from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.study.job_import import Asked, ImportedJob, import_huggingface

BASE = """[model]
name = "llama3"
flavor = "{flavor}"
{model}
[training]
local_batch_size = 2
seq_len = 4096
{training}
[parallelism]
{parallelism}
[activation_checkpoint]
{recomputation}
"""


def job(tmp_path: Path, gpus: int = 0, name: str = "job.toml", **parts: str) -> ImportedJob:
    file = tmp_path / name
    given = {"flavor": "8B"} | dict.fromkeys(("model", "training", "parallelism", "recomputation"), "") | parts
    file.write_text(BASE.format(**given))
    return import_huggingface(file, Asked(topology="dgx-h100", gpus=gpus))


def training(tmp_path: Path, gpus: int = 0, **parts: str) -> dict[str, Any]:
    return job(tmp_path, gpus, **parts).document["workload"]["training"]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        ("", {"zero_stage": 3, "data": 8}),
        ("tensor_parallel_degree = 2", {"tensor": 2, "sequence_parallel": True, "zero_stage": 3, "data": 4}),
        (
            "tensor_parallel_degree = 2\nenable_async_tensor_parallel = true",
            {"tensor": 2, "sequence_parallel": True, "overlap_tensor": True, "zero_stage": 3, "data": 4},
        ),
        ("data_parallel_replicate_degree = 2", {"zero_stage": 3, "data": 8, "shard_group": 4}),
        ("data_parallel_shard_degree = 4\ncontext_parallel_degree = 2", {"context": 2, "zero_stage": 3, "data": 4}),
        ("pipeline_parallel_degree = 2", {"pipeline": 2, "zero_stage": 2, "data": 4}),
        ('pipeline_parallel_degree = 2\nfsdp_reshard_after_forward = "always"', {"pipeline": 2, "zero_stage": 3, "data": 4}),
        ('fsdp_reshard_after_forward = "never"', {"zero_stage": 2, "data": 8}),
        ("data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 8", {"zero_stage": 0, "data": 8}),
    ],
)
def test_parallelism(tmp_path: Path, parallelism: str, expected: dict[str, Any]) -> None:
    assert training(tmp_path, parallelism=parallelism)["parallelism"] == expected


@pytest.mark.parametrize(
    ("recomputation", "expected"),
    [
        ('mode = "none"', {"active": False}),
        ('mode = "full"', {"active": True}),
        ('mode = "selective"\nselective_ac_option = "op"', {"active": True, "mode": "selective"}),
        ('mode = "selective"\nselective_ac_option = "4"', {"active": True, "interval": 4}),
    ],
)
def test_activation_checkpointing(tmp_path: Path, recomputation: str, expected: dict[str, Any]) -> None:
    assert training(tmp_path, recomputation=recomputation)["checkpointing"] == expected


def test_batches_precision_and_offload(tmp_path: Path) -> None:
    found = job(
        tmp_path, training="global_batch_size = 64\nenable_cpu_offload = true", model='converters = ["float8"]'
    ).document
    block = found["workload"]["training"]
    assert (block["batch_size"], block["gradient_accumulation"], block["precision"]) == (2, 4, "fp8")
    assert found["placement"] == {"weights": "dram", "optimizer_states": "dram"}
    assert block["model"] == "llama-3.1-8b"


def test_tables_of_2024_and_a_file_without_its_name(tmp_path: Path) -> None:
    old = "tensor_parallel_degree = 8\ndata_parallel_shard_degree = -1\ncompile = true"
    block = job(tmp_path, name="train.conf", training=old, flavor="70B").document["workload"]["training"]
    assert block["parallelism"] == {"tensor": 8, "sequence_parallel": True, "zero_stage": 3, "data": 1}
    assert block["compile"] is True


def test_an_unknown_key_has_its_line(tmp_path: Path) -> None:
    assert job(tmp_path, training="local_batchsize = 3").settings.unknown == [
        "training.local_batchsize (job.toml:8); did you mean 'local_batch_size'?"
    ]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"training": "global_batch_size = 10"}, "job.toml:8: training.global_batch_size: is 10, no multiple of"),
        ({"parallelism": "data_parallel_shard_degree = 3", "gpus": 8}, "1 x 3 data-parallel ranks x 1 = 3, not 8 GPUs"),
        ({"recomputation": 'mode = "half"'}, "expected none, full or selective, got 'half'"),
        ({"training": "x = = 2"}, "job.toml:8: is not TOML: Invalid value"),
        ({"flavor": "9B"}, "model 'llama3-9B' is not built in"),
        ({"training": 'dtype = "int8"'}, "expected bfloat16 or float32, got 'int8'"),
        ({"parallelism": "tensor_parallel_degree = 0"}, "expected a whole number of at least 1, got 0"),
    ],
)
def test_what_is_refused(tmp_path: Path, parts: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        job(tmp_path, **parts)
    assert said in str(caught.value)


def test_another_kind_of_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nname = "x"\n')
    with pytest.raises(InputError, match="is no configuration of torchtitan: its tables are project"):
        import_huggingface(file, Asked())
