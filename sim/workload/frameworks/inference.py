"""Inference profiles: what a serving framework does with kernels and copies, declared once per framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from sim.errors import Fault, InputError
from sim.held_out import as_unseen


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceProfile:
    """What one framework does. Shares are of what the part or the link can do alone; traffic is per byte or element."""

    name: str
    source: str
    gemm_variant: str = ""  # kernel family of the prefill's GEMMs, see sim.laws.kernels; "" = the vendor's library
    attention_variant: str = ""  # fused attention of the prefill, see a part's attention_efficiency; "" = its default
    is_native: bool = True  # formats that the GPU has units for are multiplied in them, not dequantised to 16 bits
    prefill_tokens: int = 0  # tokens of a prompt per pass over the weights; 0 = all
    dispatch_layer_s: float = 0.0  # the CPU needs this long to launch a layer's kernels of a decode
    quantised_layer_s: float = 0.0  # and this much longer where it calls bitsandbytes for each product with nf4 weights
    loads_quantised: bool = False  # files whose blocks alone are quantised: embedding and head in 16 bits
    quantises_head: bool = False  # and the head after all, as every product of the model
    outgrown_cache: float = 0.0  # of the cache's bytes, what the allocator holds besides in blocks that it outgrew
    dequantised_bytes: float = 0.0  # per element of the largest nf4 matrix, copies of it in 16 bits while a prompt is computed
    is_fused_join: bool = False  # small all-reduces run inside the step's own kernels, without the vendor's library
    split_layer_s: float = 0.0  # per layer and GPU, where the host joins the parts of a layer instead of a collective
    copy_share: float = 1.0  # of a copy's own rate that streamed weights and caches reach
    prefetch_layers: int = 1  # layers fetched ahead of the one that computes
    is_pinned: bool = True  # what is fetched lies in page-locked memory
    is_cache_pinned: bool = True  # and so does the memory that the cache and the hidden states are stored to
    is_cpu_attention: bool = False  # decode attention over a 16-bit cache in host memory runs on the CPU
    cpu_attention_traffic: float = 1.0  # host bytes moved per byte of cache by that attention
    is_decode_serial: bool = False  # copies from host memory during a decode do not run beside the compute
    attention_traffic: float = 1.0  # GPU bytes moved per byte of cache by decode attention on the GPU
    dequantise_traffic: float = 0.0  # GPU bytes moved per element to turn 4-bit storage into 16 bits ahead of the kernels
    is_cpu_backend: bool = False  # the CPU computes layers whose weights lie in host memory; else they stream to the GPU
    cpu_batch_tokens: int = (
        32  # up to so many tokens per pass it does, larger passes copy the weights to the GPU; 0 = any number
    )
    handover_s: float = 0.0  # per layer that GPU and CPU share: both ways, with their synchronisation
    is_direct_storage: bool = False  # storage to GPU memory without a bounce through host memory
    #: field -> tables of measurements ("publication" or "publication/table") that it was fitted on
    fitted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: what one would assume for such a field without those tables; else the default above
    priors: Mapping[str, float] = field(default_factory=dict)


_DEEPSPEED = (
    "copies inside DeepSpeed reach 0.83 of the microbenchmark (20.8 of 25 GB/s on PCIe 4.0, Deep Optimizer States logs)"
)
_EAGER = (
    "Python launches a decode layer's kernels in about 0.9 ms: 7B at 30 ms on A5000 (litgpt issue 607), 34 ms on A10 "
    "(lmdeploy issue 210), 25 ms on A100 (FasterTransformer issue 506)"
)
#: without litgpt's own: 25 ms for the 32 layers of a 7B on A100, whose weights stream in 7 (FasterTransformer issue 506)
_EAGER_PRIOR_S = 0.78e-3
#: of rows joined by the host, without measurements: seven matrices a layer, for each a copy of its inputs to the other GPU and
#: one of its rows back, 10 us each (ggml-cuda.cu, ggml_cuda_op_mul_mat)
_JOIN_PRIOR_S = 0.14e-3
#: seconds of Python per product with nf4 weights; without measurements: of its fifteen calls (matmul_4bit, gemv_4bit, the
#: quantisation state, scales of scales) 10 us of Python and driver each
_PRODUCT_S, _PRODUCT_PRIOR_S = 0.155e-3, 150e-6
_BITSANDBYTES = (
    "bitsandbytes takes 0.155 ms of Python for each product of a decode, two thirds of it without double quantisation: fit, "
    "LitGPT's resource tables (A100: 7B and 13B, 160 and 200 products longer by 25 and 29 ms); seven products a layer, five "
    "where q, k and v are one"
)
_GROWN = (
    "DynamicCache concatenates keys and values anew for each token, and PyTorch's allocator keeps the blocks that they "
    "outgrew: as much again as the cache (fit, Qwen README: 7B with 1 to 32 sequences, and the misfit of 64)"
)
_EAGER_FITTED = {"dispatch_layer_s": ("litgpt-607",), "quantised_layer_s": ("litgpt-tables",)}
_LLAMA_CPP = InferenceProfile(
    name="llama.cpp",
    source="llama.cpp, CUDA and Metal back ends: no number format of the GPU is used directly, prompts in passes of "
    "512 tokens (n_ubatch); a layer split by rows (tensor_parallel) is joined by the host: fit over 27 cells of 2 to 6 "
    "GPUs, GPU-Benchmarks-on-LLM-Inference at 00dd2bd",
    gemm_variant="ggml",
    is_native=False,
    prefill_tokens=512,
    split_layer_s=0.14e-3,
    is_cpu_backend=True,
    handover_s=0.1e-3,
    fitted={"split_layer_s": ("gpu-benchmarks-llm",)},
    priors={"split_layer_s": _JOIN_PRIOR_S},
)
INFERENCE_PROFILES = {
    profile.name: profile
    for profile in (
        InferenceProfile(
            name="auto", source="generic: vendor kernels, a decode token as one graph, one layer fetched ahead",
            is_fused_join=True,
        ),
        InferenceProfile(
            name="transformers",
            source=f"Hugging Face Transformers, eager; {_EAGER}; {_BITSANDBYTES}; {_GROWN}",
            dispatch_layer_s=0.9e-3,
            quantised_layer_s=7 * _PRODUCT_S, loads_quantised=True, dequantised_bytes=2.0, outgrown_cache=1.0,
            fitted={**_EAGER_FITTED, "outgrown_cache": ("qwen-readme",)},
            priors={
                "dispatch_layer_s": _EAGER_PRIOR_S, "quantised_layer_s": 7 * _PRODUCT_PRIOR_S, "outgrown_cache": 0.5,
            },
        ),
        InferenceProfile(
            name="litgpt", source=f"litgpt generate/base.py, eager; {_EAGER}; {_BITSANDBYTES}", dispatch_layer_s=0.9e-3,
            quantised_layer_s=5 * _PRODUCT_S, loads_quantised=True, quantises_head=True, dequantised_bytes=4.0,
            fitted=_EAGER_FITTED,
            priors={"dispatch_layer_s": _EAGER_PRIOR_S, "quantised_layer_s": 5 * _PRODUCT_PRIOR_S},
        ),
        _LLAMA_CPP,
        replace(
            _LLAMA_CPP,
            name="llama.cpp-2025",
            source="llama.cpp of 2025: CUDA and HIP back ends capture a pass as one graph and fuse its small kernels (pull "
            "request 6766, on by default), attention is fused as in FlashAttention-2 (fattn-mma); all else as llama.cpp",
            gemm_variant="ggml-graph",
            attention_variant="flash2",
        ),
        InferenceProfile(
            name="ktransformers",
            source="KTransformers: routed experts on the CPU whatever the batch (DeepSeek-R1/V3 tutorial at 034a116), the "
            "rest on the GPU as one graph; prompts in chunks of 8192 tokens; both hand over in "
            "0.25 ms per layer: fit over its decodes",
            gemm_variant="ggml", is_native=False, prefill_tokens=8192, is_cpu_backend=True, cpu_batch_tokens=0,
            handover_s=0.25e-3, fitted={"handover_s": ("ktransformers",)}, priors={"handover_s": 0.1e-3},
        ),
        InferenceProfile(
            name="vllm",
            source="vLLM: prompts in chunks of 8192 tokens (max_num_batched_tokens), CUDA graphs; weights on the host "
            "(cpu_offload_gb) are copied on the stream that computes (models/utils.py, pull request 6496)",
            prefetch_layers=0, prefill_tokens=8192, is_fused_join=True, attention_variant="flash2", loads_quantised=True,
        ),
        InferenceProfile(name="deepspeed-zero-inference", source=f"ZeRO-Inference; {_DEEPSPEED}", copy_share=0.83),
        InferenceProfile(
            name="deepspeed-zero-inference-gds", source=f"ZeRO-Inference with GPUDirect Storage; {_DEEPSPEED}", copy_share=0.83,
            is_direct_storage=True,
        ),
        InferenceProfile(
            name="flexgen",
            source="FlexGen (arXiv 2303.06865) and its cost model (experimental/cost_model.py at 004ffef): block schedule; "
            "attention on the CPU at 12.3 GB of cache per second of a host of 110 GB/s (fp16 turned into fp32 and copied to "
            "be contiguous: nine bytes per byte), on the GPU at 79 GB/s of a T4's 256; cache to host at 0.97 GB/s: pageable; "
            "copies of a decode are added to its compute; 4-bit groups are unpacked, converted, scaled and shifted by "
            "PyTorch kernels of their own (17 bytes per element, counted in compression.py)",
            is_cpu_attention=True, cpu_attention_traffic=9.0, is_cache_pinned=False, is_decode_serial=True,
            attention_traffic=3.2, dequantise_traffic=17.0,
        ),
        InferenceProfile(
            name="accelerate", source=f"Hugging Face Accelerate, device_map offload: no prefetch, pageable weights; {_EAGER}",
            prefetch_layers=0, is_pinned=False, is_cache_pinned=False, dispatch_layer_s=0.9e-3,
        ),
    )
}  # fmt: skip


def inference_profile(name: str) -> InferenceProfile:
    """The profile of that name, with plain values for what is held out; InputError with a suggestion otherwise."""
    if name in INFERENCE_PROFILES:
        return as_unseen(INFERENCE_PROFILES[name])
    raise InputError(Fault(what=f"unknown framework {name!r}", remedy=remedy(name), path="workload.inference.framework"))


#: what people call the profiles, and what computes as they do
_ALSO_CALLED = {
    "pytorch": "transformers", "torch": "transformers", "hf": "transformers", "huggingface": "transformers",
    "ollama": "llama.cpp",
    "lmstudio": "llama.cpp", "lm-studio": "llama.cpp", "koboldcpp": "llama.cpp", "llamacpp": "llama.cpp", "gguf": "llama.cpp",
    "llamafile": "llama.cpp", "gpt4all": "llama.cpp", "jan": "llama.cpp", "mlx": "llama.cpp", "mlx-lm": "llama.cpp",
    "exllamav2": "llama.cpp", "tabbyapi": "llama.cpp", "airllm": "flexgen",
    "text-generation-inference": "vllm", "aphrodite": "vllm",
    "sglang": "vllm", "tgi": "vllm", "lmdeploy": "vllm", "tensorrt-llm": "vllm", "trt-llm": "vllm",
    "deepspeed": "deepspeed-zero-inference",
}  # fmt: skip


def remedy(name: str) -> str:
    """What to write in place of an unknown profile's name."""
    if name.lower() in ("fsdp", "fully-sharded"):
        return "weights that GPUs gather for every token are not modelled: write tensor_parallel, or placement: {weights: dram}"
    known = _ALSO_CALLED.get(name.lower())
    near = [known] if known else get_close_matches(name, INFERENCE_PROFILES, n=1)
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(INFERENCE_PROFILES)}"
