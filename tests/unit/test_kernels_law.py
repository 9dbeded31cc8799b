"""The kernel law against hand-computed times and published benchmark rows."""

import pytest

from sim.laws.kernels import attention_rate, gemm_rate, memory_rate, peak, solo_time
from sim.records import Kernel

PART = {
    "compute": {"bf16": 300e12, "fp32": 20e12},
    "gemm_efficiency": {"bf16": 0.8},
    "attention_efficiency": {"fa2": 0.5},
    "memory": {"bandwidth": 2e12, "efficiency": 0.9},
    "launch_latency": 5e-6,
}


def test_gemm_is_a_sum():
    kernel = Kernel(kind="gemm", flops=240e9, read_bytes=1.2e9, write_bytes=0.6e9, count=2)
    assert solo_time(kernel, PART) == pytest.approx(2 * (1e-3 + 1e-3 + 5e-6))


def test_memory_bound_kernel():
    assert solo_time(Kernel(kind="elementwise", read_bytes=1.8e9), PART) == pytest.approx(1e-3 + 5e-6)
    assert solo_time(Kernel(kind="elementwise", read_bytes=1.8e9), PART, bandwidth_bytes_per_s=0.9e12) == pytest.approx(
        2.005e-3
    )


def test_attention_rate_rises_with_length_to_its_own_plateau():
    assert attention_rate(PART, "fa2", 500) == pytest.approx(75e12)
    assert attention_rate(PART, "fa2", 1e9) == pytest.approx(150e12, rel=1e-6)
    assert attention_rate(PART, "unknown", 1e9) == pytest.approx(105e12, rel=1e-6)


def test_missing_format_falls_back():
    assert peak(PART, "fp8") == ("bf16", 300e12)
    assert peak(PART, "tf32") == ("fp32", 20e12)
    assert gemm_rate(PART, "fp8") == pytest.approx(240e12)


def test_recorded_time_wins():
    assert solo_time(Kernel(kind="recorded", recorded_s=2e-3, flops=1e15, count=3), PART) == pytest.approx(6e-3)


def test_memory_rate_prefers_the_measured_triad():
    assert memory_rate(PART) == pytest.approx(1.8e12)
    assert memory_rate(PART | {"kernel_bandwidth": {"triad": 0.8}}) == pytest.approx(1.6e12)


def test_a_gemm_alone_runs_at_its_own_share_and_within_the_boards_power():
    part = {
        "compute": {"bf16": 100e12, "fp8": 200e12},
        "gemm_efficiency": {"bf16": 0.6, "fp8": 0.6},
        "gemm_alone": {"bf16": 0.8},
    }
    assert gemm_rate(part, "bf16") == pytest.approx(60e12)
    assert gemm_rate(part, "bf16", is_alone=True) == pytest.approx(80e12)
    assert gemm_rate(part, "fp8", is_alone=True) == pytest.approx(120e12)
    capped = {**part, "power": 70.0, "joules_per_flop": 1e-12}
    assert gemm_rate(capped, "bf16", is_alone=True) == pytest.approx(70e12)
    assert gemm_rate(capped, "bf16") == pytest.approx(60e12)
    assert gemm_rate({**capped, "power": 50.0}, "bf16") == pytest.approx(50e12)
    assert gemm_rate({**capped, "power": 50.0}, "fp8") == pytest.approx(100e12)
