"""`tiersim validate`: predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sim.study.validation import Outcome, Report
    from sim.study.validation_rows import Row

#: error from which a row ought to say what is known of it
_FAR = 0.25
#: so many rows of files that are named are listed one by one
_FEW = 12


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables, scenarios with `measured:`, or folders of them; default: the built-in ones.", show_default=False
        ),
    ] = None,
    family: Annotated[str, typer.Option(help="Only the rows of this family.")] = "",
    is_fast: Annotated[bool, typer.Option("--fast", help="Only the guard's subset (seconds instead of minutes).")] = False,
    worst: Annotated[int, typer.Option(help="Print this many rows with the largest errors.")] = 0,
    out: Annotated[str, typer.Option(help="Folder for CSV tables and plots; empty = none.")] = "results/validation",
    is_left_out: Annotated[
        bool, typer.Option("--left-out", help="Also predict each family with constants fitted without it.")
    ] = False,
    reference: Annotated[str, typer.Option(help="Write the summary to this CSV (the committed reference).")] = "",
    readme: Annotated[str, typer.Option(help="With --reference: rewrite the accuracy table of this page.")] = "",
    article: Annotated[str, typer.Option(help="Judge the article's claims instead, and write the page to this file.")] = "",
    workers: Annotated[int, typer.Option(help="Processes; default one per CPU.")] = 0,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Run published measurements, or your own, through the simulator and print the error by family.

    Example: tiersim validate scenarios/validation/collectives

    Example: tiersim validate my-run.yaml, a scenario with measured: [{metric: step_time, value: 71 s, source: my log}]
    """
    import json

    from sim.config import data_folder

    if article:
        _judge_article(paths, article)
        return
    from sim.study.row_files import read_rows
    from sim.study.validation_output import chosen_family, to_json

    rows = read_rows(paths or [data_folder() / "scenarios" / "validation"])
    if family:
        rows = [row for row in rows if row.family == chosen_family(family)]
    if is_fast:
        rows = [row for row in rows if row.is_fast]
    report, unseen = _predict(rows, workers, is_left_out=is_left_out)
    if reference:
        _write_reference(report, unseen, reference, readme, rows_are_fast=is_fast)
    if out:
        _write_folder(report, unseen, out)
    if is_json:
        typer.echo(json.dumps(to_json(report)))
        return
    _print_table(report, unseen)
    if family and chosen_family(family) == "fit_verdict":
        _print_cases(report)
    else:
        _print_skipped(report)
        _print_unexplained(report)
    few = len(report.outcomes) if paths and len(report.outcomes) <= _FEW else 0
    for outcome in sorted(report.outcomes, key=lambda o: -abs(o.error))[: worst or few]:
        typer.echo(f"{100 * outcome.error:+8.1f} %  {outcome.row.id}{_beside(outcome)}")


def _beside(outcome: Outcome) -> str:
    """Both values of a row, in the unit in which it was measured."""
    from sim.study.validation_rows import factor

    row = outcome.row
    if row.verdict or not isinstance(outcome.predicted, float):
        return ""
    one = factor(row.unit)
    unit = "" if row.unit == "1" else f" {row.unit}"
    return f"  (measured {_shown(row.measured / one)}, predicted {_shown(outcome.predicted / one)}{unit})"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _predict(rows: Sequence[Row], workers: int, *, is_left_out: bool) -> tuple[Report, Report | None]:
    """Reports of the rows, and of the rows with constants fitted without their family; a bar shows how far it is."""
    from rich.console import Console
    from rich.progress import Progress

    from sim.study.validation import left_out, run_rows

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("predicting", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        report = run_rows(rows, num_workers=workers, on_progress=show)
        if not is_left_out:
            return report, None
        bar.reset(task, description="predicting what was held out")
        return report, left_out(rows, num_workers=workers, on_progress=show)


def _print_table(report: Report, unseen: Report | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from sim.study.validation_output import to_json

    body = to_json(report)
    held = to_json(unseen) if unseen else None
    table = Table(title="Error against published measurements (rows weighted, a publication at most 20 % of its family)")
    columns = ["family", "rows", "median", "p90", *(["unseen", "p90"] if held else [])]
    for column in (*columns, "worst", "bias", "±10 %", "±25 %", "rank", "ratio", "skipped"):
        table.add_column(column, justify="left" if column == "family" else "right")
    ratios = body["ratios"]["median_abs_error"]
    overall = {**body["overall"], "rank_correlation": None, "ratio_median_abs_error": ratios, "skipped": len(report.skipped)}
    for name, s in {**body["families"], "overall": overall}.items():
        if name == "overall":
            table.add_section()
        h = (held["overall"] if name == "overall" else held["families"][name]) if held else None
        table.add_row(
            name.replace("_", " "), str(s["n"]), _percent(s["median_abs_error"]), _percent(s["p90_abs_error"]),
            *([_percent(h["median_abs_error"]), _percent(h["p90_abs_error"])] if h else []),
            _percent(s["worst_abs_error"]), _percent(s["bias"], "+"), _percent(s["within_10"], digits=0),
            _percent(s["within_25"], digits=0), "" if s["rank_correlation"] is None else f"{s['rank_correlation']:.2f}",
            _percent(s["ratio_median_abs_error"]), str(s["skipped"]),
        )  # fmt: skip
    Console(width=134 if held else 118).print(table)
    for measured, predicted in report.verdicts.items():
        counts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in predicted.items())
        typer.echo(f"measured {measured.replace('_', ' ')}: predicted {counts}")


def _print_cases(report: Report) -> None:
    """Each report of a fit or misfit beside what was predicted, and the input that the others lack."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("case", "reported", "predicted", ""):
        table.add_column(column)
    for outcome in report.outcomes:
        words = (str(word).replace("_", " ") for word in (outcome.row.verdict, outcome.predicted))
        table.add_row(outcome.row.id, *words, "wrong" if outcome.error else "")
    for item in report.skipped:
        table.add_row(item.row.id, item.row.verdict.replace("_", " "), "not judged", item.reason)
    Console(width=150).print(table)


def _print_skipped(report: Report) -> None:
    reasons: dict[str, int] = {}
    for item in report.skipped:
        reasons[item.reason] = reasons.get(item.reason, 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1]):
        typer.echo(f"skipped {count:4d}: {reason}")


def _print_unexplained(report: Report) -> None:
    """Rows far off: each that says what is known of its error, and how many say nothing."""
    from sim.study.validation_notes import lines

    far = [o for o in report.outcomes if not o.row.verdict and abs(o.error) > _FAR]
    for line in lines((o.row.unexplained, o.row.table, o.row.id, o.error) for o in report.outcomes if o.row.unexplained):
        typer.echo(line)
    if silent := sum(not outcome.row.unexplained for outcome in far):
        rows = "1 row" if silent == 1 else f"{silent} rows"
        typer.echo(f"off by more than {100 * _FAR:.0f} % without a word on why: {rows} (--worst N lists the largest errors)")


def _percent(value: float | None, sign: str = "", digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:{sign}.{digits}f} %"


def _write_folder(report: Report, unseen: Report | None, out: str) -> None:
    from sim.config.results_folder import ResultsFolder
    from sim.report import validation as pictures
    from sim.study.validation_output import REFERENCE_COLUMNS, ROW_COLUMNS, reference_lines, row_lines, to_json

    folder = ResultsFolder(out)
    held = reference_lines(unseen, "left_out") if unseen else []
    folder.rows("validation.csv", REFERENCE_COLUMNS, [*reference_lines(report, "all"), *held])
    folder.rows("rows.csv", ROW_COLUMNS, row_lines(report, unseen))
    folder.rows(
        "skipped.csv",
        ("id", "family", "kind", "reason", "citation"),
        [(s.row.id, s.row.family, s.kind, s.reason, s.row.citation) for s in report.skipped],
    )
    folder.json("validation.json", to_json(report))
    pairs: dict[str, list[tuple[float, float, str]]] = {}
    errors: dict[str, list[float]] = {}
    for o in report.outcomes:
        if isinstance(o.predicted, float) and not o.row.verdict:
            pairs.setdefault(o.row.family, []).append((o.predicted, o.row.measured, o.row.unit))
            errors.setdefault(o.row.family, []).append(o.error)
    folder.draw("parity.png", lambda path: pictures.parity(pairs, path))
    folder.draw("errors_by_family.png", lambda path: pictures.errors_by_family(errors, path))


def _write_reference(report: Report, unseen: Report | None, path: str, readme: str, *, rows_are_fast: bool) -> None:
    import csv
    import io
    from pathlib import Path

    from sim.study.validation import report_of
    from sim.study.validation_output import REFERENCE_COLUMNS, as_csv, reference_lines, with_table

    fast = report_of([o for o in report.outcomes if o.row.is_fast], [s for s in report.skipped if s.row.is_fast])
    lines = [] if rows_are_fast else reference_lines(report, "all")
    lines += reference_lines(unseen, "left_out") if unseen else []
    text = as_csv(REFERENCE_COLUMNS, [*lines, *reference_lines(fast, "fast")])
    if readme:
        page = Path(readme)
        page.write_text(with_table(page.read_text(encoding="utf-8"), csv.DictReader(io.StringIO(text))), encoding="utf-8")
    Path(path).write_text(text, encoding="utf-8")


def _judge_article(paths: list[str] | None, page_path: str) -> None:
    from pathlib import Path

    from sim.config import data_folder
    from sim.study.article import judge, page

    files = [Path(path) for path in paths or []] or sorted((data_folder() / "scenarios" / "article").glob("*.yaml"))
    judged = judge(files)
    Path(page_path).write_text(page(judged), encoding="utf-8")
    for item in judged:
        typer.echo(f"{item.claim['id']}  {item.claim['verdict']:<15} {item.file.name}")
