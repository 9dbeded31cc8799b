"""The footprint laid over a step: which operation allocates and frees what, so that a peak names its operation.

Both views use the same terms: the closed form adds them up by moment, the replay lets them appear and go with the
operations. Terms that last from init on are resident; activations come with a block's forward pass and go with its
backward pass; transients live as long as one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from sim.records import Residency, Step, StepOperation, TensorClass
from sim.workload.footprint.counts import stage_layers
from sim.workload.footprint.homes import Homes, effective_homes
from sim.workload.footprint.ledger import STEP_MOMENTS, Term
from sim.workload.footprint.residency import kept_by_layer, stage_activations
from sim.workload.footprint.terms import KEPT, stage_terms
from sim.workload.training import Training

_PASSES = frozenset({"forward", "loss", "backward", "backward_end"})
_UPDATE = frozenset({"update", "first_step"})
#: terms of the closed form that emerge here from the blocks' own allocations
_EMERGING = ("activations kept for backward", "activations of later micro-batches and the first layer")


@dataclass(slots=True)
class _Lane:
    """Operations of one rank class, by what memory cares about (indices into the step's operations, in order)."""

    compute: list[int] = field(default_factory=list)
    forward: dict[tuple[int, int], int] = field(default_factory=dict)  # (micro-batch, first layer) -> operation
    backward: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # recompute and backward of a block
    loss: dict[int, list[int]] = field(default_factory=dict)  # micro-batch -> loss, its backward
    update: list[int] = field(default_factory=list)


class _Changes:
    """Allocations and frees collected per operation."""

    def __init__(self) -> None:
        self.allocates: dict[int, list[Residency]] = {}
        self.frees: dict[int, list[Residency]] = {}

    def hold(self, terms: Iterable[Term], first: int, last: int, share: float = 1.0) -> None:
        """The terms exist from the start of one operation to the end of another."""
        rows = [row for term in terms for row in [_row(term, share)] if row.size_bytes > 0]
        self.allocates.setdefault(first, []).extend(rows)
        self.frees.setdefault(last, []).extend(rows)


def _row(term: Term, share: float = 1.0) -> Residency:
    return Residency(tensor_class=term.tensor_class, size_bytes=term.size_bytes * share, tier=term.tier)


def with_occupancy(step: Step, training: Training, homes: Homes) -> Step:
    """The generated step with every allocation and free of its tensors; its resident tensors replaced by the plan's.

    Terms that exist once per host (the operating system) are no tensors and stay with the closed form.
    """
    placed = effective_homes(training, homes)
    lanes = _lanes(step.operations)
    changes = _Changes()
    resident: tuple[Residency, ...] = ()
    for stage, (_, lane) in enumerate(sorted(lanes.items(), key=lambda item: _stage(item[0]))):
        found = [term for term in stage_terms(training, placed, stage) if term.per == "rank" and term.size_bytes > 0]
        moved = [term for term in found if term.name == "activations"]
        terms = [term for term in found if term not in moved and term.name not in _EMERGING]
        whole = [term for term in terms if set(STEP_MOMENTS) <= set(term.moments)]
        rows = tuple(_row(term) for term in whole)
        if len(lanes) == 1:
            resident = rows
        elif lane.compute:
            changes.allocates.setdefault(lane.compute[0], []).extend(rows)
        _lay(lane, [term for term in terms if term not in whole], changes)
        _lay_kept(lane, moved, training, placed, stage, changes)
    operations = tuple(
        msgspec.structs.replace(
            operation,
            allocates=(*operation.allocates, *changes.allocates.get(index, ())),
            frees=(*operation.frees, *changes.frees.get(index, ())),
        )
        if index in changes.allocates or index in changes.frees
        else operation
        for index, operation in enumerate(step.operations)
    )
    return msgspec.structs.replace(step, operations=operations, resident=resident)


def _stage(name: str) -> int:
    return int(name[1:]) if name[1:].isdigit() else 0


def _lanes(operations: Sequence[StepOperation]) -> dict[str, _Lane]:
    lanes: dict[str, _Lane] = {}
    for index, operation in enumerate(operations):
        name, _, role = operation.stream.rpartition(".")
        lane = lanes.setdefault(name, _Lane())
        is_copied = operation.tensor_class is TensorClass.GRADIENTS  # they may still leave while the update goes on
        if operation.phase == "update" and role in ("compute", "cpu", "h2d", "storage") and not is_copied:
            lane.update.append(index)
        if role != "compute" or operation.phase not in ("forward", "backward", "update") or operation.collective:
            continue
        lane.compute.append(index)
        key = (operation.micro_batch, operation.layer)
        if operation.name.startswith("loss"):
            lane.loss.setdefault(operation.micro_batch, []).append(index)
        elif operation.phase == "forward" and operation.layer >= 0:
            lane.forward[key] = index
        elif operation.phase == "backward" and operation.layer >= 0:
            lane.backward.setdefault(key, []).append(index)
    return lanes


def _lay(lane: _Lane, terms: Sequence[Term], changes: _Changes) -> None:
    """Put the terms that come and go on the lane's operations."""
    by_moments: dict[frozenset[str], list[Term]] = {}
    for term in terms:
        by_moments.setdefault(frozenset(term.moments) & frozenset(STEP_MOMENTS), []).append(term)
    for moments, group in by_moments.items():
        if moments == _PASSES and lane.forward and lane.backward:
            changes.hold(group, lane.compute[0], _last_backward(lane))
        elif moments and moments <= _UPDATE and lane.update:
            changes.hold(group, lane.update[0], lane.update[-1])
    _lay_losses(lane, by_moments, changes)
    _lay_backward(lane, by_moments, changes)
    _lay_gradients(lane, by_moments, changes)


def _last_backward(lane: _Lane) -> int:
    return max(index for indices in lane.backward.values() for index in indices)


def _lay_kept(lane: _Lane, moved: Sequence[Term], training: Training, homes: Homes, stage: int, changes: _Changes) -> None:
    """Activations of each block, from its forward to the end of its backward: on the GPU, and pieces on slower tiers."""
    layers = stage_layers(training, stage)
    kept = dict(zip(layers, kept_by_layer(training, homes, stage), strict=True))
    sizes = stage_activations(training, homes, stage)
    num_pieces = sizes.num_away * sizes.passes
    starts: dict[int, set[int]] = {}
    for micro_batch, first in lane.forward:
        starts.setdefault(micro_batch, set()).add(first)
    for (micro_batch, first), begin in lane.forward.items():
        ends = lane.backward.get((micro_batch, first))
        if not ends:
            continue
        block = _block(first, layers, starts[micro_batch])
        on_gpu = sum(kept[layer][0] for layer in block)
        pieces = sum(kept[layer][1] > 0 for layer in block)
        rows = [Residency(tensor_class=KEPT, size_bytes=on_gpu, tier="gpu")] if on_gpu else []
        rows += [_row(term, pieces / num_pieces) for term in moved if pieces]
        changes.allocates.setdefault(begin, []).extend(rows)
        changes.frees.setdefault(ends[-1], []).extend(rows)


def _block(first: int, layers: Sequence[int], starts: set[int]) -> list[int]:
    """Layers of the stage from `first` up to the next block's start, within the same run of consecutive layers."""
    block = [first]
    while block[-1] + 1 in layers and block[-1] + 1 not in starts:
        block.append(block[-1] + 1)
    return block


def _lay_losses(lane: _Lane, by_moments: Mapping[frozenset[str], Sequence[Term]], changes: _Changes) -> None:
    blocks = _backward_blocks(lane)
    for micro_batch, indices in lane.loss.items():
        changes.hold(by_moments.get(frozenset({"loss"}), ()), indices[0], indices[-1])
        if micro_batch in blocks:
            changes.hold(by_moments.get(frozenset({"loss", "backward"}), ()), indices[0], blocks[micro_batch][0][-1])


def _backward_blocks(lane: _Lane) -> dict[int, list[list[int]]]:
    """Per micro-batch the blocks of its backward pass (each a list of operations) in order of execution."""
    blocks: dict[int, list[list[int]]] = {}
    for (micro_batch, _first), ends in lane.backward.items():
        blocks.setdefault(micro_batch, []).append(ends)
    return {micro_batch: sorted(found, key=lambda ends: ends[0]) for micro_batch, found in blocks.items()}


def _lay_backward(lane: _Lane, by_moments: Mapping[frozenset[str], Sequence[Term]], changes: _Changes) -> None:
    """Transients of a block's backward: of every block, of the first one, of the last one."""
    every = by_moments.get(frozenset({"backward", "backward_end"}), ())
    for blocks in _backward_blocks(lane).values():
        for ends in blocks:
            changes.hold(every, ends[0], ends[-1])
        changes.hold(by_moments.get(frozenset({"backward_end"}), ()), blocks[-1][0], blocks[-1][-1])
        early = [term for term in by_moments.get(frozenset({"backward"}), ()) if term.name != "first gradients"]
        changes.hold(early, blocks[0][0], blocks[0][-1])


def _lay_gradients(lane: _Lane, by_moments: Mapping[frozenset[str], Sequence[Term]], changes: _Changes) -> None:
    """Gradients that appear block by block and stay until the update has ended."""
    whole = [
        term for term in by_moments.get(frozenset({"backward_end", "update", "first_step"}), ()) if term.name == "gradients"
    ]
    if not whole or not lane.backward:
        return
    (term,) = whole
    early = sum(item.size_bytes for item in by_moments.get(frozenset({"backward"}), ()) if item.name == "first gradients")
    blocks = sorted(lane.backward.values(), key=lambda ends: ends[0])
    first = min(early / term.size_bytes, 1.0) if len(blocks) > 1 else 1.0
    last = lane.update[-1] if lane.update else _last_backward(lane)
    changes.hold([term], blocks[0][0], last, first)
    for ends in blocks[1:]:
        changes.hold([term], ends[0], last, (1.0 - first) / (len(blocks) - 1))
