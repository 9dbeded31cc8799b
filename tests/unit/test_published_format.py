"""Models whose publisher quantised the weights are served as published, unless the scenario says otherwise."""

from __future__ import annotations

import pytest

from sim.config.scenario_file import scenario_of
from sim.workload.inference import Inference


@pytest.mark.parametrize(
    ("model", "given", "weights"),
    [
        ("gpt-oss-20b", {}, "mxfp4"),
        ("deepseek-v3", {}, "fp8"),
        ("llama-2-7b", {}, "bf16"),
        ("gpt-oss-20b", {"weights": "bf16"}, "bf16"),
    ],
)
def test_default_format_of_the_weights(model: str, given: dict[str, str], weights: str) -> None:
    file = scenario_of({"topology": "dgx-h200", "workload": {"inference": {"model": model, **given}}})
    (job,) = file.resolve().jobs
    assert isinstance(job.workload, Inference)
    assert job.workload.weights == weights
