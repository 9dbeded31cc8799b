"""Bytes and work of an answer: sliding windows, formats of mixtures, popular experts, latent attention, runtimes' layers."""

import pytest

from sim.config import scenario_of
from sim.experiment import run
from sim.held_out import hold_out
from sim.laws.decode import decode_class
from sim.laws.kernels import EXPERTS_SHARE, multiplied_in, variant_rate
from sim.placement.capacity import plan_footprint
from sim.workload import shapes
from sim.workload.decode import generate
from sim.workload.decode.sizes import Sizes
from sim.workload.footprint.inference import kv_cache_bytes, weight_bytes
from sim.workload.inference import Inference
from sim.workload.shapes import builtin
from sim.workload.shapes_huggingface import shape_of

OSS = builtin("gpt-oss-20b")
GIB = 2.0**30


@pytest.mark.parametrize(
    ("model", "context", "keys"),
    [
        ("gpt-oss-20b", 128, 128.0), ("gpt-oss-20b", 129, 0.5 * 129 + 0.5 * 128), ("gemma-3-27b", 1024, 1024.0),
        ("gemma-3-27b", 32768, 10 / 62 * 32768 + 52 / 62 * 1024), ("llama-3-8b", 32768, 32768.0),
    ],
)  # fmt: skip
def test_layers_with_a_window_see_no_more_than_it(model, context, keys):
    assert shapes.attended(builtin(model), context) == pytest.approx(keys)


def test_a_window_bounds_the_cache_and_what_a_token_reads():
    long = Inference(model=OSS, prompt_length=32768, output_length=2)
    per_token = 24 * 2 * 8 * 64 * 2.0
    assert kv_cache_bytes(long) == pytest.approx(per_token * (0.5 * 32770 + 0.5 * 128))
    reads = [
        sum(kernel.read_bytes for op in generate(asked, {}).operations if op.phase == "decode" for kernel in op.kernels)
        for asked in (long, Inference(model=OSS, prompt_length=1, output_length=2))
    ]
    assert reads[0] - reads[1] == pytest.approx(per_token * (0.5 * 32769 + 0.5 * 128 - 2))


@pytest.mark.parametrize(
    ("config", "window", "every"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096, 0),
        ({"model_type": "mistral", "sliding_window": None}, 0, 0),
        ({"model_type": "qwen2", "sliding_window": 32768, "use_sliding_window": False}, 0, 0),
        ({"model_type": "gemma2", "sliding_window": 4096}, 4096, 2),
        ({"model_type": "gemma3_text", "sliding_window": 1024, "sliding_window_pattern": 6}, 1024, 6),
        ({"model_type": "llama", "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 4}, 64, 2),
        ({"model_type": "llama", "sliding_window": 64, "layer_types": ["sliding_attention"] * 8}, 64, 0),
    ],
)  # fmt: skip
def test_windows_of_hub_files(config, window, every):
    form = {"hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    found = shape_of(form | config)
    assert (found.sliding_window, found.full_attention_every) == (window, every)


@pytest.mark.parametrize(
    ("model", "framework", "gib"),
    [("gpt-oss-20b", "llama.cpp", 11.27), ("gpt-oss-120b", "llama.cpp", 59.02), ("gpt-oss-20b", "vllm", 12.8)],
)
def test_mxfp4_mixtures_keep_all_but_their_experts_wider(model, framework, gib):
    found = weight_bytes(Inference(model=builtin(model), weights="mxfp4", framework=framework)) / GIB
    assert found == pytest.approx(gib, rel=0.01)  # sizes of the published files


def test_a_dense_model_is_all_in_its_format():
    asked = Inference(model=builtin("llama-3-8b"), weights="mxfp4", framework="llama.cpp")
    assert weight_bytes(asked) == pytest.approx(shapes.parameters(asked.model).total * 4.25 / 8)


def test_popular_experts_are_drawn_again_and_one_token_draws_its_own():
    sizes = Sizes(Inference(model=builtin("qwen3-30b-a3b")))
    assert sizes.touched_share(1.0) == pytest.approx(8 / 128)
    even = 1 - (1 - 8 / 128) ** 32
    assert 8 / 128 < sizes.touched_share(32.0) < even
    hold_out(["llamacpp-dgx-spark"])
    try:
        assert sizes.touched_share(32.0) == pytest.approx(even)
    finally:
        hold_out([])


def test_a_single_query_of_latent_attention_works_on_the_latent():
    sizes = Sizes(Inference(model=builtin("deepseek-v3")))
    assert sizes.attention_flops(1.0, 1000.0) == pytest.approx(2 * 1000 * 128 * (2 * 512 + 64))
    assert sizes.attention_flops(2.0, 1000.0) == pytest.approx(2 * 2 * 1000 * 2 * shapes.query_width(sizes.shape))


@pytest.mark.parametrize(
    ("variant", "memory", "layer_us"),
    [
        ("ggml-block", "gddr6x", 85), ("ggml-graph-block", "gddr6x", 25), ("ggml", "lpddr5-6400-apple", 145),
        ("ggml-graph", "lpddr5x-8533-apple", 145), ("ggml", "lpddr5x-8533-soc", 55), ("ggml", "hbm3", 135), ("", "hbm3", 60),
    ],
)  # fmt: skip
def test_a_layers_own_time_belongs_to_the_runtime(variant, memory, layer_us):
    assert decode_class(variant, memory, 0.9).layer_s == pytest.approx(layer_us * 1e-6)


@pytest.mark.parametrize(("compute", "variant", "share"), [
    ({"fp16": 1e14, "fp32": 1e13}, "ggml", 0.67),
    ({"fp16": 1e14, "fp32": 5e13, "tf32": 5e13}, "ggml-block", 0.67),  # GeForce: its tensor cores keep pace with its ALUs
    ({"fp16": 1e14, "fp32": 1e14}, "ggml", 0.94),
    ({"fp16": 1e14, "fp32": 5e13}, "ggml-block", 0.94 * 32 / 35),
    ({"fp16": 1e14, "fp32": 1e13}, "ggml+experts", 0.67 * 0.65),
])  # fmt: skip
def test_kernels_without_measurements_reach_what_their_units_are_fed(compute, variant, share):
    hold_out(["gpu-benchmarks-llm"])
    try:
        assert variant_rate({"compute": compute, "gemm_efficiency": {"fp16": 0.5}}, "fp16", variant) == pytest.approx(
            share * 5e13
        )
    finally:
        hold_out(())


@pytest.mark.parametrize(("memory", "dtype", "flops_per_cycle"), [("gddr6x", "int8", 680), ("lpddr5x-8533-soc", "fp16", 320)])
def test_block_formats_are_multiplied_as_integers_on_cards_with_tensor_cores(memory, dtype, flops_per_cycle):
    part = {
        "vendor": "nvidia", "memory": {"part": memory}, "cores": 10, "clock": 1e9, "gemm_efficiency": {"fp16": 1.0},
        "compute": {"fp16": 5e13, "int8": 2e14},
    }  # fmt: skip
    assert multiplied_in(part, "fp16", "ggml-graph-block") == dtype
    assert variant_rate(part, "fp16", "ggml-graph-block") == pytest.approx(flops_per_cycle * 1e10)
    assert multiplied_in(part, "fp16", "ggml-block") == multiplied_in(part, "fp16", "ggml-graph") == "fp16"
    assert multiplied_in(part | {"compute": {"fp16": 5e13}}, "fp16", "ggml-graph-block") == "fp16"  # V100 has no such units


def test_half_a_tile_is_lost_to_each_expert_where_none_was_measured():
    part = {"compute": {"fp16": 1e14, "fp32": 1e13}, "gemm_efficiency": {"fp16": 0.5}}
    hold_out(["llamacpp-dgx-spark"])
    try:
        whole, many, few = (variant_rate(part, "fp16", *of) for of in (("ggml",), ("ggml+experts", 256), ("ggml+experts", 64)))
    finally:
        hold_out(())
    assert (many / whole, few / whole) == pytest.approx((0.8, 0.5))


def test_matrices_are_read_as_by_a_kernel_that_only_reads_where_no_decode_was_measured():
    hold_out(["gpu-benchmarks-llm"])
    try:
        assert decode_class("ggml", "lpddr5-6400-apple", 0.838, read_efficiency=0.94) == (0.94, 20 * 5e-6)
        assert decode_class("ggml", "lpddr5-6400-apple", 0.838).efficiency == 0.838
    finally:
        hold_out(())


def test_products_by_expert_reach_less():
    part = {"compute": {"fp16": 1e14}, "gemm_efficiency": {"fp16": 0.5}}
    whole, experts = (variant_rate(part, "fp16", name) for name in ("ggml-block", "ggml-graph-block+experts"))
    assert experts == pytest.approx(EXPERTS_SHARE * whole)


def test_each_prompt_computes_all_of_its_work_once():
    asked = Inference(model=builtin("qwen3-30b-a3b"), framework="llama.cpp", weights="q8_0", prompt_length=600, output_length=1)
    step = generate(asked, {})
    products = sum(kernel.flops * kernel.count for op in step.operations for kernel in op.kernels if kernel.kind == "gemm")
    assert products == pytest.approx(600 * 48 * Sizes(asked).layer_flops_per_token)


@pytest.mark.parametrize(("tokens", "passes"), [(512, 2), (1024, 1), (None, 2), (300, 4)])
def test_the_tokens_of_a_pass_may_be_set(tokens, passes):
    asked = Inference(
        model=builtin("llama-3-8b"), framework="llama.cpp", prompt_length=1024, prefill_tokens=tokens, output_length=1
    )
    kernels = [kernel for op in generate(asked, {}).operations for kernel in op.kernels if kernel.kind == "gemm"]
    assert {kernel.count for kernel in kernels} == {passes}


def superchip(framework, weights):
    inference = {"framework": framework, "model": "llama-2-7b", "weights": "fp16", "prompt_length": 8, "output_length": 4}
    body = {"name": "t", "topology": "gh200", "workload": {"inference": inference | {"is_system": True}}}
    return run(scenario_of(body | {"placement": {"weights": weights}}, file="").resolve(), with_penalty=False)


def test_kernels_that_load_in_place_run_while_python_launches_the_next():
    eager, away = superchip("transformers", "gpu"), superchip("transformers", "dram")
    sizes = Sizes(away.scenario.job.workload)
    loads_s = 32 * sizes.layer_bytes / away.summary.channels["cpu0->gpu0.c2c"].bandwidth_bytes_per_s
    launches_s = eager.inference.time_per_output_token_s
    assert max(loads_s, launches_s) < away.inference.time_per_output_token_s < 0.7 * (loads_s + launches_s)


def test_weights_loaded_in_place_need_no_buffers_on_the_gpu():
    asked = superchip("auto", "dram").scenario
    names = {term.name for term in plan_footprint(asked.job.workload, asked.job.placement, asked.machine).terms}
    assert "weights" in names
    assert "buffers of streamed layers" not in names


@pytest.mark.parametrize(("variant", "memory", "is_free"), [
    ("ggml", "gddr6x", False), ("ggml-graph", "gddr6x", True), ("ggml", "lpddr5x-8533-soc", True),
    ("ggml-graph", "lpddr5-6400-apple", False),
])  # fmt: skip
def test_small_kernels_of_a_router_cost_a_twentieth_of_a_layer_unless_a_graph_fuses_them(variant, memory, is_free):
    layer = decode_class(variant, memory, 0.9)
    small = decode_class(f"{variant}/routing", memory, 0.9)
    assert small.layer_s == pytest.approx(0.0 if is_free else layer.layer_s / 20)
