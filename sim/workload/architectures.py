"""Architectures of Hugging Face config.json files: names of their keys, and what each architecture fixes by itself.

Structures as in transformers' modeling files; those that are not part of it (internlm, baichuan, exaone, minicpm, bailing)
as in the modeling files beside the published weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: our field -> names it has had in config.json files, in order of preference
ALIASES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "model_dim", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "ffn": ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "dense_ffn_hidden_size",
            "hidden_dim", "encoder_ffn_dim"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "max_positions": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "num_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "topk", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k"),
    "expert_ffn": ("moe_intermediate_size", "expert_intermediate_size"),
    "num_shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
}  # fmt: skip
BIASED = {"attention_bias": True, "output_bias": True, "mlp_bias": True}
_GPT = {"mlp": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True, **BIASED}
_BERT = _GPT | {"embedding_norm": True, "head_bias": True, "causal": False}
_TIED = {"tied_embeddings": True}
_COHERE = {"norm": "layernorm", "norm_bias": False, "norms_per_layer": 1, **_TIED}
_MLA = {"attention_type": "mla"}

#: model_type -> what the architecture fixes; every other field comes from the file or the defaults of ModelShape.
#: `tied_embeddings` here is the default of the architecture when the file is silent.
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "llama": {}, "mistral": {}, "mixtral": {}, "phi3": {}, "internlm2": {}, "yi": {}, "granite": {}, "ministral": {},
    "ministral3": {}, "baichuan": {}, "deepseek": {}, "smollm3": {}, "internlm3": {}, "internlm": {}, "cwm": {}, "emu3": {},
    "exaone": {}, "helium": {}, "granitemoe": {}, "granitemoeshared": {}, "granitemoehybrid": {}, "minicpm": _TIED,
    "mimo": {"attention_bias": True},
    "olmo": {"norms_per_layer": 0}, "olmo2": {}, "olmo3": {}, "olmoe": {}, "flex_olmo": {},
    "bitnet": _TIED, "arcee": {"mlp": "gelu"}, "apertus": {"mlp": "gelu", "qk_norm": True},
    "nemotron": {"mlp": "gelu", "norm": "layernorm"},
    "glm": {"attention_bias": True}, "glm4": {"norms_per_layer": 4}, "glm4_moe": {"router_bias": True},
    "solar_open": {"router_bias": True}, "glm4_moe_lite": {**_MLA, "router_bias": True},
    "cohere": _COHERE, "cohere2": _COHERE,
    "qwen": {"attention_bias": True, "halve_ffn": True},
    "qwen2": {"attention_bias": True}, "qwen2_moe": {"attention_bias": True, "shared_expert_gate": True},
    "qwen3": {"qk_norm": True}, "qwen3_moe": {"qk_norm": True},
    "deepseek_v2": _MLA, "deepseek_v3": {**_MLA, "router_bias": True}, "minicpm3": {**_MLA, **_TIED}, "youtu": _MLA,
    "dots1": {"qk_norm": True, "router_bias": True}, "bailing_moe": {},
    "ernie4_5": _TIED, "ernie4_5_moe": {**_TIED, "router_bias": True},
    "hunyuan_v1_dense": {"qk_norm": True}, "hunyuan_v1_moe": {"qk_norm": True},
    "minimax_m2": {"router_bias": True}, "llama4_text": {}, "seed_oss": {"attention_bias": True},
    "exaone4": {"qk_norm": True},
    "phimoe": {"norm": "layernorm"}, "dbrx": {"norm": "layernorm", "norm_bias": False},
    "gpt_oss": {"attention_bias": True, "output_bias": True, "mlp_bias": True, "router_bias": True, "attention_sinks": True},
    "gemma": _TIED, "gemma2": {**_TIED, "norms_per_layer": 4}, "vaultgemma": _TIED,
    "gemma3_text": {**_TIED, "norms_per_layer": 4, "qk_norm": True},
    "gpt2": _GPT, "gpt_bigcode": _GPT, "opt": _GPT | {"position_offset": 2}, "biogpt": _GPT | {"position_offset": 2},
    "gpt_neo": _GPT | {"attention_bias": False}, "xglm": _GPT | {"position": "none"},
    "gptj": {"mlp": "gelu", "norm": "layernorm", "norms_per_layer": 1, "mlp_bias": True, "head_bias": True},
    "codegen": {"mlp": "gelu", "norm": "layernorm", "norms_per_layer": 1, "mlp_bias": True, "head_bias": True},
    "gpt_neox": {"mlp": "gelu", "norm": "layernorm", **BIASED}, "persimmon": {"mlp": "gelu", "norm": "layernorm", **BIASED},
    "stablelm": {"norm": "layernorm"},
    "phi": {"mlp": "gelu", "norm": "layernorm", "norms_per_layer": 1, "head_bias": True, **BIASED},
    "falcon": {"mlp": "gelu", "norm": "layernorm", **_TIED},
    "bloom": {"mlp": "gelu", "norm": "layernorm", "position": "alibi", "embedding_norm": True, **_TIED, **BIASED},
    "mpt": {"mlp": "gelu", "norm": "layernorm", "norm_bias": False, "position": "alibi", **_TIED},
    "starcoder2": {"mlp": "gelu", "norm": "layernorm", **_TIED, **BIASED},
    "chatglm": {"attention_bias": True},
    "bert": _BERT, "roberta": _BERT, "distilbert": _BERT, "openmoe": {},
}  # fmt: skip
#: other model types of the same structure
SAME: Mapping[str, str] = {
    "kimi_k2": "deepseek_v3", "gpt-sw3": "gpt2", "xlm-roberta": "roberta", "camembert": "roberta", "megatron-bert": "bert",
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe", "qwen3_omni_moe_text": "qwen3_moe", "gemma3": "gemma3_text",
    "emu3_text_model": "emu3", "hunyuan": "hunyuan_v1_moe", "Yi": "yi", "RefinedWeb": "falcon", "RefinedWebModel": "falcon",
    "glm4v_text": "glm4", "glm4v_moe_text": "glm4_moe", "stablelm_epoch": "stablelm", "llama4": "llama4_text",
}  # fmt: skip
_ENCODER_DECODER, _STATE_SPACE, _LINEAR = "an encoder-decoder", "state-space layers", "linear attention in most layers"
_PICTURES, _SPARSE = "a model of images or sound", "sparse attention with an indexer of its own"
#: model_type -> the part of it that is not modelled
UNSUPPORTED: Mapping[str, str] = {
    "qwen3_next": "linear attention in three of four layers", "qwen3_5": _LINEAR, "kimi_linear": _LINEAR, "minimax": _LINEAR,
    "minimax_text_01": _LINEAR, "minimax_m1": _LINEAR, "bailing_hybrid": _LINEAR, "olmo_hybrid": _LINEAR,
    "mamba": "a state-space model", "mamba2": "a state-space model", "falcon_mamba": "a state-space model",
    "rwkv": "a recurrent model", "xlstm": "a recurrent model", "recurrent_gemma": "recurrent layers",
    "jamba": _STATE_SPACE, "bamba": _STATE_SPACE, "zamba": _STATE_SPACE, "zamba2": _STATE_SPACE, "nemotron_h": _STATE_SPACE,
    "falcon_h1": _STATE_SPACE, "plamo2": _STATE_SPACE, "phi4flash": _STATE_SPACE, "zaya": _STATE_SPACE,
    "lfm2": "layers of convolutions", "lfm2_moe": "layers of convolutions",
    "gemma3n": "alternating updates and embeddings per layer", "gemma3n_text": "alternating updates and embeddings per layer",
    "gemma4": "heads of two widths", "gemma4_text": "heads of two widths", "openelm": "layers of different widths",
    "deci": "layers of different widths", "nemotron-nas": "layers of different widths",
    "deepseek_v32": _SPARSE, "deepseek_v4": _SPARSE, "glm_moe_dsa": _SPARSE,
    "longcat_flash": "two attentions in a layer and experts that do nothing",
    "arctic": "a dense feed-forward beside the experts", "phi4_multimodal": "adapters per modality",
    "mllama": "layers of cross-attention", "mllama_text_model": "layers of cross-attention",
    "albert": "one set of weights for all layers", "deberta": "relative positions with weights of their own",
    "deberta-v2": "relative positions with weights of their own", "electra": "embeddings narrower than the model",
    "modernbert": "windows of an encoder", "nomic_bert": "windows of an encoder",
    "t5": _ENCODER_DECODER, "mt5": _ENCODER_DECODER, "umt5": _ENCODER_DECODER, "longt5": _ENCODER_DECODER,
    "switch_transformers": _ENCODER_DECODER, "bart": _ENCODER_DECODER, "mbart": _ENCODER_DECODER, "pegasus": _ENCODER_DECODER,
    "marian": _ENCODER_DECODER, "led": _ENCODER_DECODER, "m2m_100": _ENCODER_DECODER, "blenderbot": _ENCODER_DECODER,
    "whisper": _ENCODER_DECODER, "t5gemma": _ENCODER_DECODER, "nllb-moe": _ENCODER_DECODER, "prophetnet": _ENCODER_DECODER,
    "clip": "two towers", "siglip": "two towers", "vit": _PICTURES, "dinov2": _PICTURES, "wav2vec2": _PICTURES,
    "swin": _PICTURES, "vit_mae": _PICTURES, "hubert": _PICTURES,
}  # fmt: skip
#: keys that only models with such layers have, whatever they call themselves
MARKS: Mapping[str, str] = {
    "linear_num_value_heads": "qwen3_next", "full_attention_interval": "qwen3_next", "mamba_d_state": "jamba",
    "ssm_state_size": "jamba", "mamba_n_heads": "jamba", "index_topk": "deepseek_v32", "block_configs": "deci",
}  # fmt: skip
#: of layers with windows, every n-th sees all, where a file does not say
FULL_EVERY = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4, "olmo3": 4, "exaone4": 4, "cwm": 4, "vaultgemma": 2}
#: class of the model -> model_type, for files without one
FIRST_PARTY = {"OpenMoeForCausalLM": "openmoe", "BaichuanForCausalLM": "baichuan", "BaiChuanForCausalLM": "baichuan"}
