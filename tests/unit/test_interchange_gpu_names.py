"""Driver names of GPUs against the part catalogue."""

from __future__ import annotations

import pytest

from sim.config.parts import part_names
from sim.interchange.gpu_names import _PARTS, part_of

GIB = 2.0**30


def test_every_part_named_exists() -> None:
    assert {part for _pattern, _least, part in _PARTS} <= set(part_names())


@pytest.mark.parametrize(
    ("reported", "memory_gib", "part"),
    [
        ("Tesla V100-SXM2-16GB", 15.8, "v100-16gb-sxm"), ("Tesla V100-SXM2-32GB", 31.7, "v100-32gb-sxm"),
        ("Tesla V100-SXM2", 31.7, "v100-32gb-sxm"), ("NVIDIA A100-SXM4-80GB", 79.2, "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "a100-40gb-sxm"), ("NVIDIA A100 80GB PCIe", 0.0, "a100-80gb-pcie"),
        ("NVIDIA A100-PCIE-40GB", 39.4, "a100-40gb-pcie"), ("NVIDIA H100 80GB HBM3", 79.1, "h100-sxm"),
        ("NVIDIA H100 PCIe", 79.1, "h100-pcie"), ("NVIDIA GH200 480GB", 95.0, "gh200-96gb"),
        ("NVIDIA GeForce RTX 2080 Ti", 10.8, "rtx-2080ti"), ("NVIDIA L4", 22.0, "l4"), ("NVIDIA L40S", 44.0, "l40s"),
    ],
)  # fmt: skip
def test_the_variant_follows_from_name_and_memory(reported: str, memory_gib: float, part: str) -> None:
    assert part_of(reported, memory_gib * GIB) == part


@pytest.mark.parametrize("reported", ["NVIDIA H100 NVL", "AMD Radeon Graphics", "Tesla K80"])
def test_a_gpu_that_the_catalogue_lacks_keeps_its_name(reported: str) -> None:
    assert part_of(reported) == reported
