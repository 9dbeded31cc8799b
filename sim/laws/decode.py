"""How long the layers of a decode take: every byte once through the device's memory, plus a cost per layer.

t = bytes / (e B) + FLOPs / (P eg) + tau        seconds; B datasheet bandwidth, P eg the GEMM rate
The cost per layer (some twenty short kernels and their gaps) is what lets one law explain 4-bit, 16-bit and 70B models.
Constants per memory class: fit over llama.cpp token generation (README of GPU-Benchmarks-on-LLM-Inference at 00dd2bd, and
llama.cpp discussion 4167), mean context 850 tokens: GDDR on RTX 3090/4080/4090/A6000/6000 Ada, HBM on A100/H100, LPDDR on
Apple M2 and M3: median 5, 1 and 3 %.
Not modelled: graphs that merge launches, speculative decoding, very long contexts whose attention kernel is not a stream.
"""

from __future__ import annotations

from typing import NamedTuple


class DecodeClass(NamedTuple):
    """Share of the datasheet bandwidth that matrix-vector kernels reach, and seconds per layer beside the bytes."""

    efficiency: float
    layer_s: float


#: by prefix of the memory technology's name
DECODE_CLASSES = {
    "gddr": DecodeClass(0.88, 0.085e-3),
    "hbm": DecodeClass(0.72, 0.140e-3),
    "lpddr": DecodeClass(0.89, 0.155e-3),
}
#: a technology without measurements: the middle of the three ("assumed")
_OTHER = DecodeClass(0.83, 0.127e-3)


def decode_class(memory_part: str) -> DecodeClass:
    """Constants of a memory technology by its part name, such as "gddr6x" or "hbm3"."""
    return next((found for prefix, found in DECODE_CLASSES.items() if memory_part.startswith(prefix)), _OTHER)


def decode_time(
    size_bytes: float, flops: float, *, memory_part: str, bandwidth_bytes_per_s: float, flops_per_s: float
) -> float:
    """Seconds of one layer's matrix-vector work: `size_bytes` read and written, `flops` computed at `flops_per_s`."""
    found = decode_class(memory_part)
    return size_bytes / (found.efficiency * bandwidth_bytes_per_s) + flops / flops_per_s + found.layer_s
