"""The sharing law is its definition: feasible, and every flow at its cap or bottlenecked. From nothing and by repair."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.build import build
from sim.engine.kernel import Kernel
from sim.laws.latency import loaded_latency
from sim.laws.sharing import Demand, max_min, violations
from tests.random_programs import random_program

amounts = st.floats(min_value=1e-6, max_value=1e9)


@st.composite
def systems(draw, bandwidth=amounts, cost=amounts, cap=amounts, weight=amounts):
    bandwidths = draw(st.lists(bandwidth, min_size=1, max_size=5))
    channel = st.integers(min_value=0, max_value=len(bandwidths) - 1)
    uses = st.lists(st.tuples(channel, st.one_of(st.just(0.0), st.just(1.0), cost)), max_size=4)
    demands = []
    for _ in range(draw(st.integers(min_value=1, max_value=8))):
        path = tuple(draw(uses))
        is_open = any(load > 0.0 for _, load in path) and draw(st.booleans())
        demands.append(
            Demand(uses=path, cap=float("inf") if is_open else draw(cap), weight=draw(st.one_of(st.just(1.0), weight)))
        )
    return bandwidths, demands


@settings(deadline=None, max_examples=200)
@given(systems())
def test_allocation_meets_the_definition(system):
    bandwidths, demands = system
    assert violations(bandwidths, demands, max_min(bandwidths, demands)) == []


extreme = st.floats(min_value=-12, max_value=15).map(lambda power: 10.0**power)


@settings(deadline=None, max_examples=100)
@given(systems(bandwidth=extreme, cost=extreme, cap=extreme, weight=extreme))
def test_allocation_meets_the_definition_over_27_decades(system):
    bandwidths, demands = system
    assert violations(bandwidths, demands, max_min(bandwidths, demands)) == []


@settings(deadline=None, max_examples=50)
@given(systems(), st.randoms(use_true_random=False))
def test_order_of_flows_does_not_matter(system, draw):
    bandwidths, demands = system
    order = draw.sample(range(len(demands)), len(demands))
    rates = max_min(bandwidths, demands)
    shuffled = max_min(bandwidths, [demands[i] for i in order])
    assert shuffled == pytest.approx([rates[i] for i in order], rel=1e-9, abs=1e-300)


@settings(deadline=None, max_examples=50)
@given(systems(), st.integers(min_value=-20, max_value=20))
def test_scaling_bandwidths_and_caps_scales_rates(system, power):
    bandwidths, demands = system
    scale = 2.0**power  # exact in binary
    scaled = [Demand(uses=demand.uses, cap=demand.cap * scale, weight=demand.weight) for demand in demands]
    rates = max_min([bandwidth * scale for bandwidth in bandwidths], scaled)
    assert rates == pytest.approx([rate * scale for rate in max_min(bandwidths, demands)], rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("wrong", [0.99, 1.01])
def test_the_definition_refuses_other_rates(wrong):
    # the check itself must be able to fail: the lone flow is 1 % off in either direction
    demands = [Demand(uses=((0, 1.0),))]
    assert violations([10.0], demands, [10.0 * wrong]) != []


def live_rates(kernel):
    """(demands, rates) of the flows that run now."""
    arrays, fluid = kernel.arrays, kernel.fluid
    active = [f for f in range(len(arrays.work)) if fluid.limit[f] != -2]
    demands = []
    for flow in active:
        path = arrays.paths[arrays.path[flow]]
        uses = tuple(zip(path.channels, path.loads, strict=True))
        demands.append(Demand(uses=uses, cap=fluid.cap[flow], weight=arrays.weight[flow]))
    return demands, [fluid.rate(flow) for flow in active]


def check_every_batch(program):
    kernel = Kernel(build(program))
    kernel.begin()
    num_checked = 0
    while True:
        demands, rates = live_rates(kernel)
        assert violations(kernel.arrays.bandwidths, demands, rates) == []
        assert rates == pytest.approx(max_min(kernel.arrays.bandwidths, demands), rel=1e-9)
        num_checked += 1
        if not kernel.heap:
            break
        kernel.advance(kernel.heap[0][0] * (1.0 + 1e-13) + 1e-300)
    assert kernel.is_done
    return num_checked


@settings(deadline=None, max_examples=100)
@given(st.integers(min_value=0, max_value=2**32), st.booleans())
def test_repaired_rates_meet_the_definition_after_every_batch(seed, is_round):
    check_every_batch(random_program(seed, num_streams=8, num_channels=4, num_operations=60, is_round=is_round))


def test_repaired_rates_meet_the_definition_in_a_large_tangle():
    # one long run: drift of running sums would show here
    program = random_program(7, num_streams=24, num_channels=8, num_operations=1500, has_latency=False)
    assert check_every_batch(program) > 500


@settings(deadline=None, max_examples=40)
@given(st.integers(min_value=0, max_value=2**32), st.booleans())
def test_latency_bound_flows_meet_the_definition_and_their_own_equation(seed, is_round):
    program = random_program(seed, num_streams=5, num_channels=3, num_operations=20, is_round=is_round, has_windows=True)
    kernel = Kernel(build(program))
    kernel.begin()
    while kernel.heap:
        kernel.advance(kernel.heap[0][0] * (1.0 + 1e-13) + 1e-300)
        demands, rates = live_rates(kernel)
        assert violations(kernel.arrays.bandwidths, demands, rates) == []
        check_windows(kernel)
    assert kernel.is_done


def check_windows(kernel):
    """cap = min(cap when idle, window / loaded latency at the loads of now), for each latency-bound flow."""
    arrays, fluid = kernel.arrays, kernel.fluid
    active = [f for f in range(len(arrays.work)) if fluid.limit[f] != -2]
    load, written = [0.0] * len(arrays.channels), [0.0] * len(arrays.channels)
    for flow in active:
        path = arrays.paths[arrays.path[flow]]
        for channel, part in zip(path.channels, path.loads, strict=True):
            load[channel] += part * fluid.rate(flow)
            written[channel] += part * fluid.rate(flow) * arrays.operations[flow].write_share
    for flow in active:
        if flow not in arrays.windows:
            continue
        path = arrays.paths[arrays.path[flow]]
        latency_s = sum(
            min(part, 1.0) * loaded_latency(law, load[channel] / arrays.bandwidths[channel], written[channel] / load[channel])
            for channel, part in zip(path.channels, path.loads, strict=True)
            if (law := arrays.channels[channel].latency) is not None
        )
        expected = min(arrays.cap[flow], arrays.windows[flow][0] / latency_s)
        assert fluid.cap[flow] == pytest.approx(expected, rel=1e-9)
