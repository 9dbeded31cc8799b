"""Reports of users as scenarios: what each saw, what tiersim says, whether they agree. Tables: scenarios/reports/*.yaml.

`python -m tests.user_reports` runs all of them and writes docs/user-reports.md; the tests run the same tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from sim.config import read_yaml, scenario_of
from sim.errors import InputError
from sim.experiment import run
from sim.study.fit import Fit, assess
from sim.study.row_files import read_rows
from sim.study.validation_predict import predict
from sim.study.validation_rows import factor, merge, set_path
from sim.units import format_bytes, format_seconds

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "scenarios" / "reports"
PAGE = ROOT / "docs" / "user-reports.md"
RESULTS = ("agrees", "partly", "no", "not judged")
_KEYS = {"where", "asks", "saw", "table", "scenario", "bench", "cases", "expect", "result", "why"}
_BYTES = ("gpu_allocated", "gpu_init_peak", "gpu_reserved", "gpu_peak", "host_peak", "host_init_peak", "host_load_peak")
_SECONDS = ("step_time", "forward", "backward", "update", "time_to_first_token", "time_per_output_token", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserReport:
    """One report: the user's words in ours, its cases (name -> kind and inputs), and what is expected of them."""

    id: str
    fields: Mapping[str, Any]
    cases: Mapping[str, tuple[str, Mapping[str, Any]]]

    @property
    def expectations(self) -> list[Mapping[str, Any]]:
        """What tiersim is held to, one claim each."""
        return list(self.fields.get("expect", ()))


@dataclass(frozen=True, slots=True)
class Answer:
    """What tiersim says about one expectation, in words, and whether that is what the expectation holds it to."""

    text: str
    holds: bool


def reports() -> list[UserReport]:
    """All reports of all tables, in order; ValueError for a key that no report has."""
    found = []
    for file in sorted(TABLES.glob("*.yaml")):
        for name, fields in read_yaml(file).data.items():
            if unknown := set(fields) - _KEYS:
                raise ValueError(f"{file.name}: {name}: unknown keys {', '.join(sorted(unknown))}")
            found.append(UserReport(id=name, fields=fields, cases=dict(_cases(fields))))
    return found


def _cases(fields: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Mapping[str, Any]]]]:
    if "table" in fields:
        for row in _table(fields["table"]):
            yield row.id.split("/", 1)[1].removesuffix("." + row.metric), (row.kind, row.inputs)
    for kind in ("scenario", "bench"):
        if kind in fields:
            for name, changes in fields.get("cases", {"run": {}}).items():
                inputs = merge({}, fields[kind])
                for path, value in changes.items():
                    set_path(inputs, path, value)
                yield name, (kind, inputs)


@cache
def _table(name: str) -> list[Any]:
    return read_rows([ROOT / "scenarios" / "validation" / f"{name}.yaml"])


def answer(report: UserReport, claim: Mapping[str, Any]) -> Answer:
    """Ask tiersim what one expectation is about; `fails: true` holds it to what is known to be off.

    KeyError names a case that the report does not have.
    """
    said = _asked(report, claim)
    return Answer(said.text, not said.holds) if claim.get("fails") else said


def _asked(report: UserReport, claim: Mapping[str, Any]) -> Answer:
    if "test" in claim:
        return Answer(f"test `{claim['test'].split('::')[-1]}`", _exists(claim["test"]))
    if "doc" in claim:
        return Answer(f"said in {claim['doc']}", claim["says"] in (ROOT / claim["doc"]).read_text())
    kind, inputs = report.cases[claim["of"]]
    if "refused" in claim:
        return _refused(inputs, claim)
    if "verdict" in claim:
        return _verdict(inputs, claim)
    if "says" in claim:
        return _says(inputs, claim)
    return _number(report, kind, inputs, claim)


def _exists(node: str) -> bool:
    """Whether a test of this name stands in this file."""
    file, name = node.split("::")
    return f"def {name}(" in (ROOT / file).read_text()


def _refused(inputs: Mapping[str, Any], claim: Mapping[str, Any]) -> Answer:
    try:
        run(scenario_of({**inputs, "name": "report"}).resolve(), with_penalty=False)
    except InputError as error:
        text = "; ".join(f"{fault.what}; {fault.remedy}" for fault in error.faults)
        return Answer(f"refuses: {error.faults[0].what}", claim["refused"] in text)
    return Answer("runs", False)


def _fit(inputs: Mapping[str, Any]) -> Fit:
    return assess(scenario_of({**inputs, "name": "report"}).resolve())


def _verdict(inputs: Mapping[str, Any], claim: Mapping[str, Any]) -> Answer:
    """Right side of the capacity; of a misfit also in which tier, by how much, and due to which tensor."""
    fit = _fit(inputs)
    fits = fit.verdict != "does_not_fit"
    text = f"{claim['of']}: {fit.verdict.replace('_', ' ')}"
    need = fit.tightest if fits else fit.misfits[0]
    if need is not None:
        text += f", {need.tier} {format_bytes(need.peak_bytes)} of {format_bytes(need.capacity_bytes)}"
        text += "" if fits or not need.largest else f" ({need.phase}: {need.largest[0].name})"
    holds = fits == (claim["verdict"] == "fits")
    if "tier" in claim:
        holds = holds and not fits and claim["tier"] in {item.tier for item in fit.misfits}
    if "for" in claim:
        holds = holds and not fits and any(claim["for"] in term.name for term in fit.misfits[0].largest)
    return Answer(text, holds)


def _says(inputs: Mapping[str, Any], claim: Mapping[str, Any]) -> Answer:
    """Whether a run's or a plan's own words hold the explanation."""
    scenario = scenario_of({**inputs, "name": "report"}).resolve()
    result = run(scenario, with_penalty=False)
    words = [*result.assumptions, *result.warnings, result.reason, f"binds {result.summary.bound_by}"]
    words += [*result.scenario.machine.warnings]
    if not result.fits and len(scenario.jobs) == 1:
        fit = assess(scenario)
        words += [*fit.notes, *(item.change for item in fit.suggestions)]
        words += [f"{term.name} = {term.formula}" for need in fit.misfits for term in need.largest]
    line = next((word for word in words if claim["says"] in word), "")
    return Answer(f"{claim['of']}: {line or 'nothing of it'}", bool(line))


def _number(report: UserReport, kind: str, inputs: Mapping[str, Any], claim: Mapping[str, Any]) -> Answer:
    """A value within a factor of the reported one, or the ratio of two cases."""
    metric, within = claim["metric"], float(claim.get("within", 1.5))
    value = float(_predicted(kind, inputs, metric))
    if "to" in claim:
        value /= float(_predicted(*report.cases[claim["to"]], metric))
        measured, text = float(claim["is"]), f"{claim['of']} / {claim['to']}: {value:.3g} x"
    else:
        measured, text = _si(claim["is"]), f"{claim['of']}: {metric.replace('_', ' ')} {_shown(metric, value)}"
    return Answer(f"{text} (reported {claim['is']})", 1 / within <= value / measured <= within)


def _predicted(kind: str, inputs: Mapping[str, Any], metric: str) -> float | str:
    if metric == "gpu_init_peak":  # what nvidia-smi shows before the first step
        return _fit(inputs).footprint.peak("gpu", ("load", "init")).size_bytes
    return predict(kind, inputs, [metric])[metric]


def _si(value: Any) -> float:
    number, _, unit = str(value).partition(" ")
    return float(number) * (factor(unit) if unit else 1.0)


def _shown(metric: str, value: float) -> str:
    if metric in _BYTES:
        return format_bytes(value)
    if metric in _SECONDS:
        return format_seconds(value)
    return f"{value / 1e9:.3g} GB/s" if metric.endswith("bandwidth") else f"{value:.3g}"


def line_of(report: UserReport) -> tuple[str, list[str]]:
    """The report's row of the page, and what does not hold."""
    answers = [(claim, answer(report, claim)) for claim in report.expectations]
    wrong = [f"{report.id}: {said.text}, expected {dict(claim)}" for claim, said in answers if not said.holds]
    fields = report.fields
    said = "; ".join(said.text for _, said in answers).replace("|", "/")
    why = f": {fields['why']}" if "why" in fields else ""
    cells = [report.id, fields["where"], fields["asks"], fields["saw"], said or "-", f"**{fields['result']}**{why}"]
    return "| " + " | ".join(" ".join(str(cell).split()) for cell in cells) + " |", wrong


def page(lines: list[tuple[str, str]]) -> str:
    """The page of all reports: (result, row) each."""
    counts = ", ".join(f"{sum(result == word for result, _ in lines)} {word}" for word in RESULTS)
    out = StringIO()
    out.write("# Reports of users\n\n")
    out.write("Questions from public issues, typed as scenarios the way their authors would, and what tiersim answers. ")
    out.write("Generated by\n`python -m tests.user_reports` from `scenarios/reports/*.yaml`; ")
    out.write("`tests/validation/test_user_reports.py` holds every answer to what was seen.\n\n")
    out.write(f"{len(lines)} reports: {counts}. *Partly*: the direction is right, the size or one part is not. ")
    out.write("*Not judged*: the report names too little.\n\n")
    out.write("| id | where | asked | seen | tiersim says | verdict |\n|---|---|---|---|---|---|\n")
    out.writelines(row + "\n" for _, row in lines)
    return out.getvalue()


def main() -> int:
    """Run every report, write the page; 1 if an answer is not what the tables expect."""
    lines, wrong = [], []
    for report in reports():
        row, found = line_of(report)
        lines.append((report.fields["result"], row))
        wrong += found
    PAGE.write_text(page(lines), encoding="utf-8")
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
