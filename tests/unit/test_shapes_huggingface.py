"""config.json of the Hugging Face hub -> shape."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sim.errors import InputError
from sim.workload.shapes import builtin, from_huggingface, parameters

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}


def test_llama_equals_the_builtin() -> None:
    shape = from_huggingface(LLAMA)
    assert parameters(shape) == parameters(builtin("llama-2-7b"))
    assert shape.weight_dtype == "fp16"


def test_gpt2_names_and_null_inner_width() -> None:
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_inner": None,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    assert parameters(from_huggingface(config)).total == 124_439_808


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (
            {
                "model_type": "falcon",
                "hidden_size": 4544,
                "num_hidden_layers": 32,
                "num_attention_heads": 71,
                "vocab_size": 65024,
                "multi_query": True,
                "bias": False,
            },
            6_921_720_704,
        ),
        (
            {
                "model_type": "opt",
                "hidden_size": 2048,
                "ffn_dim": 8192,
                "num_hidden_layers": 24,
                "num_attention_heads": 32,
                "vocab_size": 50272,
                "max_position_embeddings": 2048,
            },
            1_315_758_080,
        ),
        (
            {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432, "expansion_ratio": 4},
            6_649_286_656,
        ),
        (
            {
                "model_type": "bloom",
                "hidden_size": 4096,
                "n_layer": 30,
                "num_attention_heads": 32,
                "vocab_size": 250880,
            },
            7_069_016_064,
        ),
        (
            {
                "model_type": "deepseek_v3",
                "hidden_size": 7168,
                "intermediate_size": 18432,
                "moe_intermediate_size": 2048,
                "num_hidden_layers": 61,
                "num_attention_heads": 128,
                "num_key_value_heads": 128,
                "vocab_size": 129280,
                "n_routed_experts": 256,
                "num_experts_per_tok": 8,
                "n_shared_experts": 1,
                "first_k_dense_replace": 3,
                "moe_layer_freq": 1,
                "q_lora_rank": 1536,
                "kv_lora_rank": 512,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
            },
            671_026_419_200,
        ),
    ],
)
def test_other_architectures(config: dict[str, Any], total: int) -> None:
    assert parameters(from_huggingface(config)).total == total


def test_tied_embeddings_default_by_architecture_and_obey_the_file() -> None:
    assert not from_huggingface(LLAMA).tied_embeddings
    assert from_huggingface(LLAMA | {"tie_word_embeddings": True}).tied_embeddings
    assert from_huggingface(LLAMA | {"model_type": "gemma"}).tied_embeddings


def test_multimodal_files_are_read_by_their_text_part() -> None:
    part = from_huggingface({"model_type": "llava", "text_config": LLAMA})
    assert parameters(part) == parameters(from_huggingface(LLAMA))


def test_unknown_architecture_and_missing_keys_are_named() -> None:
    with pytest.raises(InputError, match="unknown architecture 'lama'; did you mean llama"):
        from_huggingface(LLAMA | {"model_type": "lama"})
    with pytest.raises(InputError, match="not modelled"):
        from_huggingface(LLAMA | {"model_type": "t5"})
    with pytest.raises(InputError) as caught:
        from_huggingface({"model_type": "llama", "hidden_size": 8.5})
    assert {fault.path for fault in caught.value.faults} == {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    }


SAMPLES = Path(os.environ.get("TIERSIM_SAMPLE_FILES", "")) / "hf_config"


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="TIERSIM_SAMPLE_FILES not set")
@pytest.mark.parametrize(
    ("file", "billions"),
    [
        ("bert_large_config.json", 0.335),
        ("llmss_llama3.1-70b.json", 70.554),
        ("llmss_phi-mini-moe.json", 7.65),
        ("llmss_qwen3-30b-a3b.json", 30.532),
        ("llmss_qwen3-32b.json", 32.762),
        ("openmoe_8b_config.json", 9.3),
        ("simai_qwen3-235B-A22B_FP8_config.json", 235.09),
        ("simai_qwen3-235B-A22B_config.json", 235.09),
        ("simai_qwen3-8B_config.json", 8.191),
    ],
)
def test_sample_files(file: str, billions: float) -> None:
    shape = from_huggingface(json.loads((SAMPLES / file).read_text()))
    assert parameters(shape).total / 1e9 == pytest.approx(billions, rel=0.002)
    assert shape.weight_dtype == ("fp8" if "FP8" in file else "bf16")


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="TIERSIM_SAMPLE_FILES not set")
def test_sample_with_linear_attention_is_refused() -> None:
    with pytest.raises(InputError, match="linear attention"):
        from_huggingface(json.loads((SAMPLES / "simai_qwen3-next-80B-A3B_config.json").read_text()))
