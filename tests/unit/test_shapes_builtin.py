"""Built-in shapes: parameter counts against the counts their publishers state."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.workload.shape import ModelShape
from sim.workload.shapes import builtin, builtin_names, mean_keys, parameters, windowed_layers

# numel of the published checkpoints (safetensors metadata or the authors' own count)
PUBLISHED_EXACT = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
    "vit-s-16": 22_050_664,
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neo-2.7b": 2_651_307_520,
    "gpt-neox-20b": 20_554_567_680,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "falcon-7b": 6_921_720_704,
    "falcon-180b": 179_522_565_120,
    "mpt-7b": 6_649_286_656,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "glm-4-9b": 9_399_951_360,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "tinyllama-1.1b": 1_100_048_384,
    "mistral-7b": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "yi-34b": 34_388_917_248,
    "qwen2-0.5b": 494_032_768,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "phi-3.5-moe": 41_873_153_344,
    "olmoe-1b-7b": 6_919_161_856,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "smollm3-3b": 3_075_098_624,
    "open-llama-3b": 3_426_473_600,
    "internlm2-1.8b": 1_889_110_016,
    "internlm2-7b": 7_737_708_544,
    "internlm3-8b": 8_804_241_408,
    "yi-9b": 8_829_407_232,
    "baichuan-7b": 7_000_559_616,
    "baichuan2-7b": 7_505_973_248,
    "baichuan2-13b": 13_896_668_160,
    "codellama-13b": 13_016_028_160,
    "deepseek-llm-7b": 6_910_365_696,
    "deepseek-coder-6.7b": 6_740_512_768,
    "deepseek-coder-33b": 33_342_991_360,
    "ministral-8b": 8_019_808_256,
    "mistral-small-22b": 22_247_282_688,
    "solar-10.7b": 10_731_524_096,
    "falcon-3-7b": 7_455_550_464,
    "falcon-3-10b": 10_305_653_760,
    "phi-4-mini": 3_836_021_760,
    "granite-3-2b": 2_533_531_648,
    "granite-3-8b": 8_170_848_256,
    "minicpm-2b": 2_724_880_896,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "command-r-35b": 34_980_831_232,
    "command-r-plus-104b": 103_810_674_688,
    "qwen-1.8b": 1_836_828_672,
    "qwen1.5-1.8b": 1_836_828_672,
    "qwen1.5-4b": 3_950_369_280,
    "qwen1.5-32b": 32_512_218_112,
    "qwen1.5-110b": 111_209_914_368,
    "qwen2-vl-2b": 2_208_985_600,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen2.5-vl-72b": 73_410_777_344,
    "dbrx": 131_596_523_520,
    "chatglm-6b": 6_173_286_400,
    "bert-base": 109_514_298,
    "starcoder-15b": 15_517_456_384,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "starcoder2-15b": 15_957_889_024,
    "gpt-neo-125m": 125_198_592,
    "pythia-70m": 70_426_624,
    "bloom-1b7": 1_722_408_960,
    "gemma-3-270m": 268_098_176,
    "bert-large": 335_174_458,
}
# rounded counts as printed in the papers, billions
PUBLISHED_ROUNDED = {
    "gpt3-175b": 174.6,
    "megatron-1.7b": 1.7,
    "megatron-3.6b": 3.6,
    "megatron-7.5b": 7.5,
    "megatron-18b": 18.4,
    "megatron-39b": 39.1,
    "megatron-76b": 76.1,
    "megatron-145b": 145.6,
    "megatron-310b": 310.1,
    "megatron-530b": 529.6,
    "megatron-1t": 1008.0,
    "megatron-22b": 22.0,
    "megatron-8.3b": 8.3,
    "deepseek-v3": 671.0,
    "qwen2-57b-a14b": 57.4,
    "llama-65b": 65.2,
    "llama-30b": 32.5,
    "deepseek-llm-67b": 67.4,
    "glm-4-32b": 32.6,
    "qwen3-coder-480b-a35b": 480.2,
    "llama-4-scout": 107.8,  # 109 with the vision tower
    "llama-4-maverick": 400.7,
    "glm-4.5": 352.8,  # 355 with the layer that predicts two tokens
    "glm-4.5-air": 106.9,
    "kimi-k2": 1026.4,
}
# parameters visited by one token, billions
PUBLISHED_ACTIVE = {
    "mixtral-8x7b": 12.9,
    "mixtral-8x22b": 39.0,
    "deepseek-v2": 21.0,
    "deepseek-v3": 37.0,
    "qwen2-57b-a14b": 14.0,
    "qwen3-30b-a3b": 3.3,
    "qwen3-235b-a22b": 22.0,
    "phi-3.5-moe": 6.6,
    "olmoe-1b-7b": 1.3,
    "dbrx": 36.0,
    "llama-4-scout": 17.0,
    "llama-4-maverick": 17.0,
    "qwen3-coder-480b-a35b": 35.0,
}


@pytest.mark.parametrize("name", PUBLISHED_EXACT)
def test_count_equals_the_published_checkpoint(name: str) -> None:
    assert parameters(builtin(name)).total == PUBLISHED_EXACT[name]


@pytest.mark.parametrize("name", PUBLISHED_ROUNDED)
def test_count_rounds_to_the_printed_one(name: str) -> None:
    assert parameters(builtin(name)).total / 1e9 == pytest.approx(PUBLISHED_ROUNDED[name], rel=0.005, abs=0.05)


@pytest.mark.parametrize("name", PUBLISHED_ACTIVE)
def test_active_parameters_agree_with_the_papers(name: str) -> None:
    assert parameters(builtin(name)).active / 1e9 == pytest.approx(PUBLISHED_ACTIVE[name], rel=0.03)


@pytest.mark.parametrize("name", builtin_names())
def test_parts_add_up_and_every_row_has_a_source(name: str) -> None:
    shape = builtin(name)
    count = parameters(shape)
    parts = count.embedding + count.head + count.final_norm + count.layers + shape.extra_parameters
    assert parts == count.total
    assert count.dense_layers + count.moe_layers == shape.layers
    assert (count.active < count.total) == (shape.experts > 0)
    assert shape.source
    assert shape.hidden % shape.heads == 0 or shape.head_dim


def test_a_layer_counted_by_hand() -> None:
    shape = ModelShape(layers=1, hidden=8, heads=2, kv_heads=1, ffn=16, vocabulary=10)
    count = parameters(shape)
    assert count.attention == 8 * 8 + 2 * 8 * 4 + 8 * 8  # q, k and v of one head of 4, o
    assert count.mlp == 3 * 8 * 16
    assert count.norm == 2 * 8
    assert count.total == 2 * 10 * 8 + 8 + count.dense_layer


def test_names_are_found_in_any_spelling() -> None:
    assert builtin("meta-llama/Llama-2-13b-hf") == builtin("llama-2-13b")
    assert builtin("Llama_2_13B") == builtin("llama-2-13b")


@pytest.mark.parametrize(
    ("published", "name"),
    [
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("allenai/OLMo-2-1124-7B", "olmo-2-7b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("internlm/internlm2_5-7b-chat", "internlm2-7b"),
        ("lmsys/vicuna-7b-v1.5", "llama-2-7b"),
        ("gpt-oss:20b", "gpt-oss-20b"),
    ],
)
def test_names_are_found_as_their_publishers_write_them(published: str, name: str) -> None:
    assert builtin(published).name == name


@pytest.mark.parametrize("quantised", ["unsloth/llama-3-8b-bnb-4bit", "llama3:8b-instruct-q4_K_M", "llama-3-8b-gptq"])
def test_a_quantised_file_is_not_read_as_the_plain_model(quantised: str) -> None:
    with pytest.raises(InputError, match="write llama-3-8b, and how it is stored with `weights`"):
        builtin(quantised)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean llama-2-1?3?7?b?"):
        builtin("llama-2-12b")


@pytest.mark.parametrize(("sequence", "keys"), [(100, 50), (128, 64), (256, 128 - 32), (12800, 128 - 0.64)])
def test_queries_of_a_causal_window_see_the_keys_that_exist(sequence, keys):
    """Of 128 keys the i-th query sees min(i, 128): summed over the sequence, without the half of the diagonal."""
    shape = builtin("gpt-oss-20b")
    full, windowed = mean_keys(shape, sequence, 0.5)
    assert full == sequence / 2
    assert windowed == pytest.approx(keys)
    assert windowed_layers(shape) == 0.5
    assert windowed_layers(builtin("llama-2-7b")) == 0.0


# llm-foundry scripts/train/benchmarking/README.md: size, sequence length, model TFLOP/s, tokens/s, per A100 80 GB
@pytest.mark.parametrize(
    ("size", "sequence", "tflops", "tokens"),
    [("70b", 2048, 166, 410), ("30b", 4096, 160, 814), ("30b", 512, 175, 967), ("70b", 2048, 151, 373)],
)
def test_mpt_shapes_do_the_work_that_their_publisher_counts(size, sequence, tflops, tokens):
    """6 FLOPs per parameter and 12 per layer, width and token of the sequence, for each token."""
    shape = builtin(f"mpt-{size}")
    each = 6 * parameters(shape).total + 12 * shape.layers * shape.hidden * sequence
    assert tflops * 1e12 / tokens == pytest.approx(each, rel=0.01)
