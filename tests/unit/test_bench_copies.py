"""Copies as benchmarks time them, both directions of NVLink, tiers at their best weights."""

from __future__ import annotations

import pytest

from sim.config.topology_block import machine_from_block
from sim.config.yaml_source import Document
from sim.errors import InputError
from sim.study.bench import measure
from sim.topology.machine import Machine


def _machine(name: str) -> Machine:
    return machine_from_block(name, Document(file="", data={"topology": name}, positions={}), ("topology",))


def _seconds(timing: str, source: str, target: str, *, is_pinned: bool = True) -> float:
    copy = {"source": source, "target": target, "initiator": "gpu0", "size": 4096.0, "timing": timing, "is_pinned": is_pinned}
    return measure(_machine("rtx6000-pcie3"), "copy", copy)["time"]


def test_events_and_blocking_calls_add_their_own_seconds() -> None:
    queued = _seconds("queued", "gpu", "dram")
    assert queued == pytest.approx(3.6e-6 + 4096 / 12.37e9, rel=0.01)
    assert _seconds("events", "gpu", "dram") - queued == pytest.approx(1.3e-6)
    assert _seconds("blocking", "gpu", "dram") - queued == pytest.approx(3.0e-6)
    assert _seconds("cold", "gpu", "dram") - queued == pytest.approx(26e-6)


def test_who_fetches_waits_for_a_round_trip() -> None:
    pinned = _seconds("blocking", "dram", "gpu") - _seconds("blocking", "gpu", "dram")
    pageable = _seconds("blocking", "dram", "gpu", is_pinned=False) - _seconds("blocking", "gpu", "dram", is_pinned=False)
    assert pinned == pytest.approx(1.0e-6)
    assert pageable == pytest.approx(-1.0e-6)
    assert _seconds("queued", "dram", "gpu") == pytest.approx(_seconds("queued", "gpu", "dram"))


def _to_gpu(
    size: float, *, timing: str = "events", source: str = "dram", both: bool = False, machine: str = "liaw-2s"
) -> float:
    other = [{"source": source, "target": "gpu1", "initiator": "gpu1"}] if both else []
    copy = {"source": source, "target": "gpu0", "initiator": "gpu0", "size": size, "timing": timing, "beside": other}
    return measure(_machine(machine), "copy", copy)["time"]


def test_what_a_core_has_just_written_is_read_out_of_its_cache() -> None:
    # 1 MiB at 30 GB/s, the rest at the link's 55 GB/s; start, event and round trip 5.9 us
    assert _to_gpu(2.0**20) == pytest.approx(5.9e-6 + 2**20 / 30e9, rel=0.01)
    assert _to_gpu(2.0**24) - _to_gpu(2.0**23) == pytest.approx(2**23 / 55.1e9, rel=0.01)
    assert _to_gpu(2.0**20, both=True) == pytest.approx(5.9e-6 + 2**20 / 25e9, rel=0.01)
    assert _to_gpu(2.0**20, source="cxl") == pytest.approx(_to_gpu(2.0**20), rel=0.01)
    assert _to_gpu(2.0**20, timing="queued") == pytest.approx(3.6e-6 + 2**20 / 55.1e9, rel=0.01)
    assert _to_gpu(2.0**20, machine="rtx6000-pcie3") == pytest.approx(5.9e-6 + 2**20 / 12.37e9, rel=0.01)


def test_writes_that_fit_the_cache_never_see_the_card_and_two_devices_share_the_cache() -> None:
    machine = _machine("liaw-2s")

    def rate(size: float, count: int) -> float:
        others = [{"source": f"gpu{i}", "target": "cxl", "initiator": f"gpu{i}"} for i in range(1, count)]
        copy = {"source": "gpu0", "target": "cxl", "initiator": "gpu0", "size": size, "beside": others}
        return measure(machine, "copy", copy)["bandwidth"]

    assert rate(32e6, 1) == pytest.approx(32e6 / (3.6e-6 + 32e6 / 55.1e9), rel=0.01)
    assert rate(100e6, 1) > 1.4 * rate(100e6, 2)
    assert rate(8e9, 1) == pytest.approx(2 * rate(8e9, 2), rel=0.02)


def test_an_unknown_way_of_timing_is_refused() -> None:
    with pytest.raises(InputError, match="unknown way of timing 'sync'"):
        _seconds("sync", "gpu", "dram")


def test_peers_copying_both_ways_share_what_their_requests_leave() -> None:
    machine = _machine("dgx-a100")
    one = {"source": "gpu0", "target": "gpu1", "initiator": "gpu0"}
    back = {"source": "gpu1", "target": "gpu0", "initiator": "gpu1"}
    alone = measure(machine, "copy", one)["bandwidth"]
    both = measure(machine, "copy", {**one, "beside": [back], "is_summed": True})["bandwidth"]
    assert both / alone == pytest.approx(2 * 0.81, rel=0.01)


def test_collectives_push_and_lose_nothing_to_requests() -> None:
    machine = _machine("dgx-a100")
    assert measure(machine, "collective", {"size": 8.0 * 2**30})["bus_bandwidth"] > 0.75 * 300e9


def test_a_collective_library_sends_at_what_its_rings_reach_and_not_as_a_copy_engine() -> None:
    machine = _machine("a100-40gb-4x")
    sent = measure(machine, "collective", {"collective": "point_to_point", "size": 2.0**30, "ranks": 2})["bandwidth"]
    copied = measure(machine, "copy", {"source": "gpu0", "target": "gpu1", "initiator": "gpu0"})["bandwidth"]
    assert sent == pytest.approx(100e9 * 0.804, rel=0.01)
    assert copied == pytest.approx(100e9 * 0.92, rel=0.01)


def test_kernels_copy_host_allocations_of_an_apu_around_its_caches() -> None:
    machine = _machine("mi300a-node")
    copy = {"initiator": "gpu0", "uses_copy_engine": False, "size": 8.0 * 2**30}
    host = measure(machine, "copy", {**copy, "source": "dram", "target": "gpu"})["bandwidth"]
    own = measure(machine, "copy", {**copy, "source": "gpu0.hbm", "target": "gpu0.hbm"})["bandwidth"]
    engine = measure(machine, "copy", {**copy, "uses_copy_engine": True, "source": "dram", "target": "gpu"})["bandwidth"]
    assert host == pytest.approx(950e9, rel=1e-3)
    assert own > 1.5 * host
    assert engine == pytest.approx(58e9, rel=1e-3)
