"""PyTorch profiler (Kineto) traces: read, linked, cut into steps, and turned into a `Step`."""

from __future__ import annotations

import bisect
import re
import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from sim.errors import Fault, InputError
from sim.interchange.gpu_names import part_of
from sim.interchange.groups import Groups
from sim.interchange.joined import join_collectives
from sim.interchange.kineto import alignment
from sim.interchange.kineto.build import Reading, build_operations, recorded_s, resolve
from sim.interchange.kineto.events import looks_like, read_recording
from sim.interchange.kineto.links import link
from sim.interchange.kineto.steps import Window, find_steps
from sim.interchange.rules import Rule
from sim.interchange.statistics import kept_s
from sim.records import RankClass, Step

__all__ = ["Reading", "looks_like", "read_rank", "recorded_s", "start_delays_s", "step_from", "steps_of"]


#: files of ranks are named rank0.json, rank-0.pt.trace.json, trace_rank_0.json where the trace itself does not tell
_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.I)


def read_rank(content: bytes, file: str, rules: tuple[Rule, ...] = (), num_ranks: int = 0) -> Reading:
    """One rank's trace, linked and resolved; `num_ranks`: ranks of its job, where it does not say.

    Raises InputError for what is no trace or holds no GPU work, and for another number of ranks than it says.
    """
    recording = read_recording(content, file)
    if recording.header.rank is None and (named := _RANK_IN_NAME.search(file.rsplit("/", 1)[-1])):
        recording.header.rank = int(named[1])
    told = recording.header.world_size
    if num_ranks and told not in (1, num_ranks):
        what = f"is of a job of {told} ranks, {num_ranks} are asked for"
        raise InputError(Fault(what=what, remedy="leave out the number of ranks", file=file))
    recording.header.world_size = max(told, num_ranks)
    linked = link(recording)
    if not linked.works:
        ranges = sum(event.kind == "range" for event in recording.events)
        what = "has no GPU kernels or copies"
        remedy = "record with ProfilerActivity.CUDA"
        if ranges:
            what += f" ({ranges} CUPTI counter ranges instead)"
            remedy = "record without the CUPTI range profiler: counters replace kernel timings"
        elif ignored := [note for note in recording.notes if " ignored: " in note]:
            what += f" that can be used ({'; '.join(ignored)})"
            remedy = "record it again"
        raise InputError(Fault(what=what, remedy=remedy, file=file))
    return resolve(recording, linked, rules)


def steps_of(reading: Reading) -> list[Window]:
    """Steps of a reading that launched GPU work."""
    launches_ns = [call.start_ns for call in reading.linked.calls if call.works]
    launches_ns += [work.start_ns for work in reading.linked.works if work.call < 0]
    launches_ns.sort()

    def has_launch(window: Window) -> bool:
        at = bisect.bisect_left(launches_ns, window.start_ns)
        return at < len(launches_ns) and launches_ns[at] < window.end_ns

    return [window for window in find_steps(reading.recording) if has_launch(window)]


def step_from(readings: Sequence[Reading], step: int | None = None) -> Step:
    """One step of one rank, or of several ranks of one job, as a `Step`.

    `step` counts from 0 over the steps that all ranks recorded; default: the one of median duration. One rank of a larger
    job stands for all (noted). Ranks given together are joined at their collectives and start as far apart as recorded.
    Raises InputError for mixed jobs, repeated ranks, and a step that does not exist.
    """
    _check_ranks(readings)
    counts: Counter[str] = Counter()
    windows = _choose(readings, step)
    header = readings[0].recording.header
    world = max(len(readings), *(reading.recording.header.world_size for reading in readings))
    if len(readings) > 1:
        world = max(world, 1 + max(reading.recording.header.rank or 0 for reading in readings))
    groups = Groups({item for reading in readings for item in reading.describer.communicators()}, world, counts)
    delays_s = alignment.start_delays_s(readings, windows, counts)
    notes: list[str] = []
    operations, classes, durations = [], [], []
    for position, (reading, window, delay_s) in enumerate(zip(readings, windows, delays_s, strict=True)):
        rank = reading.recording.header.rank
        rank = position if rank is None else rank
        name = f"rank{rank}"
        built, inferred = build_operations(reading, window, name, groups, delay_s)
        operations += built
        counts += inferred
        durations.append(delay_s + recorded_s(reading, window))
        alone = len(readings) == 1
        classes.append(RankClass(name=name, num_ranks=world if alone else 1, first_rank=0 if alone else rank))
        notes += [f"{name}: {note}" for note in reading.recording.notes]
        counts += reading.waits.counts
        notes.append(f"{name}: step {window.name!r}, found by {window.basis}")
    if len(readings) > 1:
        operations = join_collectives(operations, groups.sizes, counts)
        notes.append(f"ranks start up to {max(delays_s) * 1e3:.2f} ms apart (aligned at their common collectives)")
    elif world > 1:
        notes.append(f"rank {rank} stands for all {world} ranks (one rank's trace was given)")
    notes += [f"{what}: {count}" for what, count in sorted(counts.items())]
    made = Step(
        name=readings[0].recording.file.rsplit("/", 1)[-1],
        operations=tuple(operations), rank_classes=tuple(classes), group_sizes=groups.sizes,
        source_part=part_of(header.gpu_names[0], header.memory_bytes) if header.gpu_names else "",
        source_step_s=max(durations), origin="kineto",
    )  # fmt: skip
    if (kept := kept_s(made)) > 0:
        share = kept / max(made.source_step_s, kept)
        notes.append(
            f"time that the recording does not explain, kept as recorded: {kept * 1e3:.1f} ms, {share:.0%} of the step"
        )
    return msgspec.structs.replace(made, notes=tuple(notes))


def start_delays_s(readings: Sequence[Reading], step: int | None = None) -> list[float]:
    """Seconds from the first rank's start of a step to each rank's own; `step` as in `step_from`."""
    return alignment.start_delays_s(readings, _choose(readings, step), Counter())


def _choose(readings: Sequence[Reading], step: int | None) -> list[Window]:
    """The same step of every rank: by the names of the marks, and where those differ by position."""
    of_rank = [steps_of(reading) for reading in readings]
    for reading, windows in zip(readings, of_rank, strict=True):
        if not windows:
            what = "no step with GPU work"
            raise InputError(Fault(what=what, remedy="record at least one whole step", file=reading.recording.file))
    named = [{window.name: window for window in windows} for windows in of_rank]
    common = [name for name in named[0] if all(name in windows for windows in named)]
    if not common:
        what = f"the ranks recorded different steps: {', '.join(windows[0].name for windows in of_rank)}"
        raise InputError(Fault(what=what, remedy="give recordings of the same steps", file=readings[0].recording.file))
    if step is None:
        durations = [max(recorded_s(r, w[name]) for r, w in zip(readings, named, strict=True)) for name in common]
        step = durations.index(statistics.median_low(durations))
    if not 0 <= step < len(common):
        remedy = f"steps 0 to {len(common) - 1} exist"
        raise InputError(Fault(what=f"there is no step {step}", remedy=remedy, file=readings[0].recording.file))
    return [windows[common[step]] for windows in named]


def _check_ranks(readings: Sequence[Reading]) -> None:
    if not readings:
        raise InputError(Fault(what="no trace given"))
    ranks = Counter(
        position if r.recording.header.rank is None else r.recording.header.rank for position, r in enumerate(readings)
    )
    repeated = [rank for rank, count in ranks.items() if count > 1]
    if len(readings) > 1 and repeated:
        what = f"rank {repeated[0]} is given {ranks[repeated[0]]} times"
        raise InputError(Fault(what=what, remedy="give one file per rank", file=readings[1].recording.file))
    sizes = {r.recording.header.world_size for r in readings}
    if len(sizes) > 1:
        what = f"traces of different jobs: world sizes {', '.join(map(str, sorted(sizes)))}"
        raise InputError(Fault(what=what, remedy="give the ranks of one job", file=readings[1].recording.file))
