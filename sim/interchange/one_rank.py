"""What one rank of a step does, as the writers of foreign traces need it: its operations in a sound order, its copies
between named tiers, the members of its groups, the partners of its messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sim.placement.plan import Placement
from sim.program.transfers import Membership
from sim.records import Kind, RankClass, Step, StepOperation, TensorClass

#: nearer to the GPU first; a tier name stands behind the role that its name ends with
_DISTANCE = {"gpu": 0, "hbm": 0, "gddr": 0, "dram": 1, "host": 1, "lpddr": 1, "cxl": 2, "pmem": 3, "nvme": 4, "storage": 4}
_WORKLESS = (Kind.MARKER, Kind.ALLOCATE, Kind.FREE)


class Move(msgspec.Struct, frozen=True):
    """Bytes of one copy from one named tier to another; a load goes towards the GPU."""

    source: str
    target: str
    size_bytes: int
    is_load: bool


def groups_of(step: Step) -> dict[str, list[list[int]]]:
    """Group name -> its member lists, in the rank order of the step (tensor fastest, pipeline slowest)."""
    world = max((item.first_rank + item.num_ranks for item in step.rank_classes), default=1)
    return {name: _members(step.group_sizes, name, world) for name in step.group_sizes}


def _members(sizes: Mapping[str, int], name: str, world: int) -> list[list[int]]:
    size = min(sizes[name], world)
    stride = Membership({**sizes, "world": world}, 1).stride(name)
    seen: set[int] = set()
    lists = []
    for rank in range(world):
        if rank not in seen:
            members = [rank + index * stride for index in range(size) if rank + index * stride < world]
            seen.update(members)
            lists.append(members)
    return lists


class OneRank:
    """One rank of a step under a placement. `seconds`: operation id -> simulated duration (default: recorded or none)."""

    def __init__(self, step: Step, placement: Placement, seconds: Mapping[str, float], own: RankClass, rank: int) -> None:
        self.step, self.placement, self.seconds, self.own, self.rank = step, placement, seconds, own, rank
        prefix = own.name + "."
        self.operations = sorted(
            (op for op in step.operations if op.stream.startswith(prefix)), key=lambda op: (op.sequence, op.stream)
        )
        self.by_id = {op.id: op for op in step.operations}
        self.groups = groups_of(step)
        self.all_ranks = list(range(max((item.first_rank + item.num_ranks for item in step.rank_classes), default=1)))

    def in_order(self) -> Sequence[StepOperation]:
        """Operations so that dependencies inside the rank come first (ids then rise along them)."""
        done: set[str] = set()
        order: list[StepOperation] = []
        streams: dict[str, list[StepOperation]] = {}
        for op in reversed(self.operations):
            streams.setdefault(op.stream, []).append(op)
        own = {op.id for op in self.operations}
        while len(order) < len(self.operations):
            for queue in streams.values():
                while queue and all(name in done or name not in own for name in queue[-1].after):
                    done.add(queue[-1].id)
                    order.append(queue.pop())
        return order

    def duration_s(self, op: StepOperation) -> float:
        """Simulated seconds, else what was recorded."""
        if op.id in self.seconds:
            return self.seconds[op.id]
        return op.fixed_s + sum(kernel.recorded_s * kernel.count for kernel in op.kernels)

    def moves(self, op: StepOperation) -> Iterator[Move]:
        """The copies of a transfer: one per pair of tiers where a class is interleaved."""
        for source, source_share in self._tiers(op.source, op.layer):
            for target, target_share in self._tiers(op.target, op.layer):
                size = round(op.size_bytes * source_share * target_share)
                if source != target and size:
                    yield Move(source, target, size, _distance(source) > _distance(target))

    def _tiers(self, end: str, layer: int) -> list[tuple[str, float]]:
        if not end.startswith("home:"):
            return [(end or "gpu", 1.0)]
        return list(self.placement.shares(TensorClass(end.removeprefix("home:")), layer).items())

    def members(self, op: StepOperation) -> tuple[str, list[int]]:
        """(group name, ranks in it) of a collective."""
        group = op.group or "world"
        return group, next((item for item in self.groups.get(group, []) if self.rank in item), [self.rank])

    def group_label(self, group: str, members: list[int]) -> str:
        """Name of one communicator of a group: the group's, and its place among the group's communicators."""
        return f"{group}{self.groups[group].index(members) if group in self.groups else 0}"

    def partner(self, rank_class: str) -> int:
        """Rank of another class with which this one exchanges messages."""
        other = next(item for item in self.step.rank_classes if item.name == rank_class)
        return other.first_rank + min(self.rank - self.own.first_rank, other.num_ranks - 1)


def is_workless(op: StepOperation) -> bool:
    """Whether an operation does nothing that takes time: a trace passes its dependencies on."""
    return op.kind in _WORKLESS or (op.kind is Kind.COMPUTE and not op.kernels and not op.fixed_s)


def _distance(tier: str) -> int:
    name = tier.rsplit(".", 1)[-1].rstrip("0123456789")
    return _DISTANCE.get(name, next((d for key, d in _DISTANCE.items() if key in tier), 1))
