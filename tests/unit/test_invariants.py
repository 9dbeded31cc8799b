"""Each invariant refuses a record that was doctored against it: a check that cannot fail is none."""

import msgspec
import pytest

from sim.engine import replay
from sim.metrics.invariants import broken
from sim.records import Allocation, Channel, Kind, Operation, Program, Stream, Tier

TEN = (Allocation(tier="hbm", tensor_class="weights", size_bytes=10.0),)
PROGRAM = Program(
    name="hand",
    channels=(Channel(name="link", bandwidth_per_s=100.0),),
    tiers=(Tier(name="hbm", capacity_bytes=10.0),),
    streams=(Stream(name="s"),),
    operations=(
        Operation(id="a", kind=Kind.TRANSFER, stream="s", sequence=0, work=100.0, uses=(("link", 1.0),), allocates=TEN),
        Operation(id="b", kind=Kind.TRANSFER, stream="s", sequence=1, work=100.0, uses=(("link", 1.0),), latency_s=0.5),
    ),
)


def doctored(rows, index, **fields):
    """`rows` with `fields` of one row overwritten."""
    return tuple(msgspec.structs.replace(row, **fields) if i == index else row for i, row in enumerate(rows))


def test_the_true_record_breaks_nothing():
    assert broken(PROGRAM, replay(PROGRAM, level="full")) == []


@pytest.mark.parametrize(
    ("table", "index", "fields", "message"),
    [
        ("operations", 1, {"ready_s": 0.5}, "was ready at 0.5 s, before 'a' ended"),
        ("operations", 1, {"start_s": 1.2}, "started before its latency was over"),
        ("operations", 1, {"end_s": 2.4}, "its caps allow 1.0 s"),
        ("operations", 0, {"end_s": -1.0}, "out of order"),
        ("channels", 0, {"amount": 199.0}, "reports 199.0, operations put 200.0 on it"),
        ("channels", 0, {"busy_s": 3.0}, "busy 3.0 s of 2.5 s"),
        ("segments", 0, {"rate_per_s": 101.0}, "carried 101.0/s of 100.0/s"),
        ("segments", 0, {"end_s": 0.5}, "in time, operations put 200.0 on it"),
        ("tiers", 0, {"peak_bytes": 11.0}, "held 11.0 of 10.0 bytes"),
        ("tiers", 0, {"peak_bytes": 9.0}, "reports a peak of 9.0 bytes and ends with 10.0"),
    ],
)
def test_a_doctored_record_is_refused(table, index, fields, message):
    true = replay(PROGRAM, level="full")
    false = msgspec.structs.replace(true, **{table: doctored(getattr(true, table), index, **fields)})
    assert any(message in fault for fault in broken(PROGRAM, false))


def test_a_missing_record_is_refused():
    true = replay(PROGRAM, level="full")
    assert broken(PROGRAM, msgspec.structs.replace(true, operations=true.operations[:1])) == [
        "no record of 1 operations, first 'b'"
    ]
