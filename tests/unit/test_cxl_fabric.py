"""CXL fabrics: hops add up over two levels of switches, a switch with an internal limit binds, heads share the media."""

import pytest

from sim.config.machine import machine_from
from sim.config.yaml_source import Document

GB = 1e9
SOCKET = {"part": "xeon-6787p", "memory": {"part": "ddr5-6400-2r", "channels": 8, "capacity": "256 GiB"}}
SOURCES = {"made-up": {"kind": "assumed", "cite": "a switch for this test", "interval": "+-50 %"}}
FABRIC = {
    "devices": {
        "cpu0": SOCKET | {"host": "host0"},
        "cpu1": SOCKET | {"host": "host1"},
        "leaf0": {"part": "cxl3-switch", "link": "cxl2-pcie5-x16", "to": ["cpu0", "cpu1"]},
        "spine0": {"part": "cxl3-switch", "link": "cxl3-pcie6-x16", "to": "leaf0"},
        "near0": {"part": "cxl3-pool-x16", "to": "leaf0"},
        "far0": {"part": "cxl3-pool-x16", "to": "spine0"},
    }
}  # fmt: skip


def machine(**parts):
    return machine_from(Document(file="fabric.yaml", data=FABRIC | parts, positions={}), name="fabric")


def test_each_switch_on_the_way_adds_its_latency():
    fabric = machine()
    direct = fabric.channels["near0"].latency.idle_latency_s
    near, far = fabric.latency("cpu0", "near0"), fabric.latency("cpu0", "far0")
    assert near - direct == pytest.approx(70e-9, abs=1e-12)
    assert far - near == pytest.approx(70e-9, abs=1e-12)


def test_both_hosts_reach_the_second_level_over_their_own_upstream_port():
    fabric = machine()
    first, second = ({name for name, _ in fabric.route("far0", f"{cpu}.dram", initiator=cpu).uses} for cpu in ("cpu0", "cpu1"))
    assert first & second == {"far0", "far0->spine0.cxl", "spine0->leaf0.cxl"}
    assert "leaf0->cpu0.cxl" in first
    assert "leaf0->cpu1.cxl" in second


@pytest.mark.parametrize("limit", [20, 200])
def test_an_internal_limit_binds_where_it_is_below_the_links(limit):
    small = {
        "kind": "switch", "title": "small", "source": "made-up", "port": {"part": "cxl3-pcie6", "lanes": 256},
        "latency": "70 ns", "bandwidth": f"{limit} GB/s",
    }  # fmt: skip
    devices = FABRIC["devices"] | {"leaf0": FABRIC["devices"]["leaf0"] | {"part": "small"}}
    fabric = machine(devices=devices, parts={"small": small}, sources=SOURCES)
    route = fabric.route("near0", "cpu0.dram", initiator="cpu0")
    limits = {name: fabric.channels[name].bandwidth_per_s / cost for name, cost in route.uses}
    assert limits["leaf0.crossing"] == pytest.approx(limit * GB, rel=0.2)
    assert (min(limits, key=limits.__getitem__) == "leaf0.crossing") == (limit == 20)
