"""Error bands: from the family's validation where there is enough of it, assumed and said so where not."""

from __future__ import annotations

import pytest

from sim.metrics.uncertainty import FamilyError, band_of, family_of
from sim.placement.plan import Entry, Placement
from sim.records import TensorClass
from sim.workload.inference import Inference
from sim.workload.shapes import builtin
from sim.workload.training import Optimizer, Training

MODEL = builtin("llama-2-7b")
AWAY = Placement(entries=(Entry(tensor_class=TensorClass.OPTIMIZER_STATES, shares={"dram": 1.0}),))


@pytest.mark.parametrize(
    ("workload", "placement", "family"),
    [
        (Training(model=MODEL), Placement(), "training_no_offload"),
        (Training(model=MODEL, optimizer=Optimizer(offload=True)), Placement(), "training_offload"),
        (Training(model=MODEL), AWAY, "training_offload"),
        (Training(model=builtin("mixtral-8x7b")), Placement(), "training_moe"),
        (Inference(model=MODEL), Placement(), "inference"),
        (object(), Placement(), ""),
    ],
)
def test_families(workload: object, placement: Placement, family: str) -> None:
    assert family_of(workload, placement) == family


def test_band_is_the_familys_p90_and_never_reaches_zero() -> None:
    errors = {"training_offload": FamilyError(n=40, p90=0.25, is_left_out=True)}
    band = band_of(Training(model=MODEL), AWAY, errors)
    assert band.around(10.0) == {
        "low_s": pytest.approx(8.0),
        "high_s": pytest.approx(12.5),
        "basis": "validation: 90 % of 40 measurements of training offload, predicted without them, within 25 %",
    }


def test_too_few_rows_are_not_a_band() -> None:
    assert band_of(Training(model=MODEL), AWAY, {"training_offload": FamilyError(n=9, p90=0.01)}).basis.startswith("assumed")
    assert band_of(Training(model=MODEL), AWAY, {"training_offload": FamilyError(n=10, p90=0.01)}).basis.startswith(
        "validation"
    )


def test_an_unknown_framework_widens_the_band() -> None:
    errors = {"training_no_offload": FamilyError(n=100, p90=0.1)}
    assert band_of(Training(model=MODEL, framework="megatron"), Placement(), errors).high == pytest.approx(0.1)
    assert band_of(Training(model=MODEL), Placement(), errors).high == pytest.approx(0.2)
