"""Policies: shares sum to one, rooms are respected, and each does what its name says."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.config import scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.placement.policies import Demand, Migration, Observation, TierView, joint_rates, water_fill
from sim.placement.registry import POLICIES, policy
from sim.placement.resolve import tier_views
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


WAYS = st.lists(
    st.tuples(st.floats(1, 1e3), st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 1.0), max_size=3)),
    min_size=1,
    max_size=5,
)


@given(WAYS)
def test_rates_of_tiers_read_together_fill_their_ways_and_no_more(drawn):
    tiers = [
        TierView(
            name=str(i), free_bytes=1, bandwidth_bytes_per_s=rate, latency_s=1e-7,
            way={channel: share / rate for channel, share in way.items()},  # alone, no channel is over its limit
        )
        for i, (rate, way) in enumerate(drawn)
    ]  # fmt: skip
    rates = joint_rates(tiers)
    load = {c: sum(rates[tier.name] * tier.way.get(c, 0.0) for tier in tiers) for c in "abcd"}
    assert all(size <= 1 + 1e-9 for size in load.values())
    for tier in tiers:
        is_own = rates[tier.name] >= tier.bandwidth_bytes_per_s * (1 - 1e-9)
        assert is_own or any(load[channel] >= 1 - 1e-6 for channel in tier.way)
    if sum(len(tier.way) for tier in tiers) == len({channel for tier in tiers for channel in tier.way}):  # none shared
        assert all(rates[tier.name] == pytest.approx(tier.bandwidth_bytes_per_s) for tier in tiers)


def two_sockets(gpus_on, states):
    devices = {
        "cpu[0-1]": {"part": "xeon-8480", "memory": {"part": "ddr5-4800-2r", "channels": 8, "capacity": "512 GiB"}},
        "gpu[0-1]": {"part": "h100-pcie", "to": gpus_on}, "cxl[0-1]": {"part": "cxl-expander-asic-x8", "to": "cpu[0-1]"},
    }  # fmt: skip
    links = {"upi": {"part": "upi-16", "lanes": 3, "between": ["cpu0", "cpu1"]}}
    training = {
        "model": "llama-2-7b", "sequence_length": 2048, "batch_size": 1, "framework": "deepspeed-zero",
        "checkpointing": {"active": True}, "parallelism": {"data": 2, "zero_stage": 2}, "offload": {"cores_bound": True},
    }  # fmt: skip
    body = {"name": "t", "topology": {"devices": devices, "links": links}, "workload": {"training": training}}
    return scenario_of(body | {"placement": {"optimizer_states": states}}, file="").resolve()


def test_ranks_of_two_sockets_each_share_their_own_memory():
    found = run(two_sockets("cpu[0-1]", {"policy": "bandwidth_proportional"}), with_penalty=False)
    (entry,) = found.scenario.job.placement.entries
    assert set(entry.shares) == {"dram", "cxl"}  # roles: nothing crosses the socket link
    updates = [op for op in found.program.operations if op.category == "cpu_optimizer"]
    assert updates
    assert not any("upi" in channel for op in updates for channel, _cost in op.uses)
    others = ("dram", {"cpu0.dram": "40%", "cpu1.dram": "40%", "cxl0": "10%", "cxl1": "10%"})
    assert all(
        found.summary.step_time_s < run(two_sockets("cpu[0-1]", shares), with_penalty=False).summary.step_time_s
        for shares in others
    )


def test_memory_behind_the_socket_link_gets_what_the_link_carries_for_all_of_it():
    machine = two_sockets("cpu0", "dram").machine
    views = {view.name: view for view in tier_views(machine, "gpu0", {}, by_role=True)}
    assert set(views) == {"cpu0.dram", "cpu1.dram", "cxl0", "cxl1"}  # one socket's ranks: the other one is remote
    rates = joint_rates(list(views.values()))
    assert rates["cpu0.dram"] == pytest.approx(views["cpu0.dram"].bandwidth_bytes_per_s)
    far = rates["cpu1.dram"] + rates["cxl1"]
    assert far == pytest.approx(views["cpu1.dram"].bandwidth_bytes_per_s, rel=1e-6)  # what the link carries alone
    assert rates["cxl1"] < rates["cxl0"]


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
@example(5e-324, [(1.0, 1.0), (0.5, 1.0)])  # a half of it is nothing
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
