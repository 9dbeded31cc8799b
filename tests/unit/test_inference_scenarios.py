"""Inference on whole machines: what a definition says of the answer, and both sides of what memory allows."""

import dataclasses

import msgspec
import pytest

from sim.config import load_machine, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.held_out import hold_out
from sim.laws.decode import decode_class
from sim.laws.kernels import memory_rate, solo_parts
from sim.metrics.stages import stages_s
from sim.placement.capacity import capacity_plan
from sim.program.collectives import collective
from sim.records import Kind
from sim.study.fit import is_fitting, largest, with_value
from sim.workload.decode import generate
from sim.workload.decode.sizes import Sizes

BASE = {"model": "llama-2-13b", "weights": "fp16", "prompt_length": 256, "output_length": 16}


def scenario(inference, placement=None, topology="desktop-rtx-4090"):
    body = {"name": "t", "topology": topology, "workload": {"inference": BASE | inference}}
    return scenario_of(body | ({"placement": placement} if placement else {}), file="").resolve()


def answer(*arguments, **named):
    return run(scenario(*arguments, **named), with_penalty=False).inference


def test_streamed_weights_take_the_link_and_serve_the_whole_batch():
    asked = scenario({"batch_size": 4}, {"weights": "dram"})
    result = run(asked, with_penalty=False)
    sizes = Sizes(asked.job.workload)
    link = next(c for name, c in result.summary.channels.items() if name == "cpu0->gpu0.pcie").bandwidth_bytes_per_s
    least_s = (15 * 40 - 1) * sizes.layer_bytes / link / 15  # one of them may come while the prompt is computed
    assert 1.0 - 1e-9 <= result.inference.time_per_output_token_s / least_s < 1.1
    assert result.inference.decode_tokens_per_s == pytest.approx(4 / result.inference.time_per_output_token_s)


def test_each_layer_moved_to_the_gpu_saves_the_same_time_per_token():
    times = [answer({"gpu_layers": n, "framework": "llama.cpp"}).time_per_output_token_s for n in (10, 20, 30)]
    assert times[0] - times[1] == pytest.approx(times[1] - times[2], rel=1e-6)
    assert times[1] < times[0]


@pytest.mark.parametrize("tier", ["dram", "nvme"])
def test_reused_tokens_cost_their_fetch_instead_of_their_computation(tier):
    computed = answer({"prompt_length": 4096, "weights": "q8_0"}).time_to_first_token_s
    asked = scenario({"prompt_length": 4096, "weights": "q8_0", "reused_tokens": 4095, "reuse_tier": tier})
    result = run(asked, with_penalty=False)
    fetched = [op for op in result.program.operations if op.name == "fetch KV"]
    size = 40 * 4095 * Sizes(asked.job.workload).kv_bytes_per_token
    assert sum(op.size_bytes for op in fetched) == pytest.approx(size)
    assert {op.phase for op in fetched} == {"prefill"}  # once: the decode finds it in GPU memory
    alone = answer({"prompt_length": 1, "weights": "q8_0"}).time_to_first_token_s
    assert alone < result.inference.time_to_first_token_s < computed
    longer = answer({"prompt_length": 4096, "weights": "q8_0", "reused_tokens": 4095, "reuse_tier": "dram"})
    assert longer.time_to_first_token_s <= result.inference.time_to_first_token_s * (1 + 1e-9)  # no tier is faster than dram


def test_a_cache_kept_away_is_fetched_for_every_token():
    asked = scenario({"weights": "q8_0"}, {"kv_cache": "dram"})
    result = run(asked, with_penalty=False)
    per_token = 40 * Sizes(asked.job.workload).kv_bytes_per_token
    first = [op for op in result.program.operations if op.name == "fetch KV" and op.micro_batch == 1]
    assert sum(op.size_bytes for op in first) == pytest.approx(256 * per_token)


@pytest.mark.parametrize(("spare_bytes", "is_faulting"), [(0.0, False), (-1.0, True)])
def test_managed_weights_fault_as_soon_as_one_byte_is_too_many(spare_bytes, is_faulting):
    asked = scenario({"is_managed": True, "weights": "q8_0"})
    machine, tier = asked.machine, "gpu0.gddr"
    peak = capacity_plan(asked.job.workload, asked.job.placement, machine)[tier].peak_bytes
    tiers = machine.tiers | {tier: msgspec.structs.replace(machine.tiers[tier], capacity_bytes=peak + spare_bytes)}
    result = run(dataclasses.replace(asked, machine=dataclasses.replace(machine, tiers=tiers)), with_penalty=False)
    fetches = [op for op in result.program.operations if op.name == "fetch weights"]
    assert bool(fetches) == is_faulting
    assert result.fits
    if is_faulting:
        assert max(op.rate_cap for op in fetches) < 10e9  # faults, not the link


@pytest.mark.parametrize("name", ["batch_size", "gpu_layers"])
def test_the_largest_that_fits_is_the_last_that_does(name):
    asked = scenario({"framework": "llama.cpp"} | ({"weights": "q4_0"} if name == "batch_size" else {}))
    found = largest(asked, name)
    job = asked.job
    assert is_fitting(with_value(job.workload, name, found), job.placement, asked.machine)
    assert not is_fitting(with_value(job.workload, name, found + 1), job.placement, asked.machine)


def test_everything_on_the_gpu_is_what_a_split_model_is_compared_with():
    result = run(scenario({"gpu_layers": 20, "framework": "llama.cpp"}))
    assert result.offload_penalty > 2
    assert "does not fit" in result.penalty_base


@pytest.mark.parametrize(
    ("inference", "placement", "message"),
    [
        (
            {"framework": "lamacpp"},
            None,
            r"workload\.inference\.framework: unknown framework 'lamacpp'; did you mean 'llama\.cpp'",
        ),
        ({"reuse_tier": "dram"}, None, r"reuse_tier: no token is reused; give reused_tokens"),
        ({"reused_tokens": 8, "reuse_tier": "cxl7"}, None, r"reuse_tier: unknown tier 'cxl7'"),
        ({"tensor_parallel": 3}, None, r"tensor_parallel 3 does not divide the 40 attention heads"),
        ({"tensor_parallel": 2}, None, r"tensor_parallel x pipeline_parallel = 2 GPUs, but the machine has 1"),
        ({"gpu_layers": 20}, {"weights": {"gpu": "50%", "dram": "50%"}}, r"gpu_layers 20 says which layers are on the GPU"),
        ({}, {"optimizer_states": "dram"}, r"placement\.optimizer_states: an inference has none; place weights or kv_cache"),
        ({}, {"weights": [{"layers": "0-40", "dram": "100%"}]}, r"layers 0-40: the model has layers 0-39"),
    ],
)
def test_plans_that_cannot_run_are_refused_at_their_key(inference, placement, message):
    with pytest.raises(InputError, match=message):
        scenario(inference, placement)


@pytest.mark.parametrize(("size_bytes", "algorithm"), [(16e3, "one shot"), (64e6, "ring")])
def test_small_all_reduces_run_in_one_shot_where_gpu_links_allow(size_bytes, algorithm):
    machine = load_machine("dgx-a100")
    members = [(0, gpu) for gpu in machine.gpus()]
    plain = collective(machine, "all_reduce", size_bytes, members, 0)
    fused = collective(machine, "all_reduce", size_bytes, members, 0, is_fused=True)
    assert plain.algorithm == "ring"
    assert fused.algorithm == algorithm
    least_s = 7 * size_bytes / 300e9  # each of the others' buffers comes over the rank's own links
    if algorithm == "one shot":
        assert fused.latency_s + fused.work_bytes / fused.rate_cap >= least_s


def test_no_one_shot_without_gpu_links():
    machine = load_machine("rtx-4090-8x")
    members = [(0, gpu) for gpu in machine.gpus()]
    assert collective(machine, "all_reduce", 16e3, members, 0, is_fused=True).algorithm == "ring over PCIe"


@pytest.mark.parametrize(
    ("framework", "weights", "weight_bytes"),
    [
        ("vllm", "fp8", None),
        ("vllm", "fp16", None),
        ("vllm", "int8", 17 / 16),
        ("vllm", "int4", 9 / 16),
        ("flexgen", "int4", None),
    ],
)
def test_kernels_that_unpack_weights_take_time_beside_the_stream(framework, weights, weight_bytes):
    asked = scenario({"framework": framework, "weights": weights})
    step, machine = generate(asked.job.workload, {}), asked.machine
    layer = next(op for op in step.operations if op.phase == "decode").kernels[0]
    part = machine.part("gpu0")
    parts = solo_parts(layer, part)
    assert parts.memory_s == pytest.approx((layer.read_bytes + layer.write_bytes) / memory_rate(part))
    plain = solo_parts(msgspec.structs.replace(layer, variant=""), part)
    unpacking = layer.read_bytes / weight_bytes / (64 * part["cores"] * part["clock"]) if weight_bytes else 0.0
    assert parts.arithmetic_s - plain.arithmetic_s == pytest.approx(unpacking, abs=1e-12)


@pytest.mark.parametrize("is_graph", [True, False])
def test_an_integrated_gpu_of_a_jetson_unpacks_slower_than_its_memory_streams(is_graph):
    """85 GB/s of 205 at 7B on AGX Orin (holohub issue 170): launches of slow cores, and kernels that 16 SMs limit."""
    found = decode_class("ggml-graph" if is_graph else "ggml", "lpddr5-6400-jetson", 0.86, 20e-6)
    other = decode_class("ggml-graph" if is_graph else "ggml", "lpddr5x-8533-soc", 0.86)
    assert found.efficiency < other.efficiency
    assert (found.layer_s > other.layer_s) is not is_graph
    hold_out(["holohub-170"])
    try:
        prior = decode_class("ggml-graph" if is_graph else "ggml", "lpddr5-6400-jetson", 0.86, 20e-6)
    finally:
        hold_out(())
    assert prior.efficiency == 0.86
    assert prior.layer_s == pytest.approx(50e-6 if is_graph else 20 * 20e-6)


@pytest.mark.parametrize(
    ("publication", "inference"),
    [
        ("gpu-benchmarks-llm", {"framework": "llama.cpp", "weights": "q4_0"}),
        ("gpt-fast", {"framework": "vllm", "weights": "int8"}),
        ("llamacpp-pr-6083", {"framework": "llama.cpp", "gpu_layers": 10}),
    ],
)
def test_constants_of_runtimes_stand_aside_when_their_measurements_are_held_out(publication, inference):
    known = answer(inference).total_s
    hold_out([f"{publication}/any"])
    try:
        assumed = answer(inference).total_s
    finally:
        hold_out([])
    assert assumed != known
    assert 0.5 < assumed / known < 2
    assert answer(inference).total_s == known


@pytest.mark.parametrize("placement", [None, {"weights": "dram"}, {"kv_cache": "dram"}])
def test_sampled_tokens_stand_for_the_whole_answer(placement):
    asked = scenario({"output_length": 40, "weights": "q8_0"}, placement)
    whole = dataclasses.replace(asked, options=dataclasses.replace(asked.options, is_whole=True))
    sampled, written = (run(item, with_penalty=False).inference for item in (asked, whole))
    assert sampled.total_s == pytest.approx(written.total_s, rel=1e-6)
    assert sampled.time_to_first_token_s == pytest.approx(written.time_to_first_token_s)


@pytest.mark.parametrize("gpu_layers", [0, 20])
def test_layers_on_the_cpu_use_all_its_cores_however_many_gpus_share_the_others(gpu_layers):
    split = [
        answer({"framework": "llama.cpp", "gpu_layers": gpu_layers, "pipeline_parallel": num}, topology="epyc-9554p-2x4090")
        for num in (1, 2)
    ]
    assert split[0].time_per_output_token_s == pytest.approx(split[1].time_per_output_token_s, rel=0.01)


def test_answers_of_two_jobs_are_written_out_to_meet_in_time():
    workload = {"inference": {"model": "llama-2-7b", "prompt_length": 64, "output_length": 12}}
    jobs = [
        {"name": "resident", "workload": workload},
        {"name": "streamed", "workload": workload, "placement": {"weights": {"gpu": "50%", "dram": "50%"}}},
    ]
    result = run(scenario_of({"name": "t", "topology": "epyc-9554p-2x4090", "jobs": jobs}, file="").resolve())
    resident, streamed = result.jobs
    assert result.summary.step_time_s == pytest.approx(max(job.inference.total_s for job in result.jobs))
    assert streamed.inference.total_s > resident.inference.total_s
    assert {op.micro_batch for op in streamed.program.operations} == set(range(12))


def test_stages_of_an_answer_refine_its_breakdown():
    result = run(scenario({"output_length": 40}, {"weights": "dram"}), with_penalty=False)
    stages = stages_s(result.program, result.replay, stretch=result.inference.stretch(result.replay))
    for key, seconds in result.summary.breakdown_s.items():
        mine = sum(value for (_phase, category), value in stages.items() if category == key)
        assert mine == pytest.approx(seconds, rel=1e-9, abs=1e-12)
    assert sum(stages.values()) == pytest.approx(result.inference.total_s)
    assert sum(value for (phase, _), value in stages.items() if phase == "prefill") == pytest.approx(
        result.inference.time_to_first_token_s, rel=0.05
    )


@pytest.mark.parametrize(
    ("weights", "on_cxl", "read_bytes"), [(None, 0.0, 0.0), ({"dram": "75%", "cxl0": "25%"}, 0.25, 0.0), ("nvme", 0.0, 1.0)]
)
def test_the_cpu_computes_its_layers_where_the_placement_puts_them(weights, on_cxl, read_bytes):
    asked = scenario(
        {"framework": "llama.cpp", "gpu_layers": 20, "output_length": 2, "weights": "q8_0"},
        {"weights": weights} if weights else None, topology="rtx-5090-cxl",
    )  # fmt: skip
    result = run(asked, with_penalty=False)
    decode = [op for op in result.program.operations if op.phase == "decode"]
    sizes = Sizes(asked.job.workload)
    on_cpu = [op for op in decode if op.kind == Kind.HOST_UPDATE and op.name != "read KV"]
    assert [op.layer for op in on_cpu] == [*range(20), -1]  # the head with the CPU's layers
    assert ("cxl0" in {name for op in on_cpu for name, _cost in op.uses}) == bool(on_cxl)
    read = sum(op.size_bytes for op in decode if op.name == "read weights")
    assert read == pytest.approx(20 * sizes.layer_bytes * read_bytes)
    plan = capacity_plan(asked.job.workload, asked.job.placement, asked.machine)
    elsewhere = sum(plan[tier].by_class.get("weights", 0.0) for tier in plan if tier != "gpu0.gddr")
    ends = 2 * 32000 * 5120 * 34 / 32  # embedding and head in 8 bits stay with the CPU's layers
    assert elsewhere == pytest.approx(plan["gpu0.gddr"].by_class["weights"] + ends, rel=1e-4)
    on_card = plan["cxl0"].by_class.get("weights", 0.0) if "cxl0" in plan else 0.0
    assert on_card == pytest.approx(elsewhere * on_cxl)
    assert not any(op.name == "fetch weights" for op in decode)  # its layers are on the GPU
