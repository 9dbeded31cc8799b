"""What follows from a placement: followers of the optimizer states, means of classes placed by layers."""

from __future__ import annotations

import pytest

from sim.config import scenario_of
from sim.experiment import run
from sim.placement.capacity import capacity_plan, verdict
from sim.placement.effective import class_shares, effective_placement
from sim.placement.plan import Entry, Placement
from sim.records import TensorClass
from sim.workload.inference import Inference
from sim.workload.shapes import builtin
from sim.workload.training import Optimizer, Training

WEIGHTS = TensorClass.WEIGHTS


def test_master_weights_and_gradients_follow_the_optimizer_states() -> None:
    training = Training(model=builtin("llama-2-7b"), optimizer=Optimizer(offload=True))
    found = effective_placement(
        Placement(entries=(Entry(tensor_class=TensorClass.OPTIMIZER_STATES, shares={"dram": 1.0}),)), training
    )
    assert dict(found.shares(TensorClass.MASTER_WEIGHTS)) == {"dram": 1.0}
    assert dict(found.shares(TensorClass.GRADIENTS)) == {"dram": 1.0}
    assert dict(found.shares(WEIGHTS)) == {"gpu": 1.0}


def test_a_class_placed_by_layers_has_a_mean_and_its_layers() -> None:
    placement = Placement(entries=(Entry(tensor_class=WEIGHTS, shares={"dram": 1.0}, layers=(24, 31)),))
    assert dict(class_shares(placement, 32)[WEIGHTS]) == pytest.approx({"gpu": 0.75, "dram": 0.25})
    found = effective_placement(placement, Inference(model=builtin("llama-2-7b")))
    assert dict(found.shares(WEIGHTS)) == pytest.approx({"gpu": 0.75, "dram": 0.25})
    assert dict(found.shares(WEIGHTS, 23)) == {"gpu": 1.0}
    assert dict(found.shares(WEIGHTS, 24)) == {"dram": 1.0}


def test_verdict_both_sides_of_each_boundary() -> None:
    assert [verdict(size, 100.0) for size in (90.0, 90.0001, 100.0, 100.0001)] == ["fits", "tight", "tight", "does_not_fit"]


def test_capacity_plan_names_tier_phase_and_classes() -> None:
    from sim.config import load_machine

    training = Training(model=builtin("llama-2-13b"))
    needs = capacity_plan(training, Placement(), load_machine("desktop-rtx-4090"))
    need = needs["gpu0.gddr"]
    assert need.verdict == "does_not_fit"
    assert need.by_class["optimizer_states"] > need.by_class["gradients"]
    assert need.sentence().startswith("gpu0.gddr needs 2")
    assert "too much (largest: optimizer states" in need.sentence()


def test_a_sub_group_that_spans_two_homes_is_updated_in_parts_each_at_its_own() -> None:
    shares = {"dram": "50%", "cxl0": "12.5%", "cxl1": "12.5%", "cxl2": "12.5%", "cxl3": "12.5%"}
    card = {"part": "cxl-expander-asic-x8", "link": "pcie5-x8", "to": "cpu0", "capacity": "256 GiB"}
    cards = {f"cxl{i}": card for i in range(4)}
    data = {
        "topology": {"base": "epyc-9554p-2x4090", "add": cards},
        "workload": {
            "training": {
                "model": "llama-2-7b",
                "batch_size": 1,
                "framework": "deepspeed-zero",
                "checkpointing": {"active": True},
                "parallelism": {"data": 2, "zero_stage": 3},
            }
        },
        "placement": {"weights": "dram", "optimizer_states": {"policy": "by_layer", "shares": shares}},
    }
    summary = run(scenario_of(data).resolve(), with_penalty=False).summary
    carried = [summary.channels[f"cxl{i}"].bytes for i in range(4)]
    assert carried == pytest.approx([carried[0]] * 4, rel=1e-6)
    assert carried[0] > 0
