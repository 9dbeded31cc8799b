"""Models, or experts of them, that a CPU computes: alone, beside a GPU, by framework, on both sides of every boundary."""

import dataclasses

import pytest

from sim.config import load_machine, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.held_out import hold_out
from sim.laws import cpu_matrix
from sim.placement.capacity import capacity_plan
from sim.records import Kernel, Kind, TensorClass
from sim.study.fit_families import families_of
from sim.workload.decode import generate
from sim.workload.decode.sizes import Sizes

BASE = {"framework": "llama.cpp", "model": "llama-3-8b", "weights": "q4_k_m", "prompt_length": 128, "output_length": 8}
MOE = BASE | {"model": "qwen3-30b-a3b"}


def scenario(inference, topology, placement=None):
    body = {"name": "t", "topology": topology, "workload": {"inference": inference}}
    return scenario_of(body | ({"placement": placement} if placement else {}), file="").resolve()


def answer(inference, topology, placement=None):
    return run(scenario(inference, topology, placement), with_penalty=False).inference


def test_a_machine_without_gpu_computes_on_its_cores_at_the_bandwidth_that_they_reach():
    asked = scenario(BASE, "epyc-9755-2s")
    assert asked.job.workload.device == "cpu"
    result = run(asked, with_penalty=False)
    assert {op.kind for op in result.program.operations} == {Kind.HOST_UPDATE, Kind.HOST_WORK}
    assert {op.stream.split(".")[1] for op in result.program.operations} == {"cpu"}
    sizes = Sizes(asked.job.workload)
    seconds = (32 * sizes.layer_bytes + sizes.head_bytes) / result.summary.channels["cpu0.dram"].bandwidth_bytes_per_s
    assert 1.0 < result.inference.time_per_output_token_s / seconds < 4.0  # bytes once, and cores that multiply and wait
    plan = capacity_plan(asked.job.workload, asked.job.placement, asked.machine)
    assert set(plan) == {"cpu0.dram"}


def test_one_rank_uses_one_socket_and_two_split_each_layer():
    one, two = (answer(BASE | {"tensor_parallel": ranks}, "epyc-9755-2s") for ranks in (1, 2))
    assert 0.5 < two.time_per_output_token_s / one.time_per_output_token_s < 0.85
    with pytest.raises(InputError, match=r"tensor_parallel x pipeline_parallel = 3 sockets, but the machine has 2"):
        scenario(BASE | {"model": "llama-3.2-3b", "tensor_parallel": 3}, "epyc-9755-2s")


def test_hbm_of_a_socket_decodes_faster_than_its_ddr():
    ddr, hbm = (answer(BASE | {"weights": "bf16"}, "xeon-max", {"weights": tier}) for tier in ("dram", "hbm"))
    assert hbm.time_per_output_token_s < 0.8 * ddr.time_per_output_token_s


def test_interleaving_on_cxl_adds_its_bandwidth_and_all_on_cxl_is_slower():
    topology = {"base": "xeon-2s-cxl"}
    by = {
        name: answer(BASE | {"device": "cpu"}, topology, {"weights": weights}).time_per_output_token_s
        for name, weights in (("dram", "dram"), ("both", {"dram": "95%", "cxl0": "5%"}), ("cxl", "cxl0"))
    }
    assert by["both"] < by["dram"] < by["cxl"]


def test_tiles_multiply_a_prompt_faster_than_dot_products():
    ggml, library = (
        answer(BASE | {"framework": name, "weights": "bf16"}, "xeon-8480-2s").time_to_first_token_s
        for name in ("llama.cpp", "vllm")
    )
    assert library < 0.5 * ggml


def test_a_gpu_stays_idle_where_the_device_is_the_cpu():
    result = run(scenario(BASE | {"device": "cpu"}, "desktop-rtx-4090"), with_penalty=False)
    assert not [op for op in result.program.operations if op.kind in (Kind.COMPUTE, Kind.TRANSFER)]
    partial = answer(BASE | {"gpu_layers": 0}, "desktop-rtx-4090")
    assert partial.time_to_first_token_s < result.inference.time_to_first_token_s  # long prompts visit the GPU
    assert partial.time_per_output_token_s == pytest.approx(result.inference.time_per_output_token_s)


@pytest.mark.parametrize(("weights", "layers"), [("dram", 0), ({"gpu": "75%", "dram": "25%"}, 24), ("gpu", None)])
def test_llamacpp_computes_layers_where_their_weights_lie_and_flexgen_streams_them(weights, layers):
    asked = scenario(BASE, "desktop-rtx-4090", {"weights": weights})
    assert asked.job.workload.gpu_layers == layers
    named = scenario(BASE | ({} if layers is None else {"gpu_layers": layers}), "desktop-rtx-4090")
    seconds = [run(item, with_penalty=False).inference.total_s for item in (asked, named)]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-12)
    streamed = scenario(BASE | {"framework": "flexgen"}, "desktop-rtx-4090", {"weights": weights})
    assert streamed.job.workload.gpu_layers is None


def test_experts_on_the_cpu_leave_the_gpu_and_are_read_where_they_lie():
    asked = scenario(MOE | {"cpu_moe_layers": 48}, "desktop-rtx-4090")
    result = run(asked, with_penalty=False)
    sizes = Sizes(asked.job.workload)
    token = [op for op in result.program.operations if op.phase == "decode" and op.micro_batch == 1]
    read = sum(op.work for op in token if op.kind == Kind.HOST_UPDATE)
    assert read == pytest.approx(48 * sizes.routed_bytes * 8 / 128)
    on_gpu = sum(op.flops for op in token if op.kind == Kind.COMPUTE)
    whole = run(scenario(MOE, "desktop-rtx-4090"), with_penalty=False)
    everything = sum(op.flops for op in whole.program.operations if op.phase == "decode" and op.micro_batch == 1)
    assert on_gpu == pytest.approx(everything - 48 * sizes.routed_flops_per_token)
    plan = capacity_plan(asked.job.workload, asked.job.placement, asked.machine)
    experts = sizes.count.routed * sizes.weight.routed
    assert plan["cpu0.dram"].by_class["weights"] == pytest.approx(experts)
    assert plan["gpu0.gddr"].by_class["weights"] == pytest.approx(sizes.count.total * sizes.weight.other - experts)
    assert result.fits


def test_resident_experts_agree_with_the_plan():
    asked = scenario(MOE | {"cpu_moe_layers": 24}, "desktop-rtx-4090").job.workload
    step = generate(asked, {})
    on_host = sum(item.size_bytes for item in step.resident if item.tier == "dram" and item.tensor_class == TensorClass.WEIGHTS)
    assert on_host == pytest.approx(Sizes(asked).count.routed * Sizes(asked).weight.routed / 2)


def test_each_expert_layer_on_the_cpu_costs_time_until_all_are_there():
    seconds = [answer(MOE | {"cpu_moe_layers": layers}, "desktop-rtx-4090").time_per_output_token_s for layers in (0, 24, 48)]
    assert seconds[0] < seconds[1] < seconds[2]
    assert seconds[2] - seconds[1] == pytest.approx(seconds[1] - seconds[0], rel=0.02)


@pytest.mark.parametrize(("tokens", "is_copied"), [(32, False), (33, True)])
def test_llamacpp_copies_experts_for_passes_above_32_tokens(tokens, is_copied):
    step = generate(scenario(MOE | {"cpu_moe_layers": 48, "prompt_length": tokens}, "desktop-rtx-4090").job.workload, {})
    prefill = [op for op in step.operations if op.phase == "prefill"]
    assert any(op.name == "fetch experts" for op in prefill) == is_copied
    assert any(op.name == "experts" for op in prefill) != is_copied


def test_ktransformers_computes_experts_of_a_prompt_on_the_cpu():
    asked = MOE | {"framework": "ktransformers", "cpu_moe_layers": 48, "prompt_length": 512}
    names = {op.name for op in generate(scenario(asked, "desktop-rtx-4090").job.workload, {}).operations}
    assert "experts" in names
    assert "fetch experts" not in names


def test_waits_grow_with_threads_and_arithmetic_shrinks():
    part = {"cores": 64, "clock": 2e9, "family": "zen4"}
    work = Kernel(kind="gemm", flops=1e9, variant="ggml")
    assert cpu_matrix.core_seconds(work, part) == pytest.approx(1e9 / (36 * 2e9))
    waits = [cpu_matrix.barrier_seconds(work, cores) for cores in (1, 8, 64)]
    assert waits == pytest.approx([0.1e-6, 0.8e-6, 6.4e-6])
    few, some, all_ = (answer(MOE | {"threads": threads}, "epyc-9755-2s") for threads in (1, 8, 128))
    assert few.time_to_first_token_s > some.time_to_first_token_s > all_.time_to_first_token_s


@pytest.mark.parametrize(
    ("kernel", "family", "flop"),
    [
        (Kernel(kind="gemm", variant="ggml"), "zen3", 25.0), (Kernel(kind="gemm", variant="ggml"), "zen4", 36.0),
        (Kernel(kind="gemm", dtype="bf16"), "sapphire-rapids", 250.0), (Kernel(kind="gemm", dtype="bf16"), "zen4", 36.0),
        (Kernel(kind="gemm", dtype="fp32"), "sapphire-rapids", 36.0), (Kernel(kind="attention", variant="ggml"), "zen4", 5.0),
        (Kernel(kind="attention"), "zen4", 18.0), (Kernel(kind="attention"), "granite-rapids", 125.0),
    ],
)  # fmt: skip
def test_flop_per_cycle_by_kernel_and_vector_width(kernel, family, flop):
    assert cpu_matrix.flop_per_cycle(kernel, family) == flop


def test_constants_stand_aside_for_priors():
    hold_out(["ktransformers"])
    try:
        assert cpu_matrix.flop_per_cycle(Kernel(kind="gemm", variant="ggml"), "zen4") == 32.0
    finally:
        hold_out([])


@pytest.mark.parametrize(
    ("inference", "placement", "message"),
    [
        ({"cpu_moe_layers": 1}, None, "cpu_moe_layers 1 of a model with 0 layers of experts; leave it out"),
        ({"device": "gpu"}, None, "machine epyc-9755-2s has no GPU; write device: cpu"),
        ({"gpu_layers": 8}, None, r"no GPU takes part \(device cpu\); leave it out"),
        ({"pipeline_parallel": 2}, None, "no GPU takes part"),
        ({"threads": 129}, None, "threads 129: the socket has 128 cores"),
        ({"reused_tokens": 8, "reuse_tier": "dram"}, None, "a CPU attends to reused KV where placement.kv_cache puts it"),
        ({}, {"weights": "gpu"}, "no GPU takes part"),
    ],
)
def test_what_a_cpu_cannot_do_is_refused_at_its_line(inference, placement, message):
    with pytest.raises(InputError, match=message):
        scenario(BASE | inference, "epyc-9755-2s", placement)


def test_training_without_a_gpu_is_refused():
    body = {"name": "t", "topology": "epyc-9755-2s", "workload": {"training": {"model": "llama-2-7b"}}}
    with pytest.raises(InputError, match="has no GPU to run on"):
        scenario_of(body, file="").resolve()


def test_a_step_with_kernels_is_refused_by_a_machine_without_gpus():
    asked = scenario(BASE, "desktop-rtx-4090")
    with pytest.raises(InputError, match="no GPU for the step's kernels"):
        run(dataclasses.replace(asked, machine=load_machine("epyc-9755-2s")), with_penalty=False)


def test_all_sockets_read_pages_of_their_own():
    asked = MOE | {"framework": "ktransformers", "cpu_moe_layers": 48, "prompt_length": 512}
    one, two = (run(scenario(asked | {"all_sockets": flag}, "xeon-6454s-4090"), with_penalty=False) for flag in (False, True))
    assert 0.5 < two.inference.time_to_first_token_s / one.inference.time_to_first_token_s < 0.7
    crossed = {name for op in two.program.operations if op.kind == Kind.HOST_UPDATE for name, _ in op.uses}
    assert {"cpu0.dram", "cpu1.dram", "cpu0.cores", "cpu1.cores"} <= crossed
    with pytest.raises(InputError, match="all_sockets with tensor_parallel 2"):
        scenario(BASE | {"all_sockets": True, "tensor_parallel": 2}, "epyc-9755-2s")
    assert scenario(BASE | {"all_sockets": True, "threads": 256}, "epyc-9755-2s").job.workload.threads == 256
    with pytest.raises(InputError, match="threads 257: the 2 sockets have 256 cores"):
        scenario(BASE | {"all_sockets": True, "threads": 257}, "epyc-9755-2s")


def test_the_penalty_of_experts_on_the_cpu_is_against_all_on_the_gpu():
    split = run(scenario(MOE | {"cpu_moe_layers": 24}, "desktop-rtx-4090"))
    whole = run(scenario(MOE, "desktop-rtx-4090"))
    assert split.offload_penalty == pytest.approx(split.summary.step_time_s / whole.summary.step_time_s)
    assert split.offload_penalty > 1.2


def test_the_fastest_tier_of_a_socket_is_its_hbm():
    ddr = run(scenario(BASE | {"weights": "bf16"}, "xeon-max"))
    hbm = run(scenario(BASE | {"weights": "bf16"}, "xeon-max", {"weights": "hbm", "kv_cache": "hbm"}))
    assert ddr.offload_penalty > 1.2
    assert hbm.offload_penalty == pytest.approx(1.0)


def test_fit_offers_experts_on_the_cpu_and_no_streaming_under_llamacpp():
    asked = scenario(MOE | {"model": "gpt-oss-120b", "weights": "mxfp4"}, "desktop-rtx-4090")
    offered = [
        dict(change.settings)
        for family in families_of(asked.job.workload, asked.job.placement, asked.machine, {})
        for change in family
    ]
    assert {"workload.inference.cpu_moe_layers": 36} in offered
    assert not any("placement.weights" in settings for settings in offered)


BIG = {"framework": "llama.cpp", "model": "deepseek-v3", "prompt_length": 64, "output_length": 4}
SMALL_NODES = {"base": "xeon-6980p-2s-mrdimm", "set": {"cpu0.memory.capacity": "512 GiB", "cpu1.memory.capacity": "512 GiB"}}


@pytest.mark.parametrize(("weights", "is_over"), [("q4_k_m", False), ("q8_0", True)])
def test_what_one_node_cannot_hold_lies_on_the_other_and_crosses_the_socket_link(weights, is_over):
    result = run(scenario(BIG | {"weights": weights}, SMALL_NODES), with_penalty=False)
    assert result.fits
    assert ("cpu1.dram" in result.summary.tiers) == is_over
    assert any(name.startswith("cpu1->cpu0") for name in result.summary.channels) == is_over


def test_threads_of_all_sockets_read_near_pages():
    result = run(scenario(BIG | {"weights": "q8_0", "all_sockets": True}, SMALL_NODES), with_penalty=False)
    assert result.fits
    assert not any("upi" in name for name in result.summary.channels)
    held = [result.summary.tiers[f"cpu{i}.dram"].by_class["weights"] for i in (0, 1)]
    assert held[0] == pytest.approx(held[1])


def test_weights_too_large_for_all_nodes_do_not_fit():
    result = run(scenario(BIG | {"weights": "bf16"}, SMALL_NODES), with_penalty=False)
    assert not result.fits


@pytest.mark.parametrize("weights", ["dram", "gpu", "gpu0.lpddr"])
def test_weights_in_the_one_memory_of_both_are_the_gpus(weights):
    asked = scenario(BASE, "mac-m4-max", {"weights": weights})
    assert asked.job.workload.gpu_layers is None
    alone = answer(BASE, "mac-m4-max").total_s
    assert run(asked, with_penalty=False).inference.total_s == pytest.approx(alone)


def test_an_unknown_tier_is_told_once():
    with pytest.raises(InputError, match="unknown tier 'hbm9'"):
        scenario(BASE, "desktop-rtx-4090", {"weights": "hbm9"})
