"""How long a kernel runs alone on a device: arithmetic plus memory plus launch, added, not maximised.

GEMM        T = 2 m n k / (P e) + bytes / B + t0
attention   T = FLOPs / (P16 ea d s / (s + 500)) + t0, its bytes hidden behind its arithmetic; d < 1 for heads narrower than 128
memory      T = bytes / B + t0
decode      laws/decode.py
Units: FLOP, bytes, seconds. Sources: fits over published training runs and GEMM benchmarks (docs/model.md, Kernels).
A GEMM that is repeated by itself finds what the last-level cache kept of its operands (C (1 - exp(-S / C)) of S bytes, by
address hash), and small ones leave multiprocessors idle (tiles of 128 x 128, split along k from 1024 terms on). Not modelled:
quantisation of more than one wave, clocks that fall with power, caches between kernels of a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, exp
from typing import Any, NamedTuple

from sim.held_out import Fitted, is_held_out
from sim.laws.decode import GGML_FITTED, decode_class, unpacking_s
from sim.records import Kernel

#: sequence length at which fused attention reaches half its rate (tokens); fit over FlashAttention benchmark rows
ATTENTION_HALF_LENGTH = 500.0
#: head width from which matrix products alone are assumed to set the rate; FLOPs per score and unit of width, forward and
#: backward; exponentials per multiprocessor and cycle
WIDE_HEAD, _FLOPS_PER_SCORE, _EXPONENTIALS = 128.0, 14.0, 16.0
#: suffix of an attention kernel that PyTorch runs block by block around a ring of context-parallel ranks
RING = "-ring"
#: rate of such blocks over that of one kernel. Counted: merging outputs and summing gradients of each block in fp32 moves
#: 138 B per query element, and gradients of keys and values travel unhidden, 7 % on H100; what else it costs is fitted on
#: torchtitan (8B and 405B, 2 to 8 ranks): +-15 %
RING_SHARE = Fitted(0.72, 0.93, ("torchtitan",))
#: formats tried in turn when a device has no peak for one
_FALLBACK = {
    "fp4": ("fp8", "fp16", "bf16", "tf32", "fp32"), "nf4": ("bf16", "fp16", "fp32"), "fp8": ("bf16", "fp16", "tf32", "fp32"),
    "int8": ("fp8", "bf16", "fp16", "fp32"), "bf16": ("fp16", "tf32", "fp32"), "fp16": ("bf16", "tf32", "fp32"),
    "tf32": ("fp32", "bf16", "fp16"), "fp32": ("tf32", "bf16", "fp16"),
}  # fmt: skip
#: energy of an operation in a format over one in 16 bits
_ENERGY = {"fp8": 0.5, "int8": 0.5, "fp4": 0.25, "tf32": 2.0, "fp32": 4.0}
#: achieved share of peak on large GEMMs, and of the bf16 peak by fused attention, for a part that states none: the
#: middle of the parts that do
_GEMM_EFFICIENCY = 0.6
_ATTENTION_EFFICIENCY = 0.35


def peak(part: Mapping[str, Any], dtype: str) -> tuple[str, float]:
    """The number format that the device computes `dtype` in, and its dense peak in FLOP/s."""
    compute = part["compute"]
    for name in (dtype, *_FALLBACK.get(dtype, ())):
        if compute.get(name):
            return name, float(compute[name])
    raise KeyError(dtype)


def gemm_rate(part: Mapping[str, Any], dtype: str, *, is_alone: bool = False) -> float:
    """FLOP/s of a large GEMM inside a program, or run back to back by itself; both at most what the board's power feeds."""
    name, rate = peak(part, dtype)
    efficiency = float((part.get("gemm_efficiency") or {}).get(name, _GEMM_EFFICIENCY))
    if is_alone:
        efficiency = float((part.get("gemm_alone") or {}).get(name, efficiency))
    watts, joules = float(part.get("power") or 0.0), float(part.get("joules_per_flop") or 0.0) * _ENERGY.get(name, 1.0)
    return min(efficiency * rate, watts / joules) if watts and joules else efficiency * rate


#: rows and columns of the tiles of large matrix products, and terms of a sum from which libraries split it (CUTLASS,
#: "Efficient GEMM in CUDA")
TILE, SPLIT_TERMS = 128, 1024
#: variant of a GEMM that a benchmark repeats: boosted clocks, warm caches, the library's best kernel
ALONE = "alone"


class GemmVariant(NamedTuple):
    """GEMM kernels that are not the vendor's: share of its rate, and FLOPs per multiprocessor and cycle at most."""

    share: float
    flops_per_core_cycle: float


#: ggml (llama.cpp): warp-level matrix instructions, which newer tensor cores feed far below their peak; block formats are
#: dequantised on the way. Fit over llama.cpp prompt evaluation of 7B and 8B models on RTX 3090, 4080, 4090, A100, H100, M2
#: Ultra, M3 Max (GPU-Benchmarks-on-LLM-Inference at 00dd2bd: December 2023, about 340 tokens, and May 2024, 1024 tokens, which
#: is up to a third faster on CUDA): +-25 %
GEMM_VARIANTS = {"ggml": GemmVariant(0.96, 560.0), "ggml-block": GemmVariant(0.80, 320.0)}
#: block formats since June 2024 on NVIDIA's cards: products of 8-bit integers on tensor cores (mmq.cuh), scaled per block in
#: between: fit over prompts of Llama 2 7B on RTX 3050, 3090 and 4090 (localllama-efficiency: 650 to 710). A DGX Spark
#: stays at the former rate (llama.cpp benches/dgx-spark.md)
INTEGER_MMA, INTEGER_MMA_FITTED = GemmVariant(1.6, 680.0), ("localllama-efficiency",)
#: share of that which products of a mixture's experts reach (variants ending in "+experts"): tokens gathered per expert, tiles
#: half full; fit over prompts of gpt-oss and Qwen3 30B-A3B on a DGX Spark (llama.cpp benches/dgx-spark.md): 0.63 to 0.68
EXPERTS_FITTED, EXPERTS_SHARE = ("llamacpp-dgx-spark",), 0.65
#: without those measurements, on matrix units: two thirds of the vendor's library, whatever the format, no more per
#: multiprocessor and cycle than the tensor cores of GeForce Ampere do with fp32 sums, for which the kernels were written (GA102
#: whitepaper: 512). Where the ALUs multiply, tiled by hand 0.94 of the library (Boehm, "How to optimize a CUDA matmul kernel",
#: 2022), and of a block format 32 / 35 of it: each weight takes three operations more per tile of 32 columns (ggml-metal,
#: kernel_mul_mm). Of experts the part of a tile that their tokens fill, half a tile being lost to each
_VARIANT_PRIOR = GemmVariant(0.67, 512.0)
_ALU_PRIORS = {"ggml": GemmVariant(0.94, 512.0), "ggml-block": GemmVariant(0.94 * 32 / 35, 512.0)}
#: matrix units compute tf32, or do more than this times the operations of the ALUs, which may do two of 16 bits for one of 32
_MATRIX_UNITS = 2.5


def _unseen_variant(part: Mapping[str, Any], name: str) -> GemmVariant:
    """What one would assume of ggml's kernels on a part without their measurements."""
    compute = part["compute"]
    is_far_above = float(compute.get("fp16") or 0.0) > _MATRIX_UNITS * float(compute.get("fp32") or 0.0)
    return _VARIANT_PRIOR if is_far_above or compute.get("tf32") else _ALU_PRIORS[name]


def multiplied_in(part: Mapping[str, Any], dtype: str, variant: str) -> str:
    """The number format that kernels of `variant` multiply operands of `dtype` in: ggml's block formats as 8-bit integers."""
    memory = str((part.get("memory") or {}).get("part", ""))
    is_card = part.get("vendor") == "nvidia" and memory.startswith(("gddr", "hbm"))
    return "int8" if is_card and variant.startswith("ggml-graph-block") and part["compute"].get("int8") else dtype


def variant_rate(part: Mapping[str, Any], dtype: str, variant: str, num_rows: float = 0.0) -> float:
    """FLOP/s of a large GEMM by the kernels of `variant` ("" = the vendor's library); `num_rows` = tokens of each expert."""
    name, _, of = variant.replace("-graph", "").partition("+")
    rate, found = gemm_rate(part, dtype, is_alone=variant == ALONE), GEMM_VARIANTS.get(name)
    if found is None:
        return rate
    is_integer = multiplied_in(part, dtype, variant) == "int8"
    if is_integer:
        found = INTEGER_MMA
    if is_held_out(INTEGER_MMA_FITTED if is_integer else GGML_FITTED):
        found = _unseen_variant(part, name)
    if of:
        share = num_rows / (num_rows + TILE / 2) if num_rows and is_held_out(EXPERTS_FITTED) else EXPERTS_SHARE
        found = GemmVariant(*(share * value for value in found))
    cycles = float(part.get("cores") or 0) * float(part.get("clock") or 0.0)
    return min(found.share * rate, found.flops_per_core_cycle * cycles) if cycles else found.share * rate


def zero_copy_bytes(kernel: Kernel) -> tuple[float, float]:
    """Bytes that one kernel reads and writes where its operands lie in host memory, which the GPU does not cache.

    "Because the data is not cached on the GPU, mapped pinned memory should be read or written only once" (CUDA C++ Best
    Practices Guide, zero copy): each block of a matrix product fetches its rows and columns itself. Others read once.
    """
    operands = kernel.m * kernel.k + kernel.k * kernel.n
    if kernel.kind != "gemm" or not operands:
        return kernel.read_bytes, kernel.write_bytes
    fetched = kernel.m * kernel.k * ceil(kernel.n / TILE) + kernel.k * kernel.n * ceil(kernel.m / TILE)
    return kernel.read_bytes * max(1.0, fetched / operands), kernel.write_bytes


def uncached_bytes(size_bytes: float, cache_bytes: float) -> float:
    """Bytes of a repeated kernel's traffic that its last-level cache does not hold from one repetition to the next."""
    return size_bytes - cache_bytes * (1.0 - exp(-size_bytes / cache_bytes)) if cache_bytes > 0.0 else size_bytes


def fill(m: int, n: int, k: int, num_cores: int) -> float:
    """Share of the multiprocessors that have a tile of an [m, k] x [k, n] product to compute, at most 1."""
    tiles = ceil(m / TILE) * ceil(n / TILE) * max(1, k // SPLIT_TERMS)
    return min(1.0, tiles / num_cores) if num_cores and tiles else 1.0


def narrow_heads(part: Mapping[str, Any], rate_flops_per_s: float, head_dim: float) -> float:
    """Share of the rate at heads of 128 that attention keeps with narrower ones: each score still takes its exponentials.

    Matrix products of a score shrink with the head, its exponential does not (16 per multiprocessor and cycle from Volta to
    Blackwell, CUDA programming guide, throughput of special functions; twice per score, forward and backward).
    """
    cycles = float(part.get("cores") or 0) * float(part.get("clock") or 0.0)
    if not cycles or part.get("vendor") != "nvidia" or not 0 < head_dim < WIDE_HEAD:
        return 1.0
    exponentials = 2.0 / (_EXPONENTIALS * cycles)
    wide = max(_FLOPS_PER_SCORE * WIDE_HEAD / rate_flops_per_s, exponentials)
    narrow = (wide - exponentials) * head_dim / WIDE_HEAD + exponentials
    return wide * head_dim / WIDE_HEAD / narrow


def attention_rate(part: Mapping[str, Any], variant: str, sequence_length: float, head_dim: float = 0.0) -> float:
    """FLOP/s of fused attention over that length by heads of that width; the rate does not depend on the GEMM format."""
    _, rate = peak(part, "bf16")
    efficiency = part.get("attention_efficiency") or {}
    rate *= float(efficiency.get(variant.removesuffix(RING), efficiency.get("default", _ATTENTION_EFFICIENCY)))
    pace = RING_SHARE.get() if variant.endswith(RING) else 1.0
    pace *= narrow_heads(part, rate, head_dim)
    return pace * rate * sequence_length / (sequence_length + ATTENTION_HALF_LENGTH)


def memory_rate(part: Mapping[str, Any]) -> float:
    """Bytes/s that a streaming kernel moves: datasheet bandwidth times the class's efficiency."""
    memory = part["memory"]
    shares = part.get("kernel_bandwidth") or {}
    efficiency = shares.get("triad") or memory.get("efficiency") or 0.88
    return float(memory["bandwidth"]) * float(efficiency)


def read_share(part: Mapping[str, Any]) -> float:
    """Share of the datasheet bandwidth that a kernel which only reads reaches; of a triad where none was measured."""
    read = (part.get("kernel_bandwidth") or {}).get("read")
    return float(read) if read else memory_rate(part) / float(part["memory"]["bandwidth"])


class Parts(NamedTuple):
    """What a kernel's seconds went into: arithmetic, memory traffic, and launch (which no faster resource shortens)."""

    arithmetic_s: float
    memory_s: float
    fixed_s: float


def solo_time(kernel: Kernel, part: Mapping[str, Any], *, bandwidth_bytes_per_s: float = 0.0) -> float:
    """Seconds that all `kernel.count` kernels take back to back on an otherwise idle device.

    `part` holds the device's datasheet in SI; `bandwidth_bytes_per_s` replaces its own memory bandwidth when the
    operands live elsewhere. A recorded kernel takes what was measured.
    """
    return sum(solo_parts(kernel, part, bandwidth_bytes_per_s=bandwidth_bytes_per_s))


def solo_parts(kernel: Kernel, part: Mapping[str, Any], *, bandwidth_bytes_per_s: float = 0.0) -> Parts:
    """The seconds of :func:`solo_time` by what they went into; those of a recorded kernel count as arithmetic."""
    if kernel.recorded_s > 0:
        return Parts(kernel.recorded_s * kernel.count, 0.0, 0.0)
    size = kernel.read_bytes + kernel.write_bytes
    if kernel.kind == "gemv":
        bandwidth = float(part["memory"]["bandwidth"])
        clock = float(part.get("clock") or 0.0)
        found = decode_class(
            kernel.variant, str(part["memory"].get("part", "")), memory_rate(part) / bandwidth,
            float(part.get("launch_latency") or 5e-6), clock, read_share(part),
        )  # fmt: skip
        memory = size / (found.efficiency * (bandwidth_bytes_per_s or bandwidth))
        arithmetic = kernel.flops / variant_rate(part, kernel.dtype, kernel.variant)
        arithmetic += unpacking_s(kernel.variant, kernel.read_bytes, float(part.get("cores") or 0), clock)
        return Parts(kernel.count * arithmetic, kernel.count * memory, kernel.count * found.layer_s)
    arithmetic = memory = 0.0
    if kernel.kind == "attention":
        arithmetic = kernel.flops / attention_rate(part, kernel.variant, kernel.sequence_length or 1, kernel.k)
    else:
        if kernel.flops:
            arithmetic = kernel.flops / variant_rate(part, kernel.dtype, kernel.variant, kernel.m)
        if kernel.variant == ALONE:
            arithmetic /= fill(kernel.m, kernel.n, kernel.k, int(part.get("cores") or 0))
            size = uncached_bytes(size, float(part.get("last_level_cache") or 0.0))
        if size:
            memory = size / (bandwidth_bytes_per_s or memory_rate(part))
    fixed = float(part.get("launch_latency", 0.0))
    return Parts(kernel.count * arithmetic, kernel.count * memory, kernel.count * fixed)
