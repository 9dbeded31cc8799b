"""Qwen 1 to 3, dense, mixture-of-experts and with a vision tower (counted, not computed)."""

from __future__ import annotations

from sim.workload.models.row import Row

_QWEN = "Bai et al. 2023 (arXiv 2309.16609); huggingface.co/Qwen/Qwen-*/config.json"
_QWEN15 = "huggingface.co/Qwen/Qwen1.5-*/config.json"
_QWEN2 = "Yang et al. 2024 (arXiv 2407.10671), table 1; huggingface.co/Qwen/Qwen2-*/config.json"
_QWEN25 = "Qwen team 2024 (arXiv 2412.15115), table 1; huggingface.co/Qwen/Qwen2.5-*/config.json"
_QWEN3 = "Qwen team 2025 (arXiv 2505.09388), tables 1 and 2; huggingface.co/Qwen/Qwen3-*/config.json"

# name: layers, hidden, heads, kv heads, ffn, vocabulary, longest sequence, tied, head_dim (0 = hidden/heads), source
_TABLE: dict[str, tuple[int, int, int, int, int, int, int, bool, int, str]] = {
    "qwen-7b": (32, 4096, 32, 32, 11008, 151936, 8192, False, 0, _QWEN),
    "qwen-14b": (40, 5120, 40, 40, 13696, 152064, 8192, False, 0, _QWEN),
    "qwen-72b": (80, 8192, 64, 64, 24576, 152064, 32768, False, 0, _QWEN),
    "qwen-1.8b": (24, 2048, 16, 16, 5504, 151936, 8192, False, 0, _QWEN),
    "qwen1.5-0.5b": (24, 1024, 16, 16, 2816, 151936, 32768, True, 0, _QWEN15),
    "qwen1.5-1.8b": (24, 2048, 16, 16, 5504, 151936, 32768, False, 0, _QWEN15),
    "qwen1.5-4b": (40, 2560, 20, 20, 6912, 151936, 32768, False, 0, _QWEN15),
    "qwen1.5-7b": (32, 4096, 32, 32, 11008, 151936, 32768, False, 0, _QWEN15),
    "qwen1.5-14b": (40, 5120, 40, 40, 13696, 152064, 32768, False, 0, _QWEN15),
    "qwen1.5-32b": (64, 5120, 40, 8, 27392, 152064, 32768, False, 0, _QWEN15),
    "qwen1.5-110b": (80, 8192, 64, 8, 49152, 152064, 32768, False, 0, _QWEN15),
    "qwen1.5-72b": (80, 8192, 64, 64, 24576, 152064, 32768, False, 0, _QWEN15),
    "qwen2-0.5b": (24, 896, 14, 2, 4864, 151936, 131072, True, 0, _QWEN2),
    "qwen2-1.5b": (28, 1536, 12, 2, 8960, 151936, 131072, True, 0, _QWEN2),
    "qwen2-7b": (28, 3584, 28, 4, 18944, 152064, 131072, False, 0, _QWEN2),
    "qwen2-72b": (80, 8192, 64, 8, 29568, 152064, 131072, False, 0, _QWEN2),
    "qwen2.5-0.5b": (24, 896, 14, 2, 4864, 151936, 32768, True, 0, _QWEN25),
    "qwen2.5-1.5b": (28, 1536, 12, 2, 8960, 151936, 131072, True, 0, _QWEN25),
    "qwen2.5-3b": (36, 2048, 16, 2, 11008, 151936, 32768, True, 0, _QWEN25),
    "qwen2.5-7b": (28, 3584, 28, 4, 18944, 152064, 131072, False, 0, _QWEN25),
    "qwen2.5-14b": (48, 5120, 40, 8, 13824, 152064, 131072, False, 0, _QWEN25),
    "qwen2.5-32b": (64, 5120, 40, 8, 27648, 152064, 131072, False, 0, _QWEN25),
    "qwen2.5-72b": (80, 8192, 64, 8, 29568, 152064, 131072, False, 0, _QWEN25),
    "qwen3-0.6b": (28, 1024, 16, 8, 3072, 151936, 40960, True, 128, _QWEN3),
    "qwen3-1.7b": (28, 2048, 16, 8, 6144, 151936, 40960, True, 128, _QWEN3),
    "qwen3-4b": (36, 2560, 32, 8, 9728, 151936, 40960, True, 128, _QWEN3),
    "qwen3-8b": (36, 4096, 32, 8, 12288, 151936, 40960, False, 128, _QWEN3),
    "qwen3-14b": (40, 5120, 40, 8, 17408, 151936, 40960, False, 128, _QWEN3),
    "qwen3-32b": (64, 5120, 64, 8, 25600, 151936, 40960, False, 128, _QWEN3),
}

# name: layers, hidden, heads, kv, dense ffn, experts, per token, expert ffn, shared ffn, vocabulary, head_dim, source
_MOE: dict[str, tuple[int, int, int, int, int, int, int, int, int, int, int, str]] = {
    "qwen1.5-moe-a2.7b": (24, 2048, 16, 16, 5632, 60, 4, 1408, 5632, 151936, 0, _QWEN15),
    "qwen2-57b-a14b": (28, 3584, 28, 4, 18944, 64, 8, 2560, 20480, 151936, 0, _QWEN2),
    "qwen3-30b-a3b": (48, 2048, 32, 4, 6144, 128, 8, 768, 0, 151936, 128, _QWEN3),
    "qwen3-235b-a22b": (94, 4096, 64, 4, 12288, 128, 8, 1536, 0, 151936, 128, _QWEN3),
    "qwen3-coder-480b-a35b": (62, 6144, 96, 8, 8192, 160, 8, 2560, 0, 151936, 128, _QWEN3),
}
# name: the language model, parameters of the vision tower and its merger (published total less the language model)
_VISION: dict[str, tuple[str, int]] = {
    "qwen2-vl-2b": ("qwen2-1.5b", 665_271_296),
    "qwen2-vl-7b": ("qwen2-7b", 675_759_104),
    "qwen2.5-vl-3b": ("qwen2.5-3b", 668_684_288),
    "qwen2.5-vl-7b": ("qwen2.5-7b", 676_550_144),
    "qwen2.5-vl-72b": ("qwen2.5-72b", 704_573_696),
}


def rows() -> dict[str, Row]:
    """Name -> arguments of ModelShape."""
    table: dict[str, Row] = {}
    for name, (layers, hidden, heads, kv, ffn, vocabulary, positions, tied, head, source) in _TABLE.items():
        table[name] = {
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "vocabulary": vocabulary,
            "max_positions": positions, "tied_embeddings": tied, "head_dim": head or None, "source": source,
            "attention_bias": source is not _QWEN3, "qk_norm": source is _QWEN3,
        }  # fmt: skip
    for name, (layers, hidden, heads, kv, ffn, experts, visited, expert, shared, vocabulary, head, source) in _MOE.items():
        table[name] = {
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "vocabulary": vocabulary,
            "experts": experts, "experts_per_token": visited, "expert_ffn": expert, "shared_expert_ffn": shared,
            "shared_expert_gate": shared > 0, "head_dim": head or None, "source": source,
            "attention_bias": source is not _QWEN3, "qk_norm": source is _QWEN3, "max_positions": 32768,
        }  # fmt: skip
    for name, (language, vision) in _VISION.items():
        table[name] = table[language] | {
            "extra_parameters": vision, "source": f"language model of {language} with the vision tower of its checkpoint",
        }  # fmt: skip
    return table
