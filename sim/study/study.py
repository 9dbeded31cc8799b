"""A study: a scenario file with a sweep, its results in one folder, resumed where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.config.scenario_file import ScenarioFile, load_scenario
from sim.config.sweep import Assignment
from sim.engine import compile_beside, needs_long_compilation
from sim.errors import Fault, InputError
from sim.study.identity import model_version, plan_fingerprint
from sim.study.pool import Backend, Chunk, Point, Processes, Serial, usable_cpus
from sim.study.store import Outcome, Store
from sim.study.work import SweepWork

#: a chunk is sized to last about this long: short enough to lose little, long enough to hide its overhead
_CHUNK_S = 0.25
_MAX_CHUNK = 256
#: fewer points than this are not worth starting processes for
_MIN_POINTS_FOR_PROCESSES = 8
#: from so many on, compiling (0.6 s) and loading the compiled kernel in every process pays
_MIN_POINTS_TO_LOAD = 100
#: and from so many on, compiling it by numba where there is no C compiler, beside the workers (30 s of CPU)
_MIN_POINTS_TO_COMPILE = 1500
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Tally:
    """What one call of :meth:`Study.run` did: points of the plan, found finished, run now, and the counts by status."""

    num_points: int
    num_found: int
    num_run: int
    counts: dict[str, int]
    elapsed_s: float

    @property
    def has_fit(self) -> bool:
        """True if any point fits."""
        return self.counts.get("fits", 0) > 0


class Study:
    """Points of a scenario's sweep, run once each and kept in ``<folder>/study.sqlite``.

    `source` is a scenario file, a path or a built-in name; a file without a sweep is a study of one point.
    """

    def __init__(self, source: ScenarioFile | Path | str, folder: Path | str | None = None) -> None:
        self.file = source if isinstance(source, ScenarioFile) else load_scenario(source)
        self.folder = Path(folder) if folder is not None else Path("results") / self.file.name
        self.plan = plan_fingerprint(self.file)

    def assignments(self) -> Iterable[Assignment]:
        """The points of the sweep, lazily."""
        return self.file.plan or (Assignment({}, {}),)

    @property
    def num_points(self) -> int:
        """Points of the sweep, before `skip`."""
        return self.file.plan.num_points if self.file.plan else 1

    def run(self, backend: Backend | None = None, on_progress: Progress | None = None) -> Tally:
        """Run what is not finished yet; every point is written as soon as its chunk ends.

        `on_progress(done, total)` is called from this thread. Raises InputError if the folder cannot be used.
        """
        started = time.monotonic()
        with Store(self.folder) as store:
            finished = store.finished(self.plan)
            pending = self.num_points - len(finished)
            known = store.known_keys() if pending else frozenset()
            work = SweepWork(self.file, known, is_large=pending >= _MIN_POINTS_TO_LOAD)
            if pending >= (_MIN_POINTS_TO_COMPILE if needs_long_compilation() else _MIN_POINTS_TO_LOAD):
                compile_beside()
            chosen = backend or (Processes() if pending >= _MIN_POINTS_FOR_PROCESSES and usable_cpus() > 1 else Serial())
            num_run = 0
            done = len(finished)
            sizer = _ChunkSizer()
            for outcomes in chosen.run(work, sizer.chunks(self._pending(finished)), work.lost) if pending else ():
                store.write(outcomes, plan=self.plan, model_version=model_version())
                sizer.learn(outcomes)
                done += len(outcomes)
                num_run += sum(not outcome.is_known for outcome in outcomes)
                if on_progress:
                    on_progress(done, self.num_points)
            return Tally(done, len(finished), num_run, store.counts(self.plan), time.monotonic() - started)

    def _pending(self, finished: set[int]) -> Iterator[Point]:
        for position, assignment in enumerate(self.assignments()):
            if position not in finished:
                yield position, assignment

    def outcomes(self) -> Iterator[Outcome]:
        """Outcomes of this plan in the order of the sweep. Raises InputError if it was never run."""
        with Store(self.folder, is_read_only=True) as store:
            found = False
            for outcome in store.outcomes(self.plan):
                found = True
                yield outcome
            if not found:
                raise InputError(
                    Fault(what=f"no results of {self.file.name!r} in {str(self.folder)!r}", remedy="run the study first")
                )

    def points(self) -> Iterator[dict[str, Any]]:
        """The points as `tiersim run --json` prints them, with their `status`."""
        for outcome in self.outcomes():
            yield {**outcome.summary, "status": outcome.status}

    def to_pandas(self) -> Any:
        """The points as a pandas frame with the columns of points.csv (extra `table`)."""
        from sim.experiment.frames import frame
        from sim.study.export import flat

        return frame(flat(outcome) for outcome in self.outcomes())

    def _repr_html_(self) -> str:
        """What a notebook shows: the points as a table."""
        from sim.report.html import fragment
        from sim.report.tables import points_table

        return fragment(self.file.name, [points_table(list(self.points()))])

    def plot(self, metric: str = "tokens_per_s") -> Any:
        """`metric` over the sweep (curves, or bars of named choices), as matplotlib axes."""
        from sim.report.curves import sweep_figure

        return sweep_figure(self.file.name, list(self.points()), metric).axes[0]


class _ChunkSizer:
    """Cuts points into chunks that last about :data:`_CHUNK_S`, from what points have cost so far."""

    def __init__(self) -> None:
        self.size = 1

    def learn(self, outcomes: list[Outcome]) -> None:
        mean_s = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
        self.size = max(1, min(_MAX_CHUNK, round(_CHUNK_S / max(mean_s, 1e-6))))

    def chunks(self, points: Iterator[Point]) -> Iterator[Chunk]:
        chunk: list[Point] = []
        for point in points:
            chunk.append(point)
            if len(chunk) >= self.size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
