"""Every report of a user, typed as a scenario, has the verdict, the direction and the size that its table says."""

from __future__ import annotations

import pytest

from tests.user_reports import PAGE, RESULTS, UserReport, answer, reports

_REPORTS = reports()


@pytest.mark.parametrize("report", _REPORTS, ids=[report.id for report in _REPORTS])
def test_a_report_is_answered_as_its_table_says(report: UserReport) -> None:
    answers = [(dict(claim), answer(report, claim)) for claim in report.expectations]
    assert answers
    assert not [(claim, said.text) for claim, said in answers if not said.holds]


def test_the_page_has_every_report_with_its_result() -> None:
    """`python -m tests.user_reports` writes it; its numbers may be those of an earlier day."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if " | " in line][1:]
    written = {row[0].removeprefix("| "): row[-1].split("**")[1] for row in rows}
    assert written == {report.id: report.fields["result"] for report in _REPORTS}


def test_what_does_not_agree_says_why() -> None:
    assert all(report.fields["result"] in RESULTS for report in _REPORTS)
    assert not [report.id for report in _REPORTS if report.fields["result"] != "agrees" and "why" not in report.fields]


def test_a_claim_that_fails_is_held_to_failing() -> None:
    report = next(report for report in _REPORTS if any(claim.get("fails") for claim in report.expectations))
    claim = next(claim for claim in report.expectations if claim.get("fails"))
    assert answer(report, claim).holds
    assert not answer(report, {**claim, "fails": False}).holds
