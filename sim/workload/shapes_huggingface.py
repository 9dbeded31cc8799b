"""A Hugging Face config.json, read as a model shape: an alias table and one entry per architecture, no code executed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from sim.errors import Fault, InputError
from sim.workload.shape import ModelShape

Config = Mapping[str, Any]

#: our field -> names it has had in config.json files, in order of preference
ALIASES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "model_dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels"),
    "ffn": ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "dense_ffn_hidden_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "max_positions": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "num_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "topk", "num_experts_per_token", "experts_per_token", "moe_topk"),
    "expert_ffn": ("moe_intermediate_size", "expert_intermediate_size"),
    "num_shared_experts": ("n_shared_experts", "num_shared_experts"),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
}
_BIASED = {"attention_bias": True, "output_bias": True, "mlp_bias": True}
_GPT = {"mlp": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True, **_BIASED}

#: model_type -> what the architecture fixes; every other field comes from the file or the defaults of ModelShape.
#: `tied_embeddings` here is the default of the architecture when the file is silent.
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "llama": {}, "mistral": {}, "mixtral": {}, "phi3": {}, "internlm2": {}, "yi": {}, "olmoe": {}, "granite": {},
    "baichuan": {}, "deepseek": {}, "smollm3": {}, "internlm3": {},
    "glm": {"attention_bias": True}, "glm4": {"norms_per_layer": 4},
    "cohere": {"norm": "layernorm", "norm_bias": False, "norms_per_layer": 1, "tied_embeddings": True},
    "qwen": {"attention_bias": True, "halve_ffn": True},
    "qwen2": {"attention_bias": True}, "qwen2_moe": {"attention_bias": True, "shared_expert_gate": True},
    "qwen3": {"qk_norm": True}, "qwen3_moe": {"qk_norm": True},
    "deepseek_v2": {"attention_type": "mla"}, "deepseek_v3": {"attention_type": "mla", "router_bias": True},
    "phimoe": {"norm": "layernorm"},
    "gpt_oss": {"attention_bias": True, "output_bias": True, "mlp_bias": True, "router_bias": True, "attention_sinks": True},
    "gemma": {"tied_embeddings": True}, "gemma2": {"tied_embeddings": True, "norms_per_layer": 4},
    "gemma3_text": {"tied_embeddings": True, "norms_per_layer": 4, "qk_norm": True},
    "gpt2": _GPT, "opt": _GPT | {"position_offset": 2},
    "gpt_neo": _GPT | {"attention_bias": False},
    "gptj": {"mlp": "gelu", "norm": "layernorm", "norms_per_layer": 1, "mlp_bias": True, "head_bias": True},
    "gpt_neox": {"mlp": "gelu", "norm": "layernorm", **_BIASED},
    "phi": {"mlp": "gelu", "norm": "layernorm", "norms_per_layer": 1, "head_bias": True, **_BIASED},
    "falcon": {"mlp": "gelu", "norm": "layernorm", "tied_embeddings": True},
    "bloom": {"mlp": "gelu", "norm": "layernorm", "position": "alibi", "tied_embeddings": True, "embedding_norm": True,
              **_BIASED},
    "mpt": {"mlp": "gelu", "norm": "layernorm", "norm_bias": False, "position": "alibi", "tied_embeddings": True},
    "starcoder2": {"mlp": "gelu", "norm": "layernorm", "tied_embeddings": True, **_BIASED},
    "chatglm": {"attention_bias": True},
    "bert": _GPT | {"embedding_norm": True, "head_bias": True, "causal": False},
    "openmoe": {},
}  # fmt: skip
_UNSUPPORTED = {
    "qwen3_next": "linear attention in three of four layers", "mamba": "a state-space model", "jamba": "state-space layers",
    "t5": "an encoder-decoder", "bart": "an encoder-decoder", "whisper": "an encoder-decoder", "clip": "two towers",
}  # fmt: skip
_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8"}
_QUANTISED = {"fp8": "fp8", "mxfp4": "mxfp4", "bitsandbytes": "nf4"}
#: of layers with windows, every n-th sees all, where a file does not say
_FULL_EVERY = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6}
_FIRST_PARTY = {"OpenMoeForCausalLM": "openmoe"}


def shape_of(config: Config, name: str = "") -> ModelShape:
    """The shape that a parsed config.json describes.

    Multimodal files are read by their `text_config`. Raises InputError for an architecture that is unknown or that has
    parts which are not modelled, and for missing keys; every fault is reported at once.
    """
    config = config.get("text_config") or config
    architecture = _architecture(config)
    form = dict(ARCHITECTURES[architecture])
    values = _read(config, architecture)
    offset, halve = form.pop("position_offset", 0), form.pop("halve_ffn", False)
    values["max_positions"] += offset
    if halve:
        values["ffn"] //= 2  # the file gives the width of both gated halves together
    fields = form | values | _biases(config, architecture) | _experts(config, values, architecture)
    fields["tied_embeddings"] = config.get("tie_word_embeddings", form.get("tied_embeddings", False))
    fields["weight_dtype"] = _dtype(config)
    fields |= _special(config, architecture, fields) | _window(config, architecture, int(values["layers"]))
    label = name or str(config.get("_name_or_path") or architecture)
    return ModelShape(name=label, source=f"config.json of {label}", **fields)


def _architecture(config: Config) -> str:
    declared = [str(a) for a in config.get("architectures") or ()]
    kind = str(config.get("model_type") or next((_FIRST_PARTY[a] for a in declared if a in _FIRST_PARTY), ""))
    if any(a.startswith("Qwen3Moe") for a in declared):
        kind = "qwen3_moe"  # some copies keep the model_type of the generation before
    if "linear_num_value_heads" in config or "full_attention_interval" in config:
        kind = "qwen3_next"
    if kind in ARCHITECTURES:
        return kind
    if kind in _UNSUPPORTED:
        raise InputError(
            Fault(
                what=f"architecture {kind!r} is not modelled ({_UNSUPPORTED[kind]})",
                path="model_type",
                remedy="describe the nearest decoder transformer as an inline shape",
            )
        )
    close = difflib.get_close_matches(kind, ARCHITECTURES, n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(
        Fault(
            what=f"unknown architecture {kind or declared or 'without model_type'!r}",
            path="model_type",
            remedy=f"{hint}known are {', '.join(ARCHITECTURES)}; or write an inline shape",
        )
    )


def _read(config: Config, architecture: str) -> dict[str, Any]:
    """Dimensions of the file under our names; missing mandatory ones are faults."""
    found = {ours: next((config[key] for key in keys if config.get(key) is not None), None) for ours, keys in ALIASES.items()}
    faults: list[Fault] = []
    for ours, value in found.items():
        whole = isinstance(value, (int, float)) and not isinstance(value, bool) and float(value).is_integer() and value >= 0
        if value is not None and not whole:
            keys = " or ".join(k for k in ALIASES[ours] if k in config)
            faults.append(Fault(what=f"expected a whole number, got {value!r}", path=keys, remedy="mend the config.json"))
    missing = [ALIASES[ours][0] for ours in ("layers", "hidden", "heads", "vocabulary") if found[ours] is None]
    faults += [Fault(what=f"no {key!r}", path=key, remedy="is this a model's config.json?") for key in missing]
    if faults:
        raise InputError(faults)
    values = {ours: int(value) for ours, value in found.items() if value is not None}
    values.pop("num_shared_experts", None)
    if architecture in ("falcon", "mpt"):
        values["kv_heads"] = _grouped(config, values["heads"], architecture)
    if "ffn" not in values:
        values["ffn"] = int(config.get("expansion_ratio") or 4) * values["hidden"]
    if architecture.startswith("deepseek_v"):
        values["head_dim"] = int(config["qk_nope_head_dim"])
    values.setdefault("max_positions", 0)
    return values


def _grouped(config: Config, heads: int, architecture: str) -> int:
    """Key/value heads of Falcon (multi-query unless the new decoder) and MPT (nested attention options)."""
    if architecture == "mpt":
        return int((config.get("attn_config") or {}).get("kv_n_heads") or heads)
    if config.get("new_decoder_architecture"):
        return int(config.get("num_kv_heads") or heads)
    return 1 if config.get("multi_query", True) else heads


def _biases(config: Config, architecture: str) -> dict[str, bool]:
    """Biases that the file switches on or off, where the architecture leaves it to the file."""
    switches: dict[str, bool] = {}
    if architecture in ("llama", "granite", "qwen3", "qwen3_moe", "phimoe", "gpt_oss", "deepseek"):
        for key in ("attention_bias", "qkv_bias"):
            if key in config:
                switches |= {"attention_bias": bool(config[key]), "output_bias": bool(config[key])}
    if "mlp_bias" in config:
        switches["mlp_bias"] = bool(config["mlp_bias"])
    if "lm_head_bias" in config:
        switches["head_bias"] = bool(config["lm_head_bias"])
    if architecture == "falcon" and config.get("bias"):
        switches |= _BIASED
    if architecture == "starcoder2" and config.get("use_bias") is False:
        switches |= dict.fromkeys(_BIASED, False)
    return switches


def _experts(config: Config, values: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Mixture-of-experts fields: width of an expert, shared experts, which layers are mixtures."""
    if not values.get("experts"):
        return {"experts": 0, "experts_per_token": 0, "expert_ffn": 0, "shared_expert_gate": False, "router_bias": False}
    expert = values.get("expert_ffn") or values["ffn"]
    num_shared = next((int(config[k]) for k in ALIASES["num_shared_experts"] if config.get(k)), 0)
    shared = int(config.get("shared_expert_intermediate_size") or num_shared * expert)
    layers = int(values["layers"])
    moe = layers - int(config.get("first_k_dense_replace") or 0)
    step = int(config.get("moe_layer_freq") or config.get("decoder_sparse_step") or 1)
    if config.get("moe_layer_interval"):
        step = int(config["moe_layer_interval"])
    if step > 1:
        moe = layers // step
    moe -= len(config.get("mlp_only_layers") or ())
    fields: dict[str, Any] = {"expert_ffn": expert, "shared_expert_ffn": shared, "moe_layers": moe}
    if int(config.get("n_group") or 1) > 1 and config.get("topk_group"):
        fields["group_share"] = int(config["topk_group"]) / int(config["n_group"])
    if architecture == "qwen2_moe":
        fields["shared_expert_gate"] = shared > 0
    return fields


def _special(config: Config, architecture: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What single architectures add outside the common pattern."""
    hidden, layers = int(fields["hidden"]), int(fields["layers"])
    if architecture == "bert":  # token types beside the positions; the masked-language head has one dense layer
        types = int(config.get("type_vocab_size") or 0)
        return {"max_positions": fields["max_positions"] + types, "extra_parameters": hidden * hidden + hidden}
    if architecture == "olmoe":  # q and k norms over the whole width
        return {"extra_parameters": 2 * layers * hidden}
    if architecture == "openmoe":  # a dense feed-forward beside the experts, with its own norm
        return {"shared_expert_ffn": fields["ffn"], "extra_parameters": int(fields["moe_layers"]) * hidden}
    if architecture == "falcon":
        return {"norms_per_layer": 2 if config.get("new_decoder_architecture") else 1}
    if architecture == "mpt" and config.get("learned_pos_emb") and not (config.get("attn_config") or {}).get("alibi"):
        return {"position": "learned"}
    return {}


def _window(config: Config, architecture: str, layers: int) -> dict[str, int]:
    """Sliding window, and which layers see everything: listed, by a pattern, or as the architecture is built."""
    window = config.get("sliding_window")
    if not isinstance(window, int) or isinstance(window, bool) or window <= 0 or config.get("use_sliding_window") is False:
        return {}
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        full = sum(kind == "full_attention" for kind in kinds)
        return {"sliding_window": window, "full_attention_every": max(1, round(layers / full)) if full else 0}
    every = int(config.get("sliding_window_pattern") or _FULL_EVERY.get(architecture, 0))
    return {"sliding_window": window, "full_attention_every": every}


def _dtype(config: Config) -> str:
    quantised = (config.get("quantization_config") or {}).get("quant_method")
    if quantised in _QUANTISED:
        return _QUANTISED[quantised]
    return _DTYPES.get(str(config.get("torch_dtype") or config.get("dtype")).removeprefix("torch."), "bf16")
