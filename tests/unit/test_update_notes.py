"""What a run tells of an update on the CPU: switches that its framework leaves as they are, and how to set them."""

from __future__ import annotations

from typing import Any

import pytest

from sim.records import TensorClass
from sim.workload.shapes import builtin
from sim.workload.step.generate import generate
from sim.workload.training import Offload, Optimizer, Parallelism, Training

HOST = {TensorClass.OPTIMIZER_STATES: "host", TensorClass.GRADIENTS: "host"}


def notes(framework: str, homes: dict[TensorClass, str] = HOST, ranks: int = 2, **blocks: Any) -> str:
    split = Parallelism(data=ranks, zero_stage=3)
    return "; ".join(generate(Training(model=builtin("gpt2"), framework=framework, parallelism=split, **blocks), homes).notes)


@pytest.mark.parametrize(
    ("framework", "told"),
    [("fsdp", "OMP_NUM_THREADS"), ("fsdp", "implementation: fused"), ("deepspeed-zero", "cores_bound: true")],
)
def test_a_default_that_costs_time_is_told(framework: str, told: str) -> None:
    assert told in notes(framework)


def test_nothing_is_told_where_it_is_set_or_makes_no_difference() -> None:
    assert notes("fsdp", offload=Offload(cores_per_rank=8), optimizer=Optimizer(implementation="fused")) == ""
    assert notes("deepspeed-zero", offload=Offload(cores_bound=True)) == ""
    assert notes("fsdp", homes={}) == ""
    assert "OMP_NUM_THREADS" not in notes("fsdp", ranks=1)
