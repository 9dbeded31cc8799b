"""Policies: shares sum to one, rooms are respected, and each does what its name says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.placement.policies import Demand, Migration, Observation, TierView, water_fill
from sim.placement.registry import POLICIES, policy
from sim.records import TensorClass as T

GIB = 2.0**30


def tier(name, free, bandwidth, latency):
    return TierView(name=name, free_bytes=free * GIB, bandwidth_bytes_per_s=bandwidth * 1e9, latency_s=latency * 1e-9)


DRAM, CXL = tier("dram", 100, 250, 90), tier("cxl0", 200, 50, 220)


def demand(name, size, touched=1.0):
    return Demand(tensor_class=name, size_bytes=size * GIB, touched_bytes_per_step=touched * size * GIB)


def test_first_touch_fills_the_near_tier_then_spills():
    shares = policy("first_touch").place([demand(T.WEIGHTS, 60), demand(T.OPTIMIZER_STATES, 80)], [CXL, DRAM], {})
    assert shares[T.WEIGHTS] == {"dram": 1.0}
    assert shares[T.OPTIMIZER_STATES] == pytest.approx({"dram": 0.5, "cxl0": 0.5})


def test_latency_critical_first_keeps_the_cpu_optimizer_in_dram():
    shares = policy("latency_critical_first").place([demand(T.WEIGHTS, 60), demand(T.OPTIMIZER_STATES, 80)], [DRAM, CXL], {})
    assert shares == {T.OPTIMIZER_STATES: {"dram": 1.0}, T.WEIGHTS: {"cxl0": 1.0}}


def test_fastest_first_gives_the_hottest_class_the_fast_tier():
    shares = policy("fastest_first").place(
        [demand(T.WEIGHTS, 80, touched=1), demand(T.KV_CACHE, 80, touched=9)], [CXL, DRAM], {}
    )
    assert shares[T.KV_CACHE] == {"dram": 1.0}
    assert shares[T.WEIGHTS] == pytest.approx({"dram": 0.25, "cxl0": 0.75})


def test_bandwidth_proportional_makes_both_tiers_finish_together():
    shares = policy("bandwidth_proportional").place([demand(T.OPTIMIZER_STATES, 60)], [DRAM, CXL], {})
    assert shares[T.OPTIMIZER_STATES] == pytest.approx({"dram": 5 / 6, "cxl0": 1 / 6})


@pytest.mark.parametrize(("size", "fits"), [(300.0, True), (300.000001, False)])
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_capacity_is_a_boundary(name, size, fits):
    demands = [demand(T.OPTIMIZER_STATES, size)]
    if fits:
        (shares,) = policy(name).place(demands, [DRAM, CXL], {}).values()
        assert shares == pytest.approx({"dram": 1 / 3, "cxl0": 2 / 3})
    else:
        with pytest.raises(InputError, match=r"optimizer_states need 300\.0 GiB, 0\.0 GiB more than is free on"):
            policy(name).place(demands, [DRAM, CXL], {})


@settings(deadline=None, max_examples=200)
@given(
    st.floats(0, 1e6),
    st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(0, 1e6)), min_size=1, max_size=5),
)
def test_water_fill_is_bounded_by_room_and_keeps_proportion(total, tiers):
    weights = {str(i): weight for i, (weight, _) in enumerate(tiers)}
    room = {str(i): free for i, (_, free) in enumerate(tiers)}
    parts = water_fill(total, weights, room)
    assert all(parts[name] <= room[name] * (1 + 1e-9) for name in parts)
    assert sum(parts.values()) == pytest.approx(min(total, sum(room.values())), rel=1e-6, abs=1e-6)
    level = max((parts[name] / weights[name] for name in parts), default=0.0)
    for name in parts:  # below the common level only when full
        assert parts[name] / weights[name] >= level * (1 - 1e-6) or parts[name] >= room[name] * (1 - 1e-6)


def seen(fast_free, resident, touched, elapsed=1.0):
    return Observation(
        elapsed_s=elapsed,
        tiers=(tier("dram", fast_free, 250, 90), CXL),
        resident_bytes={(name, 0): {k: v * GIB for k, v in parts.items()} for name, parts in resident.items()},
        touched_bytes={(name, 0): value * GIB for name, value in touched.items()},
    )


def test_hot_pages_are_promoted_into_free_room_within_the_rate_limit():
    options = {"promotion_bandwidth_bytes_per_s": 2e9}
    moves = policy("hot_cold").decide(seen(10, {T.WEIGHTS: {"cxl0": 50}}, {T.WEIGHTS: 50}), options)
    assert moves == (Migration(tensor_class=T.WEIGHTS, source="cxl0", target="dram", size_bytes=2e9),)


@pytest.mark.parametrize(("touched", "is_swapped"), [(101.0, True), (99.0, False)])
def test_a_colder_class_makes_room_only_beyond_the_hysteresis(touched, is_swapped):
    resident = {T.GRADIENTS: {"dram": 50}, T.WEIGHTS: {"cxl0": 50}}
    moves = policy("hot_cold").decide(seen(0, resident, {T.GRADIENTS: 50, T.WEIGHTS: touched}), {"hysteresis": 2.0})
    assert [move.tensor_class for move in moves] == ([T.GRADIENTS, T.WEIGHTS] if is_swapped else [])


def test_untouched_memory_is_never_promoted():
    assert policy("hot_cold").decide(seen(10, {T.WEIGHTS: {"cxl0": 50}}, {}), {}) == ()


def test_static_policies_never_move():
    observation = seen(10, {T.WEIGHTS: {"cxl0": 50}}, {T.WEIGHTS: 50})
    assert all(not POLICIES[name].decide(observation, {}) for name in POLICIES if name != "hot_cold")


def test_unknown_policy_lists_the_known_ones():
    with pytest.raises(InputError, match="unknown placement policy 'magic'; use one of interleave, weighted_interleave"):
        policy("magic")


def watched(fast_free, resident, *, slow_free=200.0):
    fast = TierView(
        name="dram", free_bytes=fast_free * GIB, bandwidth_bytes_per_s=250e9, latency_s=90e-9, capacity_bytes=100 * GIB
    )
    slow = tier("cxl0", slow_free, 50, 220)
    return Observation(
        elapsed_s=1.0, tiers=(fast, slow), touched_bytes={(T.WEIGHTS, 0): 1.0, (T.GRADIENTS, 0): 1e12},
        resident_bytes={(name, 0): {k: v * GIB for k, v in parts.items()} for name, parts in resident.items()},
    )  # fmt: skip


@pytest.mark.parametrize(("free", "demoted"), [(10.0, 0.0), (9.0, 1.0)])
def test_the_coldest_leaves_until_the_headroom_is_free(free, demoted):
    resident = {T.WEIGHTS: {"dram": 50}, T.GRADIENTS: {"dram": 41}}
    moves = policy("hot_cold").decide(watched(free, resident), {"free_share": 0.1})
    assert sum(move.size_bytes for move in moves) == pytest.approx(demoted * GIB)
    assert all(move.tensor_class is T.WEIGHTS and move.target == "cxl0" for move in moves)


def test_nothing_is_demoted_into_a_full_tier():
    resident = {T.WEIGHTS: {"dram": 100}}
    moves = policy("hot_cold").decide(watched(0.0, resident, slow_free=3.0), {"free_share": 0.1})
    assert sum(move.size_bytes for move in moves) == pytest.approx(3 * GIB)


def test_memory_of_one_tier_never_migrates():
    one = Observation(
        elapsed_s=1.0, tiers=(DRAM,), resident_bytes={(T.WEIGHTS, 0): {"dram": GIB}}, touched_bytes={(T.WEIGHTS, 0): 1e12}
    )
    assert policy("hot_cold").decide(one, {}) == ()
