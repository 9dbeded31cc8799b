"""GPT-2, GPT-3, OPT, and the shapes of the Megatron papers: learned positions, layernorm, GELU, biases, tied embeddings."""

from __future__ import annotations

from sim.workload.models.row import Row

_GPT: Row = {
    "mlp": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True,
    "attention_bias": True, "output_bias": True, "mlp_bias": True, "weight_dtype": "fp16",
}  # fmt: skip

_GPT2 = "Radford et al. 2019; huggingface.co/openai-community/gpt2*/config.json"
_GPT3 = "Brown et al. 2020 (arXiv 2005.14165), table 2.1"
_MEGATRON = "Shoeybi et al. 2019 (arXiv 1909.08053), table 1"
_NARAYANAN = "Narayanan et al. 2021 (arXiv 2104.04473), table 1"
_KORTHIKANTI = "Korthikanti et al. 2022 (arXiv 2205.05198), table 3"
_OPT = "Zhang et al. 2022 (arXiv 2205.01068), table 1; huggingface.co/facebook/opt-*/config.json"
_INFINITY = "Rajbhandari et al. 2021 (arXiv 2104.07857), table 1; heads of 128 assumed"

# name: layers, hidden, heads, vocabulary, positions, source
_TABLE: dict[str, tuple[int, int, int, int, int, str]] = {
    "gpt2": (12, 768, 12, 50257, 1024, _GPT2),
    "gpt2-medium": (24, 1024, 16, 50257, 1024, _GPT2),
    "gpt2-large": (36, 1280, 20, 50257, 1024, _GPT2),
    "gpt2-xl": (48, 1600, 25, 50257, 1024, _GPT2),
    "gpt3-125m": (12, 768, 12, 50257, 2048, _GPT3),
    "gpt3-350m": (24, 1024, 16, 50257, 2048, _GPT3),
    "gpt3-760m": (24, 1536, 16, 50257, 2048, _GPT3),
    "gpt3-1.3b": (24, 2048, 16, 50257, 2048, _GPT3),
    "gpt3-2.7b": (32, 2560, 32, 50257, 2048, _GPT3),
    "gpt3-6.7b": (32, 4096, 32, 50257, 2048, _GPT3),
    "gpt3-13b": (40, 5120, 40, 50257, 2048, _GPT3),
    "gpt3-175b": (96, 12288, 96, 51200, 2048, _GPT3 + "; vocabulary padded as in arXiv 2104.04473"),
    "megatron-1.2b": (40, 1536, 16, 51200, 1024, _MEGATRON),
    "megatron-2.5b": (54, 1920, 20, 51200, 1024, _MEGATRON),
    "megatron-4.2b": (64, 2304, 24, 51200, 1024, _MEGATRON),
    "megatron-8.3b": (72, 3072, 32, 51200, 1024, _MEGATRON),
    "megatron-1.7b": (24, 2304, 24, 51200, 2048, _NARAYANAN),
    "megatron-3.6b": (30, 3072, 32, 51200, 2048, _NARAYANAN),
    "megatron-7.5b": (36, 4096, 32, 51200, 2048, _NARAYANAN),
    "megatron-18b": (40, 6144, 48, 51200, 2048, _NARAYANAN),
    "megatron-39b": (48, 8192, 64, 51200, 2048, _NARAYANAN),
    "megatron-76b": (60, 10240, 80, 51200, 2048, _NARAYANAN),
    "megatron-145b": (80, 12288, 96, 51200, 2048, _NARAYANAN),
    "megatron-310b": (96, 16384, 128, 51200, 2048, _NARAYANAN),
    "megatron-530b": (105, 20480, 128, 51200, 2048, _NARAYANAN),
    "megatron-1t": (128, 25600, 160, 51200, 2048, _NARAYANAN),
    "megatron-22b": (48, 6144, 64, 51200, 2048, _KORTHIKANTI),
    "megatron-175b": (96, 12288, 96, 51200, 2048, _KORTHIKANTI),
    "opt-125m": (12, 768, 12, 50272, 2050, _OPT),
    "opt-1.3b": (24, 2048, 32, 50272, 2050, _OPT),
    "opt-2.7b": (32, 2560, 32, 50272, 2050, _OPT),
    "opt-6.7b": (32, 4096, 32, 50272, 2050, _OPT),
    "opt-13b": (40, 5120, 40, 50272, 2050, _OPT),
    "opt-30b": (48, 7168, 56, 50272, 2050, _OPT),
    "opt-66b": (64, 9216, 72, 50272, 2050, _OPT),
    "opt-175b": (96, 12288, 96, 50272, 2050, _OPT),
    "zero-infinity-10b": (50, 4096, 32, 50257, 1024, _INFINITY),
    "zero-infinity-50b": (62, 8192, 64, 50257, 1024, _INFINITY),
    "zero-infinity-100b": (125, 8192, 64, 50257, 1024, _INFINITY),
    "zero-infinity-0.5t": (124, 18432, 144, 50257, 1024, _INFINITY),
    "zero-infinity-1t": (128, 25600, 200, 50257, 1024, _INFINITY),
}


def rows() -> dict[str, Row]:
    """Name -> arguments of ModelShape."""
    return {
        name: _GPT
        | {
            "layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden,
            "vocabulary": vocabulary, "max_positions": positions, "source": source,
        }
        for name, (layers, hidden, heads, vocabulary, positions, source) in _TABLE.items()
    }  # fmt: skip
