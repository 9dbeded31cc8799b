"""The CPU's Adam: cache, vector code, page faults, ranks that are not bound."""

from __future__ import annotations

import pytest

from sim.config.machine import load_machine
from sim.config.topology_block import machine_from_block
from sim.config.yaml_source import Document
from sim.errors import InputError
from sim.laws.cpu import cached_elements, fault_time, scalar_time
from sim.study.bench import measure
from sim.topology.machine import Machine


def _machine(name: str) -> Machine:
    return machine_from_block(name, Document(file="", data={"topology": name}, positions={}), ("topology",))


def test_a_cache_holds_small_working_sets_and_its_capacity_of_large_ones() -> None:
    assert cached_elements(1e3, 256e6) == pytest.approx(1e3, rel=1e-4)
    assert cached_elements(1e10, 256e6) == pytest.approx(16e6)
    assert cached_elements(16e6, 256e6) == pytest.approx(16e6 * 0.63212, rel=1e-4)
    assert cached_elements(1e6, 0.0) == 0.0


def test_small_updates_run_at_the_cache_and_large_ones_at_the_memory() -> None:
    machine = _machine("liaw-2s")
    small, large = (measure(machine, "cpu_adam", {"elements": n, "shares": {"cxl": 1.0}}) for n in (1e6, 1e9))
    assert small["bandwidth"] > 400e9
    assert large["bandwidth"] < 80e9


def test_unbound_ranks_lose_dram_bandwidth_but_not_that_of_a_slower_card_and_wait_for_each_other() -> None:
    machine = _machine("liaw-2s")

    def seconds(tier: str, *, is_bound: bool) -> float:
        return measure(machine, "cpu_adam", {"elements": 1e9, "shares": {tier: 1.0}, "ranks": 2, "is_bound": is_bound})["time"]

    short = {"elements": 1e6, "ranks": 2}
    waits, bound = (measure(machine, "cpu_adam", {**short, "is_bound": is_bound})["time"] for is_bound in (False, True))
    assert waits - bound == pytest.approx(16e-3)
    assert seconds("dram", is_bound=False) / seconds("dram", is_bound=True) == pytest.approx(1 / 0.61, rel=0.15)
    assert seconds("cxl", is_bound=False) - seconds("cxl", is_bound=True) == pytest.approx(16e-3)


def test_kernels_for_avx_run_scalar_code_on_arm() -> None:
    machine = _machine("gh200")
    simd, arm = (measure(machine, "cpu_adam", {"elements": 1e9, "implementation": name})["time"] for name in ("simd", "grace"))
    assert simd == pytest.approx(scalar_time(1e9, 72, 3.1e9))
    assert simd > arm


def test_temporaries_are_faulted_in_page_by_page() -> None:
    assert fault_time(4096.0 * 3.6e6, 4096.0) == pytest.approx(1.0)
    assert fault_time(4096.0 * 3.6e6, 65536.0) == pytest.approx(1 / 16)
    both = {"sockets": 2, "is_bound": False}
    times = {
        name: measure(_machine("dgx-2"), "cpu_adam", {"elements": 1e9, "implementation": name} | both)["time"]
        for name in ("simd", "torch")
    }
    assert 5.0 < times["torch"] / times["simd"] < 6.5


def test_sockets_divide_the_elements_and_narrow_states_the_bytes() -> None:
    machine = _machine("dgx-h200")
    whole = measure(machine, "cpu_adam", {"elements": 1e10})["time"]
    assert measure(machine, "cpu_adam", {"elements": 1e10, "sockets": 2})["time"] == pytest.approx(whole / 2, rel=0.01)
    assert measure(machine, "cpu_adam", {"elements": 1e10, "state_bytes": 2})["time"] == pytest.approx(whole / 2, rel=0.01)


def test_raw_blocks_run_at_the_rate_of_drive_and_slot_and_files_below_it() -> None:
    machine = _machine("bam-1")
    files = measure(machine, "storage", {})["bandwidth"]
    assert measure(machine, "storage", {"is_raw": True})["bandwidth"] == pytest.approx(6.9e9, rel=1e-3)
    assert measure(machine, "storage", {"is_raw": True, "operation": "write"})["bandwidth"] == pytest.approx(4.1e9)
    assert files == pytest.approx(0.8 * 6.9e9)


def test_arrays_on_both_sockets_add_up_and_share_no_uplink() -> None:
    machine = _machine("dgx-2-drives")
    one, both = (measure(machine, "storage", {"tier": tier})["bandwidth"] for tier in ("nvme0", ["nvme0", "nvme1"]))
    assert both == pytest.approx(2 * one)
    assert one == pytest.approx(0.8 * 4 * 3.5e9)


def test_drives_bounce_through_host_memory_unless_direct() -> None:
    machine = _machine("nvme-4xgen4")
    bounced, direct = (measure(machine, "storage", {"target": "gpu", "is_direct": way})["bandwidth"] for way in (False, True))
    assert direct == pytest.approx(0.8 * 4 * 3.25e9)
    assert bounced < 0.8 * direct
    overlapped = measure(machine, "storage", {"target": "gpu", "jobs": 4})["bandwidth"]
    assert overlapped == pytest.approx(direct)  # while one job copies, another reads


def test_one_thread_reads_persistent_memory_at_its_own_rate_and_many_at_the_modules() -> None:
    machine = _machine("optane-2x")
    one, two, many = (measure(machine, "storage", {"queue_depth": depth})["bandwidth"] for depth in (1, 2, 64))
    assert one == pytest.approx(18 * 64 / (305e-9 + 82e-9), rel=0.01)
    assert two == pytest.approx(2 * one)
    assert many == pytest.approx(0.95 * 2 * 6.8e9)


def test_impossible_updates_are_refused() -> None:
    machine = _machine("desktop-rtx-4090")
    for arguments, words in (
        ({"implementation": "simdd"}, "unknown implementation 'simdd'"),
        ({"sockets": 0}, "sockets must be above 0, got 0"),
        ({"shares": {"dram": 0.7}}, "shares must sum to 1, got 0.7"),
    ):
        with pytest.raises(InputError, match=words):
            measure(machine, "cpu_adam", {"elements": 1e6, **arguments})
    with pytest.raises(InputError, match="elements must be above 0, got -1"):
        measure(machine, "cpu_adam", {"elements": -1.0})
    with pytest.raises(InputError, match="does not multiply int3"):
        measure(machine, "gemm", {"device": "gpu0", "m": 64, "n": 64, "k": 64, "dtype": "int3"})


def test_a_cpu_that_does_not_state_its_cache_rate_has_one_per_core() -> None:
    machine = _machine("desktop-rtx-4090")
    small, large = (measure(machine, "cpu_adam", {"elements": n})["bandwidth"] for n in (1e5, 1e9))
    assert small > 2 * large


def test_the_cpu_of_an_apu_waits_as_its_own_part_says() -> None:
    machine = load_machine("dgx-spark")
    assert machine.latency("cpu0", "gpu0.lpddr") == pytest.approx(150e-9)
    assert machine.latency("gpu0", "gpu0.lpddr") == pytest.approx(300e-9)
    node = load_machine("mi300a-node")
    assert node.latency("cpu1", "gpu0.hbm") > node.latency("cpu0", "gpu0.hbm") == pytest.approx(240e-9)


def test_a_fused_update_draws_less_from_dram_than_one_stream_and_all_of_an_expander() -> None:
    machine = _machine("liaw-2s")
    for tier, share in (("dram", 0.91), ("cxl", 1.0)):
        update = measure(machine, "cpu_adam", {"elements": 1e11, "shares": {tier: 1.0}})["bandwidth"]
        stream = measure(machine, "memory_bandwidth", {"device": "cpu0", "tier": tier, "write_share": 12 / 28})["bandwidth"]
        assert update / stream == pytest.approx(share, rel=0.01)
