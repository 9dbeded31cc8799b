"""Running rows: one run per set of inputs, skips with reasons, verdicts, sweeps, the reference and its guard."""

import json
from pathlib import Path

import pytest

from sim.cli import run
from sim.config import parse_yaml
from sim.config.measured_block import si_value
from sim.errors import InputError
from sim.study import validation, validation_output
from sim.study.validation_rows import factor, rows_of

TABLE = """
publication: some-paper
document: "Some paper, 2026"
tables:
  - id: t
    family: copies
    bench: {topology: box, benchmark: copy}
    columns: [id, size, sweep, missing, doubtful, is_wrong, "= bandwidth [GB/s]", "= time [s]"]
    rows:
      - [a, 1, s, null, null, null, 10, 1]
      - [b, 2, s, null, null, null, 20, null]
      - [c, 3, s, null, null, null, 40, null]
      - [d, 4, null, clock, null, null, 10, null]
      - [e, 5, null, null, odd, null, 10, null]
      - [f, 6, null, null, null, true, 10, null]
  - id: v
    family: fit_verdict
    scenario: {topology: box}
    columns: [id, workload.x, "= verdict"]
    rows:
      - [fits, 1, fits]
      - [tight, 2, fits]
      - [oom, 3, does_not_fit]
      - [false-fit, 4, does_not_fit]
"""
VERDICTS = {1: "fits", 2: "tight", 3: "does_not_fit", 4: "fits"}


@pytest.fixture
def calls(monkeypatch):
    seen = []

    def predict(kind, inputs, metrics, *, file):
        seen.append(inputs)
        if inputs.get("is_wrong"):
            raise InputError("no such box")
        if kind == "scenario":
            return {"verdict": VERDICTS[inputs["workload"]["x"]]}
        return {"bandwidth": 11e9 * 2 ** (inputs["size"] - 1), "time": 2.0}

    monkeypatch.setattr(validation, "predict", predict)
    return seen


@pytest.fixture
def report(calls):
    return validation.run_rows(rows_of(parse_yaml(TABLE, "t.yaml")), num_workers=1)


def test_one_run_answers_all_values_of_a_row(calls, report):
    assert len([inputs for inputs in calls if inputs.get("size") == 1]) == 1
    assert [o.row.id for o in report.outcomes][:3] == [
        "some-paper/t/a.bandwidth",
        "some-paper/t/a.time",
        "some-paper/t/b.bandwidth",
    ]
    assert report.outcomes[1].error == pytest.approx(1.0)


def test_what_is_not_predicted_has_its_reason(report):
    assert [(s.row.id[-11:-10], s.kind, s.reason) for s in report.skipped] == [
        ("d", "missing", "the source lacks: clock"),
        ("e", "doubtful", "doubtful data: odd"),
        ("f", "refused", "InputError: no such box"),
    ]


UNEXPLAINED = """
publication: some-paper
document: "Some paper, 2026"
tables:
  - id: t
    family: copies
    bench: {topology: rtx6000-pcie3, benchmark: copy, source: dram, target: gpu, initiator: gpu0}
    columns: [id, unexplained, "= bandwidth [GB/s]"]
    rows:
      - [told, "a slot of half the width", 6]
      - [silent, null, 6]
      - [near, null, 12.3]
"""


def test_an_error_that_no_law_explains_is_printed_with_what_is_known_of_it(tmp_path, capsys):
    (tmp_path / "t.yaml").write_text(UNEXPLAINED)
    assert run(["validate", str(tmp_path / "t.yaml"), "--workers", "1", "--out", ""]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "not explained: +106 %  some-paper/t/told: a slot of half the width" in lines
    assert "off by more than 25 % without a word on why: 1 row (--worst N lists the largest errors)" in lines
    assert not any("near" in item for item in lines if "(measured " not in item)


NOTES = UNEXPLAINED.replace("    columns:", '    unexplained: {"a slow slot": [silent, near.bandwidth]}\n    columns:')


def test_a_table_notes_several_rows_at_once(tmp_path, capsys):
    (tmp_path / "t.yaml").write_text(NOTES)
    assert run(["validate", str(tmp_path / "t.yaml"), "--workers", "1", "--out", ""]) == 0
    out = capsys.readouterr().out
    assert "to +106 %  some-paper/t, 2 values: a slow slot" in out
    assert "not explained: +106 %  some-paper/t/told: a slot of half the width" in out
    assert "without a word" not in out


@pytest.mark.parametrize(
    ("value", "told"), [("{why: [nobody]}", "no row of the table is 'nobody'"), ("{why: told}", "expected a text or a mapping")]
)
def test_notes_name_rows_of_their_table(tmp_path, capsys, value, told):
    (tmp_path / "t.yaml").write_text(UNEXPLAINED.replace("    columns:", f"    unexplained: {value}\n    columns:"))
    assert run(["validate", str(tmp_path / "t.yaml"), "--workers", "1", "--out", ""]) == 2
    assert told in capsys.readouterr().err


def test_verdicts_count_tight_as_fits(report):
    assert report.verdicts == {"fits": {"fits": 2}, "does_not_fit": {"does_not_fit": 1, "fits": 1}}
    assert report.families["fit_verdict"].unweighted_p90_abs_error == 1.0
    assert validation.verdict_accuracy(report) == 0.75


def test_sweeps_compare_ratios(report):
    (sweep,) = [s for s in report.sweeps if s.name.endswith("bandwidth")]
    assert sweep.ratio_errors == (pytest.approx(0), pytest.approx(0))
    assert sweep.rank_correlation == pytest.approx(1)


def test_json_is_finite_and_complete(report):
    body = json.loads(json.dumps(validation_output.to_json(report), allow_nan=False))
    assert set(body) == {"overall", "families", "verdicts", "ratios", "rows", "skipped"}
    assert body["overall"]["n"] == 4  # verdicts are not relative errors
    assert body["rows"][0] == {
        "id": "some-paper/t/a.bandwidth", "family": "copies", "predicted": 11e9, "measured": 10e9, "unit": "GB/s",
        "error": pytest.approx(0.1),
    }  # fmt: skip


def test_the_guard_allows_one_point_and_no_more(report, tmp_path: Path):
    path = tmp_path / "reference.csv"
    lines = validation_output.reference_lines(report, "fast")
    path.write_text(validation_output.as_csv(validation_output.REFERENCE_COLUMNS, lines))
    reference = validation_output.read_reference(path)
    assert validation_output.grown(report, "fast", reference) == []
    median = report.families["copies"].median_abs_error
    assert validation_output.grown(report, "fast", {("fast", "copies"): median - 0.0099}) == []
    (sentence,) = validation_output.grown(report, "fast", {("fast", "copies"): median - 0.0101})
    assert sentence.startswith("copies: median error")


def test_the_table_of_a_page_is_rewritten_between_its_marks(report):
    lines = validation_output.reference_lines(report, "all")
    read = [dict(zip(validation_output.REFERENCE_COLUMNS, map(str, line), strict=True)) for line in lines]
    page = "before\n<!-- accuracy: begin -->\nold\n<!-- accuracy: end -->\nafter\n"
    written = validation_output.with_table(page, read)
    assert "old" not in written
    assert written.startswith("before\n<!-- accuracy: begin -->\n| family |")
    assert written.endswith("<!-- accuracy: end -->\nafter\n")
    assert "| copies | 4 |" in written
    assert validation_output.with_table(written, read) == written


def test_a_page_without_marks_is_refused():
    with pytest.raises(InputError, match="a page without accuracy marks"):
        validation_output.with_table("no marks\n", [])


def test_rows_tell_their_error_as_predicted_without_their_family(report):
    seen, unseen = {o.row.id: o for o in report.outcomes}, validation.report_of(report.outcomes[:1])
    at = validation_output.ROW_COLUMNS.index("unseen_error")
    first, second, *_ = validation_output.row_lines(report, unseen)
    assert first[at] == pytest.approx(seen[first[0]].error, abs=1e-6)
    assert second[at] == ""  # was not predicted without its family
    assert {line[at] for line in validation_output.row_lines(report)} == {""}


def test_the_few_rows_of_a_named_file_are_listed_with_both_values(tmp_path, capsys):
    (tmp_path / "t.yaml").write_text(UNEXPLAINED)
    assert run(["validate", str(tmp_path / "t.yaml"), "--workers", "1", "--out", ""]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "(measured " in line]
    assert [line.split()[0] for line in lines] == sorted((line.split()[0] for line in lines), reverse=True)
    assert [line.split("(")[1] for line in lines[:2]] == [lines[0].split("(")[1]] * 2
    assert all("(measured " in line and line.endswith(" GB/s)") for line in lines)
    assert lines[0].partition("(")[2].startswith("measured 6, predicted 12.3")


@pytest.mark.parametrize("unit", ["tokens/s", "tok/s", "ms", "%", "x", "GB/s"])
def test_units_of_measured_blocks_are_units_of_rows(unit):
    assert si_value(f"3 {unit}")[0] == pytest.approx(3 * factor(unit))
