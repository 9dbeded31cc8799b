"""Calibration: the law of a copy, a quick measurement of this host, and files that the simulator reads back."""

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from sim.config import load_machine, read_yaml
from sim.errors import InputError
from sim.probe.calibrate import HostMeasurement, measure_host, start_and_rate
from sim.probe.calibrate_cores import KERNELS, Round, Task, _best, _share, _Span, adam, best_rounds, core_places, triad
from sim.probe.calibrate_gpu import GpuMeasurement, measure_gpu
from sim.study.calibration import write_calibration
from sim.study.row_files import read_rows

HOST = HostMeasurement(
    name="box", cores=16, memory_bytes=64 * 2**30, last_level_cache_bytes=32 * 2**20,
    stream_bytes_per_s={"read": 100e9, "copy": 80e9, "triad": 90e9}, core_read_bytes_per_s=20e9, latency_s=100e-9,
    copies_bytes_per_s={2**20: 10e9}, adam_s={10**7: 3e-3}, date="2026-01-01",
)  # fmt: skip
GPU = GpuMeasurement(
    name="Accelerator", memory_bytes=24 * 2**30, vendor="nvidia", multiprocessors=100,
    copies_bytes_per_s={
        (way, pinned, size): size / (5e-6 + size / rate)
        for way, rate in (("h2d", 25e9), ("d2h", 20e9)) for pinned in (True, False) for size in (2**12, 2**20, 2**30)
    },
    stream_bytes_per_s={"read": 800e9, "copy": 780e9, "triad": 790e9, "init": 810e9},
    gemm_flops_per_s={("bf16", 1024): 50e12, ("bf16", 8192): 140e12},
    steps_s={"plain": 0.2, "checkpointing": 0.26, "offload": 0.9}, software="PyTorch 0",
)  # fmt: skip


def test_the_law_of_a_copy_is_recovered():
    sizes = [2.0**k for k in range(12, 31, 2)]
    start, rate = start_and_rate(sizes, [5e-6 + size / 25e9 for size in sizes])
    assert (start, rate) == (pytest.approx(5e-6), pytest.approx(25e9))
    start, rate = start_and_rate([1e6, 2e6], [0.99e-3, 2e-3])  # the line through these starts before zero
    assert (start, rate) == (0.0, pytest.approx(1e9, rel=0.01))


@pytest.mark.parametrize("gpu", [None, GPU], ids=["host", "accelerator"])
def test_the_files_describe_a_machine_and_its_measurements(tmp_path: Path, gpu):
    parts, topology, measured = write_calibration(tmp_path, "box", HOST, gpu)
    machine = load_machine(str(topology))
    assert machine.tiers[machine.memory_tier("cpu0")].capacity_bytes == pytest.approx(64 * 2**30)
    assert machine.gpus() == (() if gpu is None else ("gpu0",))
    rows = read_rows([measured])
    assert {row.family for row in rows} >= {"memory_bandwidth", "loaded_latency", "cpu_adam"}
    assert next(row.measured for row in rows if row.id.endswith("/memory/read")) == pytest.approx(100e9)
    assert read_yaml(parts).data["sources"]["own"]["kind"] == "microbenchmark"
    assert set(read_yaml(parts).data["parts"]) == set(read_yaml(topology).data["parts"])


def test_this_host_is_measured():
    found = measure_host(array_bytes=2**22, repeats=2)
    assert found.cores == len(core_places())
    assert all(1e8 < rate < 1e13 for rate in found.stream_bytes_per_s.values())
    assert 1e-10 < found.latency_s < 1e-5
    assert sorted(found.adam_s) == [2**16, 2**18, 2**20]
    assert all(0 < seconds < 10 for seconds in found.adam_s.values())
    assert found.adam_by.startswith("PyTorch" if find_spec("torch") else "numpy")


def test_blocks_cover_all_elements_once():
    count = (1 << 16) + 3  # one block more than fits, and a rest
    target, first, second = np.zeros(count), np.arange(count, dtype=float), np.full(count, 2.0)
    triad(target, first, second)
    assert np.array_equal(target, first + 6.0)
    weights, gradients, mean, square = KERNELS["adam"].arrays(count)
    adam(weights, gradients, mean, square)
    change = 1e-3 * 0.1 * 0.1 / (math.sqrt(0.001 * 0.1**2) + 1e-8)
    assert weights == pytest.approx(np.full(count, 1.0 - change), rel=1e-6)
    assert mean == pytest.approx(np.full(count, 0.01), rel=1e-5)


def test_a_round_lasts_from_the_first_start_to_the_last_end():
    together, apart = [_Span(0, 2, 2), _Span(4, 5, 1)], [_Span(1, 3, 1.5), _Span(4, 6, 0.5)]
    assert _best([together, apart], 2) == Round(2, 0.25)  # the second: 4 to 6, one core was ours for 0.5 s
    assert sum(_share(10, index, 3) for index in range(3)) == 10


def test_processes_that_run_out_of_memory_are_one_clear_error():
    with pytest.raises(InputError, match="could not be measured"):
        best_rounds([Task("adam", 2**48)], core_places()[:1] * 2, 1)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_accelerator_probe_runs_on_the_cpu():
    found = measure_gpu(device="cpu", scale=0.01)
    assert set(found.steps_s) == {"plain", "checkpointing", "offload"}
