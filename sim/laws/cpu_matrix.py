"""How fast the cores of a socket multiply matrices: prompts and answers of models that a CPU computes.

t = FLOPs / (cores f c) + operations b cores     seconds; f FLOP per core and cycle, c the clock, b the barrier per core
The bytes of weights and cache are a stream of their own, added (host updates). Cores join after every operation.
f by what multiplies: ggml's dot products, by vector width; a library's tiles (AMX) where the socket has them; attention.
Not modelled: slower efficiency cores, clocks that fall under AVX-512, caches that hold a small model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.held_out import Fitted, is_held_out
from sim.records import Kernel

#: ggml, FLOP per core and cycle of the stated clock: fit over llama.cpp prompt evaluation on CPUs, +-30 %: Core i5-9500,
#: i7-7820HQ, Threadripper 3970X (normiebench issues 34, 42, 52), M2 Pro (GPU-Benchmarks-on-LLM-Inference issue 1): 20 to 31;
#: without it half of two 256-bit units
GGML_FLOP = Fitted(25.0, 16.0, ("gpu-benchmarks-llm-1",))
#: and on Apple's cores, whose vectors multiply 16-bit floats: three loads of 128 bits a cycle feed one and a half products of
#: eight numbers (two operands each; the three load ports are those of D. Johnson, "Firestorm overview")
_APPLE_PRIOR = 1.5 * 2 * 8
#: the same with AVX-512: Ryzen 7950X (ik_llama.cpp pull request 533: 170 t/s), 8840U, i5-1135G7 (normiebench 8, 46), Xeon 6454S
#: (KTransformers 0.2): 30 to 42; without it half of two 512-bit units
GGML_AVX512_FLOP = Fitted(36.0, 32.0, ("ktransformers",))
#: tiles of AMX, FLOP per core and cycle in 16 bits: 20 TFLOP/s on a Sapphire Rapids socket of 40 cores at 2 GHz (LIA, ISCA
#: 2025), an eighth of the peak; +-50 %
AMX_FLOP = 250.0
#: attention of ggml over a prompt: 75 ms per layer and 1024 tokens of llama.cpp pull request 6083, less the weights' copy, on a
#: desktop of 24 cores at 3 GHz; +-50 %. Without it a third of the above
ATTENTION_FLOP = Fitted(5.0, 16.0 / 3, ("llamacpp-pr-6083",))
#: share of a library's products that its fused attention reaches (assumed, +-50 %: as on GPUs)
FUSED_SHARE = 0.5
#: seconds per core that cores wait for each other after an operation (assumed, +-50 %: 1 us on 10 cores, OpenMP barriers)
BARRIER_S_PER_CORE = 0.1e-6
#: clock of a CPU that states none (assumed: between mobile and server parts)
_CLOCK_HZ = 3.0e9
_AMX_FAMILIES = frozenset({"sapphire-rapids", "emerald-rapids", "granite-rapids"})
_AVX512_FAMILIES = _AMX_FAMILIES | {"skylake", "cascade-lake", "ice-lake", "zen4", "zen5"}


def core_seconds(kernel: Kernel, part: Mapping[str, Any]) -> float:
    """Core-seconds of the arithmetic of `kernel.count` operations on a socket."""
    return kernel.count * kernel.flops * _cores(part) / socket_rate(part, (kernel,))


def barrier_seconds(kernel: Kernel, num_cores: float) -> float:
    """Seconds that `num_cores` cores wait for each other over `kernel.count` operations."""
    return kernel.count * BARRIER_S_PER_CORE * num_cores


def socket_rate(part: Mapping[str, Any], kernels: Iterable[Kernel]) -> float:
    """FLOP/s of all cores of a socket in the fastest of the kernels."""
    fastest = max((flop_per_cycle(kernel, str(part.get("family", ""))) for kernel in kernels), default=GGML_FLOP.get())
    return _cores(part) * clock_hz(part) * fastest


def clock_hz(part: Mapping[str, Any]) -> float:
    """All-core clock of a CPU as its part states it."""
    return float(part.get("clock") or 0.0) or _CLOCK_HZ


def _cores(part: Mapping[str, Any]) -> float:
    return float(part.get("cores") or 1.0)


def flop_per_cycle(kernel: Kernel, family: str) -> float:
    """FLOP per core and cycle of a kernel on a microarchitecture."""
    is_ggml = kernel.variant.startswith("ggml")
    if kernel.kind == "attention" and is_ggml:
        return ATTENTION_FLOP.get()
    ggml = (GGML_AVX512_FLOP if family in _AVX512_FAMILIES else GGML_FLOP).get()
    if family == "apple" and is_held_out(GGML_FLOP.fitted_on):
        ggml = _APPLE_PRIOR
    has_tiles = family in _AMX_FAMILIES and not is_ggml and kernel.dtype in ("bf16", "int8")
    whole = AMX_FLOP if has_tiles else ggml
    return FUSED_SHARE * whole if kernel.kind == "attention" else whole
