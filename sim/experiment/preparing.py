"""From a job to a program: trace read, policies answered, step generated, lowered, and paged where memory runs out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from sim.errors import InputError
from sim.experiment.nodes import over_nodes
from sim.experiment.overflow import page_cached, spilled, swap_of
from sim.kept import Kept
from sim.placement import access_counters
from sim.placement.capacity import capacity_plan
from sim.placement.effective import class_shares, effective_placement, state_edges
from sim.placement.heat import is_uneven, with_accesses
from sim.placement.lent import with_lent_memory
from sim.placement.plan import Entry, Placement
from sim.placement.zones import without_pinned
from sim.records import Home, Program, Step, TensorClass
from sim.scenario import Job, Scenario, Trace
from sim.topology.machine import Machine
from sim.workload.footprint import with_occupancy
from sim.workload.inference import Inference
from sim.workload.training import Training

if TYPE_CHECKING:
    from sim.program.coherence import Coherence

#: rounds in which a policy is told of what its placement takes beyond the sizes that it was asked for
_ROUNDS = 8
#: tier kinds that count as storage for a workload
_STORAGE = ("nvme",)
#: operations of the steps that are kept; a large pipeline has half a million, which take about a gigabyte
_KEPT_OPERATIONS = 200_000
_STEPS: Kept[Step] = Kept(_KEPT_OPERATIONS, lambda step: len(step.operations))
_OCCUPIED: Kept[tuple[Step, Step]] = Kept(_KEPT_OPERATIONS, lambda steps: len(steps[0].operations))


def prepare(
    scenario: Scenario, num_micro_batches: int | None = None, *, coherence: Coherence | None = None
) -> tuple[Step, Program]:
    """The logical step of the scenario's job and its lowering onto the machine, without replaying it.

    `num_micro_batches` writes out that many micro-batches of a training step; default all. `coherence` is what other hosts
    share with the job.
    """
    job = page_cached(placed(loaded(scenario.job), scenario.machine), scenario.machine)
    step = occupied(step_of(job, scenario.machine, num_micro_batches, is_whole=scenario.options.is_whole), job)
    return step, lowered(step, job, scenario, coherence)


def occupied(step: Step, job: Job) -> Step:
    """The step of a training job with the allocations and frees of its footprint; any other step as it is."""
    if not isinstance(job.workload, Training):
        return step
    training = job.workload
    homes = class_shares(effective_placement(job.placement, training), training.model.layers)
    key = (id(step), training, tuple((name, tuple(shares.items())) for name, shares in homes.items()))
    return _OCCUPIED.get(key, lambda: (step, with_occupancy(step, training, homes)))[1]


def lowered(step: Step, job: Job, scenario: Scenario, coherence: Coherence | None = None) -> Program:
    """The step on the scenario's machine under the job's placement, with page faults where a host swaps."""
    from sim.program import lower
    from sim.program.paging import with_swap

    placement = effective_placement(job.placement, job.workload)
    machine = with_lent_memory(job.workload, job.placement, scenario.machine)
    program = lower(step, machine, placement, is_folded=scenario.options.is_folded, coherence=coherence)
    swap = swap_of(job, scenario.machine)
    if swap is None:
        return program
    return with_swap(
        program, scenario.machine, tier=swap.tier, storage=swap.storage, updated_bytes=swap.updated_bytes,
        copied_bytes=swap.copied_bytes, room_bytes=swap.room_bytes, replacement=job.placement.replacement,
        num_sweeps=swap.num_sweeps,
    )  # fmt: skip


def on_system_memory(job: Job, machine: Machine) -> Job:
    """The job with what the system's allocator does to weights that it holds and nothing places."""
    return dataclasses.replace(job, placement=access_counters.on_system_memory(job.placement, job.workload, machine))


def _managed(job: Job, machine: Machine) -> Job:
    """Managed weights that do not fit beside the rest of GPU memory live in host memory: a cyclic sweep misses every page."""
    workload = job.workload
    if isinstance(workload, Training) and machine.gpus():
        return _paged_states(job, workload, machine)
    if not isinstance(workload, Inference) or not workload.is_managed or not machine.gpus():
        return job
    own = machine.memory_tier(machine.gpus()[0])
    need = capacity_plan(workload, job.placement, machine).get(own)
    if need is None or need.peak_bytes <= need.capacity_bytes:
        return job
    moved = Entry(tensor_class=TensorClass.WEIGHTS, shares={"dram": 1.0})
    return dataclasses.replace(job, placement=dataclasses.replace(job.placement, entries=(*job.placement.entries, moved)))


def _paged_states(job: Job, training: Training, machine: Machine) -> Job:
    """States of a paged optimizer (bitsandbytes: managed memory) that do not fit fault in for each update, and out again."""
    is_placed = any(entry.tensor_class == TensorClass.OPTIMIZER_STATES for entry in job.placement.entries)
    if not training.optimizer.type.startswith("paged") or is_placed or training.optimizer.offload:
        return job
    need = capacity_plan(training, job.placement, machine).get(machine.memory_tier(machine.gpus()[0]))
    if need is None or need.peak_bytes <= need.capacity_bytes:
        return job
    moved = (
        Entry(tensor_class=TensorClass.OPTIMIZER_STATES, shares={"dram": 1.0}),
        Entry(tensor_class=TensorClass.MASTER_WEIGHTS, shares={"gpu": 1.0}),
    )
    optimizer = dataclasses.replace(training.optimizer, swap_through_gpu=True)
    return dataclasses.replace(
        job,
        workload=dataclasses.replace(training, optimizer=optimizer),
        placement=dataclasses.replace(job.placement, entries=(*job.placement.entries, *moved)),
    )


def placed(job: Job, machine: Machine) -> Job:
    """The job with every placement policy answered: sizes come from the step that offloads those classes.

    What spills has been moved, and what movable memory cannot hold.
    """
    job = over_nodes(_managed(on_system_memory(job, machine), machine), machine)
    from sim.placement.demand import demands, followers, led, planned, rest_of
    from sim.placement.registry import EXPLICIT
    from sim.placement.resolve import needs_policy, resolve

    if not machine.seats():
        return job
    if not needs_policy(job.placement):
        job = dataclasses.replace(job, placement=without_pinned(job.placement, job.workload, machine))
        if is_uneven(job.placement):
            sizes = demands(step_of(job, machine), len(machine.seats()))
            job = dataclasses.replace(job, placement=with_accesses(job.placement, machine, sizes))
        return spilled(job, machine, step_of(job, machine)) if job.placement.overflow == "spill" else job
    entries = job.placement.entries
    offloaded = tuple(item if item.policy in EXPLICIT else dataclasses.replace(item, shares={"dram": 1.0}) for item in entries)
    assumed = dataclasses.replace(job.placement, entries=offloaded)
    step = step_of(dataclasses.replace(job, placement=assumed), machine)
    sizes = demands(step, len(machine.seats()))
    decided = {item.tensor_class for item in entries if item.policy not in EXPLICIT}
    reserved: dict[str, float] | None = None
    if isinstance(job.workload, (Training, Inference)):
        plan = capacity_plan(job.workload, assumed, machine)
        following = followers(assumed, job.workload, decided)
        sizes = led(planned(sizes, {*decided, *following}, plan, machine), following)
        reserved = rest_of({*decided, *following}, plan)

    def answer(room: Mapping[str, float] | None) -> Job:
        found = resolve(job.placement, machine, sizes, machine.seats()[0], room)
        return dataclasses.replace(job, placement=without_pinned(found, job.workload, machine))

    answered = answer(reserved) if reserved is None else _with_room(answer, reserved, machine)
    answered = dataclasses.replace(answered, placement=with_accesses(answered.placement, machine, sizes))
    return spilled(answered, machine, step)


def _with_room(answer: Callable[[Mapping[str, float]], Job], reserved: Mapping[str, float], machine: Machine) -> Job:
    """The policies' answer with no more room kept free than page-locked buffers need, which are rounded up."""

    def over(asked: Job) -> dict[str, float]:
        plan = capacity_plan(asked.workload, asked.placement, machine)  # type: ignore[arg-type]
        return {name: need.peak_bytes - need.capacity_bytes for name, need in plan.items() if name in reserved}

    answered = answer(reserved)
    lacking = {name: size for name, size in over(answered).items() if size > 0}
    fewest, most, found = 0.0, 0.0, answered
    for i in range(_ROUNDS if lacking else 0):
        times = (fewest + most) / 2 if most else 2.0**i  # of what was lacking at first
        try:
            tried = answer({name: size + times * lacking.get(name, 0.0) for name, size in reserved.items()})
        except InputError:
            break  # no policy finds more room: the plan says what is missing
        if any(size > 0 for size in over(tried).values()):
            fewest, found = times, found if most else tried
        else:
            most, found = times, tried
    return found


def step_of(job: Job, machine: Machine, num_micro_batches: int | None = None, *, is_whole: bool = False) -> Step:
    """The operations of the job's step, before a machine is chosen (but for where its tensors live).

    `is_whole` writes out every token of an answer instead of a few.
    """
    from sim.workload import decode

    workload = loaded(job).workload
    placement = effective_placement(job.placement, workload)
    kinds = homes(placement, machine)
    if isinstance(workload, Training):
        share = _gpu_share(placement, machine, workload.model.layers)
        edges = state_edges(placement, workload.model.layers)
        return _generated(workload, tuple(sorted(kinds.items())), num_micro_batches, share, edges)
    if isinstance(workload, Inference):
        return decode.generate(workload, kinds, is_whole=is_whole)
    assert isinstance(workload, Step)
    return on_machine(workload, machine)


def _gpu_share(placement: Placement, machine: Machine, num_layers: int) -> float:
    """Share of the optimizer states that lies in GPU memory."""
    seats = machine.seats()
    shares = class_shares(placement, num_layers).get(TensorClass.OPTIMIZER_STATES, {})
    return sum(share for tier, share in shares.items() if seats and _home(machine, tier, seats[0]) == "gpu")


def _generated(
    training: Training,
    kinds: tuple[tuple[TensorClass, str], ...],
    num_micro_batches: int | None,
    gpu_share: float,
    edges: tuple[int, ...],
) -> Step:
    """A step depends on what is trained and on which kind of tier holds what, not on the machine: sweeps share it."""
    from sim.workload import step

    key = (training, kinds, num_micro_batches, gpu_share, edges)
    return _STEPS.get(key, lambda: step.generate(training, dict(kinds), num_micro_batches, gpu_share, edges))


def on_machine(step: Step, machine: Machine) -> Step:
    """A recorded step with its kernel times as they would be on this machine; a generated step as it is."""
    from sim.program.rescale import is_recorded, rescaled

    if not is_recorded(step):
        return step
    from sim.config.parts import load_parts, part_names

    name = step.source_part
    source = dataclasses.asdict(load_parts([name]).parts[name]) if name in part_names() else None
    return rescaled(step, machine, source)


def homes(placement: Placement, machine: Machine) -> dict[TensorClass, str]:
    """Tensor class -> "gpu", "host" or "storage": the slowest kind of tier that holds a share of it."""
    order = ("gpu", "host", "storage")
    seats = machine.seats()
    kinds: dict[TensorClass, str] = {}
    for entry in placement.entries:
        for tier in entry.shares:
            kind = _home(machine, tier, seats[0] if seats else "")
            kinds[entry.tensor_class] = max(kinds.get(entry.tensor_class, "gpu"), kind, key=order.index)
    return kinds


def _home(machine: Machine, tier: str, seat: str) -> str:
    name = machine.resolve(tier, seat)
    if seat in machine.gpus() and name == machine.memory_tier(seat):
        return "host" if tier == "dram" else "gpu"  # one memory for both: who asks for DRAM means the CPU's side of it
    return "storage" if machine.tiers[name].kind in _STORAGE else "host"


def loaded(job: Job) -> Job:
    """The job with its trace file read, if its workload is one; what the file says of placement comes before the job's own."""
    if not isinstance(job.workload, Trace):
        return job
    from sim.interchange.load import load_trace
    from sim.interchange.rules import parse_rules

    trace = job.workload
    step = load_trace(
        trace.file, step=trace.step, rules=parse_rules(trace.rules), source_part=trace.source_part, num_ranks=trace.ranks,
        element_bytes=trace.element_bytes,
    )  # fmt: skip
    homes = (
        Entry(tensor_class=home.tensor_class, shares=home.shares, policy=home.policy, layers=home.layers, options=home.options)
        for home in step.placement
    )
    placement = dataclasses.replace(job.placement, entries=(*homes, *job.placement.entries))
    return dataclasses.replace(job, workload=msgspec.structs.replace(step, placement=()), placement=placement)


def with_homes(step: Step, job: Job) -> Step:
    """The step with what a trace file needs to replay it: where the job's placement keeps each tensor class."""
    entries = effective_placement(job.placement, job.workload).entries
    homes = (
        Home(
            tensor_class=entry.tensor_class, shares=dict(entry.shares), policy=entry.policy, layers=entry.layers,
            options=dict(entry.options),
        )
        for entry in entries
    )  # fmt: skip
    return msgspec.structs.replace(step, placement=tuple(homes))
