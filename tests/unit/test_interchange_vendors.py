"""Recordings of other vendors' profilers and other generations of them: the same work under other names."""

import json
from pathlib import Path

import pytest

from sim.interchange.copy_names import ends_of, is_pageable
from sim.interchange.kernel_class import is_communication
from sim.interchange.load import load_trace
from sim.records import Kind
from tests.kineto_sample import Sample


@pytest.mark.parametrize(
    ("name", "ends", "is_paged"),
    [
        ("Memcpy HtoD (Pinned -> Device)", ("dram", "gpu"), False),
        ("Memcpy HtoD (Pageable -> Device)", ("dram", "gpu"), True),
        ("Memcpy DtoH (Device -> Pageable)", ("gpu", "dram"), True),
        ("Memcpy DtoD (Device -> Device)", ("gpu", "gpu"), None),
        ("Memcpy PtoP (Device -> Device)", ("peer", "peer"), None),
        ("Memcpy HtoD (Host -> Device)", ("dram", "gpu"), None),
        ("CopyHostToDevice", ("dram", "gpu"), None),
        ("CopyDeviceToHost", ("gpu", "dram"), None),
        ("MEMORY_COPY_DEVICE_TO_HOST", ("gpu", "dram"), None),
        ("Memcpy M2D (Memory -> Device)", ("dram", "gpu"), True),
        ("Memcpy D2M (Device -> Memory)", ("gpu", "dram"), True),
        ("Memcpy H2D (Host -> Device)", ("dram", "gpu"), None),
        ("Memcpy AtoD", ("gpu", "gpu"), None),
        ("Memcpy Unknown", None, None),
        ("dma_request", None, None),
    ],
)  # fmt: skip
def test_a_copy_goes_where_its_name_says(name: str, ends: tuple[str, str] | None, is_paged: bool | None) -> None:
    assert ends_of(name) == ends
    assert is_pageable(name) is is_paged


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", True), ("rcclGenericKernel", True), ("hcclAllReduce", True),
        ("oneccl_allreduce_small", True), ("cncl_allgather", True), ("mscclKernel_Sum_half_LL", True),
        ("void cub::CUB_200700::DeviceRadixSortKernel<cccl>", False), ("ampere_bf16_gemm", False),
    ],
)  # fmt: skip
def test_communication_is_known_by_its_library(name: str, expected: bool) -> None:
    assert is_communication(name) is expected


def recorded(tmp_path: Path, copy: str, runtime: str = "cuda_runtime") -> list[tuple[Kind, str, str, float]]:
    """Copies of a step that has one kernel and one copy of 1 MiB of that name, launched by calls of that category."""
    sample = Sample(deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85e9}])
    sample.step(1, 0, 500)
    sample.launch(10, 20, 50)
    sample.copy(100, 5, 110, 100, name="X", size=2**20)
    document = json.loads(sample.to_bytes())
    for event in document["traceEvents"]:
        event["cat"] = runtime if event["cat"] == "cuda_runtime" else event["cat"]
        event["name"] = copy if event["name"] == "Memcpy X" else event["name"]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(document))
    found = load_trace([file]).operations
    return [(op.kind, op.source, op.target, op.size_bytes) for op in found if op.kind is Kind.TRANSFER]


@pytest.mark.parametrize("runtime", ["cuda_runtime", "xpu_runtime", "privateuse1_runtime"])
@pytest.mark.parametrize(("copy", "ends"), [("Memcpy M2D", ("dram", "gpu")), ("Memcpy D2M", ("gpu", "dram"))])
def test_copies_of_other_vendors_keep_their_direction(tmp_path: Path, copy: str, ends: tuple[str, str], runtime: str) -> None:
    assert recorded(tmp_path, copy, runtime) == [(Kind.TRANSFER, *ends, 2**20)]


def test_a_copy_without_a_direction_keeps_its_duration(tmp_path: Path) -> None:
    assert recorded(tmp_path, "Memcpy Unknown") == []
