"""Steps under a policy that moves pages: each step starts with the placement that the scans of the last one left.

A scan comes at the end of the first step after each scan period; it sees which bytes were touched since the last one. What it
decides is moved during the next steps, beside their traffic, each step as much as the rate limit lets through in its time.
Placement therefore changes between steps, not inside one: exact when the scan period is a step or longer, and an average over
the step when it is shorter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from sim.experiment.migrating import after, beside, placed, portion
from sim.experiment.preparing import lowered, step_of
from sim.experiment.solving import summarised
from sim.metrics.inference import InferenceTimes
from sim.placement.access_counters import NAME as ACCESS_COUNTER
from sim.placement.access_counters import answer_while_moving_s
from sim.placement.capacity import capacity_plan
from sim.placement.demand import demands, followers, led, planned
from sim.placement.heat import groups_of
from sim.placement.hot_cold import option
from sim.placement.plan import Placement
from sim.placement.policies import Demand, Migration, Observation, Pages, TierView
from sim.placement.registry import MOVING, policy
from sim.placement.resolve import seen_by
from sim.records import Program, Replay, Step, Struct, TensorClass
from sim.scenario import Job, Scenario
from sim.units import format_bytes, format_seconds
from sim.workload.inference import Inference
from sim.workload.training import Training

_RATE = "promotion_bandwidth_bytes_per_s"
#: share of the moving classes below which what a scan still moves is rounding of buffers
_STEADY = 2e-3
#: rounds in which moves are cut until what they make of the memory plan fits, and how much below proportion
_ROUNDS, _SHRINK = 4, 0.97


class TieringStep(Struct, frozen=True, kw_only=True):
    """One step: how long it took, what moved beside it, and how much of the moving classes was in the fastest tier."""

    step_time_s: float
    promoted_bytes: float
    demoted_bytes: float
    fast_share: float
    fast_access_share: float  # of the accesses to the moving classes, those that the fastest tier answers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The last step (steady, or the last of the limit) and the way there."""

    job: Job
    step: Step
    program: Program
    replay: Replay
    steps: tuple[TieringStep, ...]


def moves(job: Job) -> bool:
    """Whether a policy of the job's placement may move pages after they were placed."""
    return any(entry.policy in MOVING for entry in job.placement.entries)


def settling_note(steps: Sequence[TieringStep], what: str) -> tuple[str, ...]:
    """How a job came to its steady step, in words; `what` is a step or an answer."""
    if len(steps) < 2:
        return ()
    first, last = steps[0], steps[-1]
    moved = sum(step.promoted_bytes + step.demoted_bytes for step in steps)
    answered = " % of the accesses, then ".join(f"{100 * step.fast_access_share:.3g}" for step in (first, last))
    return (
        f"pages move for {len(steps) - 1} {what}s ({format_bytes(moved)}): the first takes "
        f"{format_seconds(first.step_time_s)}, the {what} told here {format_seconds(last.step_time_s)}; "
        f"the fastest tier answers {answered} %",
    )


def settle(scenario: Scenario, job: Job, first: Placement) -> Settled:
    """Simulate steps until nothing moves any more; `first` is the placement at the start, with policies answered.

    The number of steps is the option `steps` of the policy.
    """
    course = _Course(scenario, job, first)
    while True:
        moved = course.next_moves()
        last = course.replayed(moved)
        seen = course.seen(last.step)
        course.note(moved, seen)
        if len(course.history) >= option(course.options, "steps"):
            break
        if moved:
            course.follow(moved, seen)
        elif course.is_scan_due() and course.scan(seen):
            break
    return dataclasses.replace(last, steps=course.told())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The moving classes at the end of a step: their bytes and heat, where they lie, what of them was touched."""

    sizes: Mapping[TensorClass, float]  # bytes
    heat: Mapping[Pages, tuple[float, float]]  # shares of the class's bytes, and of its accesses
    resident: Mapping[Pages, Mapping[str, float]]  # bytes by tier
    touches: Mapping[Pages, float]  # bytes per step
    views: tuple[TierView, ...]  # fastest first


class _Course:
    """A job on its way to its steady step: where its pages lie, what is still to be moved, and what each step was."""

    def __init__(self, scenario: Scenario, job: Job, first: Placement) -> None:
        self.scenario, self.job, self.placement = scenario, job, first
        self.machine = scenario.machine
        self.device = self.machine.seats()[0]
        self.entries = [entry for entry in job.placement.entries if entry.policy in MOVING]
        self.policy, self.options = self.entries[0].policy, self.entries[0].options
        self.history, self.answers = list[TieringStep](), list[InferenceTimes | None]()
        self._pending = list[Migration]()
        self._lying: dict[Pages, dict[str, float]] = {}  # share of a class's bytes by tier, of its pages by heat
        self._since_scan_s, self._num_unseen = 0.0, 0
        self._step_s = option(self.options, "scan_period_s")
        self._covered = 1.0  # share of a step's time that its replay shows: of an answer, the sampled tokens

    def next_moves(self) -> list[Migration]:
        """Of what waits to be moved, as much as the rate limit lets through during a step."""
        moved, self._pending = portion(self._pending, option(self.options, _RATE) * self._step_s)
        return moved

    def replayed(self, moved: Sequence[Migration]) -> Settled:
        """One step with the pages where they lie now, beside what moves; its time is kept."""
        now = dataclasses.replace(self.job, placement=self.placement)
        step = step_of(now, self.machine)
        program = lowered(step, now, self.scenario)
        in_replay = [dataclasses.replace(move, size_bytes=move.size_bytes * self._covered) for move in moved]
        replay = beside(program, in_replay, self.machine, self.device, option(self.options, _RATE))
        summary, times = summarised(dataclasses.replace(self.scenario, jobs=(now,)), program, replay)
        self._step_s = summary.step_time_s
        self._covered = min(1.0, replay.makespan_s / self._step_s)
        self.answers.append(times)
        return Settled(job=now, step=step, program=program, replay=replay, steps=())

    def seen(self, step: Step) -> _Seen:
        """What a scan would find after this step."""
        wanted, taken = self._needs(step)
        sizes = {name: demand.size_bytes for name, demand in wanted.items()}
        heat = {
            (entry.tensor_class, group): row
            for entry in self.entries
            if entry.tensor_class in sizes
            for group, row in enumerate(groups_of(entry, sizes[entry.tensor_class]))
        }
        if not self._lying:  # pages land where first touch puts them, whatever their heat
            homes = {entry.tensor_class: self._homes(entry.tensor_class) for entry in self.entries}
            self._lying = {
                pages: {tier: part * own for tier, part in homes[pages[0]].items()} for pages, (own, _) in heat.items()
            }
        return _Seen(
            sizes=sizes,
            heat=heat,
            resident={
                pages: {tier: part * sizes[pages[0]] for tier, part in parts.items()} for pages, parts in self._lying.items()
            },
            touches={pages: wanted[pages[0]].touched_bytes_per_step * share for pages, (_, share) in heat.items()},
            views=tuple(seen_by(self.policy, self.machine, self.device, self.options, taken)),
        )

    def _needs(self, step: Step) -> tuple[Mapping[TensorClass, Demand], Mapping[str, float]]:
        """What the step asks for by tensor class, and the bytes that are taken of each tier."""
        wanted = demands(step, len(self.machine.seats()))
        if isinstance(self.job.workload, (Training, Inference)):
            plan = capacity_plan(self.job.workload, self.placement, self.machine)
            decided = [entry.tensor_class for entry in self.entries]
            following = followers(self.placement, self.job.workload, decided)
            wanted = led(planned(wanted, {*decided, *following}, plan, self.machine), following)
            return wanted, {tier: need.peak_bytes for tier, need in plan.items()}
        taken: dict[str, float] = {}
        for name, demand in wanted.items():
            for tier, part in self._homes(name).items():
                taken[tier] = taken.get(tier, 0.0) + part * demand.size_bytes
        return wanted, taken

    def _homes(self, name: TensorClass) -> Mapping[str, float]:
        """Share of the class on each tier by the placement of now."""
        return self.machine.tier_shares(self.placement.shares(name), self.device)

    def note(self, moved: Sequence[Migration], seen: _Seen) -> None:
        """Write down the step that was just replayed."""
        fast = seen.views[0].name
        total = sum(sum(parts.values()) for parts in seen.resident.values())
        touched = sum(seen.touches.values())
        answered = sum(
            seen.touches[pages] * parts.get(fast, 0.0) / sum(parts.values()) for pages, parts in seen.resident.items()
        )
        self.history.append(
            TieringStep(
                step_time_s=self._step_s,
                promoted_bytes=sum(move.size_bytes for move in moved if move.target == fast),
                demoted_bytes=sum(move.size_bytes for move in moved if move.source == fast),
                fast_share=sum(parts.get(fast, 0.0) for parts in seen.resident.values()) / total if total else 1.0,
                fast_access_share=answered / touched if touched else 1.0,
            )
        )
        self._since_scan_s, self._num_unseen = self._since_scan_s + self._step_s, self._num_unseen + 1

    def follow(self, moved: Sequence[Migration], seen: _Seen) -> None:
        """The pages lie where the migrations of the step took them."""
        self._lying = after(self._lying, moved, seen.sizes)
        self.placement = placed(self.placement, self._lying, seen.heat)

    def is_scan_due(self) -> bool:
        """A scan comes when all of the last one's moves are done and its period is over."""
        return not self._pending and self._since_scan_s >= option(self.options, "scan_period_s")

    def scan(self, seen: _Seen) -> bool:
        """Ask the policy what to move next; true if that is nothing but the rounding of buffers."""
        observation = Observation(
            elapsed_s=self._since_scan_s,
            tiers=seen.views,
            resident_bytes=seen.resident,
            touched_bytes={pages: self._num_unseen * size for pages, size in seen.touches.items()},
        )
        self._pending = self._within_room(policy(self.policy).decide(observation, self.options), seen)
        self._since_scan_s, self._num_unseen = 0.0, 0
        total = sum(sum(parts.values()) for parts in seen.resident.values())
        return sum(move.size_bytes for move in self._pending) <= _STEADY * total

    def _within_room(self, asked: Sequence[Migration], seen: _Seen) -> list[Migration]:
        """As much of the moves as leaves no tier fuller than it is large: page-locked buffers round up what they hold."""
        moves = list(asked)
        if not isinstance(self.job.workload, (Training, Inference)):
            return moves
        plan = capacity_plan(self.job.workload, self.placement, self.machine)
        for _ in range(_ROUNDS):
            then = placed(self.placement, after(self._lying, moves, seen.sizes), seen.heat)
            needs = capacity_plan(self.job.workload, then, self.machine)
            targets = {move.target for move in moves}
            room = {
                name: (need.capacity_bytes - (plan[name].peak_bytes if name in plan else 0.0))
                / max(1.0, need.peak_bytes - (plan[name].peak_bytes if name in plan else 0.0))
                for name, need in needs.items()
                if name in targets and need.peak_bytes > need.capacity_bytes
            }
            if not room:
                break
            moves = [
                dataclasses.replace(move, size_bytes=_SHRINK * max(0.0, room.get(move.target, 1.0 / _SHRINK)) * move.size_bytes)
                for move in moves
            ]
        return moves

    def told(self) -> tuple[TieringStep, ...]:
        """The steps as a person saw them: under access counters, answers run while their pages arrive."""
        if self.policy == ACCESS_COUNTER:
            return _while_moving(self.history, self.answers, option(self.options, _RATE))
        return tuple(self.history)


def _while_moving(
    history: Sequence[TieringStep], answers: Sequence[InferenceTimes | None], rate_bytes_per_s: float
) -> tuple[TieringStep, ...]:
    """Answers whose pages arrive while they run: each takes less than with all pages where it began.

    The replay in which the counters passed their threshold is no answer of its own: the first one moves pages already.
    """
    rows, answers = (list(history[1:]), answers[1:]) if len(history) > 1 else (list(history), answers)
    for i, (own, later) in enumerate(pairwise(answers)):
        if own is not None and later is not None and own.time_per_output_token_s > 0.0:
            seconds = answer_while_moving_s(
                own.time_to_first_token_s, own.time_per_output_token_s, later.time_per_output_token_s,
                (own.total_s - own.time_to_first_token_s) / own.time_per_output_token_s,
                rows[i].promoted_bytes, rate_bytes_per_s,
            )  # fmt: skip
            rows[i] = replace(rows[i], step_time_s=min(rows[i].step_time_s, seconds))
    return tuple(rows)
