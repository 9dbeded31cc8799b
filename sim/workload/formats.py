"""Storage formats of weights and KV cache: bytes per element, scales included.

llama.cpp block formats: block structs of ggml-common.h (q4_0: 18 B per 32 weights, q8_0: 34 B per 32, q6_k: 210 B per
256); the mixtures (`*_k_m`, `*_k_s`, iq4_xs, q2_k): file size over weights of a 70B model, perplexity table of
GPU-Benchmarks-on-LLM-Inference at 00dd2bd. nf4: 4 bit and an fp32 scale per 64, double quantised (QLoRA, arXiv
2305.14314, section 3); int4: 4 bit, an fp16 scale and a 4-bit zero per 128 (AWQ, GPTQ); mxfp4: OCP MX specification 1.0
(8-bit scale per 32); nvfp4: 8-bit scale per 16.
"""

from __future__ import annotations

from typing import Literal

WeightFormat = Literal[
    "fp32", "fp16", "bf16", "fp8", "int8", "int4", "q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_k_s", "iq4_xs", "q4_1",
    "q4_0", "q3_k_m", "q2_k", "nf4", "mxfp4", "nvfp4",
]  # fmt: skip
CacheFormat = Literal["fp16", "bf16", "fp8", "int8", "int4", "nvfp4", "q8_0", "q4_0"]

WEIGHT_BYTES: dict[str, float] = {
    "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": (4.0 + 20 / 128) / 8, "q8_0": 34 / 32,
    "q6_k": 210 / 256, "q5_k_m": 5.69 / 8, "q5_0": 22 / 32, "q4_k_m": 4.85 / 8, "q4_k_s": 4.58 / 8, "iq4_xs": 4.30 / 8,
    "q4_1": 20 / 32, "q4_0": 18 / 32, "q3_k_m": 3.89 / 8, "q2_k": 3.0 / 8, "nf4": 4.127 / 8, "mxfp4": 4.25 / 8,
    "nvfp4": 4.5 / 8,
}  # fmt: skip
#: formats of ggml that store scales per block
BLOCK_FORMATS = frozenset({
    "q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_k_s", "iq4_xs", "q4_1", "q4_0", "q3_k_m", "q2_k", "mxfp4",
})  # fmt: skip
#: number format that a GPU with units for it multiplies in; any other format is dequantised to 16 bits
NATIVE = {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4", "mxfp4": "fp4", "fp32": "fp32", "bf16": "bf16"}

KV_BYTES: dict[str, float] = {
    "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "nvfp4": 4.5 / 8, "q8_0": 34 / 32,
    "q4_0": 18 / 32,
}  # fmt: skip
