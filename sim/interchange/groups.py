"""Process groups of a recording -> the group names of a step, which say by size and stride who is in them.

A step knows its ranks in a fixed order (tensor fastest, then data, pipeline slowest; see `program.transfers.Membership`).
A recorded group is a set of ranks: neighbours become "tensor" (or "expert"), ranks at a distance "data", "context",
"shard" or "replica". Where the recording gives a size only, the size picks the name.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sim.program.transfers import Membership
from sim.records import Group, StepOperation

_NUMBER = re.compile(r"\d+")
#: groups whose members stand `tensor` ranks apart
_STRIDED: tuple[Group, ...] = ("data", "shard", "context")
_BY_SIZE: tuple[Group, ...] = ("tensor", "context", "data", "expert", "shard", "replica")


class Communicator(msgspec.Struct, frozen=True, order=True):
    """What matters of a process group: how many ranks, and how far apart (0 = not known, -1 = not evenly)."""

    size: int
    stride: int = 0


def communicator(ranks: Sequence[int], size: int = 0) -> Communicator:
    """Of the members listed (in any order; a list may be cut, then `size` tells how many there are)."""
    members = sorted(set(ranks))
    size = size or len(members)
    if len(members) < 2:
        return Communicator(size)
    gaps = {after - before for before, after in itertools.pairwise(members)}
    return Communicator(size, gaps.pop() if len(gaps) == 1 else -1)


def listed_ranks(text: object) -> list[int]:
    """Ranks of "[0, 8, 16, ...]" as the profiler writes them, or of a list."""
    if isinstance(text, list | tuple):
        return [item for item in text if isinstance(item, int) and not isinstance(item, bool)]
    return [int(item) for item in _NUMBER.findall(text)] if isinstance(text, str) else []


class Groups:
    """Names for all communicators of one job."""

    def __init__(self, found: Iterable[Communicator], world: int, counts: Counter[str]) -> None:
        self.world = max(1, world)
        self.sizes: dict[str, int] = {"world": self.world}
        self.names: dict[Communicator, Group] = {}
        rest = sorted({item for item in found if 1 < item.size < self.world})
        for item in [item for item in rest if item.stride == 1]:
            self._take(item, ("tensor", "expert"))
        for item in [item for item in rest if item.stride > 1]:
            self._take(item, self._at_distance(item.stride))
        left = [item for item in rest if item not in self.names]
        for item in left:
            self._take(item, _BY_SIZE)
        if left:
            counts["process groups placed by their size (the recording does not list their ranks, or they are uneven)"] = len(
                left
            )

    def _at_distance(self, stride: int) -> tuple[Group, ...]:
        """Names whose stride is this one, given the sizes taken so far (an unused "tensor" is set so that it fits)."""
        if "tensor" not in self.sizes:
            self.sizes["tensor"] = stride
        tensor = self.sizes["tensor"]
        if stride == tensor:
            return _STRIDED
        if (
            "replica" not in self.sizes
            and stride % tensor == 0
            and self.sizes.get("shard", stride // tensor) == stride // tensor
        ):
            self.sizes["shard"] = stride // tensor
            return ("replica",)
        return ()

    def _take(self, item: Communicator, names: Sequence[Group]) -> None:
        same = [name for name in names if self.sizes.get(name) == item.size]
        free = [name for name in names if name not in self.sizes]
        if chosen := next(iter([*same, *free]), None):
            self.names[item] = chosen
            self.sizes[chosen] = item.size

    def name(self, item: Communicator) -> Group:
        """The step's group of a communicator: "world" for one of all ranks, or that found no name."""
        return self.names.get(item, "world")


def instance(sizes: Mapping[str, int], group: str, rank: int) -> int:
    """First member of the communicator of that group which a rank is in: it tells the group's communicators apart."""
    stride = Membership(sizes, 1).stride(group)
    return rank - (rank // stride) % sizes.get(group, 1) * stride


def rank_of(operation: StepOperation) -> int:
    """Rank of an operation of a recorded rank (its rank class is "rank<number>")."""
    return int(operation.stream.split(".", 1)[0].removeprefix("rank"))
