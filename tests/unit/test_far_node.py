"""Memory that a placement binds to the node far from the GPUs costs time, also for threads on all sockets."""

from __future__ import annotations

import pytest

from sim.config import scenario_of
from sim.experiment import run


def step_s(tier: str, is_bound: bool) -> float:
    training = {
        "model": "llama-3.2-1b", "framework": "deepspeed-zero", "parallelism": {"data": 4, "zero_stage": 2},
        "checkpointing": {"active": True}, "offload": {"cores_bound": is_bound},
    }  # fmt: skip
    data = {"topology": "rtx-4090-8x", "workload": {"training": training}, "placement": {"optimizer_states": tier}}
    return run(scenario_of(data, "case").resolve(), with_penalty=False).summary.step_time_s


@pytest.mark.parametrize("is_bound", [False, True])
def test_states_bound_to_the_far_node_are_slower_than_near_ones(is_bound: bool) -> None:
    near, role, far = (step_s(tier, is_bound) for tier in ("cpu0.dram", "dram", "cpu1.dram"))
    assert near == role
    assert far > 1.05 * near
