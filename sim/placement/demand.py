"""What a job asks of the host's memory, per tensor class: bytes that stay and bytes that a step touches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from sim.placement.capacity import TierNeed
from sim.placement.effective import effective_placement
from sim.placement.plan import Placement
from sim.placement.policies import Demand
from sim.records import Kind, Step, TensorClass
from sim.topology.machine import Machine

#: host traffic of one AdamW element by class, bytes: moments read and written, fp32 weights likewise, gradient read
_UPDATE_BYTES = {
    TensorClass.OPTIMIZER_STATES: 16.0, TensorClass.MASTER_WEIGHTS: 8.0, TensorClass.GRADIENTS: 4.0,
}  # fmt: skip


def demands(step: Step, num_gpus: int) -> Mapping[TensorClass, Demand]:
    """Demand per class of all ranks on one node with `num_gpus` GPUs, from the step's resident tensors and traffic.

    The resident sizes are those of the largest rank; touched bytes are copies in and out and the CPU optimizer.
    """
    num_ranks = min(num_gpus, sum(item.num_ranks for item in step.rank_classes))
    sizes: dict[TensorClass, float] = {}
    for item in step.resident:
        sizes[item.tensor_class] = sizes.get(item.tensor_class, 0.0) + item.size_bytes * num_ranks
    share = num_ranks / max(1, len(step.rank_classes))  # every class of ranks has its share of the node
    touched: dict[TensorClass, float] = {}
    for op in step.operations:
        if op.kind == Kind.HOST_UPDATE and op.tensor_class == TensorClass.OPTIMIZER_STATES:
            for tensor_class, size in _UPDATE_BYTES.items():
                touched[tensor_class] = touched.get(tensor_class, 0.0) + op.num_elements * size * share
        elif op.kind == Kind.HOST_UPDATE and op.tensor_class is not None:
            touched[op.tensor_class] = touched.get(op.tensor_class, 0.0) + op.num_elements * op.bytes_per_element * share
        elif op.kind == Kind.TRANSFER and op.tensor_class is not None:
            touched[op.tensor_class] = touched.get(op.tensor_class, 0.0) + op.size_bytes * share
    return {
        name: Demand(tensor_class=name, size_bytes=size, touched_bytes_per_step=touched.get(name, 0.0))
        for name, size in sizes.items()
    }


def planned(
    demands: Mapping[TensorClass, Demand], classes: Collection[TensorClass], plan: Mapping[str, TierNeed], machine: Machine
) -> dict[TensorClass, Demand]:
    """Demands of `classes` with the bytes that the memory plan gives them outside the GPUs: buffers and roundings included."""
    own = {machine.memory_tier(gpu) for gpu in machine.gpus()}
    found = dict(demands)
    for name in classes:
        size = sum(need.by_class.get(name.value, 0.0) for tier, need in plan.items() if tier not in own)
        known = demands.get(name, Demand(tensor_class=name, size_bytes=0.0))
        found[name] = replace(known, size_bytes=max(size, known.size_bytes))
    return found


def followers(placement: Placement, workload: object, decided: Collection[TensorClass]) -> frozenset[TensorClass]:
    """Classes that lie where the optimizer states do, if a policy decides about these: nobody placed them otherwise."""
    if TensorClass.OPTIMIZER_STATES not in decided:
        return frozenset()
    given = {entry.tensor_class for entry in placement.entries}
    own = placement.shares(TensorClass.OPTIMIZER_STATES)
    found = effective_placement(placement, workload).entries
    return frozenset(entry.tensor_class for entry in found if entry.tensor_class not in given and entry.shares == own)


def led(demands: Mapping[TensorClass, Demand], following: Collection[TensorClass]) -> dict[TensorClass, Demand]:
    """Demands in which the optimizer states ask for what follows them too."""
    found = {name: demand for name, demand in demands.items() if name not in following}
    leader = TensorClass.OPTIMIZER_STATES
    led_by = [demands[name] for name in following if name in demands]
    if led_by and leader in found:
        found[leader] = replace(
            found[leader],
            size_bytes=found[leader].size_bytes + sum(demand.size_bytes for demand in led_by),
            touched_bytes_per_step=found[leader].touched_bytes_per_step
            + sum(demand.touched_bytes_per_step for demand in led_by),
        )
    return found


def rest_of(classes: Collection[TensorClass], plan: Mapping[str, TierNeed]) -> dict[str, float]:
    """Bytes by tier of everything in the plan but `classes`: what is taken before they are placed."""
    names = {name.value for name in classes}
    return {tier: sum(size for name, size in need.by_class.items() if name not in names) for tier, need in plan.items()}
