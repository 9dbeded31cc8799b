"""Processes beside the kernel, capacity policies, exclusive servers, the monitor: by hand."""

import pytest

from sim.engine import replay, run_checked
from sim.errors import DeadlockError, InputError, InternalError, MisfitError
from sim.records import Allocation, Answer, Channel, Kind, LatencyLaw, Operation, Program, Stream, Tier, Transfer

LINK = Channel(name="link", bandwidth_per_s=100.0)
USE = (("link", 1.0),)


def op(name, stream, sequence, **fields):
    return Operation(id=name, kind=Kind.TRANSFER, stream=stream, sequence=sequence, **fields)


def program(*operations, channels=(LINK,), tiers=(), resident=()):
    streams = tuple(Stream(name=name) for name in sorted({operation.stream for operation in operations}))
    return Program(
        name="hand", channels=channels, tiers=tiers, streams=streams, operations=operations, resident=tuple(resident)
    )


def rows(size, tier="hbm", tensor_class="weights"):
    return (Allocation(tier=tier, tensor_class=tensor_class, size_bytes=size),)


def ends(result):
    return {record.id: record.end_s for record in result.operations}


# ---------------------------------------------------------------------------------------------------- daemons


def test_a_transfer_of_a_daemon_shares_the_link():
    # alone for 1 s (100 of 300), then half of it while the daemon moves 100 (2 s), then alone again: 1 + 2 + 1 s
    arrived = []

    def daemon(world):
        yield world.env.timeout(1.0)
        yield world.transfer(Transfer(stream="daemon", size_bytes=100.0, uses=USE))
        arrived.append(world.now)

    result = replay(program(op("a", "s", 0, work=300.0, uses=USE)), processes=[daemon], level="full")
    assert ends(result) == {"a": 4.0, "daemon.1": 3.0}
    assert arrived == [3.0]
    assert [(s.start_s, s.end_s, s.rate_per_s) for s in result.segments] == [(0.0, 4.0, 100.0)]
    assert len(result.events) == 1


def test_transfers_on_one_stream_run_in_order():
    def daemon(world):
        for _ in range(2):
            world.transfer(Transfer(stream="daemon", size_bytes=100.0, uses=USE))
        yield world.env.timeout(0.0)

    result = replay(program(op("a", "s", 0, work=10.0, rate_cap=1.0)), processes=[daemon])
    assert ends(result) == {"a": 10.0, "daemon.1": 1.0, "daemon.2": 2.0}


def test_a_transfer_that_outlives_the_program_is_cut_with_the_work_done():
    def daemon(world):
        world.transfer(Transfer(stream="daemon", size_bytes=1000.0, uses=USE))
        yield world.env.timeout(0.0)

    result = replay(program(op("a", "s", 0, work=100.0, uses=USE)), processes=[daemon], level="full")
    assert result.makespan_s == 2.0
    assert ends(result) == {"a": 2.0, "daemon.1": 2.0}
    assert result.channels[0].amount == pytest.approx(200.0)
    assert (result.channels[0].busy_s, result.channels[0].saturated_s) == (2.0, 2.0)


def test_bandwidth_can_change_under_a_running_flow():
    def degrade(world):
        yield world.env.timeout(1.0)
        world.set_bandwidth("link", 25.0)

    result = replay(program(op("a", "s", 0, work=200.0, uses=USE), op("b", "s", 1, work=50.0, uses=USE)), processes=[degrade])
    assert ends(result) == {"a": 5.0, "b": 7.0}


@pytest.mark.parametrize("uses", [USE, ()])
def test_a_cap_can_change_under_a_running_flow(uses):
    def throttle(world):
        yield world.env.timeout(1.0)
        world.set_cap("a", 10.0)

    assert ends(replay(program(op("a", "s", 0, work=100.0, uses=uses, rate_cap=50.0)), processes=[throttle])) == {"a": 6.0}


def test_a_cap_set_before_the_start_counts():
    def throttle(world):
        world.set_cap("a", 10.0)
        yield world.env.timeout(0.0)

    a = op("a", "s", 0, work=100.0, rate_cap=50.0, latency_s=1.0)
    assert ends(replay(program(a), processes=[throttle])) == {"a": 11.0}


def test_a_process_can_wait_for_an_operation():
    seen = []

    def follow(world):
        yield world.ended("a")
        seen.append((world.now, world.has_ended("a"), world.has_ended("b")))
        yield world.ended("a")  # already there
        world.transfer(Transfer(stream="daemon", size_bytes=50.0, uses=USE))

    result = replay(program(op("a", "s", 0, work=100.0, uses=USE), op("b", "s", 1, work=200.0, uses=USE)), processes=[follow])
    assert seen == [(1.0, True, False)]
    # b has 100/s until 1, shares until the daemon's 50 are through at 2, has 150 left
    assert ends(result) == {"a": 1.0, "b": 3.5, "daemon.2": 2.0}


def test_at_equal_times_processes_run_before_the_kernel():
    seen = []

    def look(world):
        yield world.env.timeout(1.0)
        seen.append(world.has_ended("a"))
        yield world.env.timeout(0.5)
        seen.append(world.has_ended("a"))

    replay(program(op("a", "s", 0, work=100.0, uses=USE), op("b", "s", 1, work=100.0, uses=USE)), processes=[look])
    assert seen == [False, True]


def test_a_process_sees_loads_and_bytes():
    seen = []

    def look(world):
        yield world.env.timeout(0.5)
        seen.append(world.observe())

    a = op("a", "s", 0, work=25.0, uses=USE, rate_cap=25.0, allocates=rows(4.0))
    replay(program(a, tiers=(Tier(name="hbm", capacity_bytes=10.0),)), processes=[look])
    assert seen[0].utilisation == {"link": 0.25}
    assert seen[0].occupancy_bytes == {"hbm": {"weights": 4.0}}
    assert seen[0].time_s == 0.5


def test_a_process_that_does_nothing_changes_nothing():
    def idle(world):
        while True:
            yield world.env.timeout(0.03)

    a, b = op("a", "s", 0, work=300.0, uses=USE), op("b", "t", 0, work=100.0, uses=USE, rate_cap=30.0)
    alone = replay(program(a, b))
    assert ends(replay(program(a, b), processes=[idle])) == pytest.approx(ends(alone), rel=1e-12)


def test_a_latency_bound_flow_feels_a_daemon():
    # the daemon loads the link to 0.6: latency 1 s -> 1 * (1 + 1 * 0.6 / (1 - 0)) at least
    link = Channel(name="link", bandwidth_per_s=100.0, latency=LatencyLaw(idle_latency_s=1.0, a=1.0))

    def daemon(world):
        world.transfer(Transfer(stream="daemon", size_bytes=1e9, uses=USE, rate_cap_bytes_per_s=60.0))
        yield world.env.timeout(0.0)

    chase = program(op("a", "s", 0, work=1.0, uses=USE, window_bytes=1.0), channels=(link,))
    assert replay(chase).makespan_s == pytest.approx(1.0, rel=0.02)
    assert replay(chase, processes=[daemon]).makespan_s == pytest.approx(1.6, rel=0.02)


def test_a_daemon_may_not_use_a_stream_of_the_program():
    def daemon(world):
        yield world.transfer(Transfer(stream="s", size_bytes=1.0, uses=USE))

    with pytest.raises(InputError, match="stream 's' belongs to the program"):
        replay(program(op("a", "s", 0, work=1.0, uses=USE)), processes=[daemon])


# ---------------------------------------------------------------------------------------------------- capacity policies

TIERS = (Tier(name="hbm", capacity_bytes=10.0), Tier(name="dram", capacity_bytes=100.0))


def overflowing():
    """a holds 8 of 10 until 1 s; b wants 4 at once."""
    a = op("a", "s", 0, work=1.0, rate_cap=1.0, allocates=rows(8.0), frees=rows(8.0))
    b = op("b", "t", 0, work=1.0, rate_cap=1.0, allocates=rows(4.0), frees=rows(4.0), phase="forward")
    return program(a, b, tiers=TIERS)


def test_a_policy_that_fails_is_a_misfit():
    with pytest.raises(MisfitError, match="operation 'b' is short of 2 B"):
        replay(overflowing(), policy=lambda overflow: Answer(kind="fail"))


def test_a_policy_is_told_what_is_missing():
    asked = []

    def policy(overflow):
        asked.append(overflow)
        return Answer(kind="wait")

    result = replay(overflowing(), policy=policy)
    assert ends(result) == {"a": 1.0, "b": 2.0}  # b starts when a has freed
    (overflow,) = asked
    assert (overflow.operation, overflow.phase, overflow.tier, overflow.missing_bytes) == ("b", "forward", "hbm", 2.0)
    assert overflow.seen.occupancy_bytes["hbm"] == {"weights": 8.0}


def test_a_policy_can_spill_and_the_bytes_come_back_out():
    def policy(overflow):
        return Answer(kind="spill", allocations=rows(2.0) + rows(2.0, "dram"))

    result = replay(overflowing(), policy=policy, level="full")
    assert result.makespan_s == 1.0
    peaks = {peak.name: peak.peak_bytes for peak in result.tiers}
    assert peaks == {"hbm": 10.0, "dram": 2.0}
    last = {}
    for row in result.occupancy:
        last[row.tier] = row.size_bytes
    assert last == {"hbm": 0.0, "dram": 0.0}
    assert "spill for b" in result.events[0]


def test_a_policy_can_evict_and_the_allocation_waits_for_the_copy():
    def policy(overflow):
        move = Transfer(
            stream="evict",
            size_bytes=2.0,
            uses=USE,
            rate_cap_bytes_per_s=4.0,
            source="hbm",
            target="dram",
            tensor_class="weights",
        )
        return Answer(kind="move", transfers=(move,))

    result = replay(overflowing(), policy=policy)
    # 2 bytes at 4/s: b starts at 0.5
    assert ends(result) == {"a": 1.0, "b": 1.5, "evict.2": 0.5}
    assert {peak.name: peak.peak_bytes for peak in result.tiers} == {"hbm": 10.0, "dram": 2.0}


def test_a_policy_that_never_makes_room_is_asked_a_bounded_number_of_times():
    with pytest.raises(InternalError, match="asked 1000 times"):
        replay(overflowing(), policy=lambda overflow: Answer(kind="spill", allocations=rows(4.0)))


def test_waiting_for_bytes_that_nobody_frees_is_a_deadlock_that_says_so():
    a = op("a", "s", 0, work=1.0, rate_cap=1.0, allocates=rows(8.0))
    b = op("b", "t", 0, work=1.0, rate_cap=1.0, allocates=rows(4.0))
    with pytest.raises(DeadlockError, match=r"'b' on stream 't' waits for 2.0 bytes in 'hbm'"):
        replay(program(a, b, tiers=TIERS), policy=lambda overflow: Answer(kind="wait"))


def test_exactly_full_asks_no_policy():
    a = op("a", "s", 0, work=1.0, rate_cap=1.0, allocates=rows(10.0))
    assert replay(program(a, tiers=TIERS), policy=lambda overflow: pytest.fail("asked")).makespan_s == 1.0


# ---------------------------------------------------------------------------------------------------- servers


def server(multiplicity=1):
    return Channel(name="pool", bandwidth_per_s=50e9, is_server=True, multiplicity=multiplicity)


def loads(num_devices, channel):
    """ASTRA-sim's memory model: 20 x (50 MB at 50 GB/s after 500 ns, then 1 ms of compute) per device."""
    operations = []
    for device in range(num_devices):
        name = f"d{device}"
        for i in range(20):
            uses = ((channel.format(device), 1.0),)
            operations.append(op(f"{name}.load{i}", name, 2 * i, work=50e6, uses=uses, latency_s=500e-9))
            operations.append(op(f"{name}.work{i}", name, 2 * i + 1, work=1e-3, rate_cap=1.0))
    return operations


def test_private_memories_take_the_sum_of_each_device():
    channels = tuple(Channel(name=f"memory{i}", bandwidth_per_s=50e9) for i in range(8))
    result = run_checked(program(*loads(8, "memory{}"), channels=channels))
    assert result.makespan_s == pytest.approx(40.01e-3, rel=1e-9)


def test_a_pool_that_serves_one_tensor_at_a_time_queues_everybody():
    # 160 x (1 ms + 500 ns) one after the other, and the last compute
    result = run_checked(program(*loads(8, "pool"), channels=(server(),)))
    assert result.makespan_s == pytest.approx(161.08e-3, rel=1e-9)


def test_a_server_serves_by_arrival_then_by_canonical_order():
    operations = [op(name, name, 0, work=50e9, uses=(("pool", 1.0),), after=("late",) if name == "b" else ()) for name in "cba"]
    late = op("late", "z", 0, work=0.5, rate_cap=1.0)
    result = run_checked(program(*operations, late, channels=(server(),)))
    assert ends(result) == {"a": 1.0, "c": 2.0, "b": 3.0, "late": 0.5}
    ready = {record.id: (record.ready_s, record.start_s) for record in result.operations}
    assert ready["b"] == (0.5, 2.0)


def test_a_folded_class_may_not_queue_at_one_server():
    streams = (Stream(name="s", multiplicity=2),)
    a = op("a", "s", 0, work=1.0, uses=(("pool", 1.0),))
    shared = Program(name="x", channels=(server(),), tiers=(), streams=streams, operations=(a,))
    with pytest.raises(InputError, match="stands for 2 ranks that queue at server 'pool'"):
        replay(shared)
    private = Program(name="x", channels=(server(2),), tiers=(), streams=streams, operations=(a,))
    assert replay(private).makespan_s == 1.0 / 50e9


# ---------------------------------------------------------------------------------------------------- monitor


def test_the_monitor_samples_at_a_fixed_interval():
    a = op("a", "s", 0, work=100.0, uses=USE, rate_cap=50.0, allocates=rows(4.0), frees=rows(4.0))
    b = op("b", "s", 1, work=100.0, uses=USE)
    result = replay(program(a, b, tiers=TIERS), monitor_interval_s=0.75)
    assert [(s.time_s, s.utilisation["link"], s.occupancy_bytes["hbm"]) for s in result.samples] == [
        (0.75, 0.5, 4.0),
        (1.5, 0.5, 4.0),
        (2.25, 1.0, 0.0),
        (3.0, 1.0, 0.0),  # the instant at which b ends: the monitor looks first
    ]


def test_the_monitor_changes_nothing():
    a, b = op("a", "s", 0, work=300.0, uses=USE), op("b", "t", 0, work=100.0, uses=USE)
    assert ends(replay(program(a, b), monitor_interval_s=0.1)) == ends(replay(program(a, b)))
