"""Unified memory: the GPU's part may have a limit of its own; both limits hold."""

import pytest

from sim.config import scenario_of
from sim.study.fit import assess


def verdict(model: str, weights: str, share: str) -> tuple[str, float]:
    job = {"model": model, "weights": weights, "memory_utilisation": share, "prompt_length": 64, "output_length": 64}
    data = {"topology": "strix-halo", "workload": {"inference": job}}
    found = assess(next(iter(scenario_of(data).expand())), with_suggestions=False)
    (need,) = (need for name, need in found.tiers.items() if name.startswith("gpu0"))
    return found.verdict, need.capacity_bytes


@pytest.mark.parametrize(
    ("weights", "share", "expected"),
    [
        ("q4_k_m", "48.8%", "does_not_fit"),  # 85 GB of weights, 67 GB (62.5 GiB) for the GPU
        ("q4_k_m", "75%", "fits"),  # 85 of 103 GB
        ("q2_k", "48.8%", "fits"),  # 53 of 67 GB
    ],
)
def test_the_share_of_the_gpu_is_a_limit_of_its_own(weights, share, expected):
    assert verdict("mixtral-8x22b", weights, share)[0] == expected


def test_the_limit_that_binds_first_is_told():
    whole = verdict("qwen3-0.6b", "bf16", "100%")[1]
    assert whole >= 128e9
    assert verdict("mixtral-8x22b", "q4_k_m", "48.8%")[1] == pytest.approx(0.488 * whole)
