"""Llama 1 to 3.3, Code Llama, Mistral and other models of that structure: RMSNorm, SwiGLU, rotary positions, no biases."""

from __future__ import annotations

from sim.workload.models.row import Row

_LLAMA1 = "Touvron et al. 2023 (arXiv 2302.13971), table 2; config.json of the hub"
_LLAMA2 = "Touvron et al. 2023 (arXiv 2307.09288); huggingface.co/meta-llama/Llama-2-*-hf/config.json"
_LLAMA3 = "Llama team 2024 (arXiv 2407.21783), table 3; huggingface.co/meta-llama/*/config.json"
_MISTRAL = "Jiang et al. 2023 (arXiv 2310.06825); huggingface.co/mistralai/*/config.json"
_YI = "01.AI 2024 (arXiv 2403.04652); huggingface.co/01-ai/Yi-*/config.json"
_TINY = "Zhang et al. 2024 (arXiv 2401.02385); huggingface.co/TinyLlama/*/config.json"
_CODE = "Roziere et al. 2023 (arXiv 2308.12950); huggingface.co/codellama/*/config.json"

# name: layers, hidden, heads, kv heads, ffn, vocabulary, longest sequence, tied, head_dim (0 = hidden/heads), source
_TABLE: dict[str, tuple[int, int, int, int, int, int, int, bool, int, str]] = {
    "llama-7b": (32, 4096, 32, 32, 11008, 32000, 2048, False, 0, _LLAMA1),
    "llama-13b": (40, 5120, 40, 40, 13824, 32000, 2048, False, 0, _LLAMA1),
    "llama-30b": (60, 6656, 52, 52, 17920, 32000, 2048, False, 0, _LLAMA1),
    "llama-65b": (80, 8192, 64, 64, 22016, 32000, 2048, False, 0, _LLAMA1),
    "llama-2-7b": (32, 4096, 32, 32, 11008, 32000, 4096, False, 0, _LLAMA2),
    "llama-2-13b": (40, 5120, 40, 40, 13824, 32000, 4096, False, 0, _LLAMA2),
    "llama-2-70b": (80, 8192, 64, 8, 28672, 32000, 4096, False, 0, _LLAMA2),
    "codellama-7b": (32, 4096, 32, 32, 11008, 32016, 16384, False, 0, _CODE),
    "codellama-34b": (48, 8192, 64, 8, 22016, 32000, 16384, False, 0, _CODE),
    "llama-3-8b": (32, 4096, 32, 8, 14336, 128256, 8192, False, 0, _LLAMA3),
    "llama-3-70b": (80, 8192, 64, 8, 28672, 128256, 8192, False, 0, _LLAMA3),
    "llama-3.1-8b": (32, 4096, 32, 8, 14336, 128256, 131072, False, 0, _LLAMA3),
    "llama-3.1-70b": (80, 8192, 64, 8, 28672, 128256, 131072, False, 0, _LLAMA3),
    "llama-3.1-405b": (126, 16384, 128, 8, 53248, 128256, 131072, False, 0, _LLAMA3),
    "llama-3.2-1b": (16, 2048, 32, 8, 8192, 128256, 131072, True, 64, _LLAMA3),
    "llama-3.2-3b": (28, 3072, 24, 8, 8192, 128256, 131072, True, 128, _LLAMA3),
    "llama-3.3-70b": (80, 8192, 64, 8, 28672, 128256, 131072, False, 0, _LLAMA3),
    "mistral-7b": (32, 4096, 32, 8, 14336, 32000, 32768, False, 0, _MISTRAL),
    "mistral-7b-v0.3": (32, 4096, 32, 8, 14336, 32768, 32768, False, 0, _MISTRAL),
    "mistral-nemo-12b": (40, 5120, 32, 8, 14336, 131072, 131072, False, 128, _MISTRAL),
    "mistral-small-24b": (40, 5120, 32, 8, 32768, 131072, 32768, False, 128, _MISTRAL),
    "mistral-large-123b": (88, 12288, 96, 8, 28672, 32768, 131072, False, 128, _MISTRAL),
    "yi-6b": (32, 4096, 32, 4, 11008, 64000, 4096, False, 0, _YI),
    "yi-34b": (60, 7168, 56, 8, 20480, 64000, 4096, False, 0, _YI),
    "tinyllama-1.1b": (22, 2048, 32, 4, 5632, 32000, 2048, False, 0, _TINY),
}


def rows() -> dict[str, Row]:
    """Name -> arguments of ModelShape."""
    return {
        name: {
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "vocabulary": vocabulary,
            "max_positions": positions, "tied_embeddings": tied, "head_dim": head or None, "source": source,
            "weight_dtype": "fp16" if source in (_LLAMA1, _LLAMA2) else "bf16",
        }
        for name, (layers, hidden, heads, kv, ffn, vocabulary, positions, tied, head, source) in _TABLE.items()
    }  # fmt: skip
