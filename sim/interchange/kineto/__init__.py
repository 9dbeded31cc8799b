"""PyTorch profiler (Kineto) traces: read, linked, cut into steps, and turned into a `Step`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from sim.errors import Fault, InputError
from sim.interchange.gpu_names import part_of
from sim.interchange.kineto.build import Reading, build_operations, recorded_s, resolve
from sim.interchange.kineto.events import looks_like, read_recording
from sim.interchange.kineto.links import link
from sim.interchange.kineto.steps import Window, find_steps
from sim.interchange.rules import Rule
from sim.records import RankClass, Step

__all__ = ["Reading", "looks_like", "read_rank", "recorded_s", "step_from", "steps_of"]


def read_rank(content: bytes, file: str, rules: tuple[Rule, ...] = ()) -> Reading:
    """One rank's trace, linked and resolved. Raises InputError for what is no trace or holds no GPU work."""
    recording = read_recording(content, file)
    linked = link(recording)
    if not linked.works:
        ranges = sum(event.kind == "range" for event in recording.events)
        what = "has no GPU kernels or copies"
        remedy = "record with ProfilerActivity.CUDA"
        if ranges:
            what += f" ({ranges} CUPTI counter ranges instead)"
            remedy = "record without the CUPTI range profiler: counters replace kernel timings"
        raise InputError(Fault(what=what, remedy=remedy, file=file))
    return resolve(recording, linked, rules)


def steps_of(reading: Reading) -> list[Window]:
    """Steps of a reading that launched GPU work."""
    kept = []
    for window in find_steps(reading.recording):
        calls = [c for c in reading.linked.calls if c.works and window.start_ns <= c.start_ns < window.end_ns]
        orphans = [w for w in reading.linked.works if w.call < 0 and window.start_ns <= w.start_ns < window.end_ns]
        if calls or orphans:
            kept.append(window)
    return kept


def step_from(readings: Sequence[Reading], step: int | None = None) -> Step:
    """One step of one rank, or of several ranks of one job, as a `Step`.

    `step` counts from 0 over the steps found; default: the one of median duration. One rank of a larger job stands for
    all (noted). Raises InputError for mixed jobs, repeated ranks, and a step that does not exist.
    """
    _check_ranks(readings)
    notes: list[str] = []
    counts: Counter[str] = Counter()
    operations, classes, durations = [], [], []
    for position, reading in enumerate(readings):
        windows = steps_of(reading)
        window = _choose(reading, windows, step)
        rank = reading.recording.header.rank
        rank = position if rank is None else rank
        name = f"rank{rank}"
        built, inferred = build_operations(reading, window, name)
        operations += built
        counts += inferred
        durations.append(recorded_s(reading, window))
        num_ranks = max(1, reading.recording.header.world_size) if len(readings) == 1 else 1
        classes.append(RankClass(name=name, num_ranks=num_ranks, first_rank=rank if len(readings) > 1 else 0))
        notes += [f"{name}: {note}" for note in reading.recording.notes]
        counts += reading.waits.counts
        notes.append(f"{name}: step {window.name!r} of {len(windows)}, found by {window.basis}")
    header = readings[0].recording.header
    if len(readings) == 1 and header.world_size > 1:
        notes.append(f"rank {classes[0].first_rank} stands for all {header.world_size} ranks (one rank's trace was given)")
    notes += [f"{what}: {count}" for what, count in sorted(counts.items())]
    return Step(
        name=readings[0].recording.file.rsplit("/", 1)[-1],
        operations=tuple(operations), rank_classes=tuple(classes),
        group_sizes={name: size for reading in readings for name, size in reading.describer.group_sizes().items()},
        source_part=part_of(header.gpu_names[0], header.memory_bytes) if header.gpu_names else "",
        source_step_s=max(durations), origin="kineto", notes=tuple(notes),
    )  # fmt: skip


def _choose(reading: Reading, windows: list[Window], step: int | None) -> Window:
    file = reading.recording.file
    if not windows:
        raise InputError(Fault(what="no step with GPU work", remedy="record at least one whole step", file=file))
    if step is None:
        durations = [recorded_s(reading, window) for window in windows]
        return windows[durations.index(statistics.median_low(durations))]
    if not 0 <= step < len(windows):
        remedy = f"steps 0 to {len(windows) - 1} exist"
        raise InputError(Fault(what=f"there is no step {step}", remedy=remedy, file=file))
    return windows[step]


def _check_ranks(readings: Sequence[Reading]) -> None:
    if not readings:
        raise InputError(Fault(what="no trace given"))
    ranks = Counter(r.recording.header.rank for r in readings)
    repeated = [rank for rank, count in ranks.items() if count > 1]
    if len(readings) > 1 and repeated:
        what = f"rank {repeated[0]} is given {ranks[repeated[0]]} times"
        raise InputError(Fault(what=what, remedy="give one file per rank", file=readings[1].recording.file))
    sizes = {r.recording.header.world_size for r in readings}
    if len(sizes) > 1:
        what = f"traces of different jobs: world sizes {', '.join(map(str, sorted(sizes)))}"
        raise InputError(Fault(what=what, remedy="give the ranks of one job", file=readings[1].recording.file))
