"""The replay on systems small enough to solve by hand."""

import pytest

from sim.engine import replay, run_checked
from sim.errors import DeadlockError, InputError, MisfitError
from sim.records import Allocation, Channel, Kind, LatencyLaw, Operation, Program, Stream, Tier


def op(name, stream, sequence, **fields):
    return Operation(id=name, kind=Kind.TRANSFER, stream=stream, sequence=sequence, **fields)


def program(*operations, channels=(), tiers=(), resident=(), streams=None):
    names = streams or sorted({operation.stream for operation in operations})
    streams = tuple(s if isinstance(s, Stream) else Stream(name=s) for s in names)
    return Program(
        name="hand",
        channels=tuple(channels),
        tiers=tuple(tiers),
        streams=streams,
        operations=operations,
        resident=tuple(resident),
    )


def ends(result):
    return {record.id: record.end_s for record in result.operations}


LINK = Channel(name="link", bandwidth_per_s=100.0)
MEMORY = Channel(name="memory", bandwidth_per_s=150.0)


def test_two_flows_share_then_the_longer_speeds_up():
    # 50 each until a has moved 100 (2 s); b has 200 left and runs at 100 alone: 2 + 2 s
    a, b = op("a", "s", 0, work=100.0, uses=(("link", 1.0),)), op("b", "t", 0, work=300.0, uses=(("link", 1.0),))
    assert ends(run_checked(program(a, b, channels=[LINK]))) == {"a": 2.0, "b": 4.0}


def test_a_capped_flow_leaves_its_share_to_the_other():
    a = op("a", "s", 0, work=100.0, uses=(("link", 1.0),), rate_cap=20.0)
    b = op("b", "t", 0, work=400.0, uses=(("link", 1.0),))
    assert ends(run_checked(program(a, b, channels=[LINK]))) == {"a": 5.0, "b": 5.0}


def test_costs_multiply_use_but_not_fairness():
    # equal rates r: r (1 + 2) = 150
    a, b = op("a", "s", 0, work=100.0, uses=(("memory", 1.0),)), op("b", "t", 0, work=100.0, uses=(("memory", 2.0),))
    assert ends(run_checked(program(a, b, channels=[MEMORY]))) == {"a": 2.0, "b": 2.0}


def test_a_channel_named_twice_costs_the_sum():
    a = op("a", "s", 0, work=100.0, uses=(("link", 1.0), ("link", 1.0)))
    assert ends(run_checked(program(a, channels=[LINK]))) == {"a": 2.0}


def test_weights_share_in_proportion():
    a = op("a", "s", 0, work=300.0, uses=(("link", 1.0),), weight=3.0)
    b = op("b", "t", 0, work=100.0, uses=(("link", 1.0),))
    assert ends(run_checked(program(a, b, channels=[LINK]))) == {"a": 4.0, "b": 4.0}


def test_stream_order_dependency_and_latency_add_up():
    a = op("a", "s", 0, work=100.0, uses=(("link", 1.0),))
    b = op("b", "s", 1, work=100.0, uses=(("link", 1.0),), latency_s=0.5)
    c = op("c", "t", 0, work=10.0, rate_cap=10.0, after=("b",))
    result = run_checked(program(a, b, c, channels=[LINK]))
    rows = {record.id: (record.ready_s, record.start_s, record.end_s) for record in result.operations}
    assert rows == {"a": (0.0, 0.0, 1.0), "b": (1.0, 1.5, 2.5), "c": (2.5, 2.5, 3.5)}
    assert result.makespan_s == 3.5


def test_operations_without_work_end_where_they_start():
    operations = [op(f"m{i}", "s", i) for i in range(5)]
    assert run_checked(program(*operations)).makespan_s == 0.0


def test_work_below_the_resolution_of_the_clock_ends():
    # 1e-9 s after 1e9 s is less than one step of a double: the end is an event, never "remaining <= 0"
    a = op("a", "s", 0, work=1e9, rate_cap=1.0)
    rest = [op(f"b{i}", "s", i + 1, work=1e-9, rate_cap=1.0) for i in range(10)]
    assert run_checked(program(a, *rest)).makespan_s == 1e9


def test_a_cap_below_the_channel_leaves_it_unsaturated():
    a = op("a", "s", 0, work=100.0, uses=(("link", 1.0),), rate_cap=99.0)
    (total,) = run_checked(program(a, channels=[LINK])).channels
    assert total.busy_s == pytest.approx(100 / 99)
    assert (total.saturated_s, total.peak_rate_per_s) == (0.0, 99.0)


def test_a_full_channel_is_saturated_while_it_limits():
    a, b = op("a", "s", 0, work=100.0, uses=(("link", 1.0),)), op("b", "t", 0, work=100.0, rate_cap=10.0)
    total = run_checked(program(a, b, channels=[LINK])).channels[0]
    assert (total.amount, total.busy_s, total.saturated_s) == (100.0, 1.0, 1.0)


def test_multiplicity_loads_a_shared_channel_and_not_a_private_one():
    # 4 ranks move 100 each over their own links (100/s) into one memory of 150/s: 37.5/s each
    streams = [Stream(name="s", multiplicity=4)]
    link = Channel(name="link", bandwidth_per_s=100.0, multiplicity=4)
    a = op("a", "s", 0, work=75.0, uses=(("link", 1.0), ("memory", 1.0)))
    result = run_checked(program(a, channels=[link, MEMORY], streams=streams))
    assert result.makespan_s == 2.0
    assert {total.name: total.amount for total in result.channels} == {"link": 75.0, "memory": 300.0}


def test_a_batch_frees_before_it_allocates():
    tier = Tier(name="hbm", capacity_bytes=10.0)
    ten = (Allocation(tier="hbm", tensor_class="weights", size_bytes=10.0),)
    a = op("a", "s", 0, work=1.0, rate_cap=1.0, allocates=ten, frees=ten)
    b = op("b", "t", 0, work=1.0, rate_cap=1.0, allocates=ten, after=("a",))
    (peak,) = run_checked(program(a, b, tiers=[tier])).tiers
    assert (peak.peak_bytes, peak.operation, peak.by_class) == (10.0, "a", {"weights": 10.0})


def test_frees_of_operations_without_work_count_too():
    tier = Tier(name="hbm", capacity_bytes=10.0)
    ten = (Allocation(tier="hbm", tensor_class="weights", size_bytes=10.0),)
    a = op("a", "s", 0, work=1.0, rate_cap=1.0, allocates=ten)
    free = op("free", "u", 0, after=("a",), frees=ten)
    b = op("b", "t", 0, work=1.0, rate_cap=1.0, allocates=ten, after=("a",))
    assert run_checked(program(a, b, free, tiers=[tier])).makespan_s == 2.0


def test_one_byte_above_capacity_is_a_misfit_that_names_everything():
    tier = Tier(name="hbm", capacity_bytes=10.0)
    resident = [(Allocation(tier="hbm", tensor_class="optimizer_states", size_bytes=6.0), 1)]

    def of(size):
        rows = (Allocation(tier="hbm", tensor_class="weights", size_bytes=size),)
        return program(op("a", "s", 0, allocates=rows, phase="forward"), tiers=[tier], resident=resident)

    assert run_checked(of(4.0)).tiers[0].peak_bytes == 10.0
    with pytest.raises(
        MisfitError, match=r"hbm .* phase forward: operation 'a' is short of 1 B of 10 B; held: optimizer"
    ) as error:
        run_checked(of(5.0))
    assert (error.value.tier, error.value.phase, error.value.shortfall_bytes) == ("hbm", "forward", 1.0)
    assert replay(of(5.0), capacity="observe").tiers[0].peak_bytes == 11.0


def test_a_cycle_is_a_deadlock_that_names_the_waits():
    a, b = op("a", "s", 0, after=("b",)), op("b", "t", 0, after=("a",))
    with pytest.raises(DeadlockError, match=r"'a' on stream 's' waits for 'b'; 'b' on stream 't' waits for 'a'"):
        replay(program(a, b))


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (op("a", "s", 0, work=1.0), "no rate cap, and uses no channel"),
        (op("a", "s", 0, work=-1.0, rate_cap=1.0), "has work -1.0"),
        (op("a", "s", 0, work=float("nan"), rate_cap=1.0), "has work nan"),
        (op("a", "s", 0, work=1.0, uses=(("lnk", 1.0),), rate_cap=1.0), "unknown channel 'lnk'"),
        (op("a", "s", 0, work=1.0, uses=(("link", -1.0),), rate_cap=1.0), "cost -1.0 on channel 'link'"),
        (op("a", "s", 0, after=("b",)), "unknown operation 'b'"),
        (op("a", "s", 0, weight=0.0), "weight 0.0"),
        (op("a", "s", 0, rate_cap=0.0), "rate cap 0.0"),
        (op("a", "s", 0, allocates=(Allocation(tier="x", tensor_class="weights", size_bytes=1.0),)), "bytes in 'x'"),
        (op("a", "s", 0, window_bytes=64.0, work=1.0, uses=(("link", 1.0),)), "no channel of its path has a latency"),
    ],
)
def test_a_wrong_program_is_refused_with_the_reason(operation, message):
    with pytest.raises(InputError, match=message):
        replay(program(operation, channels=[LINK]))


def test_all_faults_are_reported_at_once():
    with pytest.raises(InputError) as error:
        replay(program(op("a", "s", 0, work=-1.0), op("a", "s", 0), op("c", "s", 2, after=("z",))))
    assert len(error.value.faults) == 4


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match="unknown level 'ful'"):
        replay(program(op("a", "s", 0)), level="ful")
    with pytest.raises(InputError, match="unknown backend 'cython'; choose one of auto, python, numba, c"):
        replay(program(op("a", "s", 0)), backend="cython")


def test_the_compiled_kernel_without_its_extra_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr("sim.engine.backend.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"backend 'numba' needs the extra 'fast': pip install 'tiersim\[fast\]'"):
        replay(program(op("a", "s", 0)), backend="numba")


def test_an_empty_program_takes_no_time():
    assert run_checked(program(streams=["s"])).makespan_s == 0.0


def test_latency_bound_ranks_share_their_load_but_not_their_latency():
    # 4 ranks of one class interleave 0.5 / 0.5 over two channels: each sees 0.5 L0 + 0.5 L1 whatever their number
    law = LatencyLaw(idle_latency_s=0.1)
    channels = [Channel(name=name, bandwidth_per_s=1e9, latency=law) for name in ("dram", "cxl")]
    a = op("a", "s", 0, work=640.0, uses=(("dram", 0.5), ("cxl", 0.5)), window_bytes=64.0)
    for ranks in (1, 4):
        result = run_checked(program(a, channels=channels, streams=[Stream(name="s", multiplicity=ranks)]))
        assert result.makespan_s == pytest.approx(1.0)
