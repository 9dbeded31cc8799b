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

from sim.experiment.preparing import lowered, step_of
from sim.experiment.solving import summarised
from sim.metrics.inference import InferenceTimes
from sim.placement.access_counters import NAME as ACCESS_COUNTER
from sim.placement.access_counters import answer_while_moving_s
from sim.placement.capacity import capacity_plan
from sim.placement.demand import demands, planned
from sim.placement.heat import groups_of
from sim.placement.hot_cold import option
from sim.placement.plan import Placement
from sim.placement.policies import Migration, Observation, Pages
from sim.placement.registry import MOVING, policy
from sim.placement.resolve import seen_by
from sim.program.merge import Part, merge, of_job
from sim.records import Kind, Operation, Program, Replay, Step, Stream, Struct, TensorClass
from sim.scenario import Job, Scenario
from sim.topology.machine import Machine
from sim.units import format_bytes, format_seconds
from sim.workload.inference import Inference
from sim.workload.training import Training

_RATE = "promotion_bandwidth_bytes_per_s"
#: share of the moving classes below which what a scan still moves is rounding of buffers
_STEADY = 2e-3


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
    machine = scenario.machine
    device = machine.seats()[0]
    dynamic = [entry for entry in job.placement.entries if entry.policy in MOVING]
    name, options, classes = dynamic[0].policy, dynamic[0].options, [entry.tensor_class for entry in dynamic]
    placement, pending, history = first, list[Migration](), list[TieringStep]()
    lying: dict[Pages, dict[str, float]] = {}  # share of a class's bytes by tier, of its pages by heat
    elapsed_s, num_unseen, step_s = 0.0, 0, option(options, "scan_period_s")
    answers = list[InferenceTimes | None]()

    def told() -> tuple[TieringStep, ...]:
        return _while_moving(history, answers, option(options, _RATE)) if name == ACCESS_COUNTER else tuple(history)

    covered = 1.0  # share of a step's time that its replay shows: of an answer, the sampled tokens
    while True:
        now = dataclasses.replace(job, placement=placement)
        step = step_of(now, machine)
        program = lowered(step, now, scenario)
        moved, pending = _portion(pending, option(options, _RATE) * step_s)
        in_replay = [dataclasses.replace(move, size_bytes=move.size_bytes * covered) for move in moved]
        seen = _beside(program, in_replay, machine, device, options)
        summary, times = summarised(dataclasses.replace(scenario, jobs=(now,)), program, seen)
        step_s = summary.step_time_s
        covered = min(1.0, seen.makespan_s / step_s)
        sizes = demands(step, len(machine.seats()))
        if isinstance(job.workload, (Training, Inference)):
            plan = capacity_plan(job.workload, placement, machine)
            sizes = planned(sizes, classes, plan, machine)
            taken = {tier: need.peak_bytes for tier, need in plan.items()}
        else:
            taken = _all_bytes(placement, {name: demand.size_bytes for name, demand in sizes.items()}, machine, device)
        heat = {
            (entry.tensor_class, group): row
            for entry in dynamic
            if entry.tensor_class in sizes
            for group, row in enumerate(groups_of(entry, sizes[entry.tensor_class].size_bytes))
        }
        if not lying:  # pages land where first touch puts them, whatever their heat
            homes = {name: _bytes(placement, name, 1.0, machine, device) for name in classes}
            lying = {pages: {tier: part * size for tier, part in homes[pages[0]].items()} for pages, (size, _) in heat.items()}
        resident = {
            pages: {tier: part * sizes[pages[0]].size_bytes for tier, part in parts.items()} for pages, parts in lying.items()
        }
        touches = {pages: sizes[pages[0]].touched_bytes_per_step * share for pages, (_, share) in heat.items()}
        views = seen_by(name, machine, device, options, taken)
        history.append(_row(step_s, moved, resident, touches, views[0].name))
        answers.append(times)
        if len(history) >= option(options, "steps"):
            return Settled(job=now, step=step, program=program, replay=seen, steps=told())
        elapsed_s, num_unseen = elapsed_s + step_s, num_unseen + 1
        if moved:
            lying = _moved(lying, moved, {name: demand.size_bytes for name, demand in sizes.items()})
            placement = _placed(placement, lying, heat)
        elif not pending and elapsed_s >= option(options, "scan_period_s"):
            touched = {pages: num_unseen * size for pages, size in touches.items()}
            observation = Observation(elapsed_s=elapsed_s, tiers=tuple(views), resident_bytes=resident, touched_bytes=touched)
            pending = list(policy(name).decide(observation, options))
            elapsed_s, num_unseen = 0.0, 0
            if sum(move.size_bytes for move in pending) <= _STEADY * sum(sum(parts.values()) for parts in resident.values()):
                return Settled(job=now, step=step, program=program, replay=seen, steps=told())


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


def _portion(pending: Sequence[Migration], size_bytes: float) -> tuple[list[Migration], list[Migration]]:
    """The first `size_bytes` of what waits to be moved, and the rest."""
    now, later = list[Migration](), list[Migration]()
    for move in pending:
        part = min(move.size_bytes, size_bytes)
        size_bytes -= part
        now += [dataclasses.replace(move, size_bytes=part)] if part > 0 else []
        rest = move.size_bytes - part
        later += [dataclasses.replace(move, size_bytes=rest)] if rest > 1e-9 * move.size_bytes else []
    return now, later


def _beside(
    program: Program, pending: Sequence[Migration], machine: Machine, device: str, options: Mapping[str, object]
) -> Replay:
    """The step replayed beside its migrations; the records are the job's own."""
    from sim.engine import replay as replay_program

    if not pending:
        return replay_program(program, capacity="observe")
    rate = option(options, _RATE)
    job, kernel = Part("job", program), Part("kernel", _migrations(pending, machine, device, rate))
    return of_job(job, replay_program(merge([job, kernel], program.name), capacity="observe"))


def _migrations(pending: Sequence[Migration], machine: Machine, device: str, rate: float) -> Program:
    cpu = machine.host_of(device)
    operations, used = list[Operation](), dict[str, None]()
    for index, move in enumerate(pending):
        route = machine.route(move.source, move.target, initiator=cpu)
        used |= dict.fromkeys(name for name, _ in route.uses)
        operations.append(
            Operation(
                id=f"migrate.{index}", kind=Kind.TRANSFER, stream="kernel.migration", sequence=index, name="migrate pages",
                work=move.size_bytes, uses=route.uses, rate_cap=min(rate, route.rate_cap_bytes_per_s), category="paging",
            )
        )  # fmt: skip
    return Program(
        name="migration",
        channels=tuple(machine.channels[name] for name in used),
        tiers=(),
        streams=(Stream(name="kernel.migration", role="migration"),),
        operations=tuple(operations),
    )


def _row(
    step_s: float, pending: Sequence[Migration], resident: Mapping[Pages, Mapping[str, float]], touches: Mapping[Pages, float],
    fast: str,
) -> TieringStep:  # fmt: skip
    total = sum(sum(parts.values()) for parts in resident.values())
    answered = sum(touches[pages] * parts.get(fast, 0.0) / sum(parts.values()) for pages, parts in resident.items())
    return TieringStep(
        step_time_s=step_s,
        promoted_bytes=sum(move.size_bytes for move in pending if move.target == fast),
        demoted_bytes=sum(move.size_bytes for move in pending if move.source == fast),
        fast_share=sum(parts.get(fast, 0.0) for parts in resident.values()) / total if total else 1.0,
        fast_access_share=answered / sum(touches.values()) if sum(touches.values()) else 1.0,
    )


def _bytes(placement: Placement, name: TensorClass, size: float, machine: Machine, device: str) -> dict[str, float]:
    return {tier: share * size for tier, share in machine.tier_shares(placement.shares(name), device).items()}


def _all_bytes(placement: Placement, sizes: Mapping[TensorClass, float], machine: Machine, device: str) -> dict[str, float]:
    taken: dict[str, float] = {}
    for name, size in sizes.items():
        for tier, part in _bytes(placement, name, size, machine, device).items():
            taken[tier] = taken.get(tier, 0.0) + part
    return taken


def _moved(
    lying: Mapping[Pages, Mapping[str, float]], pending: Sequence[Migration], sizes: Mapping[TensorClass, float]
) -> dict[Pages, dict[str, float]]:
    """Where the pages lie after the migrations."""
    found = {pages: dict(parts) for pages, parts in lying.items()}
    for move in pending:
        own, share = found[move.tensor_class, move.group], move.size_bytes / sizes[move.tensor_class]
        own[move.source] = max(0.0, own.get(move.source, 0.0) - share)
        own[move.target] = own.get(move.target, 0.0) + share
    return found


def _placed(
    placement: Placement, lying: Mapping[Pages, Mapping[str, float]], heat: Mapping[Pages, tuple[float, float]]
) -> Placement:
    """The placement of pages that lie so: shares of each class's bytes, and of its accesses, by tier."""
    shares: dict[TensorClass, dict[str, float]] = {}
    accesses: dict[TensorClass, dict[str, float]] = {}
    for pages, parts in lying.items():
        total, (_, touched) = sum(parts.values()), heat[pages]
        for tier, part in parts.items():
            for found, share in ((shares, part), (accesses, touched * part / total)):
                own = found.setdefault(pages[0], {})
                own[tier] = own.get(tier, 0.0) + share
    entries = [
        dataclasses.replace(
            entry,
            shares=_kept(shares[entry.tensor_class]),
            accesses=_kept(accesses[entry.tensor_class]) if entry.skew else {},
            policy="interleave",
            layers=None,
        )
        if entry.tensor_class in shares
        else entry
        for entry in placement.entries
    ]
    return dataclasses.replace(placement, entries=tuple(entries))


def _kept(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares that sum to one, without what rounding left over."""
    total = sum(share for share in shares.values() if share > 1e-9)
    return {tier: share / total for tier, share in shares.items() if share > 1e-9}
