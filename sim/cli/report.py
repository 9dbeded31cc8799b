"""`tiersim report`: results as one self-contained HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    results: Annotated[list[Path], typer.Argument(help="Results folders; the first is the baseline.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The page; default report.html in the first folder.", show_default=False)
    ] = None,
    sensitivity: Annotated[
        str, typer.Option(help="Also measure what each resource of this scenario is worth.", show_default=False)
    ] = "",
) -> int:
    """Write one HTML page about results that `tiersim run` wrote: no network, no script, light and dark, for any screen.

    Example: tiersim report results/a12-reference-box --sensitivity a12-reference-box
    """
    from sim.config.results_folder import ResultsFolder
    from sim.study.page import report_page

    study = None
    if sensitivity:
        from sim.config import load_scenario
        from sim.study.sensitivity import sensitivity as measure

        study = measure(load_scenario(sensitivity))
    text = report_page(results, study)
    target = out or results[0] / "report.html"
    ResultsFolder(target.parent).draw(target.name, lambda path: path.write_text(text, encoding="utf-8"))
    print(target, file=sys.stderr)  # noqa: T201 - messages go to standard error
    return 0
