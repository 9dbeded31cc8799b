"""How long the layers of a decode take: every byte once through the device's memory, plus a cost per layer.

t = bytes / (e B) + FLOPs / (P eg) + tau        seconds; B datasheet bandwidth, P eg the GEMM rate
The cost per layer (some twenty short kernels and their gaps) is what lets one law explain 4-bit, 16-bit and 70B models.
It belongs to the runtime. ggml: fit over llama.cpp token generation (README of GPU-Benchmarks-on-LLM-Inference at 00dd2bd,
and llama.cpp discussion 4167), mean context 850 tokens: GDDR on RTX 3090/4080/4090/A6000/6000 Ada, HBM on A100/H100, LPDDR
on Apple M2 and M3: median 5, 1 and 3 %. Runtimes that capture a pass as one graph: the part's own streaming efficiency, and
60 us per layer: gpt-fast on A100 (its README at 0f925b5: 7B and 70B, 16 and 8 bit, 1 to 8 GPUs: 53 to 78 us, one outlier).
Not modelled: speculative decoding, very long contexts whose attention kernel is not a stream.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.held_out import is_held_out


class DecodeClass(NamedTuple):
    """Share of the datasheet bandwidth that matrix-vector kernels reach, and seconds per layer beside the bytes."""

    efficiency: float
    layer_s: float


#: ggml's kernels by prefix of the memory technology's name
GGML_CLASSES = {
    "gddr": DecodeClass(0.90, 0.085e-3),
    "hbm": DecodeClass(0.75, 0.135e-3),
    "lpddr": DecodeClass(0.94, 0.145e-3),
}
#: the same where the passes are captured as graphs and small kernels fused: CUDA and HIP since 2025; fit over llama.cpp's
#: benches/dgx-spark.md at 4c7e989 (LPDDR: gpt-oss, Qwen3 30B-A3B, Qwen2.5 7B) and ai-benchmarks issue 43 (RTX 4090: 14B, 3B,
#: gpt-oss); HBM by the ratio of GDDR (assumed)
GGML_GRAPH_CLASSES = {
    "gddr": DecodeClass(0.88, 0.025e-3),
    "hbm": DecodeClass(0.72, 0.040e-3),
    "lpddr": DecodeClass(0.853, 0.055e-3),
}
#: a technology without measurements: the middle of the three ("assumed")
_OTHER = DecodeClass(0.83, 0.127e-3)
#: seconds per layer of a pass that is launched as one graph
GRAPH_LAYER_S = 60e-6
#: share of the streaming rate that such kernels keep when they unpack weights of so many bits on the way: fit over the
#: same README (A100, 7B and 70B: 0.81 to 0.83 and 0.69 to 0.74; MI250X 0.70)
UNPACKED = {"unpack-8": 0.82, "unpack-4": 0.72}
#: tables that the constants above were fitted on, and what one would assume without them: twenty kernels a layer (ten of
#: them fused in a graph) at 5 us each, weights unpacked at no cost
GGML_FITTED = ("gpu-benchmarks-llm", "llamacpp-discussion-4167")
GGML_GRAPH_FITTED = ("llamacpp-dgx-spark", "geerlingguy-ai-benchmarks")
GRAPH_FITTED = ("gpt-fast",)
_LAYER_PRIOR_S = 100e-6
_GRAPH_PRIOR_S = 50e-6


def decode_class(variant: str, memory_part: str, efficiency: float) -> DecodeClass:
    """Constants of a runtime's kernels ("ggml", else graphs) on a memory technology such as "gddr6x" or "hbm3".

    `efficiency` is the share of its bandwidth that the part's streaming kernels reach.
    """
    if not variant.startswith("ggml"):
        if is_held_out(GRAPH_FITTED):
            return DecodeClass(efficiency, _GRAPH_PRIOR_S)
        return DecodeClass(efficiency * UNPACKED.get(variant, 1.0), GRAPH_LAYER_S)
    is_recent = "graph" in variant or memory_part.endswith("-soc")  # those machines are younger than the graphs
    is_graph = is_recent and not memory_part.endswith("apple")  # Metal launches kernel by kernel
    if is_held_out(GGML_GRAPH_FITTED if is_graph else GGML_FITTED):
        return DecodeClass(efficiency, _GRAPH_PRIOR_S if is_graph else _LAYER_PRIOR_S)
    classes = GGML_GRAPH_CLASSES if is_graph else GGML_CLASSES
    return next((found for prefix, found in classes.items() if memory_part.startswith(prefix)), _OTHER)
