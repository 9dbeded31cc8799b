"""Keys and names as other tools write them: the fault says what to write here."""

from __future__ import annotations

import pytest

from sim.config import parse_yaml, scenario_of
from sim.config.near_names import plain, sharing
from sim.config.scenario_file import scenario_from
from sim.errors import InputError

TRAINING = {
    "max_seq_length: 2048": "did you mean 'sequence_length'?",
    "per_device_train_batch_size: 4": "did you mean 'batch_size'?",
    "gradient_checkpointing: true": "write checkpointing: {active: true}",
    "bf16: true": "write precision: bf16",
    "offload_optimizer: cpu": "say where it lives: placement: {optimizer_states: dram}, or optimizer: {offload: true}",
    "load_in_4bit: true": "write adapter: {type: qlora}",
    "tp: 2": "did you mean 'parallelism.tensor'?",
    "adapter: {r: 8}": "did you mean 'rank'?",
    "parallelism: {tensor_parallel_size: 2}": "did you mean 'tensor'?",
}
INFERENCE = {
    "max_model_len: 8192": "a request is prompt_length + output_length tokens long",
    "gpu_memory_utilization: 0.9": "did you mean 'memory_utilisation'?",
    "n_gpu_layers: 40": "did you mean 'gpu_layers'?",
    "tensor_parallel_size: 2": "did you mean 'tensor_parallel'?",
    "kv_cache_dtype: fp8": "did you mean 'kv_cache'?",
    "cpu_offload_gb: 10": "say how much of the weights stays on the GPU: placement: {weights: {gpu: 70%, dram: 30%}}",
}
CASES = [("training", key, remedy) for key, remedy in TRAINING.items()]
CASES += [("inference", key, remedy) for key, remedy in INFERENCE.items()]


@pytest.mark.parametrize(("kind", "key", "remedy"), CASES)
def test_a_key_of_another_tool_is_answered_with_ours(kind: str, key: str, remedy: str) -> None:
    text = f"topology: desktop-rtx-4090\nworkload:\n  {kind}:\n    model: gpt2\n    {key}\n"
    with pytest.raises(InputError) as error:
        scenario_from(parse_yaml(text, "f.yaml"))
    (fault,) = error.value.faults
    assert (fault.line, fault.remedy) == (5, remedy)


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("cpu0.ram: 32 GB", "write memory.capacity: what the socket's DIMMs hold together"),
        ("cpu0.swap: 8 GB", "write placement: {overflow: swap}: a run pages what host memory lacks to storage"),
        ("cpu0.wsl: true", "write memory_limit (WSL 2 takes half of the RAM) and pinned_limit in the topology"),
        ("shm_size: 64 MB", "write shared_limit in the topology: what /dev/shm may hold"),
        ("gpu0.part: RTX 4080", "did you mean 'rtx-4080'?"),
        ("gpu0.part: nvidia-h100-80gb", "did you mean 'h100-96gb-hbm2e' or 'h100-nvl' or 'h100-pcie'?"),
        ("cpu0.part: ryzen-9-5950x", "did you mean 'ryzen-5950x'?"),
    ],
)
def test_a_word_for_hardware_is_answered_with_ours(setting: str, remedy: str) -> None:
    text = f"topology: {{base: desktop-rtx-4090, set: {{{setting}}}}}\nworkload: {{training: {{model: gpt2}}}}\n"
    with pytest.raises(InputError) as error:
        scenario_from(parse_yaml(text, "f.yaml"))
    assert [fault.remedy for fault in error.value.faults] == [remedy]


def test_a_machine_is_found_by_its_model_number() -> None:
    with pytest.raises(InputError, match="did you mean 'desktop-rtx-4090'"):
        scenario_from(parse_yaml("topology: desktop-4090\nworkload: {training: {model: gpt2}}\n", "f.yaml"))


def test_names_share_model_numbers_not_sizes() -> None:
    assert plain("RTX 4090 (24 GB)") == "rtx-4090-24-gb"
    assert sharing("h100-80gb", ["a100-80gb", "h100-sxm"]) == ["h100-sxm"]
    assert sharing("card-80gb", ["a100-80gb"]) == []


def faults(text: str) -> list[str]:
    with pytest.raises(InputError) as error:
        scenario_from(parse_yaml(text, "f.yaml"))
    return [str(fault) for fault in error.value.faults]


BOX = "topology: desktop-rtx-4090\n"
JOB = "workload: {training: {model: gpt2}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "topology: {base: desktop-rtx-4090, set: {cpu0.dram: 64gb}}\n" + JOB,
            "f.yaml:1: topology.set.cpu0.dram: wrong unit: unknown unit 'gb' in '64gb'; write a size such as '64 GB'",
        ),
        (
            "topology: {base: desktop-rtx-4090, set: {cpu0.dram: 64g}}\n" + JOB,
            "f.yaml:1: topology.set.cpu0.dram: wrong unit: unknown unit 'g' in '64g'; write a size such as '64 GB'",
        ),
        (
            BOX + JOB + "placement: {optimizer_states: {dram: 60, nvme: 40%}}\n",
            "f.yaml:3: placement.optimizer_states.dram: a share lies between 0% and 100%, got 60; write 60%",
        ),
        (
            BOX + JOB + "placement: {optimizer_states: cxl0}\n",
            "f.yaml:3: placement.optimizer_states.cxl0: unknown tier 'cxl0' in machine 'desktop-rtx-4090'; it has no CXL "
            "memory: add some, topology: {base, add: {cxl0: {part: cxl-expander-asic-x8, to: cpu0}}}",
        ),
        (
            BOX + "workload: {training: {model: gpt2, checkpointing: true}}\n",
            "f.yaml:2: workload.training.checkpointing: expected a mapping, got true; write {active: true}; known keys: "
            "active, interval, mode, layers, offload",
        ),
        ("topology: " + 5000 * "a" + "\n" + JOB, "f.yaml:1: topology: unknown topology '" + 56 * "a" + "...; see `tiersim list "
         "topologies`, or give a path that ends in .yaml"),
    ],
)  # fmt: skip
def test_faults_say_what_to_write(text: str, expected: str) -> None:
    assert faults(text) == [expected]


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("training", "ms-swift", "hf-trainer"), ("training", "gpt-neox", "deepspeed-megatron"), ("training", "verl", "fsdp"),
        ("inference", "mlx-lm", "llama.cpp"), ("inference", "text-generation-inference", "vllm"),
    ],
)  # fmt: skip
def test_a_tool_that_runs_on_a_known_framework_is_answered_with_its_name(kind: str, name: str, meant: str) -> None:
    block = {"name": "x", "topology": "dgx-a100", "workload": {kind: {"model": "llama-2-7b", "framework": name}}}
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        scenario_of(block).resolve()


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [("training", "DataParallel", "write ddp"), ("inference", "fsdp", "write tensor_parallel")],
)
def test_a_way_to_run_that_is_not_modelled_says_so_and_what_is(kind: str, name: str, told: str) -> None:
    block = {"name": "x", "topology": "dgx-a100", "workload": {kind: {"model": "llama-2-7b", "framework": name}}}
    with pytest.raises(InputError, match=f"not modelled.*{told}"):
        scenario_of(block).resolve()
