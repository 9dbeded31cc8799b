"""Driver names of GPUs against the part catalogue."""

from __future__ import annotations

import pytest

from sim.config.parts import part_names
from sim.interchange.gpu_names import _PARTS, part_of

GIB = 2.0**30


def test_every_part_named_exists() -> None:
    assert {part for _pattern, _least, part in _PARTS if part} <= set(part_names())


@pytest.mark.parametrize(
    ("reported", "memory_gib", "part"),
    [
        ("Tesla V100-SXM2-16GB", 15.8, "v100-16gb-sxm"), ("Tesla V100-SXM2-32GB", 31.7, "v100-32gb-sxm"),
        ("Tesla V100-SXM2", 31.7, "v100-32gb-sxm"), ("NVIDIA A100-SXM4-80GB", 79.2, "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "a100-40gb-sxm"), ("NVIDIA A100 80GB PCIe", 0.0, "a100-80gb-pcie"),
        ("NVIDIA A100-PCIE-40GB", 39.4, "a100-40gb-pcie"), ("NVIDIA H100 80GB HBM3", 79.1, "h100-sxm"),
        ("NVIDIA H100 PCIe", 79.1, "h100-pcie"), ("NVIDIA GH200 480GB", 95.0, "gh200-96gb"),
        ("NVIDIA GeForce RTX 2080 Ti", 10.8, "rtx-2080ti"), ("NVIDIA L4", 22.0, "l4"), ("NVIDIA L40S", 44.0, "l40s"),
        ("NVIDIA H100 NVL", 93.0, "h100-nvl"), ("NVIDIA H200", 140.0, "h200-sxm"), ("NVIDIA A10G", 22.0, "a10g"),
        ("NVIDIA A30", 23.6, "a30"), ("Quadro RTX 8000", 47.5, "quadro-rtx-8000"),
        ("NVIDIA GeForce RTX 3090 Ti", 23.7, "rtx-3090-ti"),
        ("NVIDIA GeForce RTX 3080", 9.8, "rtx-3080"), ("NVIDIA GeForce RTX 5070 Ti", 15.5, "rtx-5070ti"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 15.7, "rtx-4070ti-super"), ("NVIDIA GeForce RTX 4060 Ti", 15.6, "rtx-4060ti-16gb"),
        ("Tesla V100-PCIE-16GB", 15.8, "v100-16gb-pcie"), ("Tesla V100-PCIE-32GB", 31.7, "v100-32gb-pcie"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 95.0, "rtx-pro-6000"), ("NVIDIA GB300", 277.0, "gb300"),
        ("AMD Instinct MI300X OAM", 191.0, "mi300x"), ("AMD Instinct MI350X", 287.0, "mi350x"),
        ("AMD Radeon PRO W7900", 44.9, "radeon-pro-w7900"),
    ],
)  # fmt: skip
def test_the_variant_follows_from_name_and_memory(reported: str, memory_gib: float, part: str) -> None:
    assert part_of(reported, memory_gib * GIB) == part


@pytest.mark.parametrize(
    "reported",
    [
        "AMD Radeon Graphics", "Tesla K80", "NVIDIA GeForce RTX 4090 Laptop GPU", "Quadro RTX 5000 with Max-Q Design",
        "NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 4070 SUPER", "NVIDIA GeForce RTX 4090 D", "NVIDIA H800 PCIe",
    ],
)  # fmt: skip
def test_a_gpu_that_the_catalogue_lacks_keeps_its_name(reported: str) -> None:
    assert part_of(reported) == reported
