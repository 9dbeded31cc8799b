"""What a recorded GPU kernel does, by its name, and what it must have moved and computed, by its operator's shapes.

Used by every importer of recordings. A kernel of unknown shape keeps its class: replay on another machine scales it by
the peak (arithmetic classes) or the memory bandwidth (all others) of the two parts.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from sim.records import Dtype, KernelKind

_ATTENTION = re.compile(r"flash|fmha|attention|_attn", re.I)
_ARITHMETIC = re.compile(
    r"gemm|cutlass|xmma|cijk_|matmul|winograd|implicit_conv|fprop|dgrad|wgrad|conv2d|conv3d|convolve|fft|cudnn.*conv|ck_tile.*gemm|"
    r"nvjet|triton_tem|triton_mm|fused_moe|marlin|wgmma|^bmm_",
    re.I,
)
#: pointwise kernels and reductions of torch.compile: their names list the operators that they fused, products among them
_FUSED = re.compile(r"triton_(?:poi|red|per|for)_fused", re.I)
#: attention of a few new tokens reads the whole cache and computes little
_DECODE = re.compile(r"paged_?attention|splitkv|batch_?decode|single_?decode|flash_?decod|decode_attention", re.I)
#: generation of a fused attention kernel by its name -> variant of the kernel law: on another part the same code runs.
#: FlashAttention-3 reaches what cuDNN's kernel does (its paper), the cutlass kernel of PyTorch what FlashAttention-1 does
_ATTENTION_VARIANTS = (
    (re.compile(r"cudnn|sdpa_sm|hopper|sm90|flash_?attn_?3|fa3", re.I), "cudnn"),
    (re.compile(r"fmha_(?:f|b)prop|fmha_dgrad|fmha_cutlass|efficient_attention", re.I), "flash1"),
    (re.compile(r"flash", re.I), "flash2"),
)
#: matrix-vector products: bound by memory, whatever their FLOPs; ggml's reach less of HBM than of GDDR
_VECTOR = re.compile(r"gemv|mul_mat_vec|mul_mat_q\w*_vec", re.I)
_GGML = re.compile(r"mul_mat_", re.I)
_OPTIMIZER = re.compile(r"multi_tensor_apply|adam|sgd_|adagrad|lamb|fused_?optim", re.I)
_EMBEDDING = re.compile(r"embedding|index_?select|gather|scatter|indexing|permute_", re.I)
_DTYPES: tuple[tuple[re.Pattern[str], Dtype], ...] = (
    # cuBLAS from 12.8 on: nvjet_[sm100_]<letters of inputs and output>: q e4m3, o e5m2, t bfloat16, h half, s single
    (re.compile(r"nvjet_(?:sm\d+_)?[qo]", re.I), "fp8"), (re.compile(r"nvjet_(?:sm\d+_)?t", re.I), "bf16"),
    (re.compile(r"nvjet_(?:sm\d+_)?h", re.I), "fp16"), (re.compile(r"nvjet_(?:sm\d+_)?(?!sm\d)s", re.I), "tf32"),
    (re.compile(r"e4m3|e5m2|fp8|f8", re.I), "fp8"),
    (re.compile(r"bf16|bfloat16", re.I), "bf16"),
    (re.compile(r"half|fp16|f16|h884|h1688|h16816|hgemm|s884|s16816|hmma", re.I), "fp16"),
    (re.compile(r"tf32|s1688|tensorop_s", re.I), "tf32"),
    (re.compile(r"imma|i8|int8|igemm", re.I), "int8"),
    (re.compile(r"sgemm|float|ffma|_SB_", re.I), "fp32"),
)  # fmt: skip
_TYPE_BYTES = {
    "float": 4, "double": 8, "c10::half": 2, "c10::bfloat16": 2, "half": 2, "bfloat16": 2, "long": 8, "long int": 8,
    "int": 4, "short": 2, "bool": 1, "unsigned char": 1, "signed char": 1, "char": 1, "byte": 1, "c10::complex<float>": 8,
    "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1, "float8_e4m3fn": 1, "int8": 1, "uint8": 1, "float32": 4, "float16": 2,
    "int32": 4, "int64": 8, "float64": 8,
}  # fmt: skip
_TYPE_DTYPE: dict[str, Dtype] = {
    "float": "fp32", "double": "fp32", "c10::half": "fp16", "half": "fp16", "c10::bfloat16": "bf16", "bfloat16": "bf16",
    "c10::float8_e4m3fn": "fp8", "c10::float8_e5m2": "fp8", "float32": "fp32", "float16": "fp16",
}  # fmt: skip


class Shapes(msgspec.Struct, frozen=True):
    """What a recording says about an operator's inputs: dimensions, element types, scalars as text (may be empty)."""

    dims: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()

    def element_bytes(self, index: int) -> float:
        """Bytes of one element of input `index`; 4 when its type is not recorded."""
        return float(_TYPE_BYTES.get(self.types[index].lower(), 4)) if index < len(self.types) else 4.0

    def size_bytes(self, index: int) -> float:
        """Bytes of input `index` (0 for scalars)."""
        dims = self.dims[index] if index < len(self.dims) else ()
        return math.prod(dims) * self.element_bytes(index) if dims else 0.0


class Amount(msgspec.Struct, frozen=True):
    """FLOPs and memory traffic of one operator; zero = not known."""

    flops: float = 0.0
    read_bytes: float = 0.0
    write_bytes: float = 0.0


Formula = Callable[[Shapes], float]
#: libraries of NVIDIA, AMD, Huawei, Moore Threads, Intel, Cambricon, Microsoft; CUB's kernels name CCCL, which is none
_LIBRARIES = re.compile(r"[nrhmx]ccl|oneccl|cncl|msccl", re.I)


@lru_cache(maxsize=2**16)
def is_communication(name: str) -> bool:
    """Whether a kernel's name is that of a communication library."""
    return _LIBRARIES.search(name) is not None


@lru_cache(maxsize=2**16)
def kind_of(name: str) -> KernelKind:
    """Class of a kernel by its name; "elementwise" stands for everything bound by memory."""
    if _FUSED.search(name) or _DECODE.search(name):
        return "elementwise"
    if _ATTENTION.search(name):
        return "attention"
    if _OPTIMIZER.search(name):
        return "optimizer"
    if _VECTOR.search(name):
        return "gemv"
    if _ARITHMETIC.search(name):
        return "gemm"
    if _EMBEDDING.search(name):
        return "embedding"
    return "elementwise"


@lru_cache(maxsize=2**16)
def variant_of(name: str) -> str:
    """Whose kernel it is, as the kernel law knows it: flash1, flash2, cudnn (attention), ggml (matrix-vector); "" otherwise."""
    kind = kind_of(name)
    if kind == "attention":
        return next((variant for pattern, variant in _ATTENTION_VARIANTS if pattern.search(name)), "")
    return "ggml" if kind == "gemv" and _GGML.search(name) else ""


def dtype_of(name: str, types: Sequence[str] = ()) -> Dtype:
    """Precision in which a kernel computes: by its name, else by its operator's first input, else fp32."""
    named = _named_dtype(name)
    if named is not None:
        return named
    return next((_TYPE_DTYPE[t.lower()] for t in types if t.lower() in _TYPE_DTYPE), "fp32")


@lru_cache(maxsize=2**16)
def _named_dtype(name: str) -> Dtype | None:
    return next((dtype for pattern, dtype in _DTYPES if pattern.search(name)), None)


def shapes_from(dims: object, types: object, scalars: object) -> Shapes:
    """`Input Dims`, `Input type`, `Concrete Inputs` as recorded -> Shapes; anything odd becomes an empty dimension."""

    def one(value: object) -> tuple[int, ...]:
        if isinstance(value, list | tuple) and all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in value):
            return tuple(value)
        return ()

    def texts(value: object) -> tuple[str, ...]:
        return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()

    return Shapes(tuple(one(d) for d in dims) if isinstance(dims, list | tuple) else (), texts(types), texts(scalars))


def amount_of(operator: str, shapes: Shapes) -> Amount:
    """FLOPs and traffic of an operator from the shapes of its inputs.

    Matrix products, convolutions and attention have formulas; every other operator reads its inputs once and writes as
    much as its largest input. Outputs are not recorded, caches are ignored: good for a ratio of parts, not for a bill.
    """
    name = operator.rsplit("::", 1)[-1]
    formula = _FORMULAS.get(name)
    flops = formula(shapes) if formula is not None else 0.0
    sizes = [shapes.size_bytes(index) for index in range(len(shapes.dims))]
    if not any(sizes):
        return Amount()
    written = _product_output(name, shapes) or max(sizes)
    return Amount(flops, sum(sizes), written)


def positive(value: object) -> float:
    """A positive number as it was recorded; 0 for everything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value > 0 else 0.0  # type: ignore[arg-type,operator]


def _dims(shapes: Shapes, index: int, rank: int) -> tuple[int, ...]:
    dims = shapes.dims[index] if index < len(shapes.dims) else ()
    return dims if len(dims) == rank else ()


def _product(first: int, rank: int) -> Formula:
    def flops(shapes: Shapes) -> float:
        a, b = _dims(shapes, first, rank), _dims(shapes, first + 1, rank)
        return 2.0 * math.prod(a) * b[-1] if a and b and a[-1] == b[-2] else 0.0

    return flops


def product_of(operator: str, shapes: Shapes) -> tuple[int, int, int]:
    """(m, n, k) of a single matrix product [m, k] x [k, n]; zeros for every other operator."""
    first = {"mm": 0, "addmm": 1}.get(operator.rsplit("::", 1)[-1])
    if first is None:
        return 0, 0, 0
    a, b = _dims(shapes, first, 2), _dims(shapes, first + 1, 2)
    return (a[0], b[1], a[1]) if a and b and a[1] == b[0] else (0, 0, 0)


def _product_output(name: str, shapes: Shapes) -> float:
    """Bytes that a matrix product writes: [.., m, k] x [.., k, n] -> [.., m, n]."""
    place = {"mm": (0, 2), "bmm": (0, 3), "addmm": (1, 2), "baddbmm": (1, 3)}.get(name)
    if place is None:
        return 0.0
    a, b = _dims(shapes, *place), _dims(shapes, place[0] + 1, place[1])
    return math.prod(a[:-1]) * b[-1] * shapes.element_bytes(place[0]) if a and b else 0.0


def _whole_list(text: str) -> tuple[int, ...]:
    try:
        value = ast.literal_eval(text) if len(text) < 100 else None
    except (ValueError, SyntaxError):
        return ()
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, list | tuple) else ()


def _convolution(order: tuple[int, int, int]) -> Formula:
    """2 x outputs x (channels per group x filter). `order`: places of stride, padding, dilation among the list arguments."""

    def flops(shapes: Shapes) -> float:
        data, weight = (shapes.dims[i] if i < len(shapes.dims) else () for i in (0, 1))
        lists = [v for v in (_whole_list(text) for text in shapes.scalars[2:]) if len(v) == len(data) - 2]
        if len(data) < 3 or len(weight) != len(data) or len(lists) < 3:
            return 0.0
        stride, padding, dilation = (lists[place] for place in order)
        if min(stride) < 1:
            return 0.0
        out = [
            (n + 2 * p - d * (f - 1) - 1) // s + 1
            for n, f, s, p, d in zip(data[2:], weight[2:], stride, padding, dilation, strict=True)
        ]
        return 2.0 * data[0] * math.prod(out) * math.prod(weight) if min(out) > 0 else 0.0

    return flops


def _convolution_backward(shapes: Shapes) -> float:
    """Gradients of data and weights: twice the forward product (grad_output, input, weight are the inputs)."""
    gradient, weight = (shapes.dims[i] if i < len(shapes.dims) else () for i in (0, 2))
    if len(gradient) < 3 or len(weight) != len(gradient):
        return 0.0
    return 4.0 * gradient[0] * math.prod(gradient[2:]) * math.prod(weight)


def _attention(factor: float) -> Formula:
    def flops(shapes: Shapes) -> float:
        q, k = _dims(shapes, 0, 4), _dims(shapes, 1, 4)
        if not q or not k:
            return 0.0
        half = 0.5 if "True" in shapes.scalars else 1.0  # is_causal
        return factor * half * math.prod(q) * max(k[1], k[2]) if q[-1] == k[-1] else 0.0

    return flops


_FORMULAS: dict[str, Formula] = {
    "mm": _product(0, 2), "bmm": _product(0, 3), "addmm": _product(1, 2), "baddbmm": _product(1, 3),
    "convolution": _convolution((0, 1, 2)), "_convolution": _convolution((0, 1, 2)),
    "cudnn_convolution": _convolution((1, 0, 2)), "miopen_convolution": _convolution((1, 0, 2)),
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(4.0), "_scaled_dot_product_efficient_attention": _attention(4.0),
    "_flash_attention_forward": _attention(4.0), "_efficient_attention_forward": _attention(4.0),
    "_scaled_dot_product_cudnn_attention": _attention(4.0),
}  # fmt: skip
