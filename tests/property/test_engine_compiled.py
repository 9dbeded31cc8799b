"""The compiled kernel against the plain one on random programs: times, bytes and channels to the last bit."""

import sys
from importlib.util import find_spec

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.engine import replay, run_checked
from sim.engine.fast.c_code import c_code
from sim.errors import DeadlockError, InputError, MisfitError
from sim.records import Allocation, Channel, Kind, LatencyLaw, Operation, Program, Stream, Tier
from tests.random_programs import random_program

COMPILED = [name for name, is_there in (("c", c_code() is not None), ("numba", find_spec("numba") is not None)) if is_there]
if not COMPILED:
    pytest.skip("neither a C compiler nor the extra 'fast' (numba) is installed", allow_module_level=True)

seeds = st.integers(min_value=0, max_value=2**32)


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def courses(segments):
    """Rate over time of each channel, segments whose rates differ by rounding joined: names, and numbers."""
    joined = []
    for row in sorted(segments, key=lambda row: (row.name, row.start_s)):
        if joined and joined[-1][0] == row.name and (joined[-1][2], joined[-1][3]) == close((row.start_s, row.rate_per_s)):
            joined[-1][2] = row.end_s
        else:
            joined.append([row.name, row.start_s, row.end_s, row.rate_per_s])
    return [row[0] for row in joined], [value for row in joined for value in row[1:]]


def assert_equal(program, **options):
    """The same records: to the last bit, but for loads of the moment, which are summed in another order."""
    plain = replay(program, backend="python", **options)
    for name in COMPILED:
        assert_same(plain, replay(program, backend=name, **options), name)


def assert_same(plain, fast, name):
    assert (plain.backend, fast.backend) == ("python", name)
    assert [row.id for row in fast.operations] == [row.id for row in plain.operations]
    for name in ("makespan_s", "operations", "tiers", "occupancy"):
        assert getattr(fast, name) == getattr(plain, name), name
    for name in ("name", "amount", "busy_s", "saturated_s"):
        seen, told = ([getattr(row, name) for row in result.channels] for result in (fast, plain))
        assert seen == told, name
    assert [row.peak_rate_per_s for row in fast.channels] == close([row.peak_rate_per_s for row in plain.channels])
    (names, seen), (other_names, told) = courses(fast.segments), courses(plain.segments)
    assert (names, seen) == (other_names, close(told))
    assert [(sample.time_s, close(sample.utilisation)) for sample in fast.samples] == [
        (sample.time_s, sample.utilisation) for sample in plain.samples
    ]
    assert [sample.occupancy_bytes for sample in fast.samples] == [sample.occupancy_bytes for sample in plain.samples]


@settings(deadline=None, max_examples=150)
@given(seeds, st.booleans(), st.sampled_from(("summary", "full")))
@example(750, True, "full")
def test_small_random_programs(seed, is_round, level):
    assert_equal(random_program(seed, is_round=is_round), level=level)


@settings(deadline=None, max_examples=50)
@given(seeds, st.booleans(), st.sampled_from(("summary", "full")))
def test_latency_bound_operations_among_others(seed, is_round, level):
    program = random_program(seed, num_streams=8, num_channels=5, num_operations=60, has_windows=True, is_round=is_round)
    assert_equal(program, level=level)


@settings(deadline=None, max_examples=50)
@given(seeds)
def test_weights_and_costs_of_very_different_size(seed):
    assert_equal(random_program(seed, num_streams=6, num_operations=40, is_wide=True, has_windows=True))


def test_more_sets_of_latency_bound_operations_than_its_table_holds_at_first():
    # the second of the two flows on the link has another window each time: 60 sets of kinds
    law = LatencyLaw(idle_latency_s=1.0, a=1.0, k=0.5)
    operations = [
        op(f"o{i}", "s", i, work=10.0 + i, uses=(("link", 1.0),), window_bytes=5.0 + i) for i in range(60)
    ] + [op("long", "t", work=2000.0, uses=(("link", 1.0),), window_bytes=40.0)]  # fmt: skip
    assert_equal(program(*operations, channels=(Channel(name="link", bandwidth_per_s=100.0, latency=law),)))


@settings(deadline=None, max_examples=25)
@given(seeds, st.booleans())
def test_many_streams_on_many_channels(seed, is_round):
    program = random_program(seed, num_streams=40, num_channels=12, num_operations=400, is_round=is_round)
    assert_equal(program, monitor_interval_s=3.7)


@settings(deadline=None, max_examples=60)
@given(seeds, st.booleans())
def test_every_invariant_holds_for_weights_and_costs_of_very_different_size(seed, is_round):
    run_checked(random_program(seed, num_streams=6, num_operations=40, is_round=is_round, is_wide=True), backend=COMPILED[0])


def test_shuffled_lines_give_bit_equal_records():
    program = random_program(7, num_streams=12, num_operations=200, is_round=True)
    other = Program(
        name=program.name,
        channels=program.channels[::-1],
        tiers=program.tiers,
        streams=program.streams[::-1],
        operations=program.operations[::-1],
    )
    for name in COMPILED:
        assert replay(other, level="full", backend=name) == replay(program, level="full", backend=name)


def op(name, stream, sequence=0, **fields):
    return Operation(id=name, kind=Kind.TRANSFER, stream=stream, sequence=sequence, **fields)


def program(*operations, **fields):
    streams = tuple(Stream(name=name) for name in sorted({operation.stream for operation in operations}))
    return Program(name="hand", **{"channels": (), "tiers": (), **fields}, streams=streams, operations=operations)


def test_more_segments_than_the_log_holds_at_once():
    # each of the 200 starts changes the load of the one channel: the log (64 rounds) is emptied on the way
    operations = [op(f"o{i}", "s", i, work=float(i + 1), uses=(("link", 1.0),), rate_cap=10.0 + i) for i in range(200)]
    assert_equal(program(*operations, channels=(Channel(name="link", bandwidth_per_s=1e3),)), level="full")


def test_an_empty_program_takes_no_time():
    assert replay(program(), backend=COMPILED[0]).makespan_s == 0.0


def test_what_does_not_fit_is_told_as_by_the_plain_kernel():
    rows = (Allocation(tier="hbm", tensor_class="weights", size_bytes=11.0),)
    whole = program(op("a", "s", allocates=rows, phase="forward"), tiers=(Tier(name="hbm", capacity_bytes=10.0),))
    with pytest.raises(MisfitError, match="operation 'a' is short of 1 B of 10 B"):
        replay(whole, backend=COMPILED[0])
    assert_equal(whole, capacity="observe")


def test_what_waits_for_ever_is_told_as_by_the_plain_kernel():
    with pytest.raises(DeadlockError, match="'a' on stream 's' waits for 'b'"):
        replay(program(op("a", "s", after=("b",)), op("b", "t", after=("a",))), backend=COMPILED[0])


def test_what_it_cannot_replay_is_refused_when_asked_for_and_left_to_the_plain_kernel_otherwise():
    queue = program(
        op("a", "s", work=10.0, uses=(("pool", 1.0),)), channels=(Channel(name="pool", bandwidth_per_s=100.0, is_server=True),)
    )
    with pytest.raises(InputError, match="queue at an exclusive server such as 'a'"):
        replay(queue, backend=COMPILED[0])
    assert replay(queue).backend == "python"
    with pytest.raises(InputError, match="processes or a capacity policy"):
        replay(program(op("a", "s")), backend=COMPILED[0], processes=[lambda world: iter(())])


def ten_operations(count=10):
    return program(*(op(f"o{i}", "s", i, work=1.0, rate_cap=1.0) for i in range(count)))


@pytest.mark.skipif("numba" not in COMPILED, reason="needs the extra 'fast'")
def test_without_a_c_compiler_auto_takes_numbas_code_from_the_break_even_on_and_only_once_compiled(monkeypatch):
    from sim.engine import backend
    from sim.engine.fast import c_code, compiled

    rows = ten_operations()
    replay(rows, backend="numba")
    assert compiled.is_kept()
    monkeypatch.setattr(backend, "_loaded", "")
    monkeypatch.setattr(backend, "_has_c", lambda: False)
    monkeypatch.setattr(c_code, "kept", lambda: None)
    monkeypatch.setattr(backend, "BREAK_EVEN", 10)
    assert replay(rows).backend == "numba"
    monkeypatch.setattr(backend, "BREAK_EVEN", 11)
    assert replay(rows).backend == "python"
    monkeypatch.setattr(backend, "BREAK_EVEN", 10)
    monkeypatch.setattr(compiled, "is_kept", lambda: False)
    assert replay(rows).backend == "python"
    monkeypatch.setattr(backend, "BREAK_EVEN_COLD", 10)
    assert replay(rows).backend == "numba"
    monkeypatch.setattr(compiled, "is_kept", lambda: True)
    assert backend.load()
    assert replay(rows).backend == "python"  # loaded, and too few operations
    assert replay(ten_operations(backend.BREAK_EVEN_LOADED)).backend == "numba"


@pytest.mark.skipif("c" not in COMPILED, reason="needs a C compiler")
def test_auto_takes_the_c_library_from_its_break_even_on(monkeypatch):
    from sim.engine import backend
    from sim.engine.fast import c_code

    rows = ten_operations()
    monkeypatch.setattr(backend, "_loaded", "")
    assert replay(rows).backend == "python"
    monkeypatch.setattr(backend, "BREAK_EVEN_C", 10)
    assert replay(rows).backend == "c"
    monkeypatch.setattr(backend, "BREAK_EVEN_C", 11)
    assert replay(rows).backend == "python"
    monkeypatch.setattr(backend, "BREAK_EVEN_C", 10)
    monkeypatch.setattr(c_code, "kept", lambda: None)  # it would have to be compiled first
    assert replay(rows).backend == "python"
    monkeypatch.setattr(backend, "BREAK_EVEN_C_COLD", 10)
    assert replay(rows).backend == "c"


@pytest.mark.skipif("c" not in COMPILED, reason="needs a C compiler")
def test_a_process_that_has_loaded_it_takes_it_for_small_programs(monkeypatch):
    from sim.engine import backend, load_compiled

    rows = ten_operations(backend.BREAK_EVEN_LOADED)
    monkeypatch.setattr(backend, "_loaded", "")
    assert replay(rows).backend == "python"
    assert load_compiled()
    assert replay(rows).backend == "c"
    assert replay(ten_operations(backend.BREAK_EVEN_LOADED - 1)).backend == "python"


def test_a_compiler_that_fails_is_as_none(monkeypatch, tmp_path):
    from sim.engine import backend
    from sim.engine.fast import c_code as module

    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(module, "compiler", lambda: str(broken))
    monkeypatch.setattr(module, "_folders", lambda: (tmp_path / "kept",))
    assert module.compiled() is None
    assert not any((tmp_path / "kept").iterdir())
    monkeypatch.setattr(backend, "_has_c", lambda: False)
    with pytest.raises(InputError, match=r"backend 'c' needs a C compiler \(cc, gcc or clang\) that works"):
        replay(ten_operations(), backend="c")


def test_seconds_at_a_limit_join_flows_that_share_and_flows_that_nothing_slows():
    # "wide" is the own limit of b, alone on it, and of a, which also shares "narrow" with c: while c runs at its cap of 4
    # (2 s) "narrow" leaves 4 / 0.5 to a; then a has 4 left at 10 (0.4 s), and b runs at 10 for 1 s
    channels = (Channel(name="narrow", bandwidth_per_s=8.0), Channel(name="wide", bandwidth_per_s=10.0))
    operations = (
        op("a", "s", work=20.0, uses=(("wide", 1.0), ("narrow", 0.5))),
        op("b", "s", 1, work=10.0, uses=(("wide", 1.0),), latency_s=0.5),
        op("c", "t", work=8.0, uses=(("narrow", 1.0),), rate_cap=4.0),
    )
    whole = program(*operations, channels=channels)
    assert_equal(whole)
    full_s = {row.name: row.saturated_s for row in replay(whole, backend=COMPILED[0]).channels}
    assert full_s == close({"narrow": 2.0, "wide": 1.4})


def test_the_plain_kernel_does_not_import_it():
    import subprocess

    code = (
        "import sys\n"
        "from sim.engine import replay\n"
        "from tests.random_programs import random_program\n"
        "replay(random_program(1))\n"
        "assert 'numba' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
