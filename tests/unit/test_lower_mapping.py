"""Fresh host memory costs page faults: a blocking gradient flush maps an empty tensor for each copy."""

import pytest

from sim.config import scenario_of
from sim.experiment import prepare


def _cast_starts(topology):
    """Start latency of each cast, seconds, and the fresh bytes of all."""
    training = {
        "model": "llama-3.2-1b", "framework": "deepspeed-zero", "optimizer": {"offload": True},
        "parallelism": {"zero_stage": 3}, "offload": {"overlap_gradients": False, "cores_bound": True},
    }  # fmt: skip
    scenario = scenario_of({"name": "mapping", "topology": topology, "workload": {"training": training}}).resolve()
    step, program = prepare(scenario)
    fresh = sum(op.mapped_bytes for op in step.operations)
    return sum(op.latency_s for op in program.operations if op.name == "cast gradients"), fresh


def test_a_flush_maps_its_copies_page_by_page():
    seconds, fresh = _cast_starts("a100-40gb-1x")
    assert fresh == pytest.approx(2 * 1.2358e9, rel=1e-3)
    assert seconds == pytest.approx(fresh / 4096 / 3.6e6, rel=1e-6)


def test_large_pages_fault_less():
    small, _ = _cast_starts("a100-40gb-1x")
    large, _ = _cast_starts("gh200")  # Linux on Grace usually has pages of 64 KiB
    assert large < small / 10
