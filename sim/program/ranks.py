"""Which ranks are one: rank classes split until every member sees the same machine, and channels named once for all.

A rank sits on GPU `rank % gpus per node` of node `rank // gpus per node` (tensor fastest, then context, data,
pipeline). Members of a rank class whose routes cross equally many sharers of equal channels are one *group*: one
representative with a multiplicity. A channel that k groups' members cross at the same hop is one folded channel with
k physical ones behind it; groups on other nodes get channels of their own, named "node<n>:<channel>".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sim.errors import Fault, InputError
from sim.records import Kind, RankClass, Step, Uses
from sim.topology.machine import Machine

#: what a rank's operations may cross, hop by hop: the names of channels, in a fixed order for every rank
Footways = tuple[tuple[str, ...], ...]
Place = tuple[int, str]  # node, channel or tier
#: prefix of a tier's name among channels
TIER = "tier:"


@dataclass(frozen=True)
class Group:
    """Ranks of one class that see the same machine; `ranks[0]` is the representative."""

    name: str
    rank_class: str
    ranks: tuple[int, ...]
    node: int
    device: str
    nodes: tuple[int, ...]
    #: channel or tier of the representative -> (name in the program, physical ones behind it)
    folded: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Members."""
        return len(self.ranks)

    def own(self, name: str) -> str:
        """The group's own operation or stream of that name of its rank class."""
        return name if self.name == self.rank_class else self.name + name[len(self.rank_class) :]

    def channel(self, name: str) -> str:
        """Name in the program of a channel (or tier, with its prefix) of the representative."""
        return self.folded[name][0] if name in self.folded else name

    def uses(self, uses: Uses) -> Uses:
        """The same uses by the names of the program; channels that are one there are one use."""
        total: dict[str, float] = {}
        for channel, cost in uses:
            name = self.channel(channel)
            total[name] = total.get(name, 0.0) + cost
        return tuple(total.items())


class Ranks:
    """Where every rank of a step sits on a machine, and the groups that fold them."""

    def __init__(self, step: Step, machine: Machine, footways: Callable[[int], Footways], *, is_folded: bool = True) -> None:
        self.machine, self.seats, self._footways = machine, machine.seats(), footways
        self._kinds = self._devices()
        self._check(step)
        self.classes = {item.name: item for item in step.rank_classes}
        self._class_of = {rank: item.name for item in step.rank_classes for rank in _members(item)}
        self.num_nodes_used = 1 + max(self._class_of) // len(self.seats)
        alone: dict[tuple[object, ...], list[int]] = {(name, rank): [rank] for rank, name in self._class_of.items()}
        members = self._partition() if is_folded else alone
        self.groups = self._name(members)
        self.of_class: dict[str, list[Group]] = {}
        for group in self.groups:
            self.of_class.setdefault(group.rank_class, []).append(group)

    def _devices(self) -> tuple[int, ...]:
        """For each seat the number of its device's kind: seats of one number have equal parts in every figure."""
        parts = [self.machine.part(device) for device in self.seats]
        distinct = [part for index, part in enumerate(parts) if part not in parts[:index]]
        return tuple(distinct.index(part) for part in parts)

    def place(self, rank: int) -> tuple[int, str]:
        """Node and device of a rank."""
        node, local = divmod(rank, len(self.seats))
        return node, self.seats[local]

    def _check(self, step: Step) -> None:
        if not self.machine.gpus() and any(op.kind == Kind.COMPUTE for op in step.operations):
            raise InputError(Fault(what=f"machine {self.machine.name} has no GPU for the step's kernels", path="topology"))
        world = sum(item.num_ranks for item in step.rank_classes)
        have = len(self.seats) * self.machine.num_nodes
        if world > have:
            is_recorded = step.origin != "generated"
            remedy = "lower data x tensor x pipeline x context, or add nodes"
            if is_recorded:
                remedy = (
                    "a recorded job keeps its ranks: name a machine with as many, or add nodes (topology: {set: {nodes: N}})"
                )
            raise InputError(
                Fault(
                    what=f"{world} ranks, but the machine has {have} {'GPUs' if self.machine.gpus() else 'sockets'}",
                    remedy=remedy,
                    path="workload.trace" if is_recorded else "workload.training.parallelism",
                )
            )

    def _pattern(self, node: int) -> tuple[str, ...]:
        """Class of the rank on each GPU of a node ("" = unused)."""
        first = node * len(self.seats)
        return tuple(self._class_of.get(first + local, "") for local in range(len(self.seats)))

    def _partition(self) -> dict[tuple[object, ...], list[int]]:
        """Ranks by what they see: class, and for each hop how many ranks of which class cross the same channel."""
        signatures: dict[tuple[object, ...], list[tuple[object, ...]]] = {}
        result: dict[tuple[object, ...], list[int]] = {}
        for node in range(self.num_nodes_used):
            pattern = self._pattern(node)
            first = node * len(self.seats)
            ways = tuple(self._footways(first + local) if name else () for local, name in enumerate(pattern))
            if (pattern, ways) not in signatures:
                signatures[pattern, ways] = self._signatures(pattern, ways)
            for local, name in enumerate(pattern):
                if name:
                    key = (name, signatures[pattern, ways][local])
                    result.setdefault(key, []).append(node * len(self.seats) + local)
        return result

    def _signatures(self, pattern: tuple[str, ...], ways: tuple[Footways, ...]) -> list[tuple[object, ...]]:
        """What each rank of a node is and sees: its device, and per hop the channel's strength and who else crosses it."""
        users: dict[str, Counter[tuple[str, int]]] = {}
        for name, kind, footways in zip(pattern, self._kinds, ways, strict=True):
            for channel in {channel for way in footways for channel in way}:
                users.setdefault(channel, Counter())[name, kind] += 1
        crowd = {channel: (self._strength(channel), tuple(sorted(count.items()))) for channel, count in users.items()}
        return [
            (kind, *(tuple(crowd[channel] for channel in way) for way in footways))
            for kind, footways in zip(self._kinds, ways, strict=True)
        ]

    def _strength(self, channel: str) -> float:
        """What makes two channels (or tiers, named "tier:<name>") interchangeable."""
        if channel.startswith(TIER):
            return self.machine.tiers[channel.removeprefix(TIER)].capacity_bytes
        return self.machine.channels[channel].bandwidth_per_s if channel in self.machine.channels else 0.0

    def _name(self, members: Mapping[tuple[object, ...], list[int]]) -> tuple[Group, ...]:
        """Groups in rank order with their folded channels."""
        split = Counter(str(key[0]) for key in members)
        physical: dict[frozenset[Place], str] = {}
        owner: dict[Place, frozenset[Place]] = {}
        groups, taken = [], set[str]()
        for key, ranks in sorted(members.items(), key=lambda item: item[1][0]):
            node, device = self.place(ranks[0])
            nodes = tuple(dict.fromkeys(self.place(rank)[0] for rank in ranks))
            name = str(key[0]) if split[str(key[0])] == 1 else f"{key[0]}@{ranks[0]}"
            sets = self._sets(ranks)
            folded = {}
            for channel, places in sets.items():
                for place in places:  # groups that share a channel must share all of the set
                    if owner.setdefault(place, places) != places:
                        raise _AsymmetryError
                if places not in physical:
                    physical[places] = _unused(channel, min(places)[0], taken)
                    taken.add(physical[places])
                folded[channel] = (physical[places], len(places))
            groups.append(Group(name, str(key[0]), tuple(ranks), node, device, nodes, folded))
        return tuple(groups)

    def _sets(self, ranks: Sequence[int]) -> dict[str, frozenset[Place]]:
        """Channel of the representative -> physical channels that members cross at the same hop."""
        per_hop: dict[str, set[Place]] = {}
        mine = self._footways(ranks[0])
        for rank in ranks:
            node, _ = self.place(rank)
            for own, other in zip(mine, self._footways(rank), strict=True):
                for channel, theirs in zip(own, other, strict=True):
                    per_hop.setdefault(channel, set()).add((node, theirs))
        return self._merged(per_hop)

    def _merged(self, sets: Mapping[str, set[Place]]) -> dict[str, frozenset[Place]]:
        """Sets that overlap put together: where members cross one channel by themselves and all of them together.

        Eight ranks that each send through an adapter of their own and reduce through all eight load the eight alike, if the
        adapters are; then one channel with eight behind it stands for them, and the representative's cost on it is the sum.
        """
        parts: list[tuple[list[str], set[Place]]] = []  # names in the order of the hops: the first one names the channel
        for channel, places in sets.items():
            touching = [part for part in parts if part[1] & places]
            names = [*(name for part in touching for name in part[0]), channel]
            union = places.union(*(part[1] for part in touching))
            parts = [part for part in parts if part not in touching]
            if len({self._strength(name) for _, name in union}) > 1:
                raise _AsymmetryError
            parts.append((names, union))
        return {channel: frozenset(union) for names, union in parts for channel in names}


class _AsymmetryError(Exception):
    """Two groups share some but not all channels of a hop: fold nothing."""


def arrange(step: Step, machine: Machine, footways: Callable[[int], Footways], *, is_folded: bool = True) -> Ranks:
    """The ranks of the step on the machine, folded where every member sees the same; unfolded if that cannot be."""
    try:
        return Ranks(step, machine, footways, is_folded=is_folded)
    except _AsymmetryError:
        return Ranks(step, machine, footways, is_folded=False)


def _members(item: RankClass) -> Iterable[int]:
    return range(item.first_rank, item.first_rank + item.num_ranks)


def _unused(channel: str, node: int, taken: set[str]) -> str:
    """The channel's own name, or with its node in front when another node's channel of that name has it."""
    if channel not in taken:
        return channel
    prefix, name = (TIER, channel.removeprefix(TIER)) if channel.startswith(TIER) else ("", channel)
    return f"{prefix}node{node}:{name}"
