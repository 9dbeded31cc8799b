"""Statistics of small hand-made replays: every number below is derived by hand."""

from __future__ import annotations

import msgspec
import pytest

from sim.errors import InternalError
from sim.metrics import summarise
from sim.metrics.breakdown import KEYS, Stretch, breakdown_s, partition
from sim.metrics.claim import verdict_of
from sim.metrics.critical_path import bound_by, critical_path, owners_s
from sim.metrics.seen import Seen
from sim.records import Channel, ChannelTotal, Kind, Operation, OperationRecord, Program, Replay, Stream, Tier, TierPeak

# rank a: compute 0-4, copy 3-6 (exposed 4-6), host update 6-8, idle 8-10; rank b ends at 10 after 10 s of compute
OPERATIONS = (
    Operation(id="a0", kind=Kind.COMPUTE, stream="a.compute", sequence=0, work=4.0, rate_cap=1.0, category="compute"),
    Operation(id="a1", kind=Kind.TRANSFER, stream="a.d2h", sequence=0, work=30.0, uses=(("link", 1.0),), category="transfer"),
    Operation(
        id="a2",
        kind=Kind.HOST_UPDATE,
        stream="a.cpu",
        sequence=0,
        after=("a1",),
        work=20.0,
        uses=(("dram", 1.0),),
        category="cpu_optimizer",
    ),
)
RECORDS = (
    OperationRecord(id="a0", ready_s=0.0, start_s=0.0, end_s=4.0),
    OperationRecord(id="a1", ready_s=3.0, start_s=3.0, end_s=6.0),
    OperationRecord(id="a2", ready_s=6.0, start_s=6.0, end_s=8.0),
)


def program(*operations: Operation, **changes: object) -> Program:
    base = Program(
        name="p",
        channels=(Channel(name="link", bandwidth_per_s=10.0), Channel(name="dram", bandwidth_per_s=10.0)),
        tiers=(Tier(name="gpu0.gddr", capacity_bytes=100.0),),
        streams=(
            Stream(name="a.compute", device="gpu0"),
            Stream(name="a.d2h", device="gpu0"),
            Stream(name="a.cpu", device="gpu0"),
        ),
        operations=operations or OPERATIONS,
        model_flops=400.0,
        num_tokens=50.0,
        peak_flops_per_s=100.0,
    )
    return msgspec.structs.replace(base, **changes)


def replay(*records: OperationRecord, makespan_s: float = 10.0) -> Replay:
    return Replay(
        makespan_s=makespan_s,
        operations=records or RECORDS,
        channels=(
            ChannelTotal(name="link", amount=30.0, busy_s=3.0, saturated_s=3.0, peak_rate_per_s=10.0),
            ChannelTotal(name="dram", amount=20.0, busy_s=2.0, saturated_s=2.0, peak_rate_per_s=10.0),
        ),
        tiers=(TierPeak(name="gpu0.gddr", peak_bytes=60.0, time_s=1.0, operation="a0", by_class={"weights": 60.0}),),
    )


def test_breakdown_attributes_by_priority_and_sums_to_the_step() -> None:
    parts = breakdown_s(Seen(program(), replay()))
    assert parts["compute"] == pytest.approx(4.0)
    assert parts["exposed_transfer"] == pytest.approx(2.0)  # 3-4 is hidden behind compute
    assert parts["cpu_optimizer"] == pytest.approx(2.0)
    assert parts["idle"] == pytest.approx(2.0)
    assert set(parts) == set(KEYS.values())
    assert sum(parts.values()) == pytest.approx(10.0, abs=1e-9)


def test_breakdown_is_of_the_slowest_rank() -> None:
    slow = Operation(id="b0", kind=Kind.COMPUTE, stream="b.compute", sequence=0, work=10.0, rate_cap=1.0)
    records = (*RECORDS, OperationRecord(id="b0", ready_s=0.0, start_s=0.0, end_s=10.0))
    parts = breakdown_s(Seen(program(*OPERATIONS, slow), replay(*records)))
    assert parts["compute"] == pytest.approx(10.0)
    assert parts["idle"] == pytest.approx(0.0)


def test_a_wait_for_memory_is_not_work_but_a_launch_latency_is() -> None:
    waiting = Operation(id="w", kind=Kind.COMPUTE, stream="a.compute", sequence=0, work=1.0, rate_cap=1.0, latency_s=0.5)
    record = OperationRecord(id="w", ready_s=0.0, start_s=4.0, end_s=5.0)  # held 3.5 s by an allocation
    parts = breakdown_s(Seen(program(waiting), replay(record, makespan_s=5.0)))
    assert parts["compute"] == pytest.approx(1.5)
    assert parts["idle"] == pytest.approx(3.5)


@pytest.mark.parametrize(("role", "owner"), [("compute", "overhead"), ("clock", "arrival")])
def test_what_a_framework_waits_is_overhead_and_what_a_clock_waits_is_the_arrival(role, owner) -> None:
    waiting = Operation(id="w", kind=Kind.MARKER, stream="a.wait", sequence=0, latency_s=4.0, category="idle")
    record = OperationRecord(id="w", ready_s=0.0, start_s=4.0, end_s=4.0)
    streams = (Stream(name="a.wait", role=role),)
    step = Program(name="wait", channels=(), tiers=(), streams=streams, operations=(waiting,))
    assert owners_s(Seen(step, replay(record, makespan_s=4.0))) == {owner: 4.0}


def test_partition_refuses_more_work_than_time() -> None:
    with pytest.raises(InternalError, match="more work than it lasts"):
        partition([(0.0, 2.0, 0)], 1.0)


def test_critical_path_and_its_owner() -> None:
    assert [record.id for record in critical_path(program(), replay())] == ["a1", "a2"]
    owned = owners_s(Seen(program(), replay()))
    assert owned["link"] == pytest.approx(3.0)
    assert owned["dram"] == pytest.approx(2.0)
    assert bound_by(owned, 10.0) == "none"  # 3 of 10 s is not more than 30 %
    assert bound_by(owned, 9.9) == "link"
    assert bound_by({"overhead": 9.0, "link": 1.0}, 10.0) == "overhead"
    assert bound_by({"overhead": 4.0, "link": 4.1}, 10.0) == "link"


def test_kernel_time_is_split_between_memory_and_arithmetic() -> None:
    # 40 bytes in 4 s at its cap: the memory of 20 bytes/s owns half of it
    kernel = Operation(
        id="k", kind=Kind.COMPUTE, stream="a.compute", sequence=0, work=40.0, rate_cap=10.0, uses=(("link", 0.5),)
    )
    owned = owners_s(Seen(program(kernel), replay(OperationRecord(id="k", ready_s=0.0, start_s=0.0, end_s=4.0))))
    assert owned["link"] == pytest.approx(2.0)
    assert owned["gpu0.sm"] == pytest.approx(2.0)


def test_known_parts_of_kernel_time_decide_the_owner() -> None:
    # of 4 s, 1 s is arithmetic and 0.5 s launches: memory owns the other 2.5 s
    kernel = Operation(
        id="k", kind=Kind.COMPUTE, stream="a.compute", sequence=0, work=40.0, rate_cap=10.0, uses=(("link", 0.5),),
        arithmetic_s=1.0, launch_s=0.5,
    )  # fmt: skip
    owned = owners_s(Seen(program(kernel), replay(OperationRecord(id="k", ready_s=0.0, start_s=0.0, end_s=4.0))))
    assert owned == pytest.approx({"link": 2.5, "gpu0.sm": 1.0, "overhead": 0.5})


def test_summary() -> None:
    summary = summarise(program(), replay())
    assert summary.step_time_s == 10.0
    assert summary.tokens_per_s == pytest.approx(5.0)
    assert summary.mfu == pytest.approx(0.4)
    assert summary.channels["link"].utilisation == pytest.approx(0.3)
    assert summary.channels["dram"].bytes == 20.0
    assert summary.tiers["gpu0.gddr"].peak_bytes == 60.0


def test_seconds_of_sampled_tokens_count_as_often_as_they_stand_for() -> None:
    stretch = Stretch(after_s=6.0, factor=10.0)  # the 2 s of host update and 2 s of idle stand for 20 s each
    summary = summarise(program(), replay(), stretch=stretch)
    assert summary.step_time_s == pytest.approx(46.0)
    assert summary.breakdown_s["cpu_optimizer"] == pytest.approx(20.0)
    assert summary.breakdown_s["idle"] == pytest.approx(20.0)
    assert summary.breakdown_s["compute"] == pytest.approx(4.0)
    assert sum(summary.breakdown_s.values()) == pytest.approx(46.0, abs=1e-9)
    assert summary.bound_by == "dram"
    assert summary.channels["dram"].bytes == pytest.approx(200.0)
    assert summary.channels["link"].bytes == pytest.approx(30.0)


def test_impossible_results_are_internal_errors() -> None:
    with pytest.raises(InternalError, match=r"MFU of 100\.1 %"):
        summarise(program(model_flops=1001.0), replay())
    assert summarise(program(model_flops=1000.0), replay()).mfu == pytest.approx(1.0)
    too_much = ChannelTotal(name="link", amount=150.0, busy_s=1.0, saturated_s=1.0, peak_rate_per_s=10.0)
    with pytest.raises(InternalError, match="channel 'link' carried 150 % of its bandwidth"):
        summarise(program(), msgspec.structs.replace(replay(), channels=(too_much,)))
    with pytest.raises(InternalError, match=r"takes 0\.0 s"):
        summarise(program(), msgspec.structs.replace(replay(), makespan_s=0.0))


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ({"metric": "step_time_s", "value": 10.0}, "reproduced"),
        ({"metric": "step_time_s", "value": 8.7}, "reproduced"),  # 14.9 % off
        ({"metric": "step_time_s", "value": 8.69}, "not reproduced"),  # 15.1 % off
        ({"metric": "step_time_s", "range": (10.0, 12.0)}, "reproduced"),
        ({"metric": "step_time_s", "range": (10.01, 12.0)}, "not reproduced"),
        ({"metric": "step_time_s", "value": 10.0, "assumptions": ["2048 tokens"]}, "conditional"),
        ({"metric": "tiers.gpu0.gddr.peak_bytes", "value": 60.0}, "reproduced"),
        ({"metric": "tiers.gpu9.gddr.peak_bytes", "value": 60.0}, "not reproduced"),
        ({}, "reproduced"),  # it fits
        ({"metric": "fits", "value": False}, "not reproduced"),
    ],
)
def test_verdicts_on_claims(claim: dict[str, object], verdict: str) -> None:
    point = {"fits": True, "step_time_s": 10.0, "tiers": {"gpu0.gddr": {"peak_bytes": 60.0}}}
    found = verdict_of({"id": "A00", "stated": "x"} | claim, point)
    assert found["verdict"] == verdict
    assert set(found) == {"id", "stated", "simulated", "verdict"}
