"""How long the layers of a decode take: every byte once through the device's memory, plus a cost per layer.

t = bytes / (e B) + weights / U + FLOPs / (P eg) + tau        seconds; B datasheet bandwidth, P eg the GEMM rate
The cost per layer (some twenty short kernels and their gaps) is what lets one law explain 4-bit, 16-bit and 70B models.
It belongs to the runtime. ggml: fit over llama.cpp token generation (README of GPU-Benchmarks-on-LLM-Inference at 00dd2bd,
and llama.cpp discussion 4167), mean context 850 tokens: GDDR on RTX 3090/4080/4090/A6000/6000 Ada, HBM on A100/H100, LPDDR
on Apple M2 and M3: median 5, 1 and 3 %. Runtimes that capture a pass as one graph: the part's own streaming efficiency,
85,000 cycles per layer, and U = 64 weights per cycle and multiprocessor where quantised ones are unpacked: gpt-fast on
A100 (its README at 0f925b5: 7B and 70B, 16 and 8 bit, 1 to 8 GPUs: 53 to 78 us, one outlier).
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
#: an integrated GPU of 16 SMs at 1.3 GHz beside slow Arm cores: unpacking, not memory, limits its matrix-vector kernels, and
#: launches take four times those of a desktop. Fit over 7B, 13B and 70B on AGX Orin (holohub issue 170); as graphs its 8B at
#: 25 tokens/s (MiniCPM issue 331) was predicted, not fitted
JETSON = DecodeClass(0.645, 0.48e-3)
JETSON_FITTED = ("holohub-170",)
#: a technology without measurements: the middle of the three ("assumed")
_OTHER = DecodeClass(0.83, 0.127e-3)
#: GPU cycles per layer of a pass that is launched as one graph: the fixed parts of its kernels run at the GPU's own clock.
#: 60 us on A100 at 1.41 GHz (gpt-fast); without refitting MLC's on RTX 4090 and 3090 Ti come out 4 to 10 % too slow
GRAPH_LAYER_CYCLES = 60e-6 * 1.41e9
#: weights that such kernels unpack per cycle of a multiprocessor, beside the stream: each takes a conversion, of which it does
#: 64 from Volta to Hopper (CUDA C++ programming guide, throughput of native instructions). A100 with 8 bits keeps 0.82 of the
#: rate of 16, with 4 bits 0.69 to 0.74 (gpt-fast): 8.4 and 9.4 weights/ps over 108 at 1.41 GHz, 55 and 62 per cycle
UNPACKED_PER_CYCLE = 64.0
#: bytes of a weight with its share of the groups' scales
_UNPACKED_BYTES = {"unpack-8": 17 / 16, "unpack-4": 9 / 16}
#: of a GPU whose clock is not stated (Apple's)
_CLOCK_HZ = 1.41e9
#: tables that the constants above were fitted on, and what one would assume without them: twenty kernels a layer (ten of
#: them fused in a graph) at 5 us each; matrix-vector products read as a kernel does that only reads
GGML_FITTED = ("gpu-benchmarks-llm", "llamacpp-discussion-4167")
GGML_GRAPH_FITTED = ("llamacpp-dgx-spark", "geerlingguy-ai-benchmarks")
GRAPH_FITTED = ("gpt-fast",)
_KERNELS_PER_LAYER = 20
#: end of the variant of one small kernel more than a dense layer has, and what a router adds besides a sum per expert: gate,
#: softmax, order, choice, sum, quotient, scaling (llama-graph.cpp, build_moe_ffn; counted, not fitted); a graph fuses them
ROUTING, ROUTING_KERNELS = "/routing", 7
_GRAPH_PRIOR_S = 50e-6


def unpacking_s(variant: str, size_bytes: float, num_cores: float, clock_hz: float) -> float:
    """Seconds beside the stream that kernels of `num_cores` multiprocessors take to unpack so many bytes of weights."""
    stored = _UNPACKED_BYTES.get(variant)
    if stored is None or not num_cores:
        return 0.0
    return size_bytes / stored / (UNPACKED_PER_CYCLE * num_cores * (clock_hz or _CLOCK_HZ))


def decode_class(
    variant: str, memory_part: str, efficiency: float, launch_s: float = 5e-6, clock_hz: float = _CLOCK_HZ,
    read_efficiency: float = 0.0,
) -> DecodeClass:  # fmt: skip
    """Constants of a runtime's kernels ("ggml", else graphs) on a memory technology such as "gddr6x" or "hbm3".

    `efficiency` is the share of its bandwidth that the part's streaming kernels reach, `launch_s` the seconds between two of
    its kernels, `clock_hz` that of the GPU, `read_efficiency` the share that kernels which only read reach.
    """
    if variant.endswith(ROUTING):
        found = decode_class(variant.removesuffix(ROUTING), memory_part, efficiency, launch_s, clock_hz, read_efficiency)
        return DecodeClass(found.efficiency, 0.0 if _is_graph(variant, memory_part) else found.layer_s / _KERNELS_PER_LAYER)
    if not variant.startswith("ggml"):
        if is_held_out(GRAPH_FITTED):
            return DecodeClass(efficiency, _GRAPH_PRIOR_S)
        return DecodeClass(efficiency, GRAPH_LAYER_CYCLES / (clock_hz or _CLOCK_HZ))
    if memory_part.endswith("jetson"):
        if is_held_out(JETSON_FITTED):
            return DecodeClass(efficiency, _GRAPH_PRIOR_S if "graph" in variant else _KERNELS_PER_LAYER * launch_s)
        return DecodeClass(JETSON.efficiency, GGML_GRAPH_CLASSES["lpddr"].layer_s) if "graph" in variant else JETSON
    is_graph = _is_graph(variant, memory_part)
    if is_held_out(GGML_GRAPH_FITTED if is_graph else GGML_FITTED):
        return DecodeClass(read_efficiency or efficiency, _GRAPH_PRIOR_S if is_graph else _KERNELS_PER_LAYER * launch_s)
    classes = GGML_GRAPH_CLASSES if is_graph else GGML_CLASSES
    return next((found for prefix, found in classes.items() if memory_part.startswith(prefix)), _OTHER)


def _is_graph(variant: str, memory_part: str) -> bool:
    """Whether a pass of ggml's kernels is captured as one graph on a GPU with this memory."""
    is_recent = "graph" in variant or memory_part.endswith("-soc")  # those machines are younger than the graphs
    return is_recent and not memory_part.endswith("apple")  # Metal launches kernel by kernel
