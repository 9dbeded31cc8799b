"""Several jobs in one simulation share what has one name, and nothing else."""

import pytest

from sim.engine import run_checked
from sim.errors import InputError
from sim.metrics import summarise
from sim.program.merge import Part, merge, of_job
from sim.records import Channel, Kind, Operation, Program, Stream, Tier

POOL = Channel(name="pool", bandwidth_per_s=10.0)


def job(own, size, *, channel=POOL, multiplicity=1):
    """One transfer of `size` bytes over a private link and the pool."""
    return Program(
        name=own,
        channels=(channel, Channel(name=own, bandwidth_per_s=8.0)),
        tiers=(Tier(name="memory", capacity_bytes=1e3),),
        streams=(Stream(name="rank.h2d", multiplicity=multiplicity),),
        operations=(
            Operation(id="move", kind=Kind.TRANSFER, stream="rank.h2d", sequence=0, work=size, uses=(("pool", 1.0), (own, 1.0)),
                      category="transfer"),
        ),
        num_tokens=1.0,
    )  # fmt: skip


def test_two_jobs_halve_the_pool_while_both_run():
    a, b = Part("a", job("link_a", 20.0)), Part("b", job("link_b", 40.0))
    replay = run_checked(merge([a, b], "both"))
    # 5 B/s each until a ends at 4 s with 20 B of b left, which then runs at its link's 8 B/s
    assert of_job(a, replay).makespan_s == pytest.approx(4.0)
    assert of_job(b, replay).makespan_s == pytest.approx(4.0 + 20.0 / 8.0)
    assert summarise(b.program, of_job(b, replay)).channels["pool"].bytes == pytest.approx(40.0)


def test_a_late_job_meets_less_contention():
    a, b = Part("a", job("link_a", 20.0)), Part("b", job("link_b", 40.0), start_s=2.5)
    replay = run_checked(merge([a, b], "both"))
    assert of_job(a, replay).makespan_s == pytest.approx(2.5)  # 8 B/s alone
    assert of_job(b, replay).makespan_s == pytest.approx(5.0)
    assert [record.id for record in of_job(b, replay).operations] == ["move"]


def test_a_folded_channel_cannot_be_shared():
    folded = Channel(name="pool", bandwidth_per_s=10.0, multiplicity=2)
    with pytest.raises(InputError, match="jobs share channel 'pool', of which 'b' folds several into one"):
        merge([Part("a", job("link_a", 1.0)), Part("b", job("link_b", 1.0, channel=folded, multiplicity=2))], "both")
