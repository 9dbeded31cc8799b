"""Latency-bound flows: closed forms, coupled channels, both sides of the boundary to bandwidth-bound."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.laws.latency import Window, alone, bound_caps, loaded_latency
from sim.laws.sharing import Demand, max_min
from sim.records import LatencyLaw

LAW = LatencyLaw(idle_latency_s=100e-9, a=0.148, c=0.393, k=0.795)
IDLE = LatencyLaw(idle_latency_s=100e-9)


def solve(bandwidths, laws, demands, windows):
    caps = bound_caps(bandwidths, laws, demands, windows)
    limited = [Demand(uses=d.uses, cap=cap, weight=d.weight) for d, cap in zip(demands, caps, strict=True)]
    return max_min(bandwidths, limited)


def test_idle_and_full_latency():
    assert loaded_latency(LAW, 0.0) == 100e-9
    assert loaded_latency(LAW, 1.0) == pytest.approx(100e-9 * (1 + 0.148 / (1 - 0.795)), rel=1e-15)
    assert loaded_latency(LAW, 1.0, 0.5) > loaded_latency(LAW, 1.0, 0.25) > loaded_latency(LAW, 1.0)
    assert loaded_latency(LAW, 1.5) == loaded_latency(LAW, 1.0)  # clamped


def test_without_load_dependence_it_is_littles_law():
    # 64 B / 100 ns = 0.64 GB/s
    assert alone(IDLE, 64.0, 100e9) == pytest.approx(0.64e9, rel=1e-14)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(min_value=1.0, max_value=1e6),
    st.floats(min_value=0.0, max_value=1.0),
    st.floats(min_value=0.0, max_value=0.95),
    st.floats(min_value=0.0, max_value=0.5),
    st.integers(min_value=1, max_value=5),
)
def test_the_fixed_point_is_the_closed_form(window, a, k, write_share, num_flows):
    law = LatencyLaw(idle_latency_s=100e-9, a=a, c=0.3, k=k)
    flows = [Demand(uses=((0, 1.0),))] * num_flows
    rates = solve([100e9], {0: law}, flows, [Window(window_bytes=window, write_share=write_share)] * num_flows)
    expected = alone(law, num_flows * window, 100e9, write_share=write_share)
    assert sum(rates) == pytest.approx(expected, rel=1e-11)
    # and its own equation: u B L(u) = N window, or the channel is full
    u = sum(rates) / 100e9
    assert u == pytest.approx(1.0) or sum(rates) * loaded_latency(law, u, write_share) == pytest.approx(
        num_flows * window, rel=1e-11
    )


@pytest.mark.parametrize(("factor", "is_full"), [(0.999, False), (1.001, True)])
def test_a_window_that_covers_the_full_latency_is_bandwidth_bound(factor, is_full):
    window = 100e9 * loaded_latency(LAW, 1.0) * factor
    assert (alone(LAW, window, 100e9) == 100e9) is is_full


def test_a_bandwidth_bound_neighbour_slows_a_latency_bound_flow_before_the_channel_is_full():
    # the stream is capped at 60 of 100 GB/s: nothing is saturated, yet the chase sees more latency
    chase, stream = Demand(uses=((0, 1.0),)), Demand(uses=((0, 1.0),), cap=60e9)
    windows = [Window(window_bytes=64.0), Window()]
    (alone_rate,) = solve([100e9], {0: LAW}, [chase], windows[:1])
    rate, _ = solve([100e9], {0: LAW}, [chase, stream], windows)
    assert rate * loaded_latency(LAW, (rate + 60e9) / 100e9) == pytest.approx(64.0, rel=1e-11)
    assert rate < 0.9 * alone_rate


def test_a_path_adds_its_latencies_and_an_interleaved_flow_weighs_them():
    laws = {0: IDLE, 1: LatencyLaw(idle_latency_s=300e-9)}
    window = [Window(window_bytes=64.0)]
    (serial,) = solve([100e9, 100e9], laws, [Demand(uses=((0, 1.0), (1, 1.0)))], window)
    (interleaved,) = solve([100e9, 100e9], laws, [Demand(uses=((0, 0.75), (1, 0.25)))], window)
    assert serial == pytest.approx(64.0 / 400e-9)
    assert interleaved == pytest.approx(64.0 / 150e-9)


def test_two_coupled_channels_meet_both_equations():
    laws = {0: LAW, 1: LatencyLaw(idle_latency_s=250e-9, a=0.118, c=0.375, k=0.876)}
    demands = [Demand(uses=((0, 1.0),)), Demand(uses=((0, 1.0), (1, 1.0))), Demand(uses=((1, 1.0),))]
    windows = [Window(window_bytes=6000.0), Window(window_bytes=8000.0, write_share=0.3), Window(window_bytes=9000.0)]
    rates = solve([100e9, 50e9], laws, demands, windows)
    latencies = []
    for channel, bandwidth in enumerate((100e9, 50e9)):
        on = [i for i, demand in enumerate(demands) if any(used == channel for used, _ in demand.uses)]
        load = sum(rates[i] for i in on)
        written = sum(rates[i] * windows[i].write_share for i in on)
        latencies.append(loaded_latency(laws[channel], load / bandwidth, written / load))
    for demand, window, rate in zip(demands, windows, rates, strict=True):
        assert rate * sum(latencies[channel] for channel, _ in demand.uses) == pytest.approx(window.window_bytes, rel=1e-10)
