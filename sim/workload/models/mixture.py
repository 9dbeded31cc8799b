"""Mixture-of-experts models: Mixtral, DBRX, DeepSeek, Kimi, Moonlight, Phi-MoE, gpt-oss, OLMoE, Llama 4, GLM 4.5."""

from __future__ import annotations

from sim.workload.models.row import Row

_V2 = "DeepSeek-AI 2024 (arXiv 2405.04434), section 3.1; config.json on the Hugging Face hub"
_V3 = "DeepSeek-AI 2024 (arXiv 2412.19437), section 4.2; config.json on the Hugging Face hub (without the MTP layer)"
_MIXTRAL = "Jiang et al. 2024 (arXiv 2401.04088), table 1; huggingface.co/mistralai/Mixtral-*/config.json"
_KIMI = "Kimi Team 2025 (arXiv 2507.20534), section 2.3; huggingface.co/moonshotai/Kimi-K2-Base/config.json"
_MOONLIGHT = "Liu et al. 2025 (arXiv 2502.16982), table 5; huggingface.co/moonshotai/Moonlight-16B-A3B/config.json"
_LLAMA4 = "Meta 2025, ai.meta.com/blog/llama-4-multimodal-intelligence; huggingface.co/meta-llama/Llama-4-*/config.json"
_GLM = "GLM-4.5 team 2025 (arXiv 2508.06471), table 1; huggingface.co/zai-org/GLM-4.5*/config.json (without the MTP layer)"
_OSS = "OpenAI 2025 (arXiv 2508.10925), table 1; huggingface.co/openai/gpt-oss-*/config.json"

_MLA: Row = {
    "attention_type": "mla", "head_dim": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "max_positions": 163840,
}  # fmt: skip
_GPT_OSS: Row = {
    "hidden": 2880, "heads": 64, "kv_heads": 8, "head_dim": 64, "ffn": 2880, "vocabulary": 201088, "experts_per_token": 4,
    "expert_ffn": 2880, "attention_bias": True, "output_bias": True, "mlp_bias": True, "router_bias": True,
    "attention_sinks": True, "max_positions": 131072, "sliding_window": 128, "full_attention_every": 2,
    "weight_dtype": "mxfp4", "source": _OSS,
}  # fmt: skip
# chunks of 8,192 keys in three of four layers (a window, as far as a cache goes); text model, without the vision tower
_LLAMA_4: Row = {
    "hidden": 5120, "heads": 40, "kv_heads": 8, "head_dim": 128, "ffn": 16384, "vocabulary": 202048, "experts_per_token": 1,
    "expert_ffn": 8192, "shared_expert_ffn": 8192, "sliding_window": 8192, "full_attention_every": 4, "source": _LLAMA4,
}  # fmt: skip
_GLM_45: Row = {
    "heads": 96, "kv_heads": 8, "head_dim": 128, "vocabulary": 151552, "experts_per_token": 8, "attention_bias": True,
    "router_bias": True, "max_positions": 131072, "source": _GLM,
}  # fmt: skip

_TABLE: dict[str, Row] = {
    "mixtral-8x7b": {
        "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocabulary": 32000, "experts": 8,
        "experts_per_token": 2, "expert_ffn": 14336, "max_positions": 32768, "source": _MIXTRAL,
    },
    "mixtral-8x22b": {
        "layers": 56, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 16384, "vocabulary": 32768, "experts": 8,
        "experts_per_token": 2, "expert_ffn": 16384, "max_positions": 65536, "source": _MIXTRAL,
    },
    "deepseek-v2-lite": _MLA | {
        "layers": 27, "hidden": 2048, "heads": 16, "ffn": 10944, "vocabulary": 102400, "experts": 64, "experts_per_token": 6,
        "expert_ffn": 1408, "shared_expert_ffn": 2 * 1408, "moe_layers": 26, "source": _V2,
    },
    "deepseek-v2": _MLA | {
        "layers": 60, "hidden": 5120, "heads": 128, "ffn": 12288, "vocabulary": 102400, "experts": 160,
        "experts_per_token": 6, "expert_ffn": 1536, "shared_expert_ffn": 2 * 1536, "moe_layers": 59, "q_lora_rank": 1536,
        "group_share": 3 / 8, "source": _V2,
    },
    "deepseek-v3": _MLA | {
        "layers": 61, "hidden": 7168, "heads": 128, "ffn": 18432, "vocabulary": 129280, "experts": 256,
        "experts_per_token": 8, "expert_ffn": 2048, "shared_expert_ffn": 2048, "moe_layers": 58, "q_lora_rank": 1536,
        "group_share": 0.5, "router_bias": True, "weight_dtype": "fp8", "source": _V3,
    },
    "kimi-k2": _MLA | {
        "layers": 61, "hidden": 7168, "heads": 64, "ffn": 18432, "vocabulary": 163840, "experts": 384,
        "experts_per_token": 8, "expert_ffn": 2048, "shared_expert_ffn": 2048, "moe_layers": 60, "q_lora_rank": 1536,
        "router_bias": True, "weight_dtype": "fp8", "max_positions": 131072, "source": _KIMI,
    },
    "moonlight-16b-a3b": _MLA | {
        "layers": 27, "hidden": 2048, "heads": 16, "ffn": 11264, "vocabulary": 163840, "experts": 64,
        "experts_per_token": 6, "expert_ffn": 1408, "shared_expert_ffn": 2 * 1408, "moe_layers": 26, "router_bias": True,
        "max_positions": 8192, "source": _MOONLIGHT,
    },
    "deepseek-moe-16b": {
        "layers": 28, "hidden": 2048, "heads": 16, "ffn": 10944, "vocabulary": 102400, "experts": 64,
        "experts_per_token": 6, "expert_ffn": 1408, "shared_expert_ffn": 2 * 1408, "moe_layers": 27, "max_positions": 4096,
        "source": "Dai et al. 2024 (arXiv 2401.06066)",
    },
    "phi-3.5-moe": {
        "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 6400, "vocabulary": 32064, "experts": 16,
        "experts_per_token": 2, "expert_ffn": 6400, "norm": "layernorm", "attention_bias": True, "output_bias": True,
        "head_bias": True, "max_positions": 131072, "source": "Abdin et al. 2024 (arXiv 2404.14219), section 2",
    },
    "olmoe-1b-7b": {
        "layers": 16, "hidden": 2048, "heads": 16, "ffn": 1024, "vocabulary": 50304, "experts": 64, "experts_per_token": 8,
        "expert_ffn": 1024, "max_positions": 4096, "extra_parameters": 16 * 2 * 2048,
        "source": "Muennighoff et al. 2024 (arXiv 2409.02060); extra = q and k norms over the whole width",
    },
    "dbrx": {
        "layers": 40, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 10752, "vocabulary": 100352, "experts": 16,
        "experts_per_token": 4, "expert_ffn": 10752, "norm": "layernorm", "norm_bias": False, "max_positions": 32768,
        "source": "huggingface.co/databricks/dbrx-base/config.json",
    },
    "llama-4-scout": _LLAMA_4 | {"layers": 48, "experts": 16, "max_positions": 10485760},
    "llama-4-maverick": _LLAMA_4 | {"layers": 48, "experts": 128, "moe_layers": 24, "max_positions": 1048576},
    "glm-4.5": _GLM_45 | {
        "layers": 92, "hidden": 5120, "ffn": 12288, "experts": 160, "expert_ffn": 1536, "shared_expert_ffn": 1536,
        "moe_layers": 89, "qk_norm": True,
    },
    "glm-4.5-air": _GLM_45 | {
        "layers": 46, "hidden": 4096, "ffn": 10944, "experts": 128, "expert_ffn": 1408, "shared_expert_ffn": 1408,
        "moe_layers": 45,
    },
    "gpt-oss-20b": _GPT_OSS | {"layers": 24, "experts": 32},
    "gpt-oss-120b": _GPT_OSS | {"layers": 36, "experts": 128},
}  # fmt: skip


def rows() -> dict[str, Row]:
    """Name -> arguments of ModelShape."""
    return dict(_TABLE)
