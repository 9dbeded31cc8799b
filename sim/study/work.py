"""What a worker does: resolve a point, recognise it if it is known, else run it. The same in every process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from sim.config.scenario_file import ScenarioFile
from sim.config.sweep import Assignment
from sim.engine import load_compiled
from sim.errors import InputError, MisfitError, TiersimError
from sim.experiment import Result, run
from sim.scenario import Scenario
from sim.study.identity import digest, model_version, result_key, twin_key
from sim.study.pool import Chunk, Point
from sim.study.store import Outcome


class TwinMemory:
    """Seconds of the runs with everything in the fastest tier, by the hash of their inputs; the oldest are forgotten."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._known: dict[str, tuple[float, bool]] = {}

    def recall(self, twin: Scenario, solve: Callable[[], tuple[float, bool]]) -> tuple[float, bool]:
        """See :class:`sim.experiment.Twins`."""
        key = twin_key(twin)
        if key not in self._known:
            if len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[key] = solve()
        return self._known[key]


#: one per process: points of one worker share their twins
TWINS = TwinMemory()


@dataclass(frozen=True, slots=True)
class SweepWork:
    """Runs the points of one scenario file; `known` are the keys that need not be run again. Picklable."""

    file: ScenarioFile
    known: frozenset[str] = field(default_factory=frozenset)
    with_penalty: bool = True
    is_large: bool = False  # so many points that loading the compiled kernel pays in every process

    def __call__(self, chunk: Chunk) -> list[Outcome]:
        """Outcomes of the points, in their order; an error of a point is its outcome, never the chunk's."""
        if self.is_large:
            load_compiled()
        return [self.outcome(point) for point in chunk]

    def outcome(self, point: Point) -> Outcome:
        """Resolve and run one point."""
        position, assignment = point
        started = time.perf_counter()
        parameters = shown(assignment)
        key = self.provisional_key(assignment)
        try:
            scenario = self.file.resolve(assignment.overlay, assignment.parameters)
            key = result_key(scenario)
            if key in self.known:
                return Outcome(position=position, key=key, status="fits", parameters=parameters, is_known=True)
            with self.file.places_faults():
                result = run(scenario, with_penalty=self.with_penalty, twins=TWINS)
            status, reason, body = _status(result), result.reason, result.point()
        except Exception as error:
            status, reason = _failure(error)
            body = {"parameters": parameters, "fits": False, "reason": reason}
        return Outcome(
            position=position,
            key=key,
            status=status,
            reason=reason,
            parameters=parameters,
            point=msgspec.json.encode(body),
            seconds=time.perf_counter() - started,
        )

    def provisional_key(self, assignment: Assignment) -> str:
        """Key of a point that cannot be resolved, or died before it was: of the file and the assignment as written."""
        return digest(("unresolved", model_version(), self.file.document.data, assignment.overlay))

    def lost(self, point: Point, reason: str) -> Outcome:
        """The outcome of a point whose worker died."""
        position, assignment = point
        parameters = shown(assignment)
        return Outcome(
            position=position,
            key=self.provisional_key(assignment),
            status="lost",
            reason=reason,
            parameters=parameters,
            point=msgspec.json.encode({"parameters": parameters, "fits": False, "reason": reason}),
        )


def shown(assignment: Assignment) -> dict[str, object]:
    """The parameters as a table shows them."""
    return dict(assignment.parameters)


def _status(result: Result) -> str:
    return "fits" if result.fits else "does_not_fit"


def _failure(error: Exception) -> tuple[str, str]:
    """(status, reason) of a point that raised."""
    if isinstance(error, MisfitError):
        return "does_not_fit", str(error)
    if isinstance(error, InputError):
        return "invalid", "; ".join(str(fault) for fault in error.faults)
    if isinstance(error, TiersimError):
        return "failed", f"{type(error).__name__}: {error}"
    return "failed", f"{type(error).__name__}: {error} (a defect of tiersim: please report it)"
