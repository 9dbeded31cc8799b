"""Any inference plan that is not refused: conserved bytes, times that add up, slower tiers that are never faster."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import load_machine
from sim.engine import run_checked
from sim.experiment import run
from sim.placement.plan import Entry, Placement
from sim.records import Kind, TensorClass
from sim.scenario import Job, Options, Scenario
from sim.workload.decode.sizes import Sizes
from sim.workload.frameworks.inference import INFERENCE_PROFILES
from sim.workload.inference import Inference
from sim.workload.shape import ModelShape

MACHINE = load_machine("rtx-5090-cxl")
TIERS = ("gpu", "dram", "cxl0", "nvme")
shapes = st.builds(
    ModelShape, name=st.just("drawn"), layers=st.integers(2, 5), hidden=st.sampled_from([512, 1024]),
    heads=st.sampled_from([4, 8]), kv_heads=st.sampled_from([2, 4]), ffn=st.just(2048), vocabulary=st.just(32000),
)  # fmt: skip
plans = st.builds(
    Inference, model=shapes, prompt_length=st.integers(2, 700), output_length=st.integers(1, 9),
    batch_size=st.integers(1, 5), num_batches=st.integers(1, 2), weights=st.sampled_from(["fp16", "q4_0", "int8", "mxfp4"]),
    kv_cache=st.sampled_from(["fp16", "int4"]), framework=st.sampled_from(sorted(INFERENCE_PROFILES)),
    pipeline_parallel=st.integers(1, 2), gpu_layers=st.none() | st.integers(0, 2),
)  # fmt: skip


def placed(weights, cache):
    entries = ((TensorClass.WEIGHTS, weights), (TensorClass.KV_CACHE, cache))
    return Placement(entries=tuple(Entry(tensor_class=kind, shares={tier: 1.0}) for kind, tier in entries if tier != "gpu"))


def answered(inference, placement, machine=MACHINE, **options):
    job = Job(workload=inference, placement=placement)
    return run(Scenario(name="drawn", machine=machine, jobs=(job,), options=Options(**options)), with_penalty=False)


@settings(max_examples=20, deadline=None)
@given(inference=plans, weights=st.sampled_from(TIERS), cache=st.sampled_from(TIERS))
def test_answers_conserve_bytes_and_add_up(inference, weights, cache):
    result = answered(inference, placed(weights, cache), level="full")
    run_checked(result.program, capacity="observe")
    times = result.inference
    decoded = inference.output_length - 1
    assert times.total_s == pytest.approx(times.time_to_first_token_s + decoded * times.time_per_output_token_s)
    assert sum(result.summary.breakdown_s.values()) == pytest.approx(times.total_s)
    assert times.time_to_first_token_s > 0
    sequences = inference.batch_size * inference.num_batches
    assert times.tokens_per_s == pytest.approx(sequences * inference.output_length / times.total_s)


@settings(max_examples=8, deadline=None)
@given(inference=plans.filter(lambda item: item.gpu_layers is None), tier=st.sampled_from(TIERS[1:]))
def test_weights_away_from_the_gpu_are_never_faster(inference, tier):
    near, away = answered(inference, placed("gpu", "gpu")), answered(inference, placed(tier, "gpu"))
    assert away.inference.total_s >= near.inference.total_s * (1 - 1e-9)


@settings(max_examples=8, deadline=None)
@given(inference=plans, more=st.integers(1, 5))
def test_longer_answers_take_longer_and_start_no_sooner(inference, more):
    longer = dataclasses.replace(inference, output_length=inference.output_length + more)
    short, long = (answered(item, placed("dram", "gpu")).inference for item in (inference, longer))
    assert long.total_s > short.total_s
    # weights of the token that follows are fetched beside the end of the prompt and may take some of its bandwidth
    assert long.time_to_first_token_s >= short.time_to_first_token_s * (1 - 1e-9)


SOCKETS = load_machine("xeon-2s-cxl")
mixtures = st.builds(
    ModelShape, name=st.just("drawn"), layers=st.integers(2, 5), hidden=st.just(512), heads=st.just(8), kv_heads=st.just(2),
    ffn=st.just(1024), vocabulary=st.just(32000), experts=st.sampled_from([0, 8]), experts_per_token=st.just(2),
    expert_ffn=st.just(512), moe_layers=st.integers(1, 2), sliding_window=st.sampled_from([0, 16]),
    full_attention_every=st.integers(0, 2),
)  # fmt: skip
on_cpu = st.builds(
    Inference, model=shapes | mixtures, prompt_length=st.integers(1, 300), output_length=st.integers(1, 9),
    batch_size=st.integers(1, 5), weights=st.sampled_from(["bf16", "q4_0", "mxfp4"]), device=st.just("cpu"),
    framework=st.sampled_from(["llama.cpp", "vllm"]), threads=st.none() | st.integers(1, 8), all_sockets=st.booleans(),
)  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(inference=on_cpu, weights=st.sampled_from(["dram", "cxl0"]))
def test_answers_of_sockets_read_every_weight_and_add_up(inference, weights):
    result = answered(inference, placed(weights, "dram"), SOCKETS, level="full")
    run_checked(result.program, capacity="observe")
    times = result.inference
    decoded = inference.output_length - 1
    assert times.total_s == pytest.approx(times.time_to_first_token_s + decoded * times.time_per_output_token_s)
    sizes = Sizes(inference)
    read = [op.work for op in result.program.operations if op.phase == "decode" and op.kind == Kind.HOST_UPDATE]
    tokens = {op.micro_batch for op in result.program.operations if op.phase == "decode"}
    least = len(tokens) * (
        inference.model.layers * sizes.layer_bytes * sizes.read_share(inference.batch_size) + sizes.head_bytes
    )
    assert sum(read) >= least * (1 - 1e-9)


@settings(max_examples=8, deadline=None)
@given(inference=on_cpu, threads=st.integers(1, 4))
def test_slower_memory_never_answers_sooner(inference, threads):
    asked = dataclasses.replace(inference, threads=threads, all_sockets=False)
    near, far = (answered(asked, placed(tier, "dram"), SOCKETS).inference.total_s for tier in ("dram", "cxl0"))
    assert far >= near * (1 - 1e-9)
