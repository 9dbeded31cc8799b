"""Real recordings (TIERSIM_SAMPLE_FILES): each read or refused with a reason, and replayed close to what was recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.interchange.load import load_trace
from sim.study.survey import SurveyRow, medians, survey

FOLDER = Path(os.environ.get("TIERSIM_SAMPLE_FILES", "/nonexistent"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="set TIERSIM_SAMPLE_FILES to the folder of sample files")
#: kinds of `index.csv` that hold no trace
OTHERS = ("fio", "hwloc", "mlc", "nccl_tests", "nvbandwidth", "nvidia_smi_topo", "stream", "gpu_copy")


def rows_of(*kinds: str) -> list[SurveyRow]:
    return list(survey(path for kind in kinds for path in sorted((FOLDER / kind).glob("*"))))


@pytest.mark.slow
def test_recordings_replay_close_to_what_was_recorded() -> None:
    rows = rows_of("kineto")
    read = [row for row in rows if row.verdict == "read"]
    assert len(read) >= 0.9 * len(rows)
    assert all(row.num_operations > 0 for row in read)
    assert all(row.message for row in rows if row.verdict == "refused")
    found = medians(rows)
    assert found["error"][0] < 0.03
    assert found["other_step_error"][0] < 0.05
    assert found["other_rank_error"][0] < 0.15


@pytest.mark.slow
def test_chakra_and_execution_traces_are_read_or_refused() -> None:
    rows = rows_of("chakra", "pytorch_et")
    assert [Path(row.file).name for row in rows if row.verdict == "refused"] == [
        "et_def.proto",
        "stage_llama_tiny_comm_groups.json",
    ]
    assert all(row.num_operations > 0 for row in rows if row.verdict == "read")


def test_files_that_are_no_traces_are_refused() -> None:
    rows = rows_of(*OTHERS)
    assert len(rows) > 40
    assert all(row.verdict == "refused" and row.message for row in rows)


def test_ranks_given_apart_are_joined() -> None:
    (path,) = (FOLDER / "kineto").glob("param_dlrm_kineto*")
    step = load_trace(path)
    assert len(step.rank_classes) == 8
    assert any(note.startswith("ranks start up to") for note in step.notes)
    assert any(note.startswith("collectives joined over the ranks given") for note in step.notes)
