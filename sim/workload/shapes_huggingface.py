"""A Hugging Face config.json, read as a model shape: an alias table and one entry per architecture, no code executed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from sim.errors import Fault, InputError
from sim.workload.architectures import (
    ALIASES,
    ARCHITECTURES,
    BIASED,
    FIRST_PARTY,
    FULL_EVERY,
    MARKS,
    SAME,
    UNSUPPORTED,
)
from sim.workload.shape import ModelShape
from sim.workload.shapes_mixture import Config, experts, is_whole, mapping, whole

_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8"}
_QUANTISED = {"fp8": "fp8", "mxfp4": "mxfp4", "bitsandbytes": "nf4"}
#: where models of several modalities keep the language model
_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
#: dimensions that no model lacks
_AT_LEAST_ONE = ("layers", "hidden", "heads", "vocabulary", "kv_heads", "head_dim")
#: layers that are attention, of those that `layer_types` may name
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention")


def shape_of(config: Config, name: str = "") -> ModelShape:
    """The shape that a parsed config.json describes.

    Multimodal files are read by their language model; the source says so. Raises InputError for an architecture that is
    unknown or that has parts which are not modelled, and for missing keys; every fault is reported at once.
    """
    whole, config = config, _language_part(_published_by_meta(config))
    architecture = _architecture(config)
    config = _flat(config, architecture)
    form = dict(ARCHITECTURES[architecture])
    values = _read(config, architecture)
    offset, halve = form.pop("position_offset", 0), form.pop("halve_ffn", False)
    values["max_positions"] += offset
    if halve:
        values["ffn"] //= 2  # the file gives the width of both gated halves together
    fields = form | values | _biases(config, architecture) | experts(config, values, form, architecture)
    fields["tied_embeddings"] = bool(config.get("tie_word_embeddings", form.get("tied_embeddings", False)))
    fields["weight_dtype"] = _dtype(config if "quantization_config" in config else whole)
    fields |= _special(config, architecture, fields)
    fields |= _window(config, architecture, int(values["layers"]))
    label = name or str(config.get("_name_or_path") or architecture)
    part = "" if config is whole or config.get("model_type") == whole.get("model_type") else ", its language model"
    return ModelShape(name=label, source=f"config.json of {label}{part}", **fields)


def _published_by_meta(config: Config) -> Config:
    """The params.json beside Meta's and Mistral's own weights, under the usual names; any other file as it is."""
    if "model_type" in config or not all(is_whole(config.get(key)) for key in ("dim", "n_layers", "n_heads")):
        return config
    width, multiple = whole(config, "hidden_dim"), max(1, whole(config, "multiple_of", 256))
    if not width:
        factor = config.get("ffn_dim_multiplier")
        wanted = int(int(8 * config["dim"] / 3) * (factor if isinstance(factor, int | float) and 0 < factor < 100 else 1.0))
        width = -(-wanted // multiple) * multiple
    vocabulary = config.get("vocab_size")
    named = {"model_type": "llama", "hidden_size": config["dim"], "intermediate_size": width,
             "num_key_value_heads": config.get("n_kv_heads"), "vocab_size": 32000 if vocabulary == -1 else vocabulary,
             "tie_word_embeddings": bool(config.get("tied_embeddings"))}  # fmt: skip
    mixture = mapping(config, "moe")
    if mixture:
        named |= {"model_type": "mixtral", "num_local_experts": mixture.get("num_experts"),
                  "num_experts_per_tok": mixture.get("num_experts_per_tok")}  # fmt: skip
    return dict(config) | named


def _language_part(config: Config) -> Config:
    for _ in range(2):  # thinker_config holds a text_config
        part = next((config[key] for key in _PARTS if isinstance(config.get(key), Mapping)), None)
        if part is None or "num_hidden_layers" in config:
            return config
        if "model_type" not in part and part:  # old files leave it to the whole
            part = {"model_type": "llama" if config.get("model_type") == "llava" else config.get("model_type")} | dict(part)
        if "tie_word_embeddings" in config and "tie_word_embeddings" not in part:
            part = dict(part) | {"tie_word_embeddings": config["tie_word_embeddings"]}
        config = part
    return config


def _architecture(config: Config) -> str:
    declared = config.get("architectures")
    declared = [str(a) for a in declared] if isinstance(declared, list) else []
    kind = str(config.get("model_type") or next((FIRST_PARTY[a] for a in declared if a in FIRST_PARTY), ""))
    if any(a.startswith("Qwen3Moe") for a in declared):
        kind = "qwen3_moe"  # some copies keep the model_type of the generation before
    kind = SAME.get(kind, kind)
    kinds = config.get("layer_types")
    others = sorted({str(k) for k in kinds} - {*_ATTENTION}) if isinstance(kinds, list) else []
    is_plain = kind == "granitemoehybrid" and isinstance(kinds, list) and not others
    marked = next((other for key, other in MARKS.items() if config.get(key) and not is_plain), "")
    if kind in UNSUPPORTED or marked or others or config.get("is_encoder_decoder") is True:
        what = (
            UNSUPPORTED.get(kind)
            or UNSUPPORTED.get(marked)
            or (f"layers of {', '.join(others)[:60]}" if others else "an encoder-decoder")
        )
        raise InputError(
            Fault(
                what=f"architecture {kind or marked!r} is not modelled ({what})",
                path="model_type",
                remedy="describe the nearest decoder transformer as an inline shape",
            )
        )
    if kind in ARCHITECTURES:
        return kind
    close = difflib.get_close_matches(kind, (*ARCHITECTURES, *SAME), n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(
        Fault(
            what=f"unknown architecture {kind[:60] or declared[:2] or 'without model_type'!r}",
            path="model_type",
            remedy=f"{hint}{len(ARCHITECTURES)} are known (docs/interchange.md lists them); else write an inline shape",
        )
    )


def _flat(config: Config, architecture: str) -> Config:
    """The nested options of DBRX under the usual names."""
    if architecture != "dbrx":
        return config
    attention, forward = mapping(config, "attn_config"), mapping(config, "ffn_config")
    named = {"num_key_value_heads": attention.get("kv_n_heads"), "intermediate_size": forward.get("ffn_hidden_size"),
             "num_experts": forward.get("moe_num_experts"), "num_experts_per_tok": forward.get("moe_top_k")}  # fmt: skip
    return dict(config) | {key: value for key, value in named.items() if value is not None}


def _read(config: Config, architecture: str) -> dict[str, Any]:
    """Dimensions of the file under our names; missing mandatory ones are faults."""
    found = {ours: next((config[key] for key in keys if config.get(key) is not None), None) for ours, keys in ALIASES.items()}
    faults: list[Fault] = []
    for ours, value in found.items():
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            found[ours] = value = value[0]  # one for each layer, all alike
        is_too_small = value == 0 and ours in _AT_LEAST_ONE
        if value is not None and (not is_whole(value) or is_too_small):
            keys = " or ".join(k for k in ALIASES[ours] if k in config)
            shown = repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "..."
            faults.append(
                Fault(
                    what=f"expected a whole number{' of at least 1' * is_too_small}, got {shown}",
                    path=keys,
                    remedy="mend the config.json",
                )
            )
    missing = [ALIASES[ours][0] for ours in ("layers", "hidden", "heads", "vocabulary") if found[ours] is None]
    faults += [Fault(what=f"no {key!r}", path=key, remedy="is this a model's config.json?") for key in missing]
    if ARCHITECTURES[architecture].get("attention_type") == "mla":
        found["head_dim"] = config.get("qk_nope_head_dim")
        if not is_whole(found["head_dim"]):
            faults.append(Fault(what="no whole 'qk_nope_head_dim'", path="qk_nope_head_dim", remedy="mend the config.json"))
    narrow = next((k for k in ("word_embed_proj_dim", "embedding_size") if is_whole(config.get(k))), "")
    if narrow and not missing and config[narrow] != found["hidden"]:
        what = f"embeddings of width {config[narrow]} in a model of width {found['hidden']} are not modelled"
        faults.append(Fault(what=what, path=narrow, remedy="write an inline shape"))
    if faults:
        raise InputError(faults)
    values = {ours: int(value) for ours, value in found.items() if value is not None}
    values.pop("num_shared_experts", None)
    if architecture in ("falcon", "mpt", "gpt_bigcode", "chatglm"):
        values["kv_heads"] = _grouped(config, values, architecture)
    if "ffn" not in values:
        ratio = config.get("expansion_ratio")
        values["ffn"] = int((ratio if isinstance(ratio, int | float) and 0 < ratio < 1e6 else 4) * values["hidden"])
    values.setdefault("max_positions", 0)
    return values


def _grouped(config: Config, values: Mapping[str, int], architecture: str) -> int:
    """Key/value heads of Falcon (multi-query unless the new decoder), MPT (nested options), StarCoder and ChatGLM."""
    heads = values["heads"]
    if architecture == "mpt":
        return whole(mapping(config, "attn_config"), "kv_n_heads", heads)
    if architecture == "chatglm":
        return values.get("kv_heads", heads) if config.get("multi_query_attention", True) else heads
    if architecture == "falcon" and config.get("new_decoder_architecture"):
        return values.get("kv_heads", heads)
    return 1 if config.get("multi_query", True) else heads


def _biases(config: Config, architecture: str) -> dict[str, bool]:
    """Biases that the file switches on or off, where the architecture leaves it to the file."""
    switches: dict[str, bool] = {}
    if architecture in ("internlm", "internlm2", "ernie4_5", "ernie4_5_moe") and (config.get("bias") or config.get("use_bias")):
        switches |= {"attention_bias": True, "output_bias": True, "mlp_bias": architecture.startswith("ernie")}
    elif architecture in (
        "glm4",
        "glm4_moe",
        "solar_open",
        "helium",
        "cohere",
        "olmo3",
        "seed_oss",
        "mimo",
        "chatglm",
        "stablelm",
        "bailing_moe",
    ):
        key = next((key for key in ("attention_bias", "add_qkv_bias", "use_qkv_bias") if key in config), "")
        if key:
            switches["attention_bias"] = bool(config[key])
        switches["output_bias"] = bool(config.get("attention_out_bias") or config.get("add_bias_linear"))
        if architecture == "cohere":
            switches["output_bias"] = bool(config.get("attention_bias"))
    elif architecture not in ("glm", "qwen", "qwen2", "qwen2_moe"):  # those decide by themselves
        for key in ("attention_bias", "qkv_bias"):
            if key in config:
                switches |= {"attention_bias": bool(config[key]), "output_bias": bool(config[key])}
    if "mlp_bias" in config:
        switches["mlp_bias"] = bool(config["mlp_bias"])
    if "lm_head_bias" in config:
        switches["head_bias"] = bool(config["lm_head_bias"])
    if (architecture == "falcon" and config.get("bias")) or (architecture == "chatglm" and config.get("add_bias_linear")):
        switches |= BIASED
    if architecture == "starcoder2" and config.get("use_bias") is False:
        switches |= dict.fromkeys(BIASED, False)
    return switches


def _special(config: Config, architecture: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What single architectures add outside the common pattern."""
    hidden, layers, heads = int(fields["hidden"]), int(fields["layers"]), int(fields["heads"])
    head = int(fields.get("head_dim") or hidden // max(heads, 1))
    both = (heads + int(fields.get("kv_heads") or heads)) * head  # queries and keys of a token
    if architecture in ("bert", "roberta", "distilbert"):  # token types beside the positions; the head has one dense layer
        types = 0 if architecture == "distilbert" else whole(config, "type_vocab_size")
        return {"max_positions": fields["max_positions"] + types, "extra_parameters": hidden * hidden + hidden}
    if architecture in ("olmoe", "olmo2", "olmo3", "flex_olmo", "minimax_m2"):  # q and k norms over the whole width
        return {"extra_parameters": layers * both}
    if architecture in ("cohere", "stablelm") and (config.get("use_qk_norm") or config.get("qk_layernorm")):
        return {"extra_parameters": layers * both} | _parallel(config, architecture)
    if architecture in ("phi", "persimmon") and config.get("qk_layernorm", architecture == "persimmon"):
        return {"extra_parameters": layers * 4 * head}
    if architecture == "bitnet":  # norms inside the attention and the feed-forward layer
        return {"extra_parameters": layers * (hidden + int(fields["ffn"]))}
    if architecture == "apertus":  # two scalars of the activation
        return {"extra_parameters": 2 * layers}
    if architecture in ("glm4_moe", "solar_open"):
        return {"qk_norm": bool(config.get("use_qk_norm"))}
    if architecture == "bailing_moe":
        return {"qk_norm": bool(config.get("use_qk_norm")), "attention_bias": bool(config.get("use_qkv_bias"))}
    if architecture == "openmoe":  # a dense feed-forward beside the experts, with its own norm
        return {"shared_expert_ffn": fields["ffn"], "extra_parameters": int(fields["moe_layers"]) * hidden}
    if architecture == "mpt" and config.get("learned_pos_emb") and not mapping(config, "attn_config").get("alibi"):
        return {"position": "learned"}
    return _parallel(config, architecture)


def _parallel(config: Config, architecture: str) -> dict[str, Any]:
    """Norms of a layer, where attention and feed-forward may stand side by side behind one."""
    if architecture == "falcon":
        if config.get("new_decoder_architecture"):
            return {"norms_per_layer": min(2, whole(config, "num_ln_in_parallel_attn", 2))}
        return {"norms_per_layer": 1 if config.get("parallel_attn", True) else 2}
    if architecture == "stablelm" and config.get("use_parallel_residual"):
        return {"norms_per_layer": 1}
    return {}


def _window(config: Config, architecture: str, layers: int) -> dict[str, int]:
    """Sliding window, and which layers see everything: listed, by a pattern, or as the architecture is built."""
    window = config.get("attention_chunk_size" if architecture == "llama4_text" else "sliding_window")
    if not isinstance(window, int) or isinstance(window, bool) or window <= 0 or config.get("use_sliding_window") is False:
        return {}
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        full = sum(kind == "full_attention" for kind in kinds)
        if full == len(kinds):
            return {}
        return {"sliding_window": window, "full_attention_every": max(1, round(layers / full)) if full else 0}
    if architecture == "llama4_text":
        return {"sliding_window": window, "full_attention_every": whole(config, "no_rope_layer_interval", 4)}
    pattern = config.get("sliding_window_pattern")
    pattern = len(pattern) if isinstance(pattern, str) else whole(config, "sliding_window_pattern")
    return {"sliding_window": window, "full_attention_every": pattern or FULL_EVERY.get(architecture, 0)}


def _dtype(config: Config) -> str:
    quantised = str(mapping(config, "quantization_config").get("quant_method"))
    if quantised in _QUANTISED:
        return _QUANTISED[quantised]
    return _DTYPES.get(str(config.get("torch_dtype") or config.get("dtype")).removeprefix("torch."), "bf16")
