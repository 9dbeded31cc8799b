"""The kernel law against hand-computed times and published benchmark rows."""

import pytest

from sim.laws.kernels import ALONE, attention_rate, fill, gemm_rate, memory_rate, peak, solo_time, uncached_bytes
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


def test_small_products_leave_multiprocessors_idle():
    assert fill(1024, 1024, 1023, 108) == pytest.approx(64 / 108)  # one tile of 128 x 128 each
    assert fill(1024, 1024, 2048, 108) == 1.0  # split in two along k
    assert fill(1664, 1024, 512, 104) == 1.0
    assert fill(1664, 1023, 512, 105) == pytest.approx(104 / 105)
    assert fill(0, 0, 0, 108) == fill(64, 64, 64, 0) == 1.0


def test_a_repeated_kernel_reads_what_its_cache_does_not_keep():
    assert uncached_bytes(1e9, 0.0) == 1e9
    assert uncached_bytes(1e9, 1e6) == pytest.approx(0.999e9)
    assert uncached_bytes(1e3, 1e9) == pytest.approx(5e-4, rel=1e-3)  # collisions of addresses alone
    kernel = Kernel(kind="gemm", flops=0.0, read_bytes=1.8e9, variant=ALONE)
    assert solo_time(kernel, PART | {"last_level_cache": 1e12}) < 7e-6 < 1e-3 < solo_time(kernel, PART)


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


def test_narrow_heads_pay_for_their_exponentials():
    """At half the width the products take half as long, the exponentials as long as before."""
    part = PART | {"vendor": "nvidia", "cores": 100, "clock": 1e9}
    scores = 1e12
    exponentials_s = scores * 2 / (16 * 100 * 1e9)
    seconds = {width: 14 * width * scores / attention_rate(part, "fa2", 1e12, width) for width in (64.0, 96.0, 128.0, 256.0)}
    for width in (64.0, 96.0):
        assert seconds[width] == pytest.approx((seconds[128.0] - exponentials_s) * width / 128 + exponentials_s)
    assert seconds[256.0] == pytest.approx(2 * seconds[128.0])
    assert attention_rate(PART, "fa2", 1e12, 64) == attention_rate(PART, "fa2", 1e12)  # unknown multiprocessors


def test_exponentials_alone_bound_narrow_heads_of_a_fast_device():
    part = PART | {"vendor": "nvidia", "cores": 1, "clock": 1e9}
    assert attention_rate(part, "fa2", 1e12, 64) == pytest.approx(attention_rate(part, "fa2", 1e12, 128) / 2)
