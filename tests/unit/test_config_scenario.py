# ruff: noqa: E501 - exact messages stay on one line
"""Scenario files: what they resolve to, and every fault at its line."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from sim.config import load_scenario, parse_yaml, scenario_of
from sim.config.scenario_file import ScenarioFile, scenario_from
from sim.config.schema import scenario_schema
from sim.errors import InputError
from sim.records import TensorClass
from sim.units import parse
from sim.workload.inference import Inference
from sim.workload.training import Training

BASE = """\
# Does it fit?
#
# A longer explanation.
topology: epyc-9554p-2x4090
workload:
  training:
    model: llama-2-7b
    batch_size: 1
    optimizer: {offload: true}
    parallelism: {data: 2, zero_stage: 3}
"""


def load(text: str, file: str = "folder/my-box.yaml") -> ScenarioFile:
    return scenario_from(parse_yaml(text, file))


def faults(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(text, "f.yaml")
    return str(caught.value).splitlines()


def training_of(file: ScenarioFile) -> Training:
    workload = file.resolve().job.workload
    assert isinstance(workload, Training)
    return workload


def test_name_question_and_workload() -> None:
    file = load(BASE)
    assert file.name == "my-box"
    assert file.question == "Does it fit?\n\nA longer explanation."
    training = training_of(file)
    assert training.model.layers == 32
    assert training.parallelism.data == 2
    placement = file.resolve().job.placement
    assert placement.shares(TensorClass.OPTIMIZER_STATES) == {"dram": 1.0}
    assert placement.shares(TensorClass.WEIGHTS) == {"gpu": 1.0}


def test_offload_and_the_same_placement_agree() -> None:
    explicit = load(BASE + "placement: {optimizer_states: dram}\n").resolve().job.placement
    assert explicit.shares(TensorClass.OPTIMIZER_STATES) == {"dram": 1.0}
    assert faults(BASE + "placement: {optimizer_states: {dram: 60%, nvme0: 40%}}\n") == [
        "f.yaml:11: placement.optimizer_states: says {dram: 60%, nvme0: 40%}, but optimizer.offload: true means "
        "placement.optimizer_states: dram; remove one of the two"
    ]


def test_model_forms() -> None:
    inline = "{layers: 2, hidden: 64, heads: 4, ffn: 128, vocabulary: 100}"
    assert training_of(load(BASE.replace("llama-2-7b", inline))).model.hidden == 64
    changed = training_of(load(BASE.replace("llama-2-7b", "{base: llama-2-7b, layers: 16}"))).model
    assert (changed.layers, changed.hidden, changed.name) == (16, 4096, "llama-2-7b (changed)")


def test_model_from_a_config_json_beside_the_scenario(tmp_path: Path) -> None:
    config = '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, '
    config += '"intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64}'
    (tmp_path / "tiny.json").write_text(config)
    (tmp_path / "s.yaml").write_text(BASE.replace("llama-2-7b", "tiny.json"))
    assert training_of(load_scenario(tmp_path / "s.yaml")).model.ffn == 128
    (tmp_path / "tiny.json").write_text("{")
    with pytest.raises(InputError, match=r"s\.yaml:7: workload\.training\.model: .*tiny\.json: is not JSON"):
        load_scenario(tmp_path / "s.yaml")


def test_short_form_is_the_common_training_block() -> None:
    block = """\
training:
  batch_size: 8
  gradient_accumulation: 4
  optimizer:
    type: adamw
    offload: true
  checkpointing:
    active: true
    interval: 2
"""
    file = load(block)
    training = training_of(file)
    assert (training.batch_size, training.gradient_accumulation, training.checkpointing.interval) == (8, 4, 2)
    assert training.optimizer.offload
    assert (training.parallelism.data, training.parallelism.zero_stage) == (2, 2)
    assert file.resolve().machine.name == "epyc-9554p-2x4090"
    assert file.assumptions == (
        "no model is given: llama-2-13b",
        "no topology is given: epyc-9554p-2x4090",
        "no parallelism is given: data-parallel over all GPUs, ZeRO stage 2",
    )
    assert load(block + "topology: dgx-a100\nmodel: llama-2-7b\n").resolve().machine.name == "dgx-a100"
    assert faults(block.replace("batch_size", "batchsize")) == [
        "f.yaml:2: workload.training.batchsize: unknown key 'batchsize'; did you mean 'batch_size'?"
    ]
    assert faults(block + "workload: {trace: t.jsonl}\n")[0] == (
        "f.yaml:10: workload: both 'workload' and the short form 'training' are given; keep one"
    )


def test_all_gpus() -> None:
    text = BASE.replace("{data: 2, zero_stage: 3}", "{data: all, tensor: 2}").replace("epyc-9554p-2x4090", "dgx-a100")
    assert training_of(load(text)).parallelism.data == 4


def test_patched_machine() -> None:
    text = BASE.replace(
        "epyc-9554p-2x4090",
        "{base: epyc-9554p-2x4090, set: {gpu1.link.lanes: 8, nvme0: null}, add: {gpu2: {part: rtx-4090, to: cpu0}}}",
    )
    machine = load(text).resolve().machine
    assert machine.gpus() == ("gpu0", "gpu1", "gpu2")
    assert "nvme0" not in machine.devices
    lanes = {edge.source: edge.lanes for edge in machine.edges if edge.target == "cpu0"}
    assert (lanes["gpu0"], lanes["gpu1"]) == (16, 8)


def test_short_link_is_written_out_before_it_is_changed() -> None:
    text = BASE.replace(
        "epyc-9554p-2x4090",
        "{base: epyc-9554p-2x4090, add: {gpu2: {part: rtx-4090, link: pcie4-x16, to: cpu0}}, set: {gpu2.link.lanes: 4}}",
    )
    lanes = {edge.source: edge.lanes for edge in load(text).resolve().machine.edges if edge.target == "cpu0"}
    assert lanes["gpu2"] == 4


def test_inline_machine_keeps_its_lines() -> None:
    text = BASE.replace(
        "topology: epyc-9554p-2x4090",
        "topology:\n  devices:\n    cpu0: {part: epyc-9554p, memory: {part: ddr5-4800-2r, channels: 8, capacity: 512}}",
    )
    assert faults(text)[0] == ("f.yaml:6: devices.cpu0.memory.capacity: missing unit: got 512; write a size such as '96 GiB'")


def test_sweep_expands_and_points_at_its_line() -> None:
    file = load(BASE + "sweep:\n  workload.training.batch_size: [1, 2]\n  topology.gpu1.link.lanes: [8, 16]\n")
    points = list(file.expand())
    assert [point.parameters for point in points] == [
        {"workload.training.batch_size": batch, "topology.gpu1.link.lanes": lanes} for batch in (1, 2) for lanes in (8, 16)
    ]
    assert [point.job.workload.batch_size for point in points] == [1, 1, 2, 2]  # type: ignore[union-attr]
    assert faults(BASE + "sweep:\n  workload.training.batchsize: [1, 2]\n") == [
        "f.yaml:12: workload.training.batchsize: unknown key 'batchsize'; did you mean 'batch_size'?"
    ]
    later = load(BASE + "sweep:\n  workload.training.batch_size: [1, -2]\n", "f.yaml")
    with pytest.raises(InputError, match=r"^f\.yaml:12: workload\.training\.batch_size: must be greater than 0, got -2$"):
        later.check()


def test_sweep_over_whole_machines_completes_the_file() -> None:
    file = load(BASE.replace("topology: epyc-9554p-2x4090\n", "") + "sweep: {topology: [epyc-9554p-2x4090, dgx-a100]}\n")
    assert [point.machine.name for point in file.expand()] == ["epyc-9554p-2x4090", "dgx-a100"]


def test_jobs() -> None:
    job = "{name: N, start: 2 s, workload: {inference: {model: llama-2-7b}}, placement: {kv_cache: dram}}"
    text = f"topology: dgx-a100\njobs:\n  - {job.replace('N', 'a')}\n  - {job.replace('N', 'b')}\n"
    first, second = load(text).resolve().jobs
    assert isinstance(first.workload, Inference)
    assert (first.name, second.name, first.start_s) == ("a", "b", 2.0)
    assert faults(text + "placement: {weights: dram}\n") == [
        "f.yaml:5: placement: both 'jobs' and 'placement' are given; move it into the jobs"
    ]
    assert faults(text.replace("name: b", "name: a")) == ["f.yaml:2: jobs: two jobs are named 'a'; rename one"]


def test_measured_and_claim() -> None:
    file = load(
        BASE
        + "measured:\n  - {metric: step_time, value: 10.9 s, source: 'table 3', tolerance: 15%, at: {batch_size: 8}}\n"
        + "sweep: {workload.training.batch_size: [4, 8]}\n"
        + "claim: {id: A00, stated: 8 to 12 GB, metric: tiers.gpu, range: [8 GB, 12 GB]}\n"
    )
    (measured,) = file.measured
    assert (measured.value, measured.unit, measured.tolerance, measured.at) == (10.9, "s", 0.15, {"batch_size": 8})
    assert file.claim["range"] == (8e9, 12e9)
    assert faults(BASE + "measured:\n  - {metric: step_time, value: 10.9 sec, source: x}\n") == [
        "f.yaml:12: measured[0].value: expected a number in a known unit, got '10.9 sec'; for example '10.9 s'"
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("batch_size: 1", "batch_size: 1\n    batchsize: 2"), "f.yaml:9: workload.training.batchsize: unknown key 'batchsize'; did you mean 'batch_size'?"),
        (("llama-2-7b", "lama-2-7b"), "f.yaml:7: workload.training.model: unknown model 'lama-2-7b'; did you mean llama-2-7b or llama-2-70b or llama2-7b?"),
        (("2x4090", "2x4091"), "f.yaml:4: topology: unknown topology 'epyc-9554p-2x4091'; did you mean 'epyc-9554p-2x4090'?"),
        (("data: 2", "data: 4"), "f.yaml:10: workload.training.parallelism: data x tensor x pipeline x context = 4 ranks, but the machine has 2 GPUs; lower one, or take a larger machine"),
        (("batch_size: 1", "trainable_layers: 33"), "f.yaml:8: workload.training.trainable_layers: 33 layers, the model has 32; use at most 32"),
        (("batch_size: 1", "checkpointing: {active: true, interval: 33}"), "f.yaml:8: workload.training.checkpointing.interval: 33 layers, the model has 32; use at most 32"),
        (("batch_size: 1", "adapter: {type: lora, targets: [q, query]}"), "f.yaml:8: workload.training.adapter.targets: unknown matrix 'query'; use some of q, k, v, o, gate, up, down, all, attention, mlp"),
        (("data: 2", "data: 2, interleave: 2"), "f.yaml:10: workload.training.parallelism.interleave: interleave without pipeline stages; set interleave: 1"),
        (("batch_size: 1", "loss_chunks: 4"), "f.yaml:8: workload.training.loss_chunks: has no effect on the full loss; write loss: chunked beside it"),
        (("batch_size: 1", "save: {every: 5, to: tape}"), "f.yaml:8: workload.training.save.to: unknown tier 'tape' in machine 'epyc-9554p-2x4090'; did you mean 'storage'?"),
        (("topology: epyc-9554p-2x4090", "prices: lost.yaml\ntopology: epyc-9554p-2x4090"), "f.yaml:4: prices: no such file 'lost.yaml'; paths are relative to this file"),
        (("batch_size: 1", "zero_stage: 3"), "f.yaml:8: workload.training.zero_stage: unknown key 'zero_stage'; did you mean 'parallelism.zero_stage'?"),
        (("batch_size: 1", "save: {every: 5, to: disk}"), "f.yaml:8: workload.training.save.to: unknown tier 'disk' in machine 'epyc-9554p-2x4090'; did you mean 'nvme'?"),
        (("batch_size: 1", "framework: huggingface"), "f.yaml:8: workload.training.framework: unknown framework 'huggingface'; did you mean 'hf-trainer'?"),
        (("batch_size: 1", "framework: megatro"), "f.yaml:8: workload.training.framework: unknown framework 'megatro'; did you mean 'megatron'?"),
        (("  training:", "  inference: {model: llama-2-7b}\n  training:"), "f.yaml:5: workload: expected one of training, inference, trace, got training and inference; write exactly one"),
        (("topology: epyc-9554p-2x4090", "name: a/b\ntopology: epyc-9554p-2x4090"), "f.yaml:4: name: expected a name of letters, digits, '-', '_' and '.', got 'a/b'; it names the results folder"),
        (("epyc-9554p-2x4090", "{base: epyc-9554p-2x4090, set: {gpu7.link.lanes: 8}}"), "f.yaml:4: topology.set.gpu7.link.lanes: unknown device or link 'gpu7'; did you mean 'gpu1'?"),
        (("epyc-9554p-2x4090", "{base: epyc-9554p-2x4090, add: {gpu2: {part: rtx-4091, to: cpu0}}}"), "f.yaml:4: topology.add.gpu2.part: unknown part 'rtx-4091'; did you mean 'rtx-4090'?"),
        (("epyc-9554p-2x4090", "{base: epyc-9554p-2x4090, set: {cpu0.memory.capacity: 64 GB/s}}"), "f.yaml:4: topology.set.cpu0.memory.capacity: wrong unit: 'GB/s' is a unit of bandwidth in '64 GB/s'; write a size such as '96 GiB'"),
        (("topology: epyc-9554p-2x4090\n", ""), "f.yaml:4: topology: missing key 'topology'; add it: a built-in name, see `tiersim list topologies`"),
    ],
)  # fmt: skip
def test_exact_messages(change: tuple[str, str], expected: str) -> None:
    old, new = change
    assert old in BASE
    assert faults(BASE.replace(old, new)) == [expected]


def test_all_faults_of_a_file_at_once() -> None:
    text = (
        BASE.replace("2x4090", "2x4091").replace("batch_size: 1", "batch_size: 0")
        + "placement: {weights: {gpu: 50%}}\nsweeps: {}\n"
    )
    assert faults(text) == [
        "f.yaml:12: sweeps: unknown key 'sweeps'; did you mean 'sweep'?",
        "f.yaml:4: topology: unknown topology 'epyc-9554p-2x4091'; did you mean 'epyc-9554p-2x4090'?",
        "f.yaml:8: workload.training.batch_size: must be greater than 0, got 0",
        "f.yaml:11: placement.weights: shares sum to 50%, expected 100%; add 50%",
    ]


def test_scenario_from_memory() -> None:
    data = {"topology": "dgx-a100", "workload": {"training": {"model": "llama-2-7b"}}}
    assert scenario_of(data, "mine").resolve().name == "mine"


def test_schema_names_every_key_and_input() -> None:
    schema = scenario_schema()
    training = schema["$defs"]["Training"]["properties"]
    assert {field.name for field in dataclasses.fields(Training)} == set(training)
    assert training["batch_size"]["description"] == "micro-batch per data-parallel rank, in sequences"
    assert schema["$defs"]["DataPipeline"]["properties"]["seconds_per_sample"]["type"] == ["string", "number"]
    assert not schema["additionalProperties"]
    assert set(schema["properties"]) >= {"topology", "workload", "placement", "sweep", "measured"}


@pytest.mark.parametrize(
    "path", sorted(Path("scenarios/examples").glob("*.yaml")) + sorted(Path("scenarios/article").glob("*.yaml"))
)
def test_shipped_scenarios_have_no_fault(path: Path) -> None:
    load_scenario(path).check(max_points=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "title: x\ndevices: {cpu0: {part: epyc-9554p}}\n",
            "f.yaml:2: devices: this is a topology, a scenario is expected; name it as a scenario's topology, or look at it with `tiersim show`",
        ),
        (
            "publication: x\ntables: []\n",
            "f.yaml:2: tables: this is a table of measurements, a scenario is expected; compare with it by `tiersim validate FILE`",
        ),
        ("sources: {}\nparts: {}\n", "f.yaml:2: parts: this is a part catalogue, a scenario is expected; give its parts in a topology's `parts:`"),
    ],
)  # fmt: skip
def test_another_kind_of_file_is_told_apart(text: str, message: str) -> None:
    assert faults(text) == [message]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{metric: step_time, value: -1 s, source: x}", "value and tolerance are not negative and finite, got '-1 s' and 0"),
        ("{metric: step_time, value: 1 s, source: x, tolerance: -5%}", "value and tolerance are not negative and finite, got '1 s' and '-5%'"),
        ("{metric: 3, value: 1 s, source: x}", "expected a text, got 3"),
        ("{metric: step_time, value: 1 s, source: ''}", "expected a text, got ''"),
    ],
)  # fmt: skip
def test_what_was_measured_is_a_number_with_a_source(line: str, message: str) -> None:
    assert any(message in fault for fault in faults(f"{BASE}measured:\n  - {line}\n"))


@pytest.mark.parametrize(("key", "most"), [("batch_size", 2**20), ("gradient_accumulation", 2**20), ("sequence_length", 2**24)])
def test_a_count_has_a_largest_value(key: str, most: int) -> None:
    text = BASE.replace("    batch_size: 1\n", "")
    assert training_of(load(f"{text}    {key}: {most}\n"))
    with pytest.raises(InputError, match=f"{key}: "):
        load(f"{text}    {key}: {most + 1}\n").resolve()


def test_a_policy_of_a_tensor_class_must_exist() -> None:
    with pytest.raises(InputError, match="unknown placement policy 'hotcold'; did you mean"):
        load(f"{BASE}placement: {{policy: hotcold}}\n").resolve()


def test_a_size_beyond_all_numbers_is_no_size() -> None:
    with pytest.raises(ValueError, match="expected a finite size such as '96 GiB', got '1e308 GB'"):
        parse("1e308 GB", "bytes")


@pytest.mark.parametrize(("key", "changed"), [("gpu*", {"gpu0", "gpu1"}), ("gpu[0-1]", {"gpu0", "gpu1"}), ("gpu[1-1]", {"gpu1"}), ("gpu1", {"gpu1"})])  # fmt: skip
def test_one_key_sets_every_device_of_a_pattern(key: str, changed: set[str]) -> None:
    machine = load(patched(f'{{base: epyc-9554p-2x4090, set: {{"{key}": {{part: rtx-3090}}}}}}')).resolve().machine
    assert {name for name in machine.gpus() if machine.device(name).part_name == "rtx-3090"} == changed


def test_a_pattern_that_names_nothing_is_a_fault() -> None:
    with pytest.raises(InputError, match=r"topology.set.npu\*.part: unknown device or link 'npu\*'"):
        load(patched('{base: epyc-9554p-2x4090, set: {"npu*.part": rtx-3090}}')).resolve()


def patched(topology: str) -> str:
    return BASE.replace("topology: epyc-9554p-2x4090", f"topology: {topology}")


def test_a_job_may_have_some_of_the_cores() -> None:
    machine = load(patched("{base: epyc-9554p-2x4090, set: {cpu0.cores: 4}}")).resolve().machine
    assert machine.part("cpu0")["cores"] == 4
    assert machine.channels["cpu0.cores"].bandwidth_per_s == 4
    assert load(patched("{base: epyc-9554p-2x4090, set: {cpu0.cores: 64}}")).resolve().machine.part("cpu0")["cores"] == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cpu0.cores: 65", "topology.set.cpu0.cores: 65 cores, epyc-9554p has 64; leave it out to use all"),
        ("gpu0.cores: 4", "topology.set.gpu0.cores: 4 cores, rtx-4090 is no CPU; leave it out to use all"),
        ("gpu0.part: h100", "topology.set.gpu0.part: unknown part 'h100'; did you mean 'h100-96gb-hbm2e' or 'h100-nvl' or 'h100-pcie' or 'h100-sxm'?"),
        ("gpu0.part: b200", "topology.set.gpu0.part: unknown part 'b200'; did you mean 'b200-sxm'?"),
    ],
)  # fmt: skip
def test_what_a_device_cannot_be_is_said_with_its_remedy(change: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(patched(f"{{base: epyc-9554p-2x4090, set: {{{change}}}}}"), "f.yaml").resolve()
    assert str(caught.value) == f"f.yaml:4: {message}"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("-1", "expected a mapping"),
        ("{base: {}}", "unknown key 'base'"),
        ("{baseline: 3}", "expected {dotted path: value}"),
        ("{baseline: {placement.optimizer_state: gpu}}", "unknown key 'optimizer_state'"),
    ],
)
def test_a_baseline_is_checked_with_the_file(tmp_path: Path, block: str, expected: str) -> None:
    """A compare block that no run could use is a fault of the file, not of the later command."""
    path = tmp_path / "asked.yaml"
    path.write_text(f"topology: desktop-rtx-4090\nworkload: {{training: {{model: gpt2}}}}\ncompare: {block}\n")
    with pytest.raises(InputError, match=re.escape(expected)):
        load_scenario(path).check()


@pytest.mark.parametrize(
    ("adapter", "stored"),
    [
        ("{type: qlora}", "nf4"),
        ("{type: qlora, base: int8}", "int8"),
        ("{type: lora}", "bf16"),
        ("{type: lora, base: nf4}", "nf4"),
    ],
)
def test_qlora_means_four_bits_unless_told_otherwise(adapter: str, stored: str) -> None:
    assert training_of(load(f"{BASE}    adapter: {adapter}\n")).adapter.stored == stored


def test_qlora_over_sixteen_bits_is_a_fault() -> None:
    with pytest.raises(InputError, match=r"adapter\.base: qlora keeps the frozen weights in 4 or 8 bits"):
        load(f"{BASE}    adapter: {{type: qlora, base: bf16}}\n").resolve()


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (
            "sweep: {batch_size: [1, 2]}",
            "'batch_size' is no path from the top of the file; did you mean 'workload.training.batch_size'?",
        ),
        (
            "sweep: {training.batch_size: [1, 2]}",
            "'training.batch_size' is no path from the top of the file; did you mean 'workload.training.batch_size'?",
        ),
        (
            "sweep: {optimizer.type: [adamw, sgd]}",
            "'optimizer.type' is no path from the top of the file; did you mean 'workload.training.optimizer.type'?",
        ),
        (
            "sweep: {gpu0.power_cap: [200 W]}",
            "'gpu0.power_cap' is no path from the top of the file; paths begin with topology, workload, placement, jobs or options, a device's with topology: topology.gpu0.part",
        ),
    ],
)
def test_a_swept_path_that_leads_nowhere_is_refused_at_its_line(block: str, fault: str) -> None:
    name = block.partition("{")[2].partition(":")[0]
    assert faults(f"{BASE}{block}\n") == [f"f.yaml:11: sweep.{name}: {fault}"]


def test_a_baseline_and_a_choice_that_lead_nowhere_are_refused() -> None:
    baseline = load(f"{BASE}compare:\n  baseline: {{batch_size: 2}}\n")
    with pytest.raises(InputError, match=r"f?.*:12: compare.baseline.batch_size: 'batch_size' is no path"):
        baseline.check()
    (told,) = faults(f"{BASE}sweep:\n  choices: {{size: {{small: {{batch_size: 1}}, large: {{batch_size: 8}}}}}}\n")
    assert "'batch_size' is no path from the top of the file" in told


@pytest.mark.parametrize(
    "path", ["workload.training.batch_size", "topology.gpu0.power_cap", "placement.optimizer_states", "options.level"]
)
def test_swept_paths_into_blocks_are_taken(path: str) -> None:
    value = {"batch_size": 2, "power_cap": "300 W", "optimizer_states": "dram", "level": "full"}[path.rpartition(".")[2]]
    assert load(f"{BASE}sweep: {{{path}: [{value}]}}\n").plan is not None
