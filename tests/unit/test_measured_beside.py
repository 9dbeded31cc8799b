"""The `measured:` block: refused where it means nothing, shown beside the run or the point that it is about."""

import json

import pytest

from sim.cli import run
from sim.config import scenario_of
from sim.config.measured_block import METRICS
from sim.errors import InputError
from sim.experiment import run as simulate
from sim.study.validation_predict import metric_of_result

TRAINING = {"model": {"layers": 2, "hidden": 512, "heads": 8, "ffn": 2048, "vocabulary": 32000}, "sequence_length": 128}
FILE = """topology: desktop-rtx-4090
workload: {training: {model: gpt2, sequence_length: 128, batch_size: 1}}
"""


def entry(metric, value):
    return scenario_of({
        "topology": "desktop-rtx-4090",
        "workload": {"training": TRAINING},
        "measured": [{"metric": metric, "value": value, "source": "a log"}],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "value", "message"),
    [
        ("step_tim", "1 s", "unknown metric 'step_tim'; did you mean 'step_time'?"),
        ("step_time", "10 GB/s", "step_time is no '10 GB/s'; write a value in s"),
        ("gpu_peak", "3 s", "gpu_peak is no '3 s'; write a value in B"),
        ("tokens_per_s", "3 GiB", "write a value in no unit"),
    ],
)
def test_what_no_run_predicts_is_refused(metric, value, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        entry(metric, value)


def test_every_metric_of_training_has_a_prediction():
    result = simulate(entry("step_time", "1 s").resolve())
    inference = {"time_to_first_token", "time_per_output_token", "decode_tokens_per_s", "prefill_tokens_per_s"}
    for metric in set(METRICS) - inference:
        assert metric_of_result(result, metric) >= 0
    for metric in inference:
        with pytest.raises(InputError, match="no metric"):
            metric_of_result(result, metric)


def test_a_run_and_a_sweep_show_what_was_measured(tmp_path, capsys):
    file = tmp_path / "one.yaml"
    file.write_text(FILE + "measured: [{metric: step_time, value: 1 s, source: a log, tolerance: 99%}]\n")
    assert run(["run", str(file), "--json", "--no-plots", "--out", str(tmp_path)]) == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    (shown,) = point["measured"]
    assert shown["predicted"] == point["step_time_s"]
    assert shown["error"] == pytest.approx(point["step_time_s"] - 1.0)
    assert shown["within_tolerance"] is (abs(shown["error"]) <= 0.99)

    many = tmp_path / "many.yaml"
    many.write_text(
        FILE
        + "sweep: {workload.training.batch_size: [1, 2]}\n"
        + "measured: [{metric: step_time, value: 1 s, source: a log, at: {batch_size: 2}}]\n"
    )
    assert run(["run", str(many), "--json", "--no-plots", "--workers", "1", "--out", str(tmp_path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [item["predicted"] for item in answer["measured"]] == [answer["points"][1]["step_time_s"]]
