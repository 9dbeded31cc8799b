"""Where one step ends and the next begins, on the CPU's clock."""

from __future__ import annotations

import itertools

import msgspec

from sim.interchange.kineto.events import Event, Recording

#: fewer GPU works than this in a window: not a training step (the tail of the profiler's schedule)
_MIN_WORKS = 2


class Window(msgspec.Struct):
    """One step: [start, end) of CPU time; works belong to the step that launched them."""

    name: str
    start_ns: int
    end_ns: int
    basis: str  # how it was found

    @property
    def duration_s(self) -> float:
        """Recorded step time in s."""
        return (self.end_ns - self.start_ns) * 1e-9


def find_steps(recording: Recording) -> list[Window]:
    """Steps by `ProfilerStep#N` marks; else from one `Optimizer.step` to the next; else the whole recording as one.

    Zero-length marks are dropped and noted.
    """
    marks = [e for e in recording.events if e.kind == "annotation" and e.name.startswith("ProfilerStep")]
    if marks:
        windows = [Window(e.name, e.start_ns, e.end_ns, "ProfilerStep marks") for e in marks]
    else:
        windows = _between_updates(recording.events)
    kept = [window for window in windows if window.end_ns > window.start_ns]
    if len(kept) < len(windows):
        recording.notes.append(f"{len(windows) - len(kept)} steps of zero length ignored")
    if kept:
        return kept
    recording.notes.append("no step marks: the whole recording is taken as one step (use torch.profiler's step())")
    first, last = min(e.start_ns for e in recording.events), max(e.end_ns for e in recording.events)
    return [Window("whole recording", first, max(last, first + 1), "no marks")]


def _between_updates(events: list[Event]) -> list[Window]:
    """Windows that end with an optimizer update: from the end of one `Optimizer.step` to the end of the next.

    Several optimizers in one step show as updates that follow each other without GPU launches of another kind; the mark
    used is the name that occurs first.
    """
    updates = [e for e in events if e.kind in ("annotation", "op") and e.name.startswith("Optimizer.step#")]
    if len(updates) < 2:
        return []
    updates = [e for e in updates if e.name == updates[0].name]
    return [
        Window(f"update {number}", before.end_ns, after.end_ns, "Optimizer.step marks")
        for number, (before, after) in enumerate(itertools.pairwise(updates), start=1)
    ]
