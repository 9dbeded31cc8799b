"""Mixture-of-experts keys of a Hugging Face config.json, and its values read with care."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import Fault, InputError
from sim.workload.architectures import ALIASES

Config = Mapping[str, Any]


def mapping(config: Config, key: str) -> Config:
    """The mapping at the key; an empty one where there is none."""
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def is_whole(value: object) -> bool:
    """Whether it is a whole number of at least 0, also written as a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15 and value == int(value)


def whole(config: Config, key: str, default: int = 0) -> int:
    """The whole number at the key; the default where it is absent, null or false. Raises InputError."""
    value = config.get(key)
    if value is None or value is False:
        return default
    if not is_whole(value):
        fault = Fault(what=f"expected a whole number, got {str(value)[:60]!r}", path=key, remedy="mend the config.json")
        raise InputError(fault)
    return int(value)


def experts(config: Config, values: Mapping[str, Any], form: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Mixture-of-experts fields: width of an expert, shared experts, which layers are mixtures."""
    num_shared = next((_each(config, key) for key in ALIASES["num_shared_experts"] if config.get(key)), 0)
    if not values.get("experts") or (architecture.startswith("hunyuan") and values["experts"] == 1):
        none = {"experts": 0, "experts_per_token": 0, "expert_ffn": 0, "shared_expert_gate": False, "router_bias": False}
        return none | ({"ffn": whole(config, "shared_intermediate_size")} if architecture == "granitemoehybrid" else {})
    expert = values.get("expert_ffn") or values["ffn"]
    if architecture == "llama4_text":
        expert, num_shared = whole(config, "intermediate_size"), 1
    shared_keys = ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size")
    shared = next((whole(config, key) for key in shared_keys if config.get(key)), num_shared * int(expert))
    moe = _moe_layers(config, int(values["layers"]), architecture)
    fields: dict[str, Any] = {"expert_ffn": expert, "shared_expert_ffn": shared, "moe_layers": moe}
    groups, taken = whole(config, "n_group", 1), whole(config, "topk_group")
    if groups > 1 and 0 < taken <= groups:
        fields["group_share"] = taken / groups
    if architecture == "qwen2_moe":
        fields["shared_expert_gate"] = shared > 0
    fields["router_bias"] = bool(form.get("router_bias") and config.get("topk_method") in (None, "noaux_tc"))
    return fields


def _each(config: Config, key: str) -> int:
    """A whole number, also where the file lists it once for each layer."""
    value = config[key]
    return whole({key: value[0]} if isinstance(value, list) and value else config, key)


def _moe_layers(config: Config, layers: int, architecture: str) -> int:
    """How many layers are mixtures."""
    listed = config.get("moe_layers")
    if isinstance(listed, list):
        return len(listed)
    frequency, kinds = config.get("moe_layer_freq"), config.get("mlp_layer_types")
    if isinstance(frequency, list) or isinstance(kinds, list):
        return sum(one == "sparse" for one in kinds) if isinstance(kinds, list) else sum(bool(one) for one in frequency or ())
    if architecture == "ernie4_5_moe":
        to_the_end = config.get("moe_layer_end_index") == -1
        first, last = whole(config, "moe_layer_start_index"), layers - 1
        last = last if to_the_end else whole(config, "moe_layer_end_index", last)
        step = max(1, whole(config, "moe_layer_interval", 1))
        return sum((layer + 1) % step == 0 for layer in range(first, min(last, layers - 1) + 1))
    step = next((whole(config, key, 1) for key in ("moe_layer_freq", "decoder_sparse_step", "moe_layer_interval",
                                                    "interleave_moe_layer_step") if config.get(key)), 1)  # fmt: skip
    moe = layers // step if step > 1 else layers - whole(config, "first_k_dense_replace")
    dense = config.get("mlp_only_layers")
    return max(0, moe - (len(dense) if isinstance(dense, list) else 0))
