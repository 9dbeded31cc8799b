"""Process groups of recordings: named by size and stride, joined only among their members."""

from __future__ import annotations

from collections import Counter

import pytest

from sim.errors import InputError
from sim.interchange import kineto
from sim.interchange.groups import Communicator, Groups, communicator, instance, listed_ranks
from sim.interchange.joined import join_collectives
from sim.program.transfers import Membership
from sim.records import Kind, StepOperation
from tests.kineto_sample import Sample


@pytest.mark.parametrize(
    ("text", "ranks"), [("[0, 8, 16, ...]", [0, 8, 16]), ([3, 1], [3, 1]), (None, []), ("", []), ([True, "x"], [])]
)
def test_ranks_are_read_as_the_profiler_writes_them(text: object, ranks: list[int]) -> None:
    assert listed_ranks(text) == ranks


def test_size_and_stride_tell_communicators_apart() -> None:
    assert communicator([4, 0, 2]) == Communicator(3, 2)
    assert communicator([0, 8, 16], size=64) == Communicator(64, 8)  # a list that was cut
    assert communicator([0, 1, 3]) == Communicator(3, -1)
    assert communicator([5]) == Communicator(1, 0)


def members(groups: Groups, item: Communicator, rank: int, world: int) -> list[int]:
    """Ranks of the communicator as the simulator places them, all on one node."""
    local, _nodes = Membership(groups.sizes, world).local(groups.name(item), rank)
    return list(local)


@pytest.mark.parametrize(
    ("lists", "world"),
    [
        ([[0, 1], [0, 2, 4, 6]], 8),  # tensor inside, data across
        ([[1, 3, 5, 7]], 8),  # data across only: tensor ranks without collectives
        ([[0, 1, 2, 3], [0, 4]], 8),  # hybrid sharding
        ([[0, 1], [0, 2], [0, 4]], 8),  # tensor, shard, replica
        ([[0, 1, 2, 3, 4, 5, 6, 7]], 8),
    ],
)
def test_the_named_group_has_the_recorded_members(lists: list[list[int]], world: int) -> None:
    groups = Groups([communicator(ranks) for ranks in lists], world, Counter())
    for ranks in lists:
        assert members(groups, communicator(ranks), ranks[0], world) == ranks
        assert instance(groups.sizes, groups.name(communicator(ranks)), ranks[-1]) == ranks[0]


def test_a_group_of_unknown_ranks_is_counted() -> None:
    counts: Counter[str] = Counter()
    groups = Groups([Communicator(4), communicator([0, 1])], 8, counts)
    assert groups.name(Communicator(4)) == "context"
    assert groups.name(Communicator(8)) == "world"
    assert sum(counts.values()) == 1


def collective(rank: int, number: int, after: tuple[str, ...] = ()) -> StepOperation:
    stream = f"rank{rank}.collective"
    return StepOperation(
        id=f"{stream}.{number}", kind=Kind.COLLECTIVE, stream=stream, sequence=number, collective="all_reduce", group="tensor",
        size_bytes=8.0, after=after,
    )  # fmt: skip


def test_only_members_of_one_communicator_wait_for_each_other() -> None:
    operations = [collective(rank, 0, (f"rank{rank}.compute.0",)) for rank in range(4)]
    joined = join_collectives(operations, {"world": 4, "tensor": 2}, Counter())
    waits = {op.stream: set(op.after) for op in joined}
    assert waits["rank0.collective"] == {"rank0.compute.0", "rank1.compute.0"}
    assert waits["rank3.collective"] == {"rank2.compute.0", "rank3.compute.0"}


def rank_recording(rank: int, start: float, names: tuple[str, ...] = ("ProfilerStep#3",)) -> kineto.Reading:
    """A step of 1000 us that begins at `start` on a common clock; its all-reduce ends at 2000 us on every rank."""
    sample = Sample(distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2})
    for name in names:
        sample.event("user_annotation", name, 0, 2500 - start)
    sample.launch(100, 120, 300)
    nccl = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float", "Group size": 2}
    sample.launch(150, 430, 2000 - start - 430, name="ncclKernel_AllReduce", stream=20, **nccl)
    sample.call("cudaDeviceSynchronize", 160, 2010 - start - 160)
    return kineto.read_rank(sample.to_bytes(), f"rank{rank}.json")


def test_ranks_start_as_far_apart_as_their_collectives_say() -> None:
    step = kineto.step_from([rank_recording(0, 0.0), rank_recording(1, 700.0)])
    delays = {op.stream: op.fixed_s for op in step.operations if op.name.startswith("starts after")}
    assert delays == {"rank1.cpu": pytest.approx(700e-6, abs=1e-6)}
    assert any("0.70 ms apart" in note for note in step.notes)
    first = {op.stream: op for op in step.operations if op.kind is Kind.COLLECTIVE}
    assert any(name.startswith("rank1.") for name in first["rank0.collective"].after)


def test_ranks_that_recorded_different_steps_are_refused() -> None:
    with pytest.raises(InputError, match="different steps: ProfilerStep#3, ProfilerStep#9"):
        kineto.step_from([rank_recording(0, 0.0), rank_recording(1, 0.0, ("ProfilerStep#9",))])
