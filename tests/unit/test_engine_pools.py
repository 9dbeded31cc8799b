"""A pool grants capacity on request, takes back what is not used, and lets requests wait in order."""

import pytest

from sim.engine import replay
from sim.engine.pools import PoolManager, answering
from sim.errors import DeadlockError
from sim.records import Allocation, Kind, Operation, Pool, Program, Stream, Tier


def job(name, size, seconds, *, start_s=0.0, frees=True):
    """Allocate in the host's part of the pool, work, free."""
    bytes_ = (Allocation(tier=f"pool@{name}", tensor_class="weights", size_bytes=size),)
    common = {"kind": Kind.MARKER, "stream": name}
    return [
        Operation(id=f"{name}.wait", sequence=0, latency_s=start_s, **common),
        Operation(id=f"{name}.work", sequence=1, latency_s=seconds, allocates=bytes_, frees=bytes_ if frees else (), **common),
    ]


def run(jobs, *, granted=None, capacity=10.0, latency_s=0.5, release=2.0):
    operations = [operation for rows in jobs for operation in rows]
    names = [rows[0].stream for rows in jobs]
    pool = Pool(
        name="pool", capacity_bytes=capacity, extent_bytes=1.0, grant_latency_s=latency_s, release_bytes_per_s=release,
        granted_bytes={f"pool@{name}": (granted or {}).get(name, 0.0) for name in names},
    )  # fmt: skip
    program = Program(
        name="p", channels=(), operations=tuple(operations), streams=tuple(Stream(name=name) for name in names),
        tiers=tuple(Tier(name=f"pool@{name}", capacity_bytes=(granted or {}).get(name, 0.0)) for name in names),
    )  # fmt: skip
    manager = PoolManager(pool, [operation.id for operation in operations if operation.frees])
    result = replay(program, policy=answering([manager]), processes=[manager.serve])
    return {record.id: record for record in result.operations}, result


def test_what_was_granted_at_the_start_needs_no_request():
    ended, result = run([job("a", 4.0, 1.0)], granted={"a": 4.0})
    assert ended["a.work"].end_s == 1.0
    assert result.events == ()


def test_a_request_waits_for_its_grant_and_takes_whole_extents():
    ended, result = run([job("a", 3.5, 1.0)], granted={"a": 1.0})
    assert ended["a.work"].start_s - 1.0 == pytest.approx(0.5)
    assert "pool grants 3 B" in result.events[1]


def test_requests_are_served_one_after_the_other():
    ended, _ = run([job("a", 5.0, 1.0), job("b", 5.0, 1.0)])
    assert (ended["a.work"].end_s, ended["b.work"].end_s) == (1.5, 2.0)


def test_an_exhausted_pool_takes_back_what_is_no_longer_used():
    ended, result = run([job("a", 6.0, 1.0), job("b", 6.0, 1.0)])
    # a ends at 1.5; two extents are taken from it in 1 s, and b starts
    assert ended["b.work"].end_s == pytest.approx(1.5 + 2 / 2.0 + 1.0)
    assert any("takes back 2 B: pool@a" in line for line in result.events)


def test_exactly_what_is_left_is_granted_at_once_and_one_byte_more_is_not():
    just, _ = run([job("a", 4.0, 9.0), job("b", 6.0, 1.0)])
    more, _ = run([job("a", 4.0, 9.0), job("b", 6.0 + 1e-6, 1.0)])
    assert just["b.work"].end_s == 2.0
    assert more["b.work"].end_s > 9.0


def test_jobs_that_hold_a_part_each_and_wait_for_the_rest_never_end():
    def twice(name):
        more = (Allocation(tier=f"pool@{name}", tensor_class="weights", size_bytes=4.0),)
        first = job(name, 4.0, 1.0, frees=False)
        return [*first, Operation(id=f"{name}.more", kind=Kind.MARKER, stream=name, sequence=2, allocates=more)]

    with pytest.raises(DeadlockError, match=r"'a\.more' on stream 'a' waits for 4\.0 bytes in 'pool@a'"):
        run([twice("a"), twice("b")])
