"""Collectives of ranks that were recorded apart: no member may start before all have arrived."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from sim.interchange.groups import instance, rank_of
from sim.records import Kind, StepOperation


def join_collectives(
    operations: Sequence[StepOperation], group_sizes: Mapping[str, int], counts: Counter[str]
) -> list[StepOperation]:
    """The operations with cross-rank dependencies added; only ranks of one communicator wait for each other.

    The k-th collective of a group on one rank is the k-th on every other; each member waits for what the others wait for
    and for their collective before it. Groups whose ranks disagree in number or kind are left apart and counted.
    """
    by_rank: dict[tuple[str, int, str], dict[int, list[StepOperation]]] = defaultdict(lambda: defaultdict(list))
    previous: dict[str, str] = {}
    last: dict[str, str] = {}
    for op in sorted(operations, key=lambda op: op.sequence):
        if op.stream in last:
            previous[op.id] = last[op.stream]
        last[op.stream] = op.id
        if op.kind is Kind.COLLECTIVE and op.collective != "point_to_point":
            rank, group = rank_of(op), str(op.group)
            by_rank[group, instance(group_sizes, group, rank), op.stream.split(".", 1)[1]][rank].append(op)
    extra: dict[str, list[str]] = {}
    for ranks in by_rank.values():
        if len(ranks) < 2:
            continue
        kinds = {tuple(op.collective for op in ops) for ops in ranks.values()}
        if len(kinds) > 1:
            counts["collective streams whose ranks disagree (not joined)"] += 1
            continue
        for members in zip(*ranks.values(), strict=True):
            counts["collectives joined over the ranks given"] += 1
            for op in members:
                others = [other for other in members if other is not op]
                waits = [name for other in others for name in (*other.after, previous.get(other.id)) if name]
                extra[op.id] = waits
    return [
        msgspec.structs.replace(op, after=tuple(dict.fromkeys((*op.after, *extra[op.id])))) if op.id in extra else op
        for op in operations
    ]
