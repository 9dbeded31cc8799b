"""The queue at a saturated port: quiet below its bandwidth, Little's law above, the same for whoever waits."""

import pytest

from sim.config import load_machine
from sim.laws.queueing import queueing_delay
from sim.laws.sharing import Demand, max_min
from sim.study.bench import BENCHMARKS

victim_latency = BENCHMARKS["victim_latency"][0]


@pytest.mark.parametrize(("size", "is_quiet"), [(20_000.0, True), (20_001.0, False)])
def test_nobody_waits_until_the_port_is_full(size, is_quiet):
    assert (queueing_delay(20e9, [(size, 1e-6)]) == 0.0) is is_quiet


def test_one_neighbour_waits_as_littles_law_says():
    assert queueing_delay(20e9, [(60_000.0, 1e-6)]) == pytest.approx(60_000.0 / 20e9 - 1e-6)


def test_unequal_neighbours_fill_the_port_exactly():
    rows = [(50_000.0, 0.3e-6), (10_000.0, 2e-6)]
    delay = queueing_delay(20e9, rows)
    assert sum(size / (idle + delay) for size, idle in rows) == pytest.approx(20e9)


def test_the_queue_agrees_with_sharing_by_what_is_in_flight():
    """Rates of weighted max-min fairness are those of one queue: W / (L + q), where idle latencies are alike."""
    sizes, idle, bandwidth = (40_000.0, 8_000.0, 64.0), 0.4e-6, 20e9
    delay = queueing_delay(bandwidth, [(size, idle) for size in sizes])
    shared = max_min([bandwidth], [Demand(uses=((0, 1.0),), weight=size) for size in sizes])
    assert shared == pytest.approx([size / (idle + delay) for size in sizes], rel=1e-6)


def test_a_neighbour_on_the_switch_delays_a_victim_of_another_host():
    machine = load_machine("cxl-pool-2-hosts")
    idle = victim_latency(machine, device="cpu0", tier="cxl0")["latency"]
    few = victim_latency(machine, device="cpu0", tier="cxl0", neighbours=[{"device": "cpu1", "cores": 1}])["latency"]
    many = victim_latency(machine, device="cpu0", tier="cxl0", neighbours=[{"device": "cpu1"}])["latency"]
    more = victim_latency(machine, device="cpu0", tier="cxl0", neighbours=[{"device": "cpu1"}, {"device": "cpu0"}])["latency"]
    assert idle == pytest.approx(machine.latency("cpu0", "cxl0"))
    assert few == idle
    assert more > many > 3 * idle


def test_neighbours_on_another_device_do_not_disturb():
    machine = load_machine("cxl-pool-2-hosts")
    idle = victim_latency(machine, device="cpu0", tier="cxl0")["latency"]
    beside = [{"device": "cpu0", "tier": "cpu0.dram"}]
    assert victim_latency(machine, device="cpu0", tier="cxl0", neighbours=beside)["latency"] == idle
