"""Writes the results folder of a run: tables, records, timeline, pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.config.results_folder import RECORD_COLUMNS, ResultsFolder, digest, point_rows, record_rows, versions

if TYPE_CHECKING:
    from sim.config import ScenarioFile
    from sim.experiment import Result


def write_run(
    result: Result,
    point: dict[str, Any],
    file: ScenarioFile,
    results: ResultsFolder,
    *,
    has_plots: bool,
    seconds: dict[str, float],
) -> list[str]:
    """Write everything about one run into its folder; returns the names of the files. `point` is the run as JSON.

    Pictures need a replay of level full. Raises InputError if the folder cannot be written.
    """
    results.json("summary.json", summary_of(result, [point]))
    results.rows("points.csv", *point_rows([point]))
    results.rows("records.csv", RECORD_COLUMNS, record_rows(result.program, result.replay))
    _write_timeline(result, results)
    if has_plots:
        draw_pictures(result, results)
    results.finish(manifest_of(file, seconds))
    return results.written


def summary_of(result: Result, points: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` prints, with what a reader of the folder also needs."""
    return {
        "scenario": result.scenario.name,
        "points": points,
        "question": result.scenario.question,
        "machine": result.scenario.machine.name,
        "critical_path_s": result.summary.owners_s,
        "assumptions": list(dict.fromkeys(result.assumptions)),
        "warnings": list(result.warnings),
    }


def manifest_of(file: ScenarioFile, seconds: dict[str, float]) -> dict[str, Any]:
    """Inputs, their hash, versions, and what the run cost (the only part that differs between equal runs)."""
    return {
        "scenario": file.name,
        "file": file.document.file,
        "inputs": file.document.data,
        "hash": digest(file.document.data),
        "versions": versions(),
        "seconds": seconds,
    }


def _write_timeline(result: Result, results: ResultsFolder) -> None:
    from sim.interchange.perfetto import write_timeline

    results.draw("timeline.json", lambda path: write_timeline(result.program, result.replay, path))


def draw_pictures(result: Result, results: ResultsFolder) -> None:
    """The pictures of one run, each with a title that states what it shows."""
    from sim.report import bars, findings, gantt, machine_picture, over_time

    name, summary = result.scenario.name, result.summary
    results.draw("machine.png", lambda path: machine_picture.draw_machine(result.scenario.machine, path))
    step = findings.of_step(name, summary, fits=result.fits, subject=result.subject)
    results.draw("step.png", lambda path: gantt.draw_timeline(result.program, result.replay, path, finding=step))
    rows = [(name, summary.breakdown_s)]
    if result.fastest is not None:
        rows.append(("everything in\nthe fastest tier", result.fastest.breakdown_s))
    title = findings.of_breakdown(name, summary.breakdown_s, subject=result.subject)
    results.draw("breakdown.png", lambda path: bars.draw_breakdown(rows, path, finding=title, subject=result.subject))
    tiers = findings.of_tiers(name, summary.tiers)
    results.draw("memory.png", lambda path: bars.draw_tiers(summary.tiers, path, finding=tiers))
    if result.replay.occupancy:
        results.draw(
            "occupancy.png",
            lambda path: over_time.draw_occupancy(result.program, result.replay, summary.tiers, path, finding=tiers),
        )
    if result.replay.segments:
        busiest = findings.of_channels(name, summary.channels)
        results.draw(
            "channels.png",
            lambda path: over_time.draw_channels(result.program, result.replay, summary.channels, path, finding=busiest),
        )
