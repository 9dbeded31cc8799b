"""Kernels as the emitters combine them: GEMMs by shape, memory-bound groups, and passes of several kernels."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from sim.records import Dtype, Kernel

#: bytes of one element
ELEMENT_BYTES: dict[Dtype, float] = {
    "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "nf4": 0.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pass:
    """Kernels of one direction of one piece of the model, and how many launches they are."""

    kernels: tuple[Kernel, ...] = ()
    num_launches: float = 0.0

    def __add__(self, other: Pass) -> Pass:
        return Pass(self.kernels + other.kernels, self.num_launches + other.num_launches)

    def times(self, count: float) -> Pass:
        """The same pass `count` times back to back; nothing for zero."""
        if count == 1:
            return self
        if count == 0:
            return Pass()
        return Pass(tuple(replace(kernel, count=kernel.count * count) for kernel in self.kernels), self.num_launches * count)


def gemm(m: float, n: float, k: float, dtype: Dtype, name: str, count: float = 1.0) -> Kernel:
    """[m, k] x [k, n]: 2 m n k FLOPs; inputs in `dtype`, output in 2 bytes (4 for fp32 and tf32)."""
    size = ELEMENT_BYTES[dtype]
    return Kernel(
        kind="gemm",
        flops=2.0 * m * n * k,
        read_bytes=size * (m * k + k * n),
        write_bytes=max(2.0, size) * m * n,
        m=max(1, round(m)),
        n=max(1, round(n)),
        k=max(1, round(k)),
        dtype=dtype,
        count=count,
        name=name,
    )


def elementwise(size_bytes: float, name: str, write_share: float = 0.4) -> Kernel:
    """A group of memory-bound kernels that move that many bytes."""
    return Kernel(
        kind="elementwise", read_bytes=size_bytes * (1 - write_share), write_bytes=size_bytes * write_share, name=name
    )
