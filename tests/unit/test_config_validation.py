"""Pydantic's errors as faults: exact messages, all at once, each with its line."""

from __future__ import annotations

import pytest

from sim.config import parse_yaml, validate
from sim.errors import InputError
from sim.workload.training import Training

MODEL = "model: {layers: 2, hidden: 4, heads: 2, ffn: 8, vocabulary: 10}\n"


def faults(text: str) -> list[str]:
    document = parse_yaml(text, "f.yaml")
    with pytest.raises(InputError) as caught:
        validate(Training, document.data, document)
    return str(caught.value).splitlines()


def test_valid_block_and_units() -> None:
    document = parse_yaml(
        MODEL + "data: {seconds_per_sample: 12 ms}\nbatch_size: 8.0\noptimizer: {gpu_fraction: 30%}\n", "f.yaml"
    )
    training = validate(Training, document.data, document)
    assert training.data is not None
    assert training.data.seconds_per_sample == pytest.approx(0.012)
    assert training.batch_size == 8
    assert training.optimizer.gpu_fraction == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("batchsize: 8", "f.yaml:2: batchsize: unknown key 'batchsize'; did you mean 'batch_size'?"),
        ("optimizer: {typ: adamw}", "f.yaml:2: optimizer.typ: unknown key 'typ'; did you mean 'type'?"),
        ("parallelism: {zero: 2}", "f.yaml:2: parallelism.zero: unknown key 'zero'; did you mean 'zero_stage'?"),
        ("batch_size: true", "f.yaml:2: batch_size: expected a whole number, got true"),
        ("batch_size: '8'", "f.yaml:2: batch_size: expected a whole number, got '8'"),
        ("batch_size: 1.5", "f.yaml:2: batch_size: expected a whole number, got 1.5"),
        ("batch_size: 0", "f.yaml:2: batch_size: must be greater than 0, got 0"),
        ("batch_size: null", "f.yaml:2: batch_size: expected a whole number, got null"),
        ("parallelism: {zero_stage: 4}", "f.yaml:2: parallelism.zero_stage: must be at most 3, got 4"),
        ("compile: yes", "f.yaml:2: compile: expected true or false, got 'yes'; write true"),
        (
            "precision: bf17",
            "f.yaml:2: precision: must be one of fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4, got 'bf17'; did you mean 'bf16'?",
        ),
        (
            "optimizer: adam",
            "f.yaml:2: optimizer: expected a mapping, got 'adam'; write {type: adam}; known keys: type, offload, "
            "precision, implementation, delayed_update, gpu_fraction, swap_through_gpu",
        ),
        (
            "data: {seconds_per_sample: 3}",
            "f.yaml:2: data.seconds_per_sample: missing unit: got 3; write a time such as '90 ns'",
        ),
        (
            "data: {seconds_per_sample: 5 GB}",
            "f.yaml:2: data.seconds_per_sample: wrong unit: 'GB' is a unit of bytes in '5 GB'; write a time such as '90 ns'",
        ),
        ("data: {seconds_per_sample: -12 ms}", "f.yaml:2: data.seconds_per_sample: must be at least 0, got '-12 ms'"),
        ("adapter: {targets: [q, 3]}", "f.yaml:2: adapter.targets[1]: expected a string, got 3"),
        ("dataset: {epochs: 2}", "f.yaml:2: dataset.samples: missing key 'samples'; add it: samples per epoch"),
    ],
)  # fmt: skip
def test_exact_messages(line: str, expected: str) -> None:
    assert faults(MODEL + line + "\n") == [expected]


def test_all_faults_in_line_order() -> None:
    got = faults("batchsize: 8\nmodel: {layers: -2, hidden: 4, ffn: 8, vocabulary: 10}\nprecision: 3\n")
    assert [line.split(": ")[1] for line in got] == ["batchsize", "model.layers", "model.heads", "precision"]
    assert [line.split(":")[1] for line in got] == ["1", "2", "2", "3"]
