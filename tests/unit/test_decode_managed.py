"""Managed weights that exceed GPU memory: faults over PCIe, plain accesses over a coherent link."""

from sim.config import scenario_of
from sim.experiment import run
from sim.laws.paging import gpu_fault_rate


def seconds_per_token(topology: str, model: str) -> tuple[float, float]:
    """Time per token, and the bytes of weights."""
    inference = {"model": model, "prompt_length": 32, "output_length": 4, "is_managed": True}
    result = run(scenario_of({"topology": topology, "workload": {"inference": inference}}).resolve(), with_penalty=False)
    assert result.inference is not None
    weights = max(tier.by_class.get("weights", 0.0) for tier in result.summary.tiers.values())
    return result.inference.time_per_output_token_s, weights


def test_faults_pace_a_card_on_pcie():
    seconds, weights = seconds_per_token("desktop-rtx-4090", "llama-2-13b")
    assert weights / seconds < 1.05 * gpu_fault_rate(26e9) < 10e9


def test_a_superchip_reads_at_the_speed_of_its_link():
    seconds, weights = seconds_per_token("gh200", "llama-2-70b")
    assert 200e9 < weights / seconds < 450e9  # kernels reach 328 to 339 GB/s on local host memory (dnhkng, dual GH200)
