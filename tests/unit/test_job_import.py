"""DeepSpeed, accelerate and Trainer configurations become scenarios; what cannot is refused with a place."""

import json
import os
from pathlib import Path

import pytest

from sim.cli import run
from sim.config import load_scenario
from sim.errors import InputError
from sim.study.job_import import Asked, import_deepspeed, import_huggingface, write_job

ONE_A100 = Asked(model="llama-2-7b", topology="dgx-a100")


def deepspeed(tmp_path: Path, data: object, asked: Asked = ONE_A100):
    file = tmp_path / "ds.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data, indent=1))
    return import_deepspeed(file, asked)


def huggingface(tmp_path: Path, text: str, asked: Asked = ONE_A100, name: str = "hf.yaml"):
    file = tmp_path / name
    file.write_text(text)
    return import_huggingface(file, asked)


def training(job) -> dict:
    return job.document["workload"]["training"]


def refusal(tmp_path: Path, data: object, asked: Asked = ONE_A100) -> str:
    with pytest.raises(InputError) as caught:
        deepspeed(tmp_path, data, asked)
    return str(caught.value)


def zero(**keys: object) -> dict:
    return {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 2, "zero_optimization": keys}


def test_auto_sizes_follow_from_the_hidden_size(tmp_path):
    auto = dict.fromkeys(("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"), "auto")
    offload = training(deepspeed(tmp_path, zero(stage=3, **auto)))["offload"]
    assert offload == {"bucket_elements": 4096**2, "prefetch_elements": int(0.9 * 4096**2), "persistence_elements": 40960}


def test_silence_leaves_deepspeeds_own_defaults_to_the_profile(tmp_path):
    assert "offload" not in training(deepspeed(tmp_path, zero(stage=3)))


@pytest.mark.parametrize(
    ("keys", "placement"),
    [
        ({"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme"}},
         {"optimizer_states": "dram", "weights": "nvme"}),
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
         {"optimizer_states": "dram"}),
        ({"stage": 2, "offload_optimizer": {"device": "nvme"}}, None),
        ({"stage": 0, "offload_optimizer": {"device": "cpu"}}, None),
        ({"stage": 2, "cpu_offload": True}, {"optimizer_states": "dram"}),
        ({"stage": 3, "cpu_offload_param": True, "cpu_offload": True}, {"optimizer_states": "dram", "weights": "dram"}),
        ({"stage": 3, "offload_optimizer": None, "cpu_offload": False}, None),
    ],
)  # fmt: skip
def test_offload_devices_have_the_effect_that_deepspeed_gives_them(tmp_path, keys, placement):
    assert deepspeed(tmp_path, zero(**keys)).document.get("placement") == placement


def test_swap_buffers_ratio_and_pinning(tmp_path):
    optimizer = {"device": "nvme", "buffer_count": 5, "pin_memory": True, "ratio": 0.75}
    param = {"device": "nvme", "buffer_count": 6, "buffer_size": 1e9, "pin_memory": True}
    job = training(deepspeed(tmp_path, zero(stage=3, offload_optimizer=optimizer, offload_param=param, sub_group_size=1e8)))
    assert job["offload"] == {
        "pin_memory": True, "state_buffer_count": 5, "buffer_count": 6, "buffer_elements": 10**9, "sub_group_elements": 10**8
    }  # fmt: skip
    assert job["optimizer"] == {"gpu_fraction": 0.25}


def test_pinning_is_off_where_the_file_is_silent(tmp_path):
    job = deepspeed(tmp_path, zero(stage=2, offload_optimizer={"device": "cpu"}))
    assert training(job)["offload"]["pin_memory"] is False


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"train_batch_size": 32}, (4, 1, 8)),
        ({"train_batch_size": 32, "gradient_accumulation_steps": 2}, (2, 2, 8)),
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 1}, (1, 4, 8)),
        ({"train_batch_size": 12}, (2, 1, 6)),
        ({"train_micro_batch_size_per_gpu": 3}, (3, 1, 8)),
        (
            {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"},
            (1, 1, 8),
        ),
    ],
)
def test_batch_sizes_complete_each_other(tmp_path, batch, expected):
    job = training(deepspeed(tmp_path, {"fp16": {"enabled": True}, **batch}))
    assert (job["batch_size"], job["gradient_accumulation"], job["parallelism"]["data"]) == expected


def test_a_batch_that_does_not_divide_is_refused_with_the_numbers(tmp_path):
    asked = Asked(model="llama-2-7b", topology="dgx-a100", gpus=8)
    assert "ds.json:5: train_batch_size: is 12" in refusal(tmp_path, {"fp16": {"enabled": True}, "train_batch_size": 12}, asked)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"block_size": ["128K"], "threads": [1]}, "is not a DeepSpeed configuration"),
        ("{\"fp16\": CONFIG_FP16}", "ds.json:1: is not JSON: Expecting value; templates need their placeholders filled in"),
        ('{"bf16": {"enabled": true},\n"zero_optimization": {"stage": 1,\n"stage": 2}}', "ds.json:3: duplicate key 'stage'"),
        (zero(stage=4), "zero_optimization.stage: expected a stage from 0 to 3, got 4"),
        (zero(stage="three"), "zero_optimization.stage: expected a number, got 'three'"),
        (zero(stage=3, reduce_bucket_size=-1), "expected a number of at least 0, got -1"),
        (zero(stage=3, offload_param={"device": "gpu"}), "offload_param.device: expected cpu, nvme or none, got 'gpu'"),
        (zero(stage=3, offload_optimizer=True), "expected a mapping, got true or false"),
        (zero(stage=3, sub_group_size="auto"), "sub_group_size: cannot be 'auto'"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, "bf16 and fp16 are both enabled"),
        ({"bf16": {"enabled": True}, "optimizer": {"type": "Shampoo"}}, "optimizer 'Shampoo' is not modelled"),
        ({"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": [1, 2]}, "keep one value"),
        ("[1]", "expected an object"),
        ('{"bf16": {"enabled": true}, "gradient_clipping": NaN}', "NaN is not a finite number"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, data, said):
    assert said in refusal(tmp_path, data)


def test_unknown_keys_are_told_with_their_line_and_the_nearest_name(tmp_path):
    job = deepspeed(tmp_path, zero(stage=3, reduce_bucket_sise=5))
    assert job.settings.unknown == ["zero_optimization.reduce_bucket_sise (ds.json:8); did you mean 'reduce_bucket_size'?"]


def test_an_old_boolean_and_no_precision(tmp_path):
    job = training(deepspeed(tmp_path, {"zero_optimization": True, "train_batch_size": 8}))
    assert (job["parallelism"]["zero_stage"], job["precision"]) == (1, "fp32")


def test_accelerate_fsdp_over_two_nodes(tmp_path):
    text = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_sharding_strategy: HYBRID_SHARD
  fsdp_offload_params: true
  fsdp_activation_checkpointing: true
  fsdp_cpu_ram_efficient_loading: false
"""
    job = huggingface(tmp_path, text)
    assert job.document["topology"] == {"base": "dgx-a100", "set": {"nodes": 2}}
    assert job.document["placement"] == {"weights": "dram", "optimizer_states": "dram"}
    assert training(job)["parallelism"] == {"zero_stage": 3, "shard_group": 8, "data": 16}
    assert (training(job)["load"], training(job)["checkpointing"]) == ({"ranks": "all"}, {"active": True})


def test_accelerate_deepspeed_by_fields_and_by_file(tmp_path):
    fields = "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: fp16\ndeepspeed_config:\n"
    plain = fields + "  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: none\n"
    job = huggingface(tmp_path, plain)
    assert (job.document["placement"], training(job)["parallelism"]) == (
        {"optimizer_states": "dram"},
        {"zero_stage": 3, "data": 4},
    )
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "fp16": {"enabled": "auto"}}))
    named = training(huggingface(tmp_path, fields + "  deepspeed_config_file: ds.json\n"))
    assert (named["parallelism"]["zero_stage"], named["precision"]) == (2, "fp16")


def test_trainer_arguments_fill_the_autos_of_their_deepspeed_part(tmp_path):
    text = json.dumps({
        "model_name_or_path": "meta-llama/Llama-2-13b-chat-hf", "per_device_train_batch_size": 2, "bf16": True,
        "gradient_accumulation_steps": 4, "gradient_checkpointing": True, "max_seq_length": 4096, "optim": "adamw_bnb_8bit",
        "deepspeed": {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"},
                      "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"},
    })  # fmt: skip
    job = huggingface(tmp_path, text, Asked(topology="dgx-a100"), "args.json")
    assert training(job) == {
        "model": "llama-2-13b", "framework": "deepspeed-zero", "batch_size": 2, "gradient_accumulation": 4, "precision": "bf16",
        "sequence_length": 4096, "optimizer": {"type": "adamw_8bit"}, "checkpointing": {"active": True},
        "offload": {"bucket_elements": 5120**2}, "parallelism": {"zero_stage": 3, "data": 8},
    }  # fmt: skip


def test_a_deepspeed_part_that_contradicts_its_arguments_is_refused(tmp_path):
    text = json.dumps({"per_device_train_batch_size": 2, "bf16": True, "deepspeed": {"train_micro_batch_size_per_gpu": 4}})
    with pytest.raises(InputError, match=r"train_micro_batch_size_per_gpu: is 4, but 2 is asked for"):
        huggingface(tmp_path, text, name="args.json")


def test_a_quantised_base_with_adapters(tmp_path):
    text = "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nfinetuning_type: lora\nquantization_bit: 4\nlora_rank: 8\n"
    text += "lora_target: q_proj,v_proj\nper_device_train_batch_size: 1\nbf16: true\nuse_liger_kernel: true\n"
    text += "lora_dropout: 0.05\n"
    job = training(huggingface(tmp_path, text, Asked(topology="dgx-a100", gpus=1)))
    assert job["adapter"] == {"type": "qlora", "base": "nf4", "rank": 8, "targets": ["q", "v"], "dropout": 0.05}
    assert job["framework"] == "llama-factory"  # finetuning_type is LlamaFactory's
    assert (job["model"], job["loss"]) == ("llama-3-8b", "fused_linear")


def test_trainer_arguments_with_fsdp_are_no_accelerate_file(tmp_path):
    text = """
base_model: NousResearch/Llama-2-7b-hf
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 2
optimizer: paged_adamw_32bit
bf16: auto
gradient_checkpointing: unsloth
flash_attention: true
num_epochs: 4
fsdp: [full_shard, auto_wrap]
fsdp_config:
  fsdp_offload_params: true
"""
    job = huggingface(tmp_path, text, Asked(topology="dgx-a100"))
    assert job.document["placement"] == {"weights": "dram", "optimizer_states": "dram"}
    assert training(job) == {
        "model": "llama-2-7b", "framework": "fsdp", "batch_size": 2, "gradient_accumulation": 1, "sequence_length": 4096,
        "precision": "bf16", "optimizer": {"type": "adamw"}, "checkpointing": {"active": True, "offload": True},
        "attention": "flash", "adapter": {"type": "qlora", "base": "nf4", "rank": 32, "targets": ["all"]},
        "parallelism": {"zero_stage": 3, "data": 8},
    }  # fmt: skip
    assert not job.settings.unknown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zero_optimization: {stage: 2}", "use `tiersim import deepspeed`"),
        ("hidden_size: 4096\narchitectures: [LlamaForCausalLM]", "name it with --model FILE"),
        ("wheels: 4", "holds no training arguments"),
        ("bf16: true\nper_device_train_batch_size: 1\nload_in_4bit: true", "a quantised base cannot be trained"),
        ("per_device_train_batch_size: 1\noptim: galore_adamw", "optimizer 'galore_adamw' is not modelled"),
        ("per_device_train_batch_size: 1\nmodel_name_or_path: nobody/unheard-3b", "is not built in"),
        ("per_device_train_batch_size: 1\nfsdp: full_shard everything", "expected full_shard"),
        ("distributed_type: TPU\nnum_processes: 8", "hf.yaml:1: distributed_type: TPU is not modelled"),
        ("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 7", "hf.yaml:3: fsdp_config.fsdp_sharding_strategy"),
    ],
)
def test_what_the_second_importer_refuses(tmp_path, text, said):
    with pytest.raises(InputError) as caught:
        huggingface(tmp_path, text, Asked(topology="dgx-a100"))
    assert said in str(caught.value)


def test_the_written_scenario_reads_back_and_nothing_is_written_when_it_cannot_run(tmp_path):
    job = deepspeed(tmp_path, zero(stage=3, offload_optimizer={"device": "cpu"}))
    write_job(job, tmp_path / "job.yaml")
    point = next(iter(load_scenario(tmp_path / "job.yaml").expand()))
    assert point.job.workload.parallelism.data == 8
    asked = Asked(model="llama-2-7b", topology="dgx-a100", gpus=64)
    with pytest.raises(InputError, match="64 ranks"):
        write_job(deepspeed(tmp_path, zero(stage=3), asked), tmp_path / "other.yaml")
    assert not (tmp_path / "other.yaml").exists()


def test_the_commands_print_what_they_decided(tmp_path, capsys):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(zero(stage=2, cpu_offload=True, bogus=1)))
    assert run(["import", "deepspeed", str(file), "-o", str(tmp_path / "job.yaml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scenario"]["placement"] == {"optimizer_states": "dram"}
    assert told["unknown"]
    assert run(["import", "huggingface", str(file), "-o", str(tmp_path / "no.yaml")]) == 2
    assert not (tmp_path / "no.yaml").exists()


SAMPLES = Path(os.environ.get("TIERSIM_SAMPLE_FILES", "/nonexistent"))


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="TIERSIM_SAMPLE_FILES names no folder")
@pytest.mark.parametrize("file", sorted((SAMPLES / "deepspeed").glob("*.json")), ids=lambda file: file.stem)
def test_every_sample_configuration_is_read_or_refused_clearly(file, tmp_path):
    if "zero_optimization" not in file.read_text():
        with pytest.raises(InputError, match="is not a DeepSpeed configuration"):
            import_deepspeed(file, ONE_A100)
        return
    job = import_deepspeed(file, ONE_A100)
    assert not job.settings.unknown
    write_job(job, tmp_path / "job.yaml")


TORCHTUNE = """
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}
model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_attn_modules: [q_proj, output_proj], lora_rank: 16}
batch_size: 2
gradient_accumulation_steps: 4
optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit, lr: 2e-5}
enable_activation_checkpointing: True
enable_activation_offloading: False
fsdp_cpu_offload: True
compile: False
dtype: bf16
metric_logger: {_component_: torchtune.training.metric_logging.DiskLogger}
odd_key: 1
"""


def test_a_recipe_of_torchtune_is_read(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(TORCHTUNE)
    job = import_huggingface(path, Asked(topology="dgx-a100", gpus=4))
    training = job.document["workload"]["training"]
    assert training["framework"] == "torchtune"
    assert (training["model"], training["batch_size"], training["gradient_accumulation"]) == ("llama-3.1-8b", 2, 4)
    assert (training["sequence_length"], training["precision"]) == (4096, "bf16")
    assert training["optimizer"]["type"] == "paged_adamw_8bit"
    assert training["adapter"] == {"type": "lora", "rank": 16, "targets": ["q", "o"]}
    assert training["checkpointing"] == {"active": True}
    assert job.document["placement"] == {"weights": "dram", "optimizer_states": "dram"}
    assert job.settings.unknown == ["odd_key (recipe.yaml:13)"]
    write_job(job, tmp_path / "job.yaml")


@pytest.mark.parametrize(
    ("component", "model"),
    [
        ("llama3_2_1b", "llama-3.2-1b"), ("llama2_7b", "llama-2-7b"), ("qwen2_5_7b_instruct", "qwen2.5-7b"),
        ("mistral_7b", "mistral-7b"), ("gemma2_9b", "gemma-2-9b"), ("phi3_mini", "phi-3-mini"),
    ],
)  # fmt: skip
def test_components_of_torchtune_name_models(component: str, model: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(TORCHTUNE.replace("lora_llama3_1_8b", f"qlora_{component}"))
    training = import_huggingface(path, Asked(topology="dgx-a100", gpus=4)).document["workload"]["training"]
    assert training["model"] == model
    assert training["adapter"]["type"] == "qlora"


def test_comments_and_trailing_commas_are_what_deepspeed_reads(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(
        '{\n  // stage "3"\n  "zero_optimization": {"stage": 3, /* all\n of it */ "sub_group_size": 1e7,},\n  # states\n'
        '  "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2, "tag": "http://x, ]",\n}\n'
    )
    job = import_deepspeed(path, Asked(model="llama-2-7b", topology="dgx-a100"))
    assert job.document["workload"]["training"]["parallelism"]["zero_stage"] == 3
    assert job.settings.unknown == ["tag (ds.json:6)"]


def test_precision_is_read_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: BF16\nnum_processes: 2\n"
    )
    training = import_huggingface(path, Asked(topology="dgx-a100")).document["workload"]["training"]
    assert training["precision"] == "bf16"


LLAMA_FACTORY = "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nper_device_train_batch_size: 1\ncutoff_len: 2048\n"
AXOLOTL = "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 2\nsequence_len: 4096\nbf16: auto\n"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (LLAMA_FACTORY + "finetuning_type: full", "checkpointing", {"active": True}),
        (LLAMA_FACTORY + "finetuning_type: full\ndisable_gradient_checkpointing: true", "checkpointing", {"active": False}),
        (LLAMA_FACTORY + "finetuning_type: full\nuse_unsloth_gc: true", "checkpointing", {"active": True, "offload": True}),
        (LLAMA_FACTORY + "finetuning_type: freeze\nfreeze_trainable_layers: 8", "trainable_layers", 8),
        (AXOLOTL + "gradient_checkpointing: offload", "checkpointing", {"active": True, "offload": True}),
        (AXOLOTL + "liger_fused_linear_cross_entropy: true", "loss", "fused_linear"),
        (AXOLOTL + "tensor_parallel_size: 2\ncontext_parallel_size: 2", "parallelism", {"tensor": 2, "context": 2, "data": 2}),
        (AXOLOTL + "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n  reshard_after_forward: false", "parallelism",
         {"zero_stage": 2, "data": 8}),
        ("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
         "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 4\n",
         "parallelism",
         {"zero_stage": 3, "data": 8, "shard_group": 4}),
    ],
)  # fmt: skip
def test_keys_of_the_tools_of_2025(tmp_path: Path, text: str, key: str, value: object) -> None:
    assert training(huggingface(tmp_path, text))[key] == value


def test_a_deepspeed_file_is_looked_for_from_the_root_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "z2.json").write_text(json.dumps({"zero_optimization": {"stage": 2}}))
    folder = tmp_path / "examples" / "full"
    folder.mkdir(parents=True)
    job = huggingface(folder, LLAMA_FACTORY + "finetuning_type: full\ndeepspeed: configs/z2.json\n")
    assert training(job)["parallelism"]["zero_stage"] == 2
    with pytest.raises(InputError, match="which is not there; copy that file beside this one"):
        huggingface(folder, LLAMA_FACTORY + "finetuning_type: full\ndeepspeed: configs/z3.json\n")


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        ("deepspeed", "#!/bin/bash\ntorchrun x.py", "is a launch script; it looks like a file for `tiersim import megatron`"),
        (
            "huggingface",
            "torchrun pretrain_gpt.py --num-layers 2",
            "is a launch script; it looks like a file for `tiersim import megatron`",
        ),
        ("deepspeed", "# a comment\nbase_model: x\n", "is no JSON; it looks like a file for `tiersim import huggingface`"),
        ("deepspeed", "[model]\nname = 1\n", "is no JSON; it looks like a file for `tiersim import huggingface`"),
        ("megatron", "base_model: x\n", "is no script; it looks like a file for `tiersim import huggingface`"),
        ("megatron", '{"zero_optimization": {}}', "is JSON; it looks like a file for `tiersim import deepspeed`"),
    ],
)
def test_a_file_for_another_command_is_named(tmp_path, capsys, command, text, said):
    file = tmp_path / ("x.yaml" if "base_model" in text else "x.txt")
    file.write_text(text)
    assert run(["import", command, str(file), "-o", str(tmp_path / "o.yaml")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "o.yaml").exists()
