"""The step as a timeline: one row per stream, compute above the transfers that feed it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from sim.metrics.breakdown import busy_interval, rank_of
from sim.records import Program, Replay, Stream
from sim.report.findings import time_label, what_is_shown
from sim.report.style import COLOURS, figure, legend_below, patches, plain, save, seconds_axis, titled
from sim.units import format_seconds

_ROLES = (
    "compute", "exchange", "collective", "p2p", "h2d", "d2h", "cpu", "storage", "late_cpu", "late_h2d", "late_storage", "saver",
    "input", "loader", "launcher", "reader",
)  # fmt: skip
_LABELS = {
    "h2d": "copy to GPU", "d2h": "copy to host", "cpu": "CPU", "p2p": "GPU to GPU", "exchange": "inside a layer",
    "loader": "data loader", "launcher": "training process", "reader": "sample reader",
    "input": "copy of batches", "saver": "checkpoint writer", "late_cpu": "CPU, update before",
    "late_h2d": "copy to GPU, update before", "late_storage": "storage, update before",
}  # fmt: skip
#: bars closer than this share of the width are drawn as one
_MERGE = 1 / 3000
#: the thinnest bar, as a share of the width: thinner ones vanish between two points of the picture
_THINNEST = 1 / 1200
#: more rank classes than this and only the slowest ones are drawn
MAX_RANKS = 6


def timeline_figure(program: Program, replay: Replay, *, finding: str) -> Any:
    """Gantt chart of one replay; at most MAX_RANKS rank classes, those that end last."""
    total_s = replay.makespan_s
    factor, unit = seconds_axis(total_s)
    rows = _rows(program, replay)
    bars = _bars(program, replay, total_s)
    fig = figure(11.0, 1.9 + 0.34 * len(rows))
    axes = fig.add_subplot()
    used: set[str] = set()
    previous = None
    for index, stream in enumerate(rows):
        for category, spans in bars.get(stream.name, {}).items():
            used.add(category)
            thinnest = total_s * _THINNEST
            scaled = [(start * factor, max(end - start, thinnest) * factor) for start, end in spans]
            axes.broken_barh(scaled, (index - 0.4, 0.8), facecolors=COLOURS[category], linewidth=0)
        rank = rank_of(stream.name)
        if previous is not None and rank != previous:
            axes.axhline(index - 0.5, color="#888888", linewidth=0.8)
        previous = rank
    axes.set_yticks(range(len(rows)), [_label(stream, rows) for stream in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, total_s * factor)
    axes.set_xlabel(time_label(program, unit), fontsize=9)
    plain(axes)
    hidden = len({rank_of(stream.name) for stream in program.streams if stream.role != "clock"}) - len(
        {rank_of(stream.name) for stream in rows}
    )
    note = f"; {hidden} more rank classes not drawn" if hidden else ""
    titled(fig, finding, f"{what_is_shown(program)}, {format_seconds(total_s)}; one row per stream{note}")
    names = {"idle": "framework overhead"}  # an operation that no resource explains
    categories = [category for category in COLOURS if category in used]
    keys = [(COLOURS[category], names.get(category, category.replace("_", " "))) for category in categories]
    legend_below(fig, patches(keys), [label for _colour, label in keys], num_columns=7)
    return fig


def draw_timeline(program: Program, replay: Replay, path: Path, *, finding: str) -> Path:
    """As :func:`timeline_figure`, into a file."""
    return save(timeline_figure(program, replay, finding=finding), path)


def _rows(program: Program, replay: Replay) -> list[Stream]:
    """Streams that ran something, by rank class and role; of many rank classes, those that end last."""
    streams = {operation.id: operation.stream for operation in program.operations}
    ends: dict[str, float] = defaultdict(float)
    active = set()
    for record in replay.operations:
        if record.end_s > record.ready_s:
            active.add(streams[record.id])
            rank = rank_of(streams[record.id])
            ends[rank] = max(ends[rank], record.end_s)
    ranks = sorted(sorted(ends, key=lambda rank: (-ends[rank], rank))[:MAX_RANKS])
    order = {role: index for index, role in enumerate(_ROLES)}
    rows = [
        stream
        for stream in program.streams
        if stream.name in active and stream.role != "clock" and rank_of(stream.name) in ranks  # a clock shows no work
    ]
    return sorted(rows, key=lambda stream: (ranks.index(rank_of(stream.name)), order.get(_role(stream), 99), stream.name))


def _role(stream: Stream) -> str:
    return stream.role or stream.name.rsplit(".", 1)[-1]


def _label(stream: Stream, rows: list[Stream]) -> str:
    """``GPU compute``, ``copy to host (2 ranks)``; the rank class is named where there are several."""
    role = _role(stream)
    text = _LABELS.get(role, role)
    if len({rank_of(row.name) for row in rows}) > 1:
        text = f"{rank_of(stream.name)}  {text}"
    return f"{text} (x{stream.multiplicity})" if stream.multiplicity > 1 else text


def _bars(program: Program, replay: Replay, total_s: float) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Stream -> category -> (start, end), with bars that would touch on paper put together."""
    by_id = {operation.id: operation for operation in program.operations}
    bars: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    gap = total_s * _MERGE
    for record in sorted(replay.operations, key=lambda record: record.start_s):
        operation = by_id[record.id]
        start, end = busy_interval(operation, record)
        if end <= start:
            continue
        spans = bars[operation.stream][operation.category]
        if spans and start - spans[-1][1] < gap:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return bars
