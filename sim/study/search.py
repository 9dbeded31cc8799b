"""Searches: the best point of a space, by Optuna's sampler, instead of all of them.

    sweep:                                           # the space: lists, choices, continuous ranges
      workload.training.batch_size: {from: 1, to: 32, integer: true}
      placement.optimizer_states: [gpu, dram, nvme]
    search:
      objective: tokens_per_s
      constraints: ["power_w <= 1500", "step_time_s < 60"]
      trials: 60
      seed: 7

A point must fit and meet every constraint to count. Trials are drawn one after the other from a seeded sampler, and
every result is kept in the study's store, so a killed search draws the same trials again and runs only what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sim.config.condition import Condition, parse_condition
from sim.config.scenario_file import ScenarioFile
from sim.config.sweep import Assignment, Sweep
from sim.errors import Fault, InputError
from sim.study.budget import budget_of
from sim.study.identity import model_version
from sim.study.pool import Backend
from sim.study.sources import prices_of
from sim.study.store import Outcome, Store
from sim.study.study import Progress, Study, Tally
from sim.study.work import SweepWork

#: objective -> whether more of it is better; the last three need the machine's rated power or a price overlay
OBJECTIVES: Mapping[str, bool] = {
    "tokens_per_s": True,
    "mfu": True,
    "step_time_s": False,
    "offload_penalty": False,
    "time_to_first_token_s": False,
    "time_per_output_token_s": False,
    "power_w": False,
    "purchase": False,
    "tokens_per_s_per_w": True,
}
_KEYS = ("objective", "constraints", "trials", "seed")
_TRIALS, _MAX_TRIALS = 50, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a search looks for."""

    objective: str
    constraints: tuple[Condition, ...] = ()
    trials: int = _TRIALS
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best point found: its parameters, the value of the objective, the trial that found it."""

    parameters: Mapping[str, object]
    value: float
    trial: int


def aim_of(file: ScenarioFile) -> Aim:
    """The `search:` block. Raises InputError with every fault of it."""
    raw = file.search
    faults = [_fault(file, str(key), "unknown key", f"known: {', '.join(_KEYS)}") for key in raw if key not in _KEYS]
    objective = raw.get("objective")
    if objective not in OBJECTIVES:
        faults.append(_fault(file, "objective", f"unknown objective {objective!r}", f"one of {', '.join(OBJECTIVES)}"))
    numbers = {"trials": _TRIALS, "seed": 0}
    for key, least in (("trials", 1), ("seed", 0)):
        value = raw.get(key, numbers[key])
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MAX_TRIALS:
            faults.append(_fault(file, key, f"expected a whole number from {least} to {_MAX_TRIALS}, got {value!r}", ""))
        else:
            numbers[key] = value
    texts = raw.get("constraints", [])
    constraints = []
    for index, text in enumerate(texts if isinstance(texts, list) else [texts]):
        try:
            constraints.append(parse_condition(text, f"search.constraints[{index}]"))
        except InputError as error:
            faults += [_fault(file, "constraints", fault.what, fault.remedy) for fault in error.faults]
    faults += _unknown_names(file, constraints)
    if not file.sweep:
        faults.append(_fault(file, "", "a search needs a space", "write the axes as a sweep: block"))
    if faults:
        raise InputError(faults)
    return Aim(objective=str(objective), constraints=tuple(constraints), **numbers)


def _unknown_names(file: ScenarioFile, constraints: list[Condition]) -> list[Fault]:
    """Faults of constraints on what is no result, no swept path and not in the file."""
    plan = file.plan
    known = (*OBJECTIVES, "fits", *(sorted(plan.names) if plan else ()))
    unknown = [fault for condition in constraints for fault in condition.unknown_names(known, file.document.data)]
    return [_fault(file, "constraints", fault.what, fault.remedy) for fault in unknown]


def _fault(file: ScenarioFile, key: str, what: str, remedy: str) -> Fault:
    path = ("search", key) if key else ("search",)
    return Fault(what=what, remedy=remedy, file=file.document.file, line=file.document.line(path), path=".".join(path))


class Search(Study):
    """A study whose points are chosen by a sampler. Needs the extra `search`."""

    best: Best | None = None
    #: of points that fit: how many there were, and by constraint how many broke it and the values that it was about
    _num_fitting: int = 0
    _broken: dict[str, list[dict[str, object]]]

    def why_none(self) -> str:
        """Why no trial counts, in words: none fits, or which constraints those that fit break, and by how much."""
        if not self._num_fitting:
            return "no trial fits"
        broken = [f"{text} fails in {len(rows)} of them{_spans(rows)}" for text, rows in self._broken.items()]
        return f"no trial fits and meets the constraints: {self._num_fitting} fit; {'; '.join(broken)}"

    @property
    def num_points(self) -> int:
        """Trials asked for."""
        return aim_of(self.file).trials

    def run(self, backend: Backend | None = None, on_progress: Progress | None = None) -> Tally:  # noqa: ARG002 - one by one
        """Draw and run every trial; results that the store knows are not run again. Sets `best`."""
        started = time.monotonic()
        self._broken = {}
        aim, plan = aim_of(self.file), self.file.plan
        assert plan is not None
        sampler = _sampler(aim)
        prices = prices_of(self.file)
        with Store(self.folder) as store:
            known = store.known_keys()
            work = SweepWork(self.file, known)
            num_found = 0
            for position in range(aim.trials):
                trial = sampler.ask()
                assignment = _drawn(plan, trial)
                outcome = work.outcome((position, assignment))
                num_found += outcome.is_known
                store.write([outcome], plan=self.plan, model_version=model_version())
                known = known | {outcome.key}
                work = SweepWork(self.file, known)
                value = self._value(aim, plan, assignment, outcome, store, prices)
                _tell(sampler, trial, value)
                self._keep(aim, assignment, value, position)
                if on_progress:
                    on_progress(position + 1, aim.trials)
            counts = store.counts(self.plan)
            return Tally(aim.trials, num_found, aim.trials - num_found, counts, time.monotonic() - started)

    def _value(
        self, aim: Aim, plan: Sweep, assignment: Assignment, outcome: Outcome, store: Store, prices: Mapping[str, Any] | None
    ) -> float | None:
        """The objective of a point; None if it does not fit, is skipped, or breaks a constraint."""
        point = dict(store.result(outcome.key) or msgspec.json.decode(outcome.point))
        if not point.get("fits") or plan.is_skipped(assignment):
            return None
        scenario = self.file.resolve(assignment.overlay, assignment.parameters)
        seconds = point.get("step_time_s") or point.get("time_per_output_token_s") or 0.0
        budget = budget_of(scenario, seconds, prices)
        known = {key: value for key, value in point.items() if not isinstance(value, (dict, list))}
        known |= {"power_w": budget.power_w or None, "purchase": budget.purchase}
        known["tokens_per_s_per_w"] = point["tokens_per_s"] / budget.power_w if budget.power_w else None
        names = {**assignment.parameters, **assignment.overlay, **known}
        self._num_fitting += 1
        broken = [condition for condition in aim.constraints if not condition.holds(names, self.file.document.data)]
        for condition in broken:
            self._broken.setdefault(condition.text, []).append({name: names.get(name) for name in condition.names})
        if broken:
            return None
        value = known.get(aim.objective)
        if value is None:
            what = f"{aim.objective} of {dict(assignment.parameters)} is not known"
            remedy = "state the rated power of its parts, or name a price overlay" if aim.objective != "mfu" else ""
            raise InputError(Fault(what=what, remedy=remedy, file=self.file.document.file, path="search.objective"))
        return float(value)

    def _keep(self, aim: Aim, assignment: Assignment, value: float | None, trial: int) -> None:
        if value is None:
            return
        is_more = OBJECTIVES[aim.objective]
        if self.best is None or (value > self.best.value if is_more else value < self.best.value):
            self.best = Best(parameters=dict(assignment.parameters), value=value, trial=trial)


def _spans(rows: Sequence[Mapping[str, object]]) -> str:
    """The least and the most of each number among the rows: " (tokens_per_s 1130 to 1474)"."""
    spans = []
    for name in rows[0]:
        numbers = [float(value) for row in rows if isinstance(value := row[name], (int, float))]
        if numbers and min(numbers) < max(numbers):
            spans.append(f"{name} {min(numbers):.4g} to {max(numbers):.4g}")
        elif numbers:
            spans.append(f"{name} {numbers[0]:.4g}")
    return f" ({', '.join(spans)})" if spans else ""


def _drawn(plan: Sweep, trial: Any) -> Assignment:
    """One point: an index on each list, a place between the ends on each continuous span."""
    parameters: dict[str, object] = {}
    overlay: dict[str, object] = {}
    for axis in plan.axes:
        if axis.span is not None:
            part = axis.at(trial.suggest_float(axis.name, 0.0, 1.0))
        else:
            part = axis.options[trial.suggest_categorical(axis.name, list(range(len(axis.options))))]
        parameters.update(part.parameters)
        overlay.update(part.overlay)
    return Assignment(parameters, overlay)


def _sampler(aim: Aim) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise InputError(Fault(what="a search needs Optuna", remedy="pip install 'tiersim[search]'")) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    is_more = OBJECTIVES[aim.objective]
    return optuna.create_study(
        direction="maximize" if is_more else "minimize", sampler=optuna.samplers.TPESampler(seed=aim.seed)
    )


def _tell(sampler: Any, trial: Any, value: float | None) -> None:
    """A point that does not count is worse than every one that does."""
    import optuna

    if value is None:
        sampler.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        sampler.tell(trial, value)
