"""A validation report as JSON, CSV rows and the committed reference; and the comparison of two references."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.errors import Fault, InputError
from sim.metrics.errors import ErrorSummary, summarise
from sim.study.validation import Report, verdict_accuracy
from sim.study.validation_rows import FAMILIES

#: columns of the reference: one line per family and set ("all" rows, the "fast" subset)
REFERENCE_COLUMNS = (
    "set", "family", "n", "skipped", "median_abs_error", "p90_abs_error", "worst_abs_error", "bias", "within_10", "within_25",
    "rank_correlation", "ratio_median_abs_error",
)  # fmt: skip
ROW_COLUMNS = (
    "id", "family", "publication", "predicted", "measured", "unit", "error", "unseen_error", "confidence", "sweep", "citation",
    "assumptions",
)  # fmt: skip
#: what a page has around its table of errors
TABLE_MARKS = ("<!-- accuracy: begin -->", "<!-- accuracy: end -->")
_TABLE_CELLS = (
    ("median_abs_error", ""), ("p90_abs_error", ""), ("bias", "+"), ("within_25", ""), ("ratio_median_abs_error", ""),
)  # fmt: skip
#: a family's median may grow by this much before the guard fails
MAX_GROWTH = 0.01


def to_json(report: Report) -> dict[str, Any]:
    """Stable names, SI units, errors as fractions."""
    skips = _skips(report)
    return {
        "overall": _summary(report.overall),
        "families": {
            family: _summary(summary) | _of_sweeps(report, family) | {"skipped": skips.get(family, 0)}
            for family, summary in report.families.items()
        },
        "verdicts": {"confusion": report.verdicts, "accuracy": _finite(verdict_accuracy(report))},
        "ratios": {"n": sum(len(s.ratio_errors) for s in report.sweeps), "median_abs_error": _finite(report.ratio_median)},
        "rows": [
            {
                "id": o.row.id,
                "family": o.row.family,
                "predicted": o.predicted,
                "measured": o.row.verdict or o.row.measured,
                "unit": "verdict" if o.row.verdict else o.row.unit,
                "error": _finite(o.error),
            }
            for o in report.outcomes
        ],
        "skipped": [{"id": s.row.id, "family": s.row.family, "kind": s.kind, "reason": s.reason} for s in report.skipped],
    }


def row_lines(report: Report, unseen: Report | None = None) -> list[tuple[object, ...]]:
    """Lines of rows.csv, in `ROW_COLUMNS`; `unseen` holds the predictions by constants fitted without a row's family."""
    held = {o.row.id: round(o.error, 6) for o in unseen.outcomes} if unseen else {}
    return [
        (
            o.row.id, o.row.family, o.row.publication, o.predicted, o.row.verdict or o.row.measured,
            "verdict" if o.row.verdict else o.row.unit, round(o.error, 6), held.get(o.row.id, ""), o.row.confidence,
            o.row.sweep, o.row.citation, "; ".join(o.row.assumptions),
        )
        for o in report.outcomes
    ]  # fmt: skip


def reference_lines(report: Report, name: str) -> list[tuple[object, ...]]:
    """Lines of the reference for one set of rows, in `REFERENCE_COLUMNS`."""
    skips = _skips(report)
    lines: list[tuple[object, ...]] = []
    for family, summary in {**report.families, "overall": report.overall}.items():
        sweeps = _of_sweeps(report, family)
        numbers = (
            summary.median_abs_error, summary.p90_abs_error, summary.worst_abs_error, summary.bias, summary.within_10,
            summary.within_25, sweeps["rank_correlation"], sweeps["ratio_median_abs_error"],
        )  # fmt: skip
        skipped = len(report.skipped) if family == "overall" else skips.get(family, 0)
        rounded = [round(value, 4) if value is not None else "" for value in map(_finite, numbers)]
        lines.append((name, family, summary.n, skipped, *rounded))
    return lines


def with_table(text: str, lines: Iterable[Mapping[str, str]]) -> str:
    """A Markdown page with the table between its accuracy marks rewritten from the lines of a reference (as CSV reads them).

    Raises InputError for a page without the marks.
    """
    before, opening, rest = text.partition(TABLE_MARKS[0])
    _old, closing, after = rest.partition(TABLE_MARKS[1])
    if not (opening and closing):
        raise InputError(Fault(what="a page without accuracy marks", remedy=f"add {TABLE_MARKS[0]} and {TABLE_MARKS[1]}"))
    by_set: dict[str, dict[str, Mapping[str, str]]] = {}
    for line in lines:
        by_set.setdefault(line["set"], {})[line["family"]] = line
    unseen = by_set.get("left_out", {})
    more = ("unseen: median", "unseen: 90 % below") if unseen else ()
    head = ("family", "rows", "median", "90 % below", *more, "bias", "within 25 %", "ratios in a sweep", "skipped")
    table = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for family, line in by_set.get("all", {}).items():
        cells = [_percent_of(line[key], sign) for key, sign in _TABLE_CELLS]
        held = [_percent_of(unseen[family][key]) for key, _ in _TABLE_CELLS[:2]] if unseen else []
        texts = [family.replace("_", " "), line["n"], *cells[:2], *held, *cells[2:], line["skipped"]]
        table.append(f"| {' | '.join(texts)} |")
    return f"{before}{opening}\n{chr(10).join(table)}\n{closing}{after}"


def _percent_of(text: str, sign: str = "") -> str:
    return f"{100 * float(text):{sign}.1f} %" if text else ""


def read_reference(path: Path) -> dict[tuple[str, str], float]:
    """(set, family) -> median |error| of a reference file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return {(line["set"], line["family"]): float(line["median_abs_error"]) for line in csv.DictReader(stream)}


def grown(report: Report, name: str, reference: Mapping[tuple[str, str], float]) -> list[str]:
    """One sentence per family whose median error exceeds the reference by more than `MAX_GROWTH`."""
    found = []
    for family, summary in report.families.items():
        before = reference.get((name, family))
        if before is not None and not summary.median_abs_error <= before + MAX_GROWTH:
            found.append(f"{family}: median error {100 * summary.median_abs_error:.1f} %, was {100 * before:.1f} %")
    return found


def as_csv(columns: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """CSV text."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    return buffer.getvalue()


def chosen_family(name: str) -> str:
    """The family of that name; InputError for an unknown one."""
    if name not in FAMILIES:
        raise InputError(Fault(what=f"unknown family {name!r}", remedy=f"one of {', '.join(FAMILIES)}"))
    return name


def _of_sweeps(report: Report, family: str) -> dict[str, float | None]:
    mine = [sweep for sweep in report.sweeps if family in (sweep.family, "overall")]
    ranks = [sweep.rank_correlation for sweep in mine if math.isfinite(sweep.rank_correlation)]
    ratios = summarise([error for sweep in mine for error in sweep.ratio_errors])
    return {
        "rank_correlation": sum(ranks) / len(ranks) if ranks else None,
        "ratio_median_abs_error": _finite(ratios.median_abs_error),
    }


def _summary(summary: ErrorSummary) -> dict[str, Any]:
    return {key: value if isinstance(value, int) else _finite(value) for key, value in dataclasses.asdict(summary).items()}


def _skips(report: Report) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in report.skipped:
        counts[item.row.family] = counts.get(item.row.family, 0) + 1
    return counts


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
