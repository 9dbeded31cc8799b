"""Recorded kernels on another part: what took so long there takes how long here.

T_here = t0 + (T_there - t0) x T_law(here) / T_law(there). The law is the one of generated kernels (arithmetic + memory);
a kernel whose FLOPs and bytes are unknown scales by the rate of its class: matrix products by the peak, all else by the
memory bandwidth. Not modelled: kernels too small to fill the larger part, other kernels chosen by libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.laws.decode import decode_class
from sim.laws.kernels import attention_rate, gemm_rate, memory_rate, solo_time
from sim.records import Kernel, Step
from sim.topology.machine import Machine

#: part of every kernel's duration that no part makes shorter: start and drain of a grid; assumed, 1.5 to 3 us measured for
#: empty kernels on V100 to H100
_FLOOR_S = 2e-6
_ARITHMETIC = ("gemm", "logits")


def is_recorded(step: Step) -> bool:
    """Whether any kernel of the step carries a measured duration."""
    return any(kernel.recorded_s > 0 for operation in step.operations for kernel in operation.kernels)


def rescaled(step: Step, machine: Machine, source: Mapping[str, Any] | None) -> Step:
    """`step` with its recorded durations as they would be on `machine`.

    `source` is the part (SI, as `Machine.part`) on which they were measured; None = not in the catalogue, which is fine
    when the machine's own part has the name `step.source_part`. Bytes inferred beyond what the memory can move in the
    recorded time are cut to it (caches served them); kernels that ran at the same time divide the memory among them, for
    their recorded times hold what they did to each other. Raises InputError when the source part is unknown.
    """
    if not is_recorded(step):
        return step
    gpus = machine.gpus()
    devices = {item.name: gpus[item.first_rank % len(gpus)] for item in step.rank_classes}
    scales = {name: _Scale(step, machine, device, source) for name, device in devices.items()}
    operations = tuple(
        msgspec.structs.replace(op, kernels=tuple(scales[op.stream.split(".", 1)[0]].kernel(kernel) for kernel in op.kernels))
        if op.kernels
        else op
        for op in step.operations
    )
    return msgspec.structs.replace(step, operations=operations)


class _Scale:
    """From the source part to one device of the machine."""

    def __init__(self, step: Step, machine: Machine, device: str, source: Mapping[str, Any] | None) -> None:
        self.target = machine.part(device)
        self.source = source
        self.is_same = machine.device(device).part_name == step.source_part
        route = machine.access(device, machine.memory_tier(device))
        rates = [machine.channels[name].bandwidth_per_s / cost for name, cost in route.uses if cost]
        self.memory_bytes_per_s = min([route.rate_cap_bytes_per_s, *rates])
        if not self.is_same and source is None:
            what = f"kernels were recorded on {step.source_part or 'an unnamed GPU'}, which is not in the part catalogue"
            remedy = (
                "name it with source_part: PART of the trace (see `tiersim list parts`), or replay on a machine with that part"
            )
            raise InputError(Fault(what=what, remedy=remedy))

    def kernel(self, kernel: Kernel) -> Kernel:
        """One kernel as it would run on the device."""
        if kernel.recorded_s <= 0:
            return kernel
        seconds = kernel.recorded_s
        if not self.is_same and self.source is not None:
            floor_s = min(seconds, _FLOOR_S)
            seconds = floor_s + (seconds - floor_s) * ratio(kernel, self.source, self.target)
        size = kernel.read_bytes + kernel.write_bytes
        limit = seconds * self.memory_bytes_per_s * kernel.memory_share
        cut = limit / size if size > limit else 1.0
        return msgspec.structs.replace(
            kernel, recorded_s=seconds, read_bytes=kernel.read_bytes * cut, write_bytes=kernel.write_bytes * cut
        )


def ratio(kernel: Kernel, source: Mapping[str, Any], target: Mapping[str, Any]) -> float:
    """Time on `target` over time on `source` of one kernel, by the kernel law or by the rate of its class."""
    if kernel.kind == "gemv":
        return _vector_rate(source, kernel.variant) / _vector_rate(target, kernel.variant)
    size = kernel.read_bytes + kernel.write_bytes
    is_known = size > 0 and (kernel.flops > 0 or kernel.kind not in (*_ARITHMETIC, "attention"))
    if is_known:
        bare = msgspec.structs.replace(kernel, recorded_s=0.0, count=1.0)
        return solo_time(bare, target) / solo_time(bare, source)
    if kernel.kind == "attention":
        asked = (kernel.variant, kernel.sequence_length or 1.0, kernel.k)
        return attention_rate(source, *asked) / attention_rate(target, *asked)
    if kernel.kind in _ARITHMETIC:
        return gemm_rate(source, kernel.dtype) / gemm_rate(target, kernel.dtype)
    return memory_rate(source) / memory_rate(target)


def _vector_rate(part: Mapping[str, Any], variant: str) -> float:
    """Bytes/s of matrix-vector kernels. What a layer costs beside them stands in kernels and gaps of its own."""
    bandwidth = float(part["memory"]["bandwidth"])
    return bandwidth * decode_class(variant, str(part["memory"].get("part", "")), memory_rate(part) / bandwidth).efficiency
