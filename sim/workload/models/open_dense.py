"""Other published dense models: MPT, GPT-J, GPT-Neo(X), Pythia, Falcon, BLOOM, Gemma, Phi, GLM, BERT, StarCoder2, ViT."""

from __future__ import annotations

from sim.workload.models.row import Row

_MPT = "github.com/mosaicml/llm-foundry scripts/train/yamls/pretrain/mpt-*.yaml"
_HUB = "config.json on the Hugging Face hub"

_MPT_FORM: Row = {
    "mlp": "gelu", "norm": "layernorm", "norm_bias": False, "tied_embeddings": True, "position": "alibi", "source": _MPT,
}  # fmt: skip
# no biases; ALiBi as in the published models
_MPT_SIZES: dict[str, tuple[int, int, int]] = {
    "mpt-125m": (12, 768, 12),
    "mpt-350m": (24, 1024, 16),
    "mpt-760m": (24, 1536, 12),
    "mpt-1b": (24, 2048, 16),
    "mpt-3b": (32, 2560, 20),
    "mpt-7b": (32, 4096, 32),
    "mpt-13b": (40, 5120, 40),
    "mpt-30b": (48, 7168, 56),
    "mpt-70b": (80, 8192, 64),
}
_PARALLEL_NEOX: Row = {
    "mlp": "gelu", "norm": "layernorm", "attention_bias": True, "output_bias": True, "mlp_bias": True, "weight_dtype": "fp16",
}  # fmt: skip
_PYTHIA: dict[str, tuple[int, int, int, int]] = {
    "pythia-70m": (6, 512, 8, 50304),
    "pythia-160m": (12, 768, 12, 50304),
    "pythia-410m": (24, 1024, 16, 50304),
    "pythia-1b": (16, 2048, 8, 50304),
    "pythia-1.4b": (24, 2048, 16, 50304),
    "pythia-2.8b": (32, 2560, 32, 50304),
    "pythia-6.9b": (32, 4096, 32, 50432),
    "pythia-12b": (36, 5120, 40, 50688),
}
_BLOOM: dict[str, tuple[int, int, int]] = {
    "bloom-560m": (24, 1024, 16),
    "bloom-1b1": (24, 1536, 16),
    "bloom-1b7": (24, 2048, 16),
    "bloom-3b": (30, 2560, 32),
    "bloom-7b1": (30, 4096, 32),
    "bloom-176b": (70, 14336, 112),
}
# images of 224 pixels and 1000 classes; the sequence is the patches and a class token (197 for /16, 257 for /14)
_VIT: dict[str, tuple[int, int, int, int]] = {
    "vit-s-16": (12, 384, 6, 16),
    "vit-b-16": (12, 768, 12, 16),
    "vit-l-16": (24, 1024, 16, 16),
    "vit-h-14": (32, 1280, 16, 14),
}
# name: layers, hidden, heads, kv heads, head_dim, ffn, norms per layer, qk_norm
_GEMMA: dict[str, tuple[int, int, int, int, int, int, int, bool]] = {
    "gemma-2b": (18, 2048, 8, 1, 256, 16384, 2, False),
    "gemma-7b": (28, 3072, 16, 16, 256, 24576, 2, False),
    "gemma-2-2b": (26, 2304, 8, 4, 256, 9216, 4, False),
    "gemma-2-9b": (42, 3584, 16, 8, 256, 14336, 4, False),
    "gemma-2-27b": (46, 4608, 32, 16, 128, 36864, 4, False),
    "gemma-3-270m": (18, 640, 4, 1, 256, 2048, 4, True),
    "gemma-3-1b": (26, 1152, 4, 1, 256, 6912, 4, True),
    "gemma-3-4b": (34, 2560, 8, 4, 256, 10240, 4, True),
    "gemma-3-12b": (48, 3840, 16, 8, 256, 15360, 4, True),
    "gemma-3-27b": (62, 5376, 32, 16, 128, 21504, 4, True),
}
_PHI3: dict[str, tuple[int, int, int, int, int, int]] = {
    "phi-3-mini": (32, 3072, 32, 32, 8192, 32064),
    "phi-3-medium": (40, 5120, 40, 10, 17920, 32064),
    "phi-4": (40, 5120, 40, 10, 17920, 100352),
}
_STARCODER: Row = {
    "vocabulary": 49152, "max_positions": 16384, "mlp": "gelu", "norm": "layernorm", "attention_bias": True,
    "output_bias": True, "mlp_bias": True, "tied_embeddings": True, "source": "Lozhkov et al. 2024 (arXiv 2402.19173), table 6",
}  # fmt: skip
_BERT: Row = {
    "vocabulary": 30522, "max_positions": 514, "mlp": "gelu", "norm": "layernorm", "position": "learned",
    "tied_embeddings": True, "attention_bias": True, "output_bias": True, "mlp_bias": True, "head_bias": True,
    "embedding_norm": True, "causal": False, "weight_dtype": "fp32",
    "source": "Devlin et al. 2018 (arXiv 1810.04805); positions include the 2 token types, the head its dense layer",
}  # fmt: skip
_SINGLE: dict[str, Row] = {
    "gpt-j-6b": {
        "layers": 28, "hidden": 4096, "heads": 16, "ffn": 16384, "vocabulary": 50400, "max_positions": 2048, "mlp": "gelu",
        "norm": "layernorm", "norms_per_layer": 1, "mlp_bias": True, "head_bias": True, "weight_dtype": "fp16",
        "source": "huggingface.co/EleutherAI/gpt-j-6b",
    },
    "gpt-neo-125m": {
        "layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "vocabulary": 50257, "max_positions": 2048, "mlp": "gelu",
        "norm": "layernorm", "position": "learned", "tied_embeddings": True, "output_bias": True, "mlp_bias": True,
        "weight_dtype": "fp32", "source": "huggingface.co/EleutherAI/gpt-neo-125m",
    },
    "gpt-neo-1.3b": {
        "layers": 24, "hidden": 2048, "heads": 16, "ffn": 8192, "vocabulary": 50257, "max_positions": 2048, "mlp": "gelu",
        "norm": "layernorm", "position": "learned", "tied_embeddings": True, "output_bias": True, "mlp_bias": True,
        "weight_dtype": "fp32", "source": "huggingface.co/EleutherAI/gpt-neo-1.3B",
    },
    "gpt-neo-2.7b": {
        "layers": 32, "hidden": 2560, "heads": 20, "ffn": 10240, "vocabulary": 50257, "max_positions": 2048, "mlp": "gelu",
        "norm": "layernorm", "position": "learned", "tied_embeddings": True, "output_bias": True, "mlp_bias": True,
        "weight_dtype": "fp32", "source": "huggingface.co/EleutherAI/gpt-neo-2.7B",
    },
    "gpt-neox-20b": _PARALLEL_NEOX | {
        "layers": 44, "hidden": 6144, "heads": 64, "ffn": 24576, "vocabulary": 50432, "max_positions": 2048,
        "source": "Black et al. 2022 (arXiv 2204.06745)",
    },
    "falcon-7b": {
        "layers": 32, "hidden": 4544, "heads": 71, "kv_heads": 1, "ffn": 18176, "vocabulary": 65024, "max_positions": 2048,
        "mlp": "gelu", "norm": "layernorm", "norms_per_layer": 1, "tied_embeddings": True,
        "source": "Almazrouei et al. 2023 (arXiv 2311.16867)",
    },
    "falcon-40b": {
        "layers": 60, "hidden": 8192, "heads": 128, "kv_heads": 8, "ffn": 32768, "vocabulary": 65024, "max_positions": 2048,
        "mlp": "gelu", "norm": "layernorm", "norms_per_layer": 2, "tied_embeddings": True,
        "source": "Almazrouei et al. 2023 (arXiv 2311.16867)",
    },
    "falcon-180b": {
        "layers": 80, "hidden": 14848, "heads": 232, "kv_heads": 8, "ffn": 59392, "vocabulary": 65024, "max_positions": 2048,
        "mlp": "gelu", "norm": "layernorm", "norms_per_layer": 2,
        "source": "Almazrouei et al. 2023 (arXiv 2311.16867)",
    },
    "phi-1.5": {
        "layers": 24, "hidden": 2048, "heads": 32, "ffn": 8192, "vocabulary": 51200, "max_positions": 2048, "mlp": "gelu",
        "norm": "layernorm", "norms_per_layer": 1, "attention_bias": True, "output_bias": True, "mlp_bias": True,
        "head_bias": True, "weight_dtype": "fp16", "source": "huggingface.co/microsoft/phi-1_5",
    },
    "phi-2": {
        "layers": 32, "hidden": 2560, "heads": 32, "ffn": 10240, "vocabulary": 51200, "max_positions": 2048, "mlp": "gelu",
        "norm": "layernorm", "norms_per_layer": 1, "attention_bias": True, "output_bias": True, "mlp_bias": True,
        "head_bias": True, "weight_dtype": "fp16", "source": "huggingface.co/microsoft/phi-2",
    },
    "chatglm2-6b": {
        "layers": 28, "hidden": 4096, "heads": 32, "kv_heads": 2, "ffn": 13696, "vocabulary": 65024, "max_positions": 32768,
        "attention_bias": True, "weight_dtype": "fp16", "source": "huggingface.co/THUDM/chatglm2-6b",
    },
    "glm-4-9b": {
        "layers": 40, "hidden": 4096, "heads": 32, "kv_heads": 2, "ffn": 13696, "vocabulary": 151552, "max_positions": 131072,
        "attention_bias": True, "source": "huggingface.co/THUDM/glm-4-9b",
    },
    "chatglm-6b": {
        "layers": 28, "hidden": 4096, "heads": 32, "ffn": 16384, "vocabulary": 130528, "max_positions": 2048, "mlp": "gelu",
        "norm": "layernorm", "attention_bias": True, "output_bias": True, "mlp_bias": True, "tied_embeddings": True,
        "weight_dtype": "fp16", "source": "huggingface.co/THUDM/chatglm-6b",
    },
    "bert-base": _BERT | {
        "layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "extra_parameters": 768 * 768 + 768,
    },
    "bert-large": _BERT | {
        "layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "extra_parameters": 1024 * 1024 + 1024,
    },
    "starcoder-15b": _STARCODER | {
        "layers": 40, "hidden": 6144, "heads": 48, "kv_heads": 1, "ffn": 24576, "max_positions": 8192,
        "position": "learned", "source": "Li et al. 2023 (arXiv 2305.06161), table 5",
    },
    "starcoder2-3b": _STARCODER | {"layers": 30, "hidden": 3072, "heads": 24, "kv_heads": 2, "ffn": 12288},
    "starcoder2-7b": _STARCODER | {"layers": 32, "hidden": 4608, "heads": 36, "kv_heads": 4, "ffn": 18432},
    "starcoder2-15b": {
        "layers": 40, "hidden": 6144, "heads": 48, "kv_heads": 4, "ffn": 24576, "vocabulary": 49152, "max_positions": 16384,
        "mlp": "gelu", "norm": "layernorm", "attention_bias": True, "output_bias": True, "mlp_bias": True,
        "tied_embeddings": False, "source": "Lozhkov et al. 2024 (arXiv 2402.19173)",
    },
    "baichuan-13b": {
        "layers": 40, "hidden": 5120, "heads": 40, "ffn": 13696, "vocabulary": 64000, "max_positions": 4096,
        "position": "alibi", "source": "huggingface.co/baichuan-inc/Baichuan-13B-Base",
    },
    "internlm2-20b": {
        "layers": 48, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 16384, "vocabulary": 92544, "max_positions": 32768,
        "source": "Cai et al. 2024 (arXiv 2403.17297)",
    },
}  # fmt: skip


def _window(name: str) -> Row:
    """Sliding windows: every second layer of Gemma 2 sees all, every sixth of Gemma 3."""
    if name.startswith("gemma-2-"):
        return {"sliding_window": 4096, "full_attention_every": 2}
    if name.startswith("gemma-3-"):
        return {"sliding_window": 512 if name in ("gemma-3-270m", "gemma-3-1b") else 1024, "full_attention_every": 6}
    return {}


def rows() -> dict[str, Row]:
    """Name -> arguments of ModelShape."""
    table: dict[str, Row] = dict(_SINGLE)
    for name, (layers, hidden, heads) in _MPT_SIZES.items():
        table[name] = _MPT_FORM | {
            "layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocabulary": 50368, "max_positions": 2048,
        }  # fmt: skip
    table["mpt-7b"] |= {"vocabulary": 50432}
    table["mpt-30b"] |= {"vocabulary": 50432, "max_positions": 8192}
    for name, (layers, hidden, heads, vocabulary) in _PYTHIA.items():
        table[name] = _PARALLEL_NEOX | {
            "layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocabulary": vocabulary,
            "max_positions": 2048, "source": "Biderman et al. 2023 (arXiv 2304.01373), table 1",
        }  # fmt: skip
    for name, (layers, hidden, heads) in _BLOOM.items():
        table[name] = _PARALLEL_NEOX | {
            "layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocabulary": 250880,
            "max_positions": 2048, "position": "alibi", "tied_embeddings": True, "embedding_norm": True,
            "source": "Workshop et al. 2022 (arXiv 2211.05100), table 3",
        }  # fmt: skip
    for name, (layers, hidden, heads, patch) in _VIT.items():
        table[name] = {
            "layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocabulary": 1000, "mlp": "gelu",
            "max_positions": (224 // patch) ** 2 + 1, "norm": "layernorm", "position": "learned", "tied_embeddings": True,
            "attention_bias": True, "output_bias": True, "mlp_bias": True, "head_bias": True, "causal": False,
            "extra_parameters": (3 * patch**2 + 2) * hidden, "weight_dtype": "fp32",
            "source": "Dosovitskiy et al. 2021 (arXiv 2010.11929), table 1; vit-s-16: Touvron et al. 2021 (arXiv 2012.12877)",
        }  # fmt: skip
    for name, (layers, hidden, heads, kv, head, ffn, norms, qk_norm) in _GEMMA.items():
        table[name] = {
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "head_dim": head, "ffn": ffn,
            "vocabulary": 262144 if name.startswith("gemma-3") else 256000, "max_positions": 8192, "tied_embeddings": True,
            "norms_per_layer": norms, "qk_norm": qk_norm, "source": f"Gemma team; {_HUB}", **_window(name),
        }  # fmt: skip
    for name, (layers, hidden, heads, kv, ffn, vocabulary) in _PHI3.items():
        table[name] = {
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "vocabulary": vocabulary,
            "max_positions": 4096, "source": f"Abdin et al. 2024 (arXiv 2404.14219); {_HUB}",
        }  # fmt: skip
    return table
