"""Quantised bases: which inputs products keep, what dropout in front of adapters keeps, and what stays in 16 bits."""

from dataclasses import replace

import pytest

from sim.workload.footprint import footprint
from sim.workload.footprint.activations import layer_activations, logits_bytes
from sim.workload.footprint.counts import quantised_bytes, rank_parameters
from sim.workload.footprint.inference import inference_footprint, kv_cache_bytes, weight_bytes
from sim.workload.formats import WEIGHT_BYTES
from sim.workload.frameworks import profile
from sim.workload.frameworks.inference import inference_profile
from sim.workload.inference import Inference
from sim.workload.shape import ModelShape
from sim.workload.shapes import parameters
from sim.workload.step import linear
from sim.workload.step.plan import resolve
from sim.workload.training import Adapter, Parallelism, Training

SHAPE = ModelShape(layers=4, hidden=64, heads=4, ffn=256, vocabulary=1000)
LORA = Adapter(type="lora", rank=8, targets=("q", "v"))


def saved(adapter: Adapter, framework: str = "litgpt") -> float:
    """Bytes that one layer keeps per token."""
    training = Training(model=SHAPE, framework=framework, sequence_length=10, batch_size=2, precision="bf16", adapter=adapter)
    return layer_activations(training).saved / 20


def test_products_with_quantised_weights_keep_their_inputs():
    frozen, quantised = saved(LORA), saved(replace(LORA, type="qlora"))
    assert quantised - frozen == 2 * (64 + 256)  # what enters gate and up, and what enters down; that of q and v is kept anyway
    everything = Adapter(type="lora", rank=8, targets=("all",))
    assert saved(everything) == saved(replace(everything, type="qlora"))  # the adapters keep the same
    assert saved(LORA, "torchtune") == saved(replace(LORA, type="qlora"), "torchtune")  # LinearNF4 keeps the weight only


def test_dropout_before_adapters_keeps_a_copy_and_a_mask():
    dropped = replace(LORA, dropout=0.05)
    assert saved(dropped, "hf-trainer") - saved(LORA, "hf-trainer") == 2 * 3 * 64 - 2 * 64  # one for q, one for v; x goes
    assert saved(dropped) - saved(LORA) == 3 * 64 - 2 * 64  # one product, one dropout
    down = replace(LORA, targets=("down",))
    assert saved(replace(down, dropout=0.1)) - saved(down) == 3 * 256 - 2 * 256
    assert saved(replace(dropped, type="qlora")) - saved(replace(LORA, type="qlora")) == 3 * 64  # the products keep x


def test_gptq_unpacks_with_kernels_of_its_own():
    training = Training(
        model=SHAPE, framework="hf-trainer", sequence_length=64, adapter=replace(LORA, type="qlora", base="gptq")
    )
    plans = [resolve(each, {}, profile("hf-trainer")) for each in (training, _in_nf4(training))]
    passes = [linear.forward(plan, linear.layer_maps(plan, is_moe=False)) for plan in plans]
    unpacked, dequantised = (
        sum(k.read_bytes + k.write_bytes for k in each.kernels if k.name == "dequantise.forward") for each in passes
    )
    weights = 4 * 64 * 64 + 3 * 64 * 256
    assert unpacked == pytest.approx(21.0 * weights)
    assert dequantised == pytest.approx((0.5 + 1 / 64 + 1 / 4096 + 2.0) * weights)
    assert quantised_bytes(training) == pytest.approx(0.5195, rel=1e-3)
    assert saved(training.adapter, "hf-trainer") == saved(LORA, "hf-trainer")  # torch.matmul keeps the weights, not the input


def _in_nf4(training: Training) -> Training:
    return replace(training, adapter=replace(training.adapter, base="nf4"))


def test_a_loss_in_16_bits_keeps_four_copies_of_the_logits():
    training = Training(model=SHAPE, framework="hf-trainer", sequence_length=10, batch_size=1, precision="bf16")
    assert logits_bytes(replace(training, loss="half")) == 8.0 * 10 * 1000
    assert logits_bytes(training) == 14.0 * 10 * 1000


def test_the_head_is_quantised_by_litgpt_only():
    both = [
        rank_parameters(Training(model=SHAPE, framework=name, adapter=replace(LORA, type="qlora")), 0).quantised
        for name in ("litgpt", "hf-trainer")
    ]
    assert both[0] - both[1] == 1000 * 64


@pytest.mark.parametrize(("framework", "weights", "wide"), [
    ("transformers", "nf4", 2), ("litgpt", "nf4", 1), ("vllm", "int4", 2), ("auto", "nf4", 2), ("auto", "int4", 0),
    ("llama.cpp", "q4_k_m", 0), ("transformers", "bf16", 0),
])  # fmt: skip
def test_embedding_and_head_of_quantised_files_stay_in_16_bits(framework: str, weights: str, wide: int):
    inference = Inference(model=SHAPE, framework=framework, weights=weights)
    narrow = WEIGHT_BYTES[weights]
    expected = narrow * parameters(SHAPE).total + wide * (2.0 - narrow) * 1000 * 64
    assert weight_bytes(inference) == pytest.approx(expected)


def test_bitsandbytes_takes_longer_to_launch():
    litgpt, transformers = inference_profile("litgpt"), inference_profile("transformers")
    assert litgpt.quantised_layer_s / 5 == pytest.approx(transformers.quantised_layer_s / 7) == pytest.approx(0.155e-3)


def test_a_cache_that_grows_by_concatenation_is_held_twice():
    job = Inference(model=SHAPE, framework="transformers", weights="bf16", prompt_length=100, output_length=900, batch_size=8)
    grown, fixed = (inference_footprint(replace(job, framework=name), {}) for name in ("transformers", "litgpt"))
    assert fixed.fragmentation == 0.0
    used = grown.allocated_peak("gpu", ("decode",)).size_bytes
    assert grown.fragmentation * used == pytest.approx(kv_cache_bytes(job))
    assert grown.peak("gpu", ("decode",)).size_bytes == pytest.approx(used + kv_cache_bytes(job) + 0.5e9)


def test_a_base_in_fp32_takes_twice_one_in_16_bits():
    job = Training(model=SHAPE, framework="hf-trainer", sequence_length=10, precision="bf16", adapter=LORA)
    frozen = [_sum(replace(job, adapter=replace(LORA, base=base)), "frozen base weights") for base in ("bf16", "fp32")]
    assert frozen[1] == 2 * frozen[0] == 4 * parameters(SHAPE).total


def test_sharded_weights_under_adapters_stay_gathered_with_original_parameters():
    split = Parallelism(data=4, zero_stage=3)
    job = Training(model=SHAPE, framework="litgpt", sequence_length=10, precision="bf16", adapter=LORA, parallelism=split)
    assert _sum(job, "gathered weights") == 2 * parameters(SHAPE).total
    assert _sum(replace(job, framework="torchtune"), "gathered weights") < 2 * parameters(SHAPE).total


def _sum(job: Training, name: str) -> float:
    return sum(term.size_bytes for term in footprint(job).terms if term.name == name)
