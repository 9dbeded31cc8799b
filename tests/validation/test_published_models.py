"""config.json of published models: their parameters to the last one, and a clear refusal of what is not modelled."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.errors import InputError
from sim.workload.architectures import ARCHITECTURES, MARKS, SAME, UNSUPPORTED
from sim.workload.shapes import from_huggingface, parameters

MODELS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "published_models.yaml").read_text())
LLAMA = MODELS["Meta-Llama-3.1-8B"]["config"]


@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_a_published_model(name: str) -> None:
    model = MODELS[name]
    assert parameters(from_huggingface(model["config"])).total == model["total"]


def test_the_table_covers_most_architectures() -> None:
    kinds = {config.get("text_config", config)["model_type"] for config in (model["config"] for model in MODELS.values())}
    kinds = {SAME.get(kind, kind) for kind in kinds}
    assert len(kinds & set(ARCHITECTURES)) >= 55


@pytest.mark.parametrize("kind", sorted(UNSUPPORTED))
def test_what_is_not_modelled_is_said(kind: str) -> None:
    with pytest.raises(InputError, match="is not modelled") as caught:
        from_huggingface(LLAMA | {"model_type": kind})
    assert UNSUPPORTED[kind] in str(caught.value)


@pytest.mark.parametrize("key", sorted(MARKS))
def test_layers_of_another_kind_are_seen_under_a_known_name(key: str) -> None:
    with pytest.raises(InputError, match="is not modelled"):
        from_huggingface(LLAMA | {key: 16})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_types": ["full_attention", "conv"]}, "layers of conv"),
        ({"is_encoder_decoder": True}, "an encoder-decoder"),
        ({"embedding_size": 128}, "embeddings of width 128 in a model of width 4096"),
        ({"model_type": "mixtral", "num_local_experts": 8, "first_k_dense_replace": "x"}, "first_k_dense_replace: expected"),
        ({"num_key_value_heads": [8, 4]}, "num_key_value_heads: expected a whole number"),
        ({"model_type": "deepseek_v3"}, "no whole 'qk_nope_head_dim'"),
        ({"model_type": "deepseek_v3", "qk_nope_head_dim": "128"}, "no whole 'qk_nope_head_dim'"),
        ({"num_attention_heads": 0}, "num_attention_heads: expected a whole number of at least 1, got 0"),
        ({"num_hidden_layers": float("inf")}, "num_hidden_layers: expected a whole number"),
        ({"vocab_size": float("nan")}, "vocab_size: expected a whole number"),
    ],
)
def test_what_would_be_misread_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_huggingface(LLAMA | change)


def test_values_listed_for_each_layer_are_one_value_where_all_agree() -> None:
    assert from_huggingface(LLAMA | {"num_key_value_heads": [8] * 32}) == from_huggingface(LLAMA)


def test_the_language_model_of_a_larger_one_is_said_to_be_a_part() -> None:
    shape = from_huggingface(
        {"model_type": "gemma3", "text_config": MODELS["gemma-3-1b-pt"]["config"], "vision_config": {}}, "g"
    )
    assert parameters(shape).total == MODELS["gemma-3-1b-pt"]["total"]
    assert shape.source == "config.json of g, its language model"


def test_the_tie_of_a_whole_holds_for_its_part() -> None:
    whole = {"model_type": "llava", "tie_word_embeddings": True, "text_config": LLAMA | {"tie_word_embeddings": None}}
    part = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    assert from_huggingface(whole | {"text_config": part}).tied_embeddings


@pytest.mark.parametrize(
    ("params", "total"),
    [
        ({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
          "ffn_dim_multiplier": 1.3, "norm_eps": 1e-5, "rope_theta": 500000.0}, 8_030_261_248),
        ({"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64, "n_kv_heads": 8, "n_layers": 80,
          "vocab_size": -1}, 68_976_648_192),
        ({"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-6, "vocab_size": -1}, 6_738_415_616),
        ({"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
          "vocab_size": 32000}, 7_241_732_096),
        ({"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
          "vocab_size": 32000, "moe": {"num_experts": 8, "num_experts_per_tok": 2}}, 46_702_792_704),
    ],
)  # fmt: skip
def test_params_json_of_the_publishers(params: dict[str, Any], total: int) -> None:
    """Llama 3 8B, Llama 2 70B, Llama 7B, Mistral 7B, Mixtral 8x7B."""
    assert parameters(from_huggingface(params)).total == total
