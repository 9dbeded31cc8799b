"""Scenario files whose `measured:` block `validate` reads."""

import textwrap

import pytest

from sim.errors import InputError
from sim.study.row_files import read_rows
from sim.study.validation import run_rows

BODY = """
name: mine
topology: h100-sxm-1x
workload:
  training: {model: llama-3.2-1b, sequence_length: 2048, batch_size: 4, precision: bf16}
"""


def rows(tmp_path, text):
    (tmp_path / "mine.yaml").write_text(BODY + textwrap.dedent(text), encoding="utf-8")
    return read_rows([tmp_path])


def test_an_entry_is_a_row_of_its_metrics_family(tmp_path):
    found = rows(
        tmp_path,
        """
        measured:
          - {metric: step_time, value: 300 ms, source: "own run"}
          - {metric: gpu_peak, value: 30 GiB, source: "nvidia-smi"}
        """,
    )
    assert [(row.family, row.measured, row.document) for row in found] == [
        ("training_no_offload", 0.3, "own run"),
        ("footprint_gpu", 30 * 2**30, "nvidia-smi"),
    ]
    report = run_rows(found, num_workers=1)
    assert len(report.outcomes) == 2
    assert not report.skipped


def test_a_row_stands_at_the_point_that_it_names(tmp_path):
    found = rows(
        tmp_path,
        """
        sweep: {workload.training.batch_size: [1, 4], workload.training.sequence_length: [1024, 2048]}
        measured:
          - {metric: step_time, value: 1 s, source: run, at: {batch_size: 4, sequence_length: 1024}}
          - {metric: step_time, value: 1 s, source: run, at: {batch_size: 1, sequence_length: 2048}}
        """,
    )
    asked = [row.inputs["workload"]["training"] for row in found]
    assert [(training["batch_size"], training["sequence_length"]) for training in asked] == [(4, 1024), (1, 2048)]


def test_a_point_that_the_sweep_skips_is_a_fault_at_its_line(tmp_path):
    text = """
    sweep: {workload.training.batch_size: [1, 4]}
    measured:
      - {metric: step_time, value: 1 s, source: run, at: {batch_size: 8}}
    """
    with pytest.raises(InputError, match=r"mine.yaml:9: measured\[0\].at: the sweep has no point at batch_size 8"):
        rows(tmp_path, text)


def test_offload_and_penalty(tmp_path):
    found = rows(
        tmp_path,
        """
        placement: {optimizer_states: dram}
        measured:
          - {metric: offload_penalty, value: 2, source: own}
        """,
    )
    assert [row.family for row in found] == ["training_offload"]
    (outcome,) = run_rows(found, num_workers=1).outcomes
    assert outcome.predicted > 1.0


def test_values_of_several_jobs_are_refused(tmp_path):
    (tmp_path / "two.yaml").write_text(
        """
topology: h100-sxm-1x
jobs:
  - {name: a, workload: {training: {model: llama-3.2-1b, sequence_length: 512, batch_size: 1, precision: bf16}}}
measured:
  - {metric: step_time, value: 1 s, source: run}
""",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="a measured value of several jobs names none of them"):
        read_rows([tmp_path])


def test_a_scenario_without_measured_values_is_told_so(tmp_path):
    with pytest.raises(InputError, match="a scenario without measured values; add measured"):
        rows(tmp_path, "")
