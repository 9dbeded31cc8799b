"""Microbenchmarks of an accelerator's arithmetic: matrix products and attention, repeated by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import Fault, InputError
from sim.laws.kernels import ALONE, peak, solo_time
from sim.records import Kernel
from sim.topology.machine import Machine

_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
#: bytes per score of attention that stores them in 16 bits, forward: product out 2, causal mask 4, softmax 4, values 2
_EAGER_FORWARD_BYTES = 12.0
#: and backward: gradient of the probabilities 2, probabilities 2, softmax 6, scale 4, two products 4
_EAGER_BACKWARD_BYTES = 18.0
#: bytes per element of tokens x hidden: queries, keys, values and output made contiguous (4 each), forward; the same for
#: gradients, which are then stacked into one (12)
_EAGER_LAYOUT_BYTES = 16.0
_EAGER_STACKING_BYTES = 12.0


def gemm(machine: Machine, *, device: str, m: int, n: int, k: int, dtype: str = "bf16") -> dict[str, float]:
    """One matrix product [m, k] x [k, n] (cuBLAS), back to back."""
    _check(machine, device, dtype)
    width = _BYTES.get(dtype, 2.0)
    kernel = Kernel(
        kind="gemm", flops=2.0 * m * n * k, read_bytes=width * (m * k + k * n), write_bytes=2.0 * m * n, m=m, n=n, k=k,
        dtype=dtype, variant=ALONE,  # type: ignore[arg-type]
    )  # fmt: skip
    seconds = solo_time(kernel, machine.part(device))
    return {"throughput": kernel.flops / seconds, "time": seconds}


def attention(
    machine: Machine,
    *,
    device: str,
    sequence_length: int,
    head_dim: int = 128,
    heads: int = 16,
    batch: int = 1,
    dtype: str = "bf16",
    version: str = "fa2",
    is_training: bool = False,
    is_causal: bool = False,
) -> dict[str, float]:
    """Attention forward (and backward: 2.5 times its FLOPs), counted as FlashAttention's benchmark does (causal: half).

    `version` "eager" stores the scores: it computes them all, and each crosses the memory several times.
    """
    _check(machine, device, dtype)
    scores = float(batch) * heads * float(sequence_length) ** 2
    flops = 4.0 * head_dim * scores * (3.5 if is_training else 1.0) * (0.5 if is_causal else 1.0)
    part = machine.part(device)
    if version == "eager":
        elements = float(batch) * heads * sequence_length * head_dim
        seconds = _eager_time(part, flops * (2.0 if is_causal else 1.0), scores, elements, dtype, is_training=is_training)
    else:
        variant = {"fa1": "flash1", "fa2": "flash2", "fa3": "flash3"}.get(version, version)
        length: dict[str, int] = {"sequence_length": sequence_length, "k": head_dim}
        kernel = Kernel(kind="attention", flops=flops, dtype=dtype, variant=variant, **length)  # type: ignore[arg-type]
        seconds = solo_time(kernel, part)
    return {"throughput": flops / seconds, "time": seconds}


def _check(machine: Machine, device: str, dtype: str) -> None:
    """InputError for a device without matrix units or a number format that it cannot stand in for."""
    part = machine.part(device)
    try:
        peak(part, dtype)
    except KeyError:
        compute = part.get("compute")
        formats = ", ".join(compute) if isinstance(compute, Mapping) and compute else "none"
        raise InputError(
            Fault(what=f"{device} of {machine.name} does not multiply {dtype}", remedy=f"its formats: {formats}", path="dtype")
        ) from None


def _eager_time(part: Any, flops: float, scores: float, elements: float, dtype: str, *, is_training: bool) -> float:
    size = scores * (_EAGER_FORWARD_BYTES + (_EAGER_BACKWARD_BYTES if is_training else 0.0))
    size += elements * (_EAGER_LAYOUT_BYTES + (_EAGER_LAYOUT_BYTES + _EAGER_STACKING_BYTES if is_training else 0.0))
    products = Kernel(kind="gemm", flops=flops, dtype=dtype, count=1.0)  # type: ignore[arg-type]
    return solo_time(products, part) + solo_time(Kernel(kind="elementwise", read_bytes=size), part)
