"""Kernels that were recorded at the same time: their durations hold what they did to each other, so it is not done twice."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import load_machine
from sim.interchange import kineto
from sim.records import Step
from sim.study.survey import replay_s
from tests.kineto_sample import Sample

A100 = {"deviceProperties": [{"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}]}
#: inputs of an addition that would move far more than the memory can in the recorded time
LARGE = {"Input Dims": [[1 << 16, 1 << 14], [1 << 16, 1 << 14]], "Input type": ["float", "float"]}


def step(*, stream: int = 20, device: int = 0, offset: float = 0.0) -> Step:
    """Five kernels of 1 ms on stream 7 and five on another queue, `offset` ms after the first five have begun."""
    sample = Sample(**A100)
    sample.step(0, 0, 12_000)
    for number in range(5):
        at = number * 40.0
        sample.event("cpu_op", "aten::add", at + 95, 30, 1, **LARGE)
        sample.launch(at + 100, 110 + number * 1000, 990)
        where: dict[str, Any] = {"device": device} if device else {}
        sample.launch(at + 110, 120 + (number + offset) * 1000, 980, stream=stream, **where)
    sample.call("cudaDeviceSynchronize", 400, 4720 + offset * 1000)
    return kineto.step_from([kineto.read_rank(sample.to_bytes(), "t.json")])


@pytest.mark.parametrize("changes", [{}, {"device": 1}, {"offset": 0.5}])
def test_concurrent_kernels_replay_in_the_recorded_time(changes: dict[str, Any]) -> None:
    recorded = step(**changes)
    assert replay_s(recorded, load_machine("dgx-a100")) == pytest.approx(recorded.source_step_s, rel=0.02)


def test_kernels_that_run_together_divide_the_memory_and_alone_have_all_of_it() -> None:
    shares = {kernel.memory_share for op in step().operations for kernel in op.kernels}
    assert all(share == pytest.approx(0.5, abs=0.01) for share in shares)
    apart = {kernel.memory_share for op in step(offset=5.0).operations for kernel in op.kernels}
    assert apart == {1.0}


def test_traffic_of_a_second_device_is_left_out_and_counted() -> None:
    recorded = step(device=1)
    other = [kernel for op in recorded.operations if op.stream == "rank0.compute1" for kernel in op.kernels]
    assert len(other) == 5
    assert all(kernel.read_bytes == kernel.write_bytes == 0 for kernel in other)
    assert any(note.startswith("works of further devices of the process") and note.endswith(": 5") for note in recorded.notes)
