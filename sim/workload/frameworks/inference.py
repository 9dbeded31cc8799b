"""Inference profiles: what a serving framework does with kernels and copies, declared once per framework."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from sim.errors import Fault, InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceProfile:
    """What one framework does. Shares are of what the part or the link can do alone."""

    name: str
    source: str
    gemm_variant: str = ""  # kernel family of the prefill's GEMMs, see sim.laws.kernels; "" = the vendor's library
    copy_share: float = 1.0  # of a copy's own rate that streamed weights and caches reach
    prefetch_layers: int = 1  # layers fetched ahead of the one that computes
    is_pinned: bool = True  # streamed weights lie in page-locked memory
    is_cache_pinned: bool = True  # and so do the cache and the hidden states
    is_cpu_attention: bool = False  # decode attention over a cache in host memory runs on the CPU
    cpu_attention_traffic: float = 1.0  # bytes moved per byte of cache by that attention
    is_direct_storage: bool = False  # storage to GPU memory without a bounce through host memory


_DEEPSPEED = (
    "copies inside DeepSpeed reach 0.83 of the microbenchmark (20.8 of 25 GB/s on PCIe 4.0, Deep Optimizer States logs)"
)
INFERENCE_PROFILES = {
    profile.name: profile
    for profile in (
        InferenceProfile(name="auto", source="generic: vendor kernels, one layer fetched ahead"),
        InferenceProfile(name="llama.cpp", source="llama.cpp, CUDA and Metal back ends", gemm_variant="ggml"),
        InferenceProfile(name="deepspeed-zero-inference", source=f"ZeRO-Inference; {_DEEPSPEED}", copy_share=0.83),
        InferenceProfile(
            name="deepspeed-zero-inference-gds", source=f"ZeRO-Inference with GPUDirect Storage; {_DEEPSPEED}", copy_share=0.83,
            is_direct_storage=True,
        ),
        InferenceProfile(
            name="flexgen",
            source="FlexGen (arXiv 2303.06865): block schedule; CPU attention reads the fp16 cache, writes it as fp32 and "
            "reads that (1 + 2 + 2 bytes per byte); its cost model has 0.97 GB/s to host for the cache: pageable",
            is_cpu_attention=True, cpu_attention_traffic=5.0, is_cache_pinned=False,
        ),
        InferenceProfile(
            name="accelerate", source="Hugging Face Accelerate, device_map offload: no prefetch, pageable weights",
            prefetch_layers=0, is_pinned=False, is_cache_pinned=False,
        ),
    )
}  # fmt: skip


def inference_profile(name: str) -> InferenceProfile:
    """The profile of that name; InputError with a suggestion otherwise."""
    if name in INFERENCE_PROFILES:
        return INFERENCE_PROFILES[name]
    near = get_close_matches(name, INFERENCE_PROFILES, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(INFERENCE_PROFILES)}"
    raise InputError(Fault(what=f"unknown framework {name!r}", remedy=remedy, path="workload.inference.framework"))
