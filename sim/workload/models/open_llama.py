"""Models of Llama's structure from other publishers: RMSNorm, SwiGLU, rotary positions; what differs is in the row."""

from __future__ import annotations

from sim.workload.models.row import Row

_HUB = "config.json on the Hugging Face hub"
_SMOL = f"Ben Allal et al. 2025 (arXiv 2502.02737), section 5; {_HUB}"
_OLMO2 = f"OLMo team 2024 (arXiv 2501.00656), table 3; {_HUB}"
_BAICHUAN2 = f"Yang et al. 2023 (arXiv 2309.10305), table 2; {_HUB}"
_INTERNLM = f"Cai et al. 2024 (arXiv 2403.17297); {_HUB}"
_DEEPSEEK = f"DeepSeek-AI 2024 (arXiv 2401.02954), table 2; {_HUB}"
_CODER = f"Guo et al. 2024 (arXiv 2401.14196), table 2; {_HUB}"

# name: layers, hidden, heads, kv heads, ffn, vocabulary, longest sequence, tied, head_dim (0 = hidden/heads), source
_TABLE: dict[str, tuple[int, int, int, int, int, int, int, bool, int, str]] = {
    "smollm2-135m": (30, 576, 9, 3, 1536, 49152, 8192, True, 0, _SMOL),
    "smollm2-360m": (32, 960, 15, 5, 2560, 49152, 8192, True, 0, _SMOL),
    "smollm2-1.7b": (24, 2048, 32, 32, 8192, 49152, 8192, True, 0, _SMOL),
    "smollm3-3b": (36, 2048, 16, 4, 11008, 128256, 65536, True, 0, f"huggingface.co/HuggingFaceTB/SmolLM3-3B; {_HUB}"),
    "open-llama-3b": (26, 3200, 32, 32, 8640, 32000, 2048, False, 0, f"huggingface.co/openlm-research; {_HUB}"),
    "internlm2-1.8b": (24, 2048, 16, 8, 8192, 92544, 32768, False, 0, _INTERNLM),
    "internlm2-7b": (32, 4096, 32, 8, 14336, 92544, 32768, False, 0, _INTERNLM),
    "internlm3-8b": (
        48,
        4096,
        32,
        2,
        10240,
        128512,
        32768,
        False,
        128,
        f"huggingface.co/internlm/internlm3-8b-instruct; {_HUB}",
    ),
    "yi-9b": (48, 4096, 32, 4, 11008, 64000, 4096, False, 0, f"01.AI 2024 (arXiv 2403.04652); {_HUB}"),
    "baichuan-7b": (32, 4096, 32, 32, 11008, 64000, 4096, False, 0, f"huggingface.co/baichuan-inc/Baichuan-7B; {_HUB}"),
    "baichuan2-7b": (32, 4096, 32, 32, 11008, 125696, 4096, False, 0, _BAICHUAN2),
    "baichuan2-13b": (40, 5120, 40, 40, 13696, 125696, 4096, False, 0, _BAICHUAN2),
    "codellama-13b": (40, 5120, 40, 40, 13824, 32016, 16384, False, 0, f"Roziere et al. 2023 (arXiv 2308.12950); {_HUB}"),
    "deepseek-llm-7b": (30, 4096, 32, 32, 11008, 102400, 4096, False, 0, _DEEPSEEK),
    "deepseek-llm-67b": (95, 8192, 64, 8, 22016, 102400, 4096, False, 0, _DEEPSEEK),
    "deepseek-coder-6.7b": (32, 4096, 32, 32, 11008, 32256, 16384, False, 0, _CODER),
    "deepseek-coder-33b": (62, 7168, 56, 8, 19200, 32256, 16384, False, 0, _CODER),
    "ministral-8b": (36, 4096, 32, 8, 12288, 131072, 32768, False, 128, f"huggingface.co/mistralai/Ministral-8B; {_HUB}"),
    "mistral-small-22b": (56, 6144, 48, 8, 16384, 32768, 32768, False, 128, f"mistralai/Mistral-Small-2409; {_HUB}"),
    "solar-10.7b": (48, 4096, 32, 8, 14336, 32000, 4096, False, 0, f"Kim et al. 2023 (arXiv 2312.15166); {_HUB}"),
    "falcon-3-7b": (28, 3072, 12, 4, 23040, 131072, 32768, False, 256, f"huggingface.co/tiiuae/Falcon3-7B-Base; {_HUB}"),
    "falcon-3-10b": (40, 3072, 12, 4, 23040, 131072, 32768, False, 256, f"huggingface.co/tiiuae/Falcon3-10B-Base; {_HUB}"),
    "phi-4-mini": (32, 3072, 24, 8, 8192, 200064, 131072, True, 0, f"Microsoft 2025 (arXiv 2503.01743); {_HUB}"),
    "granite-3-2b": (40, 2048, 32, 8, 8192, 49155, 4096, True, 0, f"huggingface.co/ibm-granite/granite-3.0-2b-base; {_HUB}"),
    "granite-3-8b": (40, 4096, 32, 8, 12800, 49155, 4096, True, 0, f"huggingface.co/ibm-granite/granite-3.0-8b-base; {_HUB}"),
    "minicpm-2b": (40, 2304, 36, 36, 5760, 122753, 4096, True, 0, f"Hu et al. 2024 (arXiv 2404.06395); {_HUB}"),
}
# OLMo 2 normalises queries and keys over their whole width; name: layers, hidden, heads, kv heads, ffn
_OLMO: dict[str, tuple[int, int, int, int, int]] = {
    "olmo-2-1b": (16, 2048, 16, 16, 8192),
    "olmo-2-7b": (32, 4096, 32, 32, 11008),
    "olmo-2-13b": (40, 5120, 40, 40, 13824),
    "olmo-2-32b": (64, 5120, 40, 8, 27648),
}
_OWN: dict[str, Row] = {
    "glm-4-32b": {
        "layers": 61, "hidden": 6144, "heads": 48, "kv_heads": 2, "head_dim": 128, "ffn": 23040, "vocabulary": 151552,
        "norms_per_layer": 4, "max_positions": 32768, "source": f"huggingface.co/zai-org/GLM-4-32B-0414; {_HUB}",
    },
    "command-r-35b": {
        "layers": 40, "hidden": 8192, "heads": 64, "kv_heads": 64, "ffn": 22528, "vocabulary": 256000, "norm": "layernorm",
        "norm_bias": False, "norms_per_layer": 1, "tied_embeddings": True, "max_positions": 131072,
        "source": f"huggingface.co/CohereForAI/c4ai-command-r-v01; {_HUB}",
    },
    "command-r-plus-104b": {
        "layers": 64, "hidden": 12288, "heads": 96, "kv_heads": 8, "ffn": 33792, "vocabulary": 256000, "norm": "layernorm",
        "norm_bias": False, "norms_per_layer": 1, "tied_embeddings": True, "max_positions": 131072,
        "extra_parameters": 64 * (96 + 8) * 128,  # queries and keys are normalised with one weight per head and element
        "source": f"huggingface.co/CohereForAI/c4ai-command-r-plus; {_HUB}",
    },
}  # fmt: skip


def rows() -> dict[str, Row]:
    """Name -> arguments of ModelShape."""
    table: dict[str, Row] = dict(_OWN)
    for name, (layers, hidden, heads, kv, ffn, vocabulary, positions, tied, head, source) in _TABLE.items():
        table[name] = {
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "vocabulary": vocabulary,
            "max_positions": positions, "tied_embeddings": tied, "head_dim": head or None, "source": source,
            "position": "alibi" if name == "baichuan2-13b" else "rope",
        }  # fmt: skip
    for name, (layers, hidden, heads, kv, ffn) in _OLMO.items():
        table[name] = {
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "vocabulary": 100352,
            "max_positions": 4096, "extra_parameters": layers * (hidden + kv * hidden // heads), "source": _OLMO2,
        }  # fmt: skip
    return table
