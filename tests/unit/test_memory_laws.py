"""Laws of memory, links, storage and CPU work on their definitions: limits, both sides of every boundary, by hand."""

from __future__ import annotations

from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.laws import cpu, links, memory, storage
from sim.laws.latency import alone, loaded_latency
from sim.records import LatencyLaw

SHARES = st.floats(0.0, 1.0)
CONSTANTS = st.floats(0.0, 1.0)
RATES = st.floats(1e6, 1e13)
SIZES = st.floats(1.0, 1e12)
LAW = LatencyLaw(idle_latency_s=100e-9, a=0.1, c=0.4, k=0.8)


# ------------------------------------------------------------------------------------------------------------------ memory


@pytest.mark.parametrize(
    ("channels", "transfers", "bits", "peak"),
    [
        (1, 4800e6, 64, 38.4e9),
        (8, 4800e6, 64, 307.2e9),
        (12, 6400e6, 64, 614.4e9),
        (5, 3.2e9, 1024, 2048e9),
        (1, 8e9, 2048, 2048e9),
    ],
)
def test_peak_is_channels_times_transfers_times_width(channels: int, transfers: float, bits: int, peak: float) -> None:
    assert memory.peak(channels, transfers, bits) == pytest.approx(peak)


@pytest.mark.parametrize(
    ("gib", "has_ecc", "seen_gib"),  # "total capacity" in PyTorch's messages about memory that ran out
    [(16, False, 15.75), (16, True, 14.56), (24, True, 22.03), (24, True, 21.99), (24, False, 23.69), (48, True, 44.40),
     (80, False, 79.25), (80, False, 79.11), (141, False, 139.8), (180, False, 178.35)],
)  # fmt: skip
def test_programs_get_what_driver_and_check_bits_leave(gib: float, has_ecc: bool, seen_gib: float) -> None:
    assert memory.programmable(gib * 2**30, has_inband_ecc=has_ecc) == pytest.approx(seen_gib * 2**30, abs=0.2 * 2**30)
    assert memory.programmable(0.1 * 2**30) == 0.0


@given(st.floats(2**30, 1e13), st.floats(1.0, 10.0))
def test_what_programs_get_grows_with_the_memory_and_falls_with_check_bits(size: float, factor: float) -> None:
    assert memory.programmable(size, has_inband_ecc=True) < memory.programmable(size) < size
    assert memory.programmable(size * factor) >= memory.programmable(size)


def test_the_bus_pays_for_turning_around_once_and_for_writes_up_to_one_half() -> None:
    assert memory.bus_cost(0.0, 0.1, 0.3) == 1.0
    assert memory.bus_cost(0.025, 0.1, 0.3) == pytest.approx(1.0 + 0.05 + 0.0075)
    assert memory.bus_cost(0.05, 0.1, 0.3) == pytest.approx(1.1 + 0.015)
    assert memory.bus_cost(0.06, 0.1, 0.3) == pytest.approx(1.1 + 0.018)  # the turnaround is paid in full
    assert memory.bus_cost(0.5, 0.1, 0.3) == memory.bus_cost(0.9, 0.1, 0.3) == pytest.approx(1.25)
    assert memory.bus_cost(-1.0, 0.1, 0.3) == 1.0


@given(SHARES, SHARES, CONSTANTS, CONSTANTS)
def test_more_writes_never_carry_more(a: float, b: float, turnaround: float, write_cost: float) -> None:
    low, high = sorted((a, b))
    assert memory.achieved(1.0, 0.9, low, turnaround, write_cost) >= memory.achieved(1.0, 0.9, high, turnaround, write_cost)
    assert memory.achieved(1.0, 0.9, low, turnaround, write_cost) <= 0.9


def test_the_window_mixes_lines_by_the_time_that_each_byte_holds_one() -> None:
    assert memory.window(10, 20, 20, 64, 0.3) == pytest.approx(10 * 20 * 64)
    assert memory.window(1, 20, 10, 64, 0.0) == pytest.approx(20 * 64)
    assert memory.window(1, 20, 10, 64, 1.0) == pytest.approx(10 * 64)
    assert memory.window(1, 20, 10, 64, 0.5) == pytest.approx(64 / (0.5 / 20 + 0.5 / 10))


@given(st.lists(st.tuples(st.floats(0.01, 1.0), RATES), min_size=2, max_size=4))
def test_a_sharp_interleave_by_bandwidth_is_the_best_and_reaches_the_sum(tiers: list[tuple[float, float]]) -> None:
    total = sum(rate for _share, rate in tiers)
    best = memory.interleaved([(rate / total, rate) for _share, rate in tiers], sharpness=1e6)
    assert best == pytest.approx(total, rel=1e-5)
    weights = sum(share for share, _rate in tiers)
    assert memory.interleaved([(share / weights, rate) for share, rate in tiers], sharpness=1e6) <= best * (1 + 1e-12)


def test_balanced_tiers_lose_an_eighth_and_unbalanced_ones_nothing() -> None:
    assert memory.interleaved([(0.8, 400e9), (0.2, 100e9)]) == pytest.approx(500e9 / 2**0.2)
    assert memory.interleaved([(0.5, 100e9), (0.5, 100e9)], sharpness=1.0) == pytest.approx(100e9)


def test_one_to_one_over_a_four_to_one_pair_halves_the_fast_tier() -> None:
    assert memory.interleaved([(0.5, 400e9), (0.5, 100e9)]) == pytest.approx(200e9, rel=1e-3)
    assert memory.interleaved([(1.0, 400e9), (0.0, 100e9)]) == pytest.approx(400e9)


def test_the_cache_absorbs_writes_up_to_its_size_and_the_media_take_over_beyond() -> None:
    fast, slow, cache = 50e9, 20e9, 40e6
    edge = (5e-6 + cache / slow) / (1 / slow - 1 / fast)  # where both branches are equal
    times = [
        memory.absorbed_write_time(s, start_s=5e-6, link=fast, media=slow, cache_bytes=cache)
        for s in (edge * 0.99, edge * 1.01)
    ]
    assert times[0] == pytest.approx(5e-6 + edge * 0.99 / fast)
    assert times[1] == pytest.approx((edge * 1.01 - cache) / slow)
    assert memory.absorbed_write_time(1e6, start_s=5e-6, link=fast, media=slow, cache_bytes=cache) == pytest.approx(25e-6)


# ----------------------------------------------------------------------------------------------------------------- latency


def test_latency_is_idle_without_load_and_finite_when_full() -> None:
    assert loaded_latency(LAW, 0.0) == LAW.idle_latency_s
    assert loaded_latency(LAW, 1.0, 0.5) == pytest.approx(100e-9 * (1 + 0.3 / 0.2))
    assert loaded_latency(LAW, 2.0, 0.9) == loaded_latency(LAW, 1.0, 0.5)  # clamped


@given(SHARES, SHARES, st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_latency_rises_with_load_and_with_writes(u: float, v: float, w: float, x: float) -> None:
    (u, v), (w, x) = sorted((u, v)), sorted((w, x))
    assert loaded_latency(LAW, u, w) <= loaded_latency(LAW, v, w) * (1 + 1e-12)
    assert loaded_latency(LAW, u, w) <= loaded_latency(LAW, u, x) * (1 + 1e-12)


@given(st.floats(1.0, 1e8), st.floats(0.0, 0.5))
def test_a_lone_requester_solves_its_own_fixed_point(window: float, share: float) -> None:
    rate = alone(LAW, window, 100e9, write_share=share)
    assert 0.0 < rate <= 100e9
    latency = loaded_latency(LAW, rate / 100e9, share)
    if rate < 100e9 * (1 - 1e-12):
        assert rate * latency == pytest.approx(window, rel=1e-9)
    else:
        assert window >= 100e9 * latency * (1 - 1e-9)


# ------------------------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("transfers", "coding", "x16"),
    [
        (8e9, 128 / 130, 15.754e9),
        (16e9, 128 / 130, 31.508e9),
        (32e9, 128 / 130, 63.015e9),
        (64e9, 242 / 256, 121e9),
        (128e9, 242 / 256, 242e9),
    ],
)
def test_sixteen_lanes_of_each_generation(transfers: float, coding: float, x16: float) -> None:
    assert 16 * links.lane(transfers, coding) == pytest.approx(x16, rel=1e-4)


def test_stages_that_do_not_overlap_add_their_times() -> None:
    assert links.serial(12e9, 4e9) == pytest.approx(3e9)
    assert links.serial(5e9) == pytest.approx(5e9)
    assert links.serial(5e9, inf) == pytest.approx(5e9)


# ----------------------------------------------------------------------------------------------------------------- storage


def test_a_drive_is_bound_by_latency_then_operations_then_bandwidth() -> None:
    seconds = 70e-6 + 4096 / 7e9  # of one block alone
    alone, some, rated, many = (
        storage.rate(4096, depth, 70e-6, 7e9, 1e6) / 4096 for depth in (1, 64, storage.RATED_DEPTH, 4096)
    )
    assert alone == pytest.approx(1 / seconds, rel=0.01)
    assert rated == pytest.approx(1e6)  # the data sheet's rate at the data sheet's depth
    assert many == 1e6
    waits = storage.RATED_DEPTH / (1e6 * seconds) - 1  # of a service, u / 2 (1 - u) at u of the rating
    num_dies = 1e6 * seconds / (2 * waits / (1 + 2 * waits))
    busy = some * seconds / num_dies
    assert some * seconds * (1 + busy / (2 * (1 - busy))) == pytest.approx(64)
    assert storage.rate(2**20, 32, 70e-6, 7e9, 1e6) == 7e9
    assert storage.rate(2**20, 32, 70e-6, 7e9) == 7e9  # operations not stated


@given(st.floats(512, 2**22), st.integers(1, 1024), st.integers(1, 1024), st.floats(1e-6, 1e-3), RATES, st.floats(1e3, 1e7))
def test_depth_never_hurts_and_no_bound_is_passed(
    block: float, a: int, b: int, latency: float, rate: float, operations: float
) -> None:
    low, high = sorted((a, b))
    shallow, deep = (storage.rate(block, depth, latency, rate, operations) for depth in (low, high))
    assert shallow <= deep <= min(rate, operations * block) * (1 + 1e-12)


def test_a_stripe_is_its_drives() -> None:
    assert storage.rate(2**20, 256, 70e-6, 7e9, num_drives=4) == 28e9
    assert storage.rate(4096, 4096, 70e-6, 7e9, 1e6, 4) == 4 * 1e6 * 4096
    assert storage.rate(4096, 4, 70e-6, 7e9, 1e6, 4) == pytest.approx(4 * storage.rate(4096, 1, 70e-6, 7e9, 1e6))


def test_a_block_takes_its_latency_and_its_transfer() -> None:
    assert storage.rate(1e6, 1, 100e-6, 10e9) == pytest.approx(1e6 / 200e-6)
    assert storage.rate(1e6, 2, 100e-6, 10e9) == pytest.approx(10e9)  # two hide each other


# --------------------------------------------------------------------------------------------------------------------- CPU


def test_adam_moves_its_states_once() -> None:
    assert cpu.ADAM_BYTES == 4 * (4 + 3)  # weight, gradient, two moments read; weight and moments written, four bytes each
    assert pytest.approx(12 / 28) == cpu.ADAM_WRITE_SHARE
    assert cpu.IMPLEMENTATIONS["torch"].size_bytes > 3 * cpu.IMPLEMENTATIONS["simd"].size_bytes


@given(st.floats(1e3, 1e11), st.floats(1e3, 1e11), st.floats(1e6, 1e9))
def test_the_cache_keeps_no_more_than_it_holds_nor_than_there_is(a: float, b: float, cache: float) -> None:
    low, high = sorted((a, b))
    kept = [cpu.cached_elements(elements, cache) for elements in (low, high)]
    assert kept[0] <= kept[1] * (1 + 1e-12)
    assert all(k <= min(n, cache / 16) * (1 + 1e-9) for k, n in zip(kept, (low, high), strict=True))


def test_the_cache_filter_at_its_limits() -> None:
    assert cpu.cached_elements(1e9, 0.0) == 0.0
    assert cpu.cached_elements(1e2, 40e6) == pytest.approx(1e2, rel=1e-4)
    assert cpu.cached_elements(2.5e6, 40e6) == pytest.approx(2.5e6 * (1 - exp(-1)))
    assert cpu.cached_elements(1e12, 40e6) == pytest.approx(2.5e6)


def test_scalar_code_and_page_faults_cost_time() -> None:
    assert cpu.scalar_time(1e9, 72, 3e9) == pytest.approx(1e9 * cpu.SCALAR_CYCLES.value / (72 * 3e9))
    assert cpu.scalar_time(1e9, 72, 0.0) == 0.0
    assert cpu.fault_time(8e9, 4096) == pytest.approx(8e9 / 4096 / cpu.FAULTS_PER_S.value)
