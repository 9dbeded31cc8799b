"""A step that repeats, solved from two short replays, equals the step replayed whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.config import scenario_of
from sim.experiment.solving import Solved, solve
from sim.scenario import Scenario

PLANS: dict[str, dict[str, Any]] = {
    "accumulation": {"data": 8},
    "sharded": {"data": 8, "zero_stage": 3},
    "pipeline": {"pipeline": 4, "data": 2},
    "interleaved": {"pipeline": 4, "data": 2, "interleave": 4},
}


def scenario(num: int, plan: dict[str, Any]) -> Scenario:
    training = {
        "model": "llama-2-7b", "batch_size": 1, "sequence_length": 2048, "gradient_accumulation": num,
        "framework": "megatron", "checkpointing": {"active": True}, "parallelism": plan,
    }  # fmt: skip
    return scenario_of({"name": "t", "topology": "dgx-h100", "workload": {"training": training}}).resolve()


def whole(asked: Scenario) -> Solved:
    return solve(replace(asked, options=replace(asked.options, is_whole=True)))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_short_way_equals_the_whole(plan: dict[str, Any]) -> None:
    asked = scenario(40, plan)
    short, full = solve(asked), whole(asked)
    assert "of the step's 40 micro-batches" in short.note
    assert full.note == ""
    assert len(short.program.operations) < len(full.program.operations)
    assert short.summary.step_time_s == pytest.approx(full.summary.step_time_s, rel=1e-9)
    assert short.summary.mfu == pytest.approx(full.summary.mfu, rel=1e-9)
    assert short.summary.breakdown_s == pytest.approx(full.summary.breakdown_s, rel=1e-9, abs=1e-9)
    assert short.summary.bound_by == full.summary.bound_by
    for name, use in full.summary.channels.items():
        assert short.summary.channels[name].bytes == pytest.approx(use.bytes, rel=1e-9)
        assert short.summary.channels[name].utilisation == pytest.approx(use.utilisation, rel=1e-9)


@pytest.mark.parametrize(
    ("num", "plan", "is_short"),
    [(9, {"data": 8}, False), (10, {"data": 8}, True), (21, {"pipeline": 4}, False), (22, {"pipeline": 4}, True)],
)
def test_short_only_where_it_saves(num: int, plan: dict[str, Any], is_short: bool) -> None:
    """Two replays of 4 and 5 micro-batches pay from 5 + 5 on; of 10 and 11 from 11 + 11."""
    assert bool(solve(scenario(num, plan)).note) is is_short
