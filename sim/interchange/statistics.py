"""What is in a trace: operations, bytes by direction, busy time by stream, what was inferred. Pure functions of a Step."""

from __future__ import annotations

from collections import Counter

import msgspec

from sim.records import Kind, Step, StepOperation

#: names of operations that keep recorded time which nothing in the recording explains
UNRECORDED_WORK, UNEXPLAINED_GAP = "unrecorded GPU work", "unexplained gap"


class TraceStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and sums of one step, over all its rank classes (one member each). SI units."""

    name: str
    origin: str
    source_part: str
    source_step_s: float
    num_ranks: int
    num_operations: dict[str, int]  # by kind
    num_dependencies: int
    bytes_by_direction: dict[str, float]  # "dram -> gpu", "all_reduce", ...
    num_by_direction: dict[str, int]
    kernel_s: dict[str, float]  # recorded seconds by kernel class
    flops: float
    busy_s: dict[str, float]  # recorded or fixed seconds by stream
    kept_s: float  # recorded time that nothing explains, of the stream that has most: replayed as it was
    notes: tuple[str, ...]


def statistics(step: Step) -> TraceStatistics:
    """Summarise a step; transfers and collectives have bytes, not seconds: their time depends on the machine."""
    kinds: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    count: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    flops = 0.0
    for operation in step.operations:
        kinds[operation.kind.value] += 1
        direction = _direction(operation)
        if direction:
            moved[direction] += operation.size_bytes * operation.num_calls  # type: ignore[assignment]
            count[direction] += 1
        busy[operation.stream] += operation.fixed_s  # type: ignore[assignment]
        for kernel in operation.kernels:
            seconds = kernel.recorded_s * kernel.count
            kernels[kernel.kind] += seconds  # type: ignore[assignment]
            busy[operation.stream] += seconds  # type: ignore[assignment]
            flops += kernel.flops * kernel.count
    return TraceStatistics(
        name=step.name, origin=step.origin, source_part=step.source_part, source_step_s=step.source_step_s,
        num_ranks=sum(item.num_ranks for item in step.rank_classes), num_operations=dict(kinds.most_common()),
        num_dependencies=sum(len(operation.after) for operation in step.operations),
        bytes_by_direction={key: float(value) for key, value in moved.most_common()}, num_by_direction=dict(count),
        kept_s=kept_s(step), kernel_s={key: float(value) for key, value in kernels.most_common() if value}, flops=flops,
        busy_s={key: float(busy[key]) for key in sorted(busy)}, notes=step.notes,
    )  # fmt: skip


def kept_s(step: Step) -> float:
    """Seconds of a recording that its events do not explain and a replay keeps, of the stream that has most.

    GPU work that the profiler did not see (nodes of CUDA graphs, filtered kernels) and idle time before works whose launch
    is not recorded. Where it is a large share of the step, a replay on the same machine proves nothing.
    """
    kept: Counter[str] = Counter()
    for operation in step.operations:
        if operation.name in (UNRECORDED_WORK, UNEXPLAINED_GAP):
            seconds = operation.fixed_s + sum(kernel.recorded_s for kernel in operation.kernels)
            kept[operation.stream] += seconds  # type: ignore[assignment]
    return float(max(kept.values(), default=0))


def _direction(operation: StepOperation) -> str:
    if operation.kind in (Kind.TRANSFER, Kind.IO):
        pinned = "" if operation.is_pinned else " (pageable)"
        return f"{operation.source} -> {operation.target}{pinned}"
    if operation.kind is Kind.COLLECTIVE:
        return f"{operation.collective} ({operation.group})"
    return ""
