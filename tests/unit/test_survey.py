"""A survey of recordings: what it tabulates, and which agreement it refuses to count."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import cli
from sim.interchange import kineto
from sim.interchange.statistics import UNEXPLAINED_GAP, UNRECORDED_WORK, kept_s
from sim.study.survey import SurveyRow, medians, survey
from tests.kineto_sample import Sample, plain

A100 = {"deviceProperties": [{"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}]}


def with_gap(*, is_launched: bool) -> Sample:
    """A step of 1000 us: a kernel at once and one 700 us later, for no reason that the recording has."""
    sample = Sample(**A100)
    sample.step(0, 0, 1000)
    sample.launch(0, 10, 100)
    if is_launched:
        sample.launch(20, 810, 100)
    else:
        sample.event("kernel", "later", 810, 100, 7, 0, device=0, stream=7, correlation=99)
    sample.call("cudaDeviceSynchronize", 30, 885)
    return sample


@pytest.mark.parametrize(("is_launched", "name"), [(True, UNRECORDED_WORK), (False, UNEXPLAINED_GAP)])
def test_unexplained_time_is_kept_named_and_told(is_launched: bool, name: str) -> None:
    step = kineto.step_from([kineto.read_rank(with_gap(is_launched=is_launched).to_bytes(), "t.json")])
    (kept,) = [op for op in step.operations if op.name in (UNRECORDED_WORK, UNEXPLAINED_GAP)]
    assert kept.name == name
    assert bool(kept.kernels) is is_launched  # work scales with the GPU, a gap does not
    assert kept_s(step) == pytest.approx(700e-6, rel=0.02)
    assert any("kept as recorded: 0.7 ms, 7" in note for note in step.notes)


def test_a_recording_that_agrees_by_copying_is_left_out_of_the_medians(tmp_path: Path) -> None:
    explained, copied = tmp_path / "a.json", tmp_path / "b.json"
    explained.write_bytes(plain(num_steps=3, **A100).to_bytes())
    copied.write_bytes(with_gap(is_launched=True).to_bytes())
    rows = list(survey([explained, copied]))
    assert [row.kept_share > 0.1 for row in rows] == [False, True]
    assert rows[1].error is not None  # shown all the same
    assert medians(rows)["error"] == (rows[0].error, 1)
    assert medians(rows[1:]) == {}


def test_medians_count_each_error_by_itself() -> None:
    def row(**errors: float) -> SurveyRow:
        return SurveyRow(file="x", verdict="read", **errors)  # type: ignore[arg-type]

    found = medians(
        [row(error=0.1), row(error=0.3, other_step_error=0.2), row(error=0.2), SurveyRow(file="y", verdict="refused")]
    )
    assert found == {"error": (0.2, 3), "other_step_error": (0.2, 1)}


def test_the_command_tabulates_and_refuses_by_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_bytes(plain(num_steps=3, **A100).to_bytes())
    (tmp_path / "b.txt").write_text("hello")
    (tmp_path / "c.json").write_bytes(with_gap(is_launched=True).to_bytes())
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    assert cli.run(["trace", "survey", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("a.json")
    assert "refused: is no trace of a known kind" in lines[2]
    assert lines[-1] == "left out of the medians: 1 that keep more than 10% of their step as recorded"


def test_a_recording_that_does_not_exist_is_bad_input(tmp_path, capsys):
    assert cli.run(["trace", "survey", str(tmp_path / "none.json")]) == 2
    assert "no such file" in capsys.readouterr().err
