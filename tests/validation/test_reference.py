"""The committed summary of the validation: predictions do not get worse unnoticed, and the README quotes it."""

import csv
from pathlib import Path

from sim.study.row_files import read_rows
from sim.study.validation import run_rows
from sim.study.validation_output import grown, read_reference, with_table
from sim.study.validation_rows import FAMILIES

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference" / "validation.csv"


def test_the_fast_rows_are_predicted_as_well_as_the_reference_says():
    rows = [row for row in read_rows([ROOT / "scenarios" / "validation"]) if row.is_fast]
    report = run_rows(rows)
    assert grown(report, "fast", read_reference(REFERENCE)) == []
    assert not [item for item in report.skipped if item.kind == "refused"]


def test_every_family_has_a_line_in_the_reference():
    assert {family for name, family in read_reference(REFERENCE) if name == "all"} == {*FAMILIES, "overall"}


def test_the_readme_quotes_the_reference():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    with REFERENCE.open(encoding="utf-8", newline="") as stream:
        assert with_table(page, csv.DictReader(stream)) == page
