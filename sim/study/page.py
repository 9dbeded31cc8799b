"""The report of results: question, verdict, machine, tables, pictures, sensitivity, assumptions, on one HTML page.

A results folder is enough: the summary holds the numbers, the folder the pictures, the manifest the inputs; so a report
repeats what a run wrote and simulates nothing, except when sensitivities are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sim import __version__
from sim.config.reference import validation_errors
from sim.errors import Fault, InputError
from sim.report.findings import short_path, short_value
from sim.report.html import Details, Image, Note, Paragraph, Section, Table, page
from sim.report.tables import (
    MAX_POINTS,
    breakdown_table,
    channels_table,
    nearest,
    points_table,
    shortage,
    tiers_table,
    verdict_blocks,
)
from sim.study.compare import Comparison, compare
from sim.study.compare_table import comparison_rows, heads
from sim.study.sensitivity import SensitivityStudy
from sim.study.sources import SUMMARY, candidates_from, read_summary
from sim.units import format_rate, format_seconds

_MAX_COLUMNS = 6
#: resources that change the step by less are left out
_SHOWN = 0.0005
#: picture of a results folder -> what it shows; in the order of the page
PICTURES = {
    "machine.png": "The machine: devices with their memory, links with what one direction carries",
    "step.png": "The step on the slowest rank, stream by stream",
    "breakdown.png": "Where the step's seconds go, beside the same job with everything in the fastest tier",
    "memory.png": "Peak bytes of every memory tier by tensor class",
    "occupancy.png": "Bytes in every tier over the step",
    "channels.png": "What the busiest channels carry over the step",
    "sweep.png": "Time of every point of the sweep",
    "sweep-throughput.png": "Throughput of every point of the sweep",
    "sweep-first-token.png": "Time to the first token of every point of the sweep",
    "sweep-token.png": "Time per output token of every point of the sweep",
    "pool.png": "Hosts that share a pool: memory saved, and what it costs each job",
    "map.png": "The sweep as a map of its two parameters; grey does not fit",
    "crossover.png": "Where one choice overtakes the other; the red line is where the two are equal",
    "pareto.png": "Throughput against price or rated power; the joined points are beaten by none",
}
_ERROR_COLUMNS = ("family", "measurements", "90 % are within")


def report_page(folders: Sequence[Path], sensitivity: SensitivityStudy | None = None) -> str:
    """The page of one or several results folders, the first of which is the baseline.

    Raises InputError for a folder without a summary.json.
    """
    summaries = [read_summary(folder / SUMMARY) for folder in folders]
    sections: list[Section] = []
    if len(folders) > 1:
        sections.append(_comparison(folders))
    for folder, summary in zip(folders, summaries, strict=True):
        prefix = f"{summary['scenario']}: " if len(folders) > 1 else ""
        sections += _sections(folder, summary, prefix)
    if sensitivity is not None:
        sections.append(_sensitivity(sensitivity))
    sections.append(_validation(summaries))
    names = [str(summary["scenario"]) for summary in summaries]
    lead = (
        _paragraphs(str(summaries[0].get("question") or ""))
        if len(folders) == 1
        else f"{names[0]} against {', '.join(names[1:])}"
    )
    return page(" / ".join(names), lead, sections, f"tiersim {__version__}; numbers in SI units, GiB = 2^30 bytes")


def _paragraphs(text: str) -> str:
    """Lines of one paragraph joined; paragraphs stay apart."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _sections(folder: Path, summary: Mapping[str, Any], prefix: str) -> list[Section]:
    points = summary["points"]
    if not points:
        raise InputError(Fault(what="a summary without points", file=str(folder / SUMMARY), remedy="run the scenario again"))
    verdict = verdict_blocks(points[0]) if len(points) == 1 else _points_verdict(points)
    pictures = [Image((folder / name).read_bytes(), caption) for name, caption in PICTURES.items() if (folder / name).is_file()]
    machine = pictures[:1] if (folder / "machine.png").is_file() else []
    sections = [
        Section(f"{prefix}verdict", verdict, f"{prefix}verdict"),
        Section(f"{prefix}machine", [Paragraph(str(summary["machine"])), *machine] if summary.get("machine") else []),
        Section(f"{prefix}memory", [tiers_table(points[0])] if len(points) == 1 else []),
        Section(
            f"{prefix}time",
            [breakdown_table(points[0]), *_path(summary)] if len(points) == 1 and points[0].get("breakdown_s") else [],
        ),
        Section(f"{prefix}channels", [channels_table(points[0])] if len(points) == 1 else []),
        Section(f"{prefix}points", [points_table(points)] if len(points) > 1 else []),
        Section(f"{prefix}pictures", pictures[len(machine) :]),
        Section(f"{prefix}assumptions", _notes(summary)),
        Section(f"{prefix}inputs", _inputs(folder)),
    ]
    return [section for section in sections if section.blocks]


def _points_verdict(points: Sequence[Mapping[str, Any]]) -> list[Any]:
    fitting = [point for point in points if point.get("fits") and point.get("tokens_per_s")]
    counts = f"{len(fitting)} of {len(points)} points fit."
    if not fitting:
        least = nearest(points)
        if least is None:
            return [Note(f"No point fits: {points[0].get('reason', '')}", "bad")]
        return [Note(f"No point fits. {_named(least)} lacks least: {shortage(least)}.", "bad")]
    best = max(fitting, key=lambda point: float(point["tokens_per_s"]))
    return [Note(f"{counts} The fastest is {_named(best)}: {format_rate(best['tokens_per_s'])} tokens/s.", "good")]


def _named(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{short_path(key)} {short_value(value)}" for key, value in point["parameters"].items())


def _path(summary: Mapping[str, Any]) -> list[Table]:
    owners = {name: value for name, value in summary.get("critical_path_s", {}).items() if value > 0}
    total = sum(owners.values())
    rows = [(name, format_seconds(value), f"{100 * value / total:.1f} %") for name, value in owners.items()]
    return [Table(("resource", "time", "share"), rows, "Who owns the critical path")] if rows else []


def _notes(summary: Mapping[str, Any]) -> list[Any]:
    blocks: list[Any] = [Note(str(text)) for text in summary.get("warnings", ())]
    assumed = [(str(text),) for text in summary.get("assumptions", ())]
    if assumed:
        blocks.append(Details(f"{len(assumed)} assumptions, each with its source or reason", [Table(("assumed",), assumed)]))
    return blocks


def _inputs(folder: Path) -> list[Details]:
    path = folder / "manifest.json"
    if not path.is_file():
        return []
    manifest = msgspec.json.decode(path.read_bytes())
    text = msgspec.json.format(msgspec.json.encode(manifest.get("inputs", {})), indent=2).decode()
    rows = [(line,) for line in text.splitlines()]
    return [Details(f"the scenario as it was read (hash {manifest.get('hash', '')})", [Table(("input",), rows)])]


def _comparison(folders: Sequence[Path]) -> Section:
    candidates = [candidate for folder in folders for candidate in candidates_from(str(folder))]
    if len(candidates) > _MAX_COLUMNS:
        return Section("comparison", [Paragraph(f"{len(candidates)} points: see the tables below.")])
    found: Comparison = compare(candidates)
    table = Table(heads(found), comparison_rows(found), f"{found.baseline.name} is the baseline")
    return Section("comparison", [table, *_waterfalls(found)])


def _waterfalls(found: Comparison) -> list[Image]:
    """What accounts for the difference of each candidate that has a time."""
    from sim.report.style import png_of
    from sim.report.waterfall import waterfall_figure

    pictures = []
    for difference in found.differences:
        base, other = difference.baseline, difference.candidate
        parts = [(part.name, part.difference_s) for part in difference.stages if part.difference_s]
        if difference.ratio != difference.ratio or not parts:  # NaN: a side without a time
            continue
        finding = f"{other.name} against {base.name}: {difference.verdict}"
        figure = waterfall_figure((base.name, base.seconds), (other.name, other.seconds), parts, finding=finding)
        pictures.append(Image(png_of(figure), finding))
    return pictures


def _sensitivity(study: SensitivityStudy) -> Section:
    rows = [
        (
            row.knob.name,
            *(f"{100 * change:+.1f} %" for change in (row.low, row.high, row.double)),
            "" if row.is_monotone else "not monotone",
        )
        for row in study.rows
        if row.reach > _SHOWN
    ]
    from sim.report.style import png_of
    from sim.report.tornado import tornado_figure

    share = f"{100 * study.step:.3g} %"
    bars = [(row.knob.name, row.low, row.high) for row in study.rows if row.reach > _SHOWN]
    picture = [Image(png_of(tornado_figure(bars, step_share=study.step, finding=study.finding)), study.finding)] if bars else []
    table = Table(("resource", f"{share} less", f"{share} more", "double", ""), rows, "Change of the step time")
    return Section("sensitivity", [Note(study.finding), *picture, table])


def _validation(summaries: Sequence[Mapping[str, Any]]) -> Section:
    """Validation error of the families; those that a prediction leans on are marked."""
    bases = " ".join(
        str((point.get("uncertainty") or {}).get("basis", ""))
        for summary in summaries
        for point in summary["points"][:MAX_POINTS]
    )
    errors = sorted(validation_errors().items())
    rows = [(name.replace("_", " "), str(error.n), f"{100 * error.p90:.2g} %") for name, error in errors]
    marked = frozenset(index for index, row in enumerate(rows) if f" {row[0]}" in bases)
    return Section(
        "validation",
        [Table(_ERROR_COLUMNS, rows, "Error against published measurements; marked: what these predictions use", marked)]
        if rows
        else [Paragraph("No reference of the validation is at hand.")],
    )
