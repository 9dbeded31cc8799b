"""`tiersim run`: simulate scenarios, print the answer, write the results folder."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sim.config import ScenarioFile
    from sim.experiment import Result
    from sim.study.budget import Budget


def command(
    scenarios: Annotated[list[str], typer.Argument(help="Scenario files or built-in names.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder that gets one results folder per scenario.")] = Path("results"),
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    save_trace: Annotated[Path | None, typer.Option(help="Write the step as a trace file (JSON Lines).")] = None,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Write no pictures.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every invariant of the replay.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the critical path and who owns it.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show the simulated machine second by second.")] = False,
    workers: Annotated[int, typer.Option(help="Processes of a sweep; default one per CPU.", min=0, show_default=False)] = 0,
    cluster: Annotated[str, typer.Option(help="Dask: local:N or a scheduler's address.", show_default=False)] = "",
) -> int:
    """Simulate scenarios: does it fit, how fast is a step, what does offload cost, what binds?

    Example: tiersim run a12-reference-box --out results
    """
    from sim.config import load_scenario

    files = [load_scenario(name) for name in scenarios]
    _refuse_equal_names(files)
    if watch:
        _refuse_sweeps(files)
    answers: list[dict[str, Any]] = []
    codes: list[int] = []
    for file in files:
        if file.sweep or file.search:
            from sim.cli.sweep import run_sweep

            answer, code = run_sweep(
                file, out / file.name, is_json=is_json, has_plots=not no_plots, workers=workers, cluster=cluster
            )
        else:
            shown = _Shown(is_json=is_json, has_plots=not no_plots, verify=verify, explain=explain, watch=watch)
            answer, code = _run_one(file, out / file.name, shown, trace=save_trace)
        answers.append(answer)
        codes.append(code)
    if is_json:
        import json

        typer.echo(json.dumps(answers[0] if len(answers) == 1 else answers, indent=2))
    return max(codes)


def _refuse_equal_names(files: list[ScenarioFile]) -> None:
    from sim.errors import Fault, InputError

    seen: dict[str, str] = {}
    for file in files:
        if file.name in seen:
            what = f"the scenario name {file.name!r} is taken by {seen[file.name]}"
            raise InputError(Fault(what=what, file=file.document.file, remedy="results would overwrite each other: rename one"))
        seen[file.name] = file.document.file


def _refuse_sweeps(files: list[ScenarioFile]) -> None:
    from sim.errors import Fault, InputError

    faults = [
        Fault(what="--watch shows one step, and this is a sweep", file=file.document.file, remedy="write the point into a file")
        for file in files
        if file.sweep
    ]
    if faults:
        raise InputError(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What a run shows and checks: the switches of the command line."""

    is_json: bool
    has_plots: bool
    verify: bool
    explain: bool
    watch: bool


def _run_one(file: ScenarioFile, folder: Path, shown: _Shown, *, trace: Path | None) -> tuple[dict[str, Any], int]:
    from dataclasses import replace

    from sim.cli.outputs import write_run
    from sim.config.results_folder import ResultsFolder
    from sim.experiment import run
    from sim.experiment.preparing import with_homes
    from sim.study.measured import beside
    from sim.study.validation_predict import needs_whole

    results = ResultsFolder(folder)  # before the work: an unwritable folder is found at once
    started = time.process_time(), time.perf_counter()
    scenario = file.resolve()
    level = "full" if shown.has_plots or shown.verify or shown.watch else scenario.options.level
    is_whole = trace is not None or needs_whole(entry.metric for entry in scenario.measured)
    options = replace(scenario.options, level=level, verify=shown.verify or scenario.options.verify, is_whole=is_whole)
    with file.places_faults():
        result = run(replace(scenario, options=options))
        compared = beside(result)
    seconds = {"cpu": time.process_time() - started[0], "wall": time.perf_counter() - started[1]}
    if trace is not None:
        from sim.interchange.step_file import write_step

        write_step(with_homes(result.step, result.scenario.job), trace)
    budget = _budget(file, result)
    if shown.watch:
        from sim.cli.watch import print_watch

        print_watch(result)
    if not shown.is_json:
        from sim.cli.printing import print_result
        from sim.cli.terminal import console

        print_result(result, console(), budget=budget, measured=compared, is_explained=shown.explain)
    point = result.point() | ({"budget": budget.to_json()} if budget is not None else {})
    point |= {"measured": [item.to_json() for item in compared]} if compared else {}
    written = write_run(result, point, file, results, has_plots=shown.has_plots, seconds=seconds)
    print(f"{folder}: {', '.join(written)}", file=sys.stderr)  # noqa: T201 - messages go to standard error
    return {"scenario": file.name, "points": [point]}, 0 if result.fits else 1


def _budget(file: ScenarioFile, result: Result) -> Budget | None:
    """Hours, energy and money of a training job that names its data set or prices; None for any other."""
    from sim.workload.training import Training

    job = result.scenario.jobs[0].workload
    if result.jobs or not isinstance(job, Training) or not (job.dataset or file.prices):
        return None
    from sim.study.budget import budget_of
    from sim.study.sources import prices_of

    return budget_of(result.scenario, result.summary.step_time_s, prices_of(file))
