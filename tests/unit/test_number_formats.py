"""A job in a number format that its GPU lacks is timed in another one, and says so."""

import pytest

from sim.config import scenario_of
from sim.experiment import run


def _warnings(machine: str, precision: str) -> list[str]:
    training = {"model": "gpt2", "sequence_length": 256, "batch_size": 1, "precision": precision, "framework": "megatron"}
    scenario = scenario_of({"name": "x", "topology": machine, "workload": {"training": training}}).resolve()
    return [text for text in run(scenario, with_penalty=False).warnings if "units" in text or "TF32" in text]


@pytest.mark.parametrize(
    ("machine", "precision", "missing", "taken"),
    [("dgx-a100", "fp8", "fp8", "bf16"), ("dgx-1-v100", "bf16", "bf16", "fp16"), ("dgx-h100", "nvfp4", "fp4", "fp8")],
)
def test_a_format_without_units_is_named_with_its_stand_in(machine, precision, missing, taken):
    (text,) = _warnings(machine, precision)
    assert f"no {missing} units" in text
    assert f"timed in {taken}" in text


@pytest.mark.parametrize(
    ("machine", "precision"), [("dgx-h100", "fp8"), ("dgx-1-v100", "fp32"), ("dgx-h100", "tf32"), ("dgx-1-v100", "fp16")]
)
def test_formats_with_units_and_plain_fp32_need_no_word(machine, precision):
    assert _warnings(machine, precision) == []


def test_plain_fp32_says_what_tensor_cores_would_bring():
    """PyTorch multiplies fp32 without TF32 since 1.12 unless told; an A100 has 19.5 and 156 TFLOP/s."""
    (text,) = _warnings("dgx-a100", "fp32")
    assert "precision: tf32 has 8 times the peak" in text
    assert _warnings("dgx-a100", "tf32") == []
