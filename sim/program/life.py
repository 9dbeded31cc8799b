"""A job over several steps: what it allocates at its start, what it grows by in its first update, and what it gives back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from sim.records import Allocation, Kind, Operation, OperationRecord, Program, Replay, Stream

#: between an operation and the step that it belongs to, from the second on
_OF_STEP = "#"
_STEPS = "steps"


def lived(program: Program, num_steps: int, grown: Collection[str]) -> Program:
    """The program of one step, `num_steps` times in a row; a step begins when the one before has ended.

    Tensor classes in `grown` appear when the first update is about to begin instead of at the start of the job, as states
    do that a framework makes lazily; all leave after the last step.
    """
    first, last = _firsts(program), lasts(program)
    operations, markers = list[Operation](), list[Operation]()
    lengths = {op.stream: op.sequence + 1 for op in last}
    for step in range(num_steps):
        begin: tuple[str, ...] = ()
        if step:
            mark, ends = f"{_STEPS}.{step}", tuple(_named(op.id, step - 1) for op in last)
            markers.append(Operation(id=mark, kind=Kind.MARKER, stream=_STEPS, sequence=step - 1, after=ends, category="idle"))
            begin = (mark,)
        for op in program.operations:
            operations.append(
                replace(
                    op,
                    id=_named(op.id, step),
                    sequence=op.sequence + step * lengths[op.stream],
                    after=(*(_named(name, step) for name in op.after), *(begin if op.id in first else ())),
                )
            )
    streams = (*program.streams, *((Stream(name=_STEPS, role="clock"),) if markers else ()))
    whole = replace(
        program,
        streams=streams,
        operations=(*operations, *markers),
        model_flops=program.model_flops * num_steps,
        num_tokens=program.num_tokens * num_steps,
    )
    ends = tuple(_named(op.id, num_steps - 1) for op in last)
    return _grown(whole, program.operations, grown, ends)


def step_ends(replay: Replay, num_steps: int) -> tuple[float, ...]:
    """When each step of the job ended, seconds from its start."""
    times = {record.id: record.end_s for record in replay.operations if record.id.startswith(f"{_STEPS}.")}
    return (*(times[f"{_STEPS}.{step}"] for step in range(1, num_steps)), replay.makespan_s)


def first_step(program: Program) -> Program:
    """The operations of a job's first step only, named as in :func:`step_replays`."""
    return replace(program, operations=tuple(op for op in program.operations if _OF_STEP not in op.id))


def step_replays(replay: Replay, num_steps: int) -> tuple[Replay, ...]:
    """The operations of each step of a job, timed from the step's start and named as those of the first."""
    if num_steps == 1:
        return (replay,)
    begins_s = (0.0, *step_ends(replay, num_steps)[:-1])
    found: tuple[list[OperationRecord], ...] = tuple([] for _ in range(num_steps))
    for record in replay.operations:
        name, _, number = record.id.rpartition(_OF_STEP)
        step = int(number) if name else 0
        if record.id.startswith(f"{_STEPS}."):
            continue
        begin_s = begins_s[step]
        times = (max(0.0, value - begin_s) for value in (record.ready_s, record.start_s, record.end_s))
        found[step].append(OperationRecord(name or record.id, *times))
    ends_s = step_ends(replay, num_steps)
    rows = zip(found, begins_s, ends_s, strict=True)
    return tuple(replace(replay, operations=tuple(own), makespan_s=end_s - begin_s) for own, begin_s, end_s in rows)


def _named(name: str, step: int) -> str:
    return f"{name}{_OF_STEP}{step}" if step else name


def _firsts(program: Program) -> set[str]:
    backwards = sorted(program.operations, key=lambda op: -op.sequence)
    return {op.id for op in {op.stream: op for op in backwards}.values()}


def lasts(program: Program) -> list[Operation]:
    """The last operation of each stream."""
    return list({op.stream: op for op in sorted(program.operations, key=lambda op: op.sequence)}.values())


def _grown(program: Program, step: Sequence[Operation], grown: Collection[str], ends: tuple[str, ...]) -> Program:
    """What of the resident bytes is of a class in `grown` is allocated in front of the first update."""
    late = [(item, num) for item, num in program.resident if item.tensor_class in grown]
    updates = {op.id: op for op in step if op.phase == "update"}
    first = [op for op in updates.values() if not any(name in updates for name in op.after)]
    if not late or not first:
        return program
    asked = tuple(dict.fromkeys(name for op in first for name in op.after))
    rows: dict[int, tuple[Allocation, ...]] = {}
    for item, num in late:
        rows[num] = (*rows.get(num, ()), item)
    added, streams = list[Operation](), list[Stream]()
    for num, items in rows.items():
        name = f"grow.{num}"
        streams.append(Stream(name=name, role="clock", multiplicity=num))
        common = {"stream": name, "category": "idle"}
        added.append(Operation(id=f"{name}.begin", kind=Kind.ALLOCATE, sequence=0, after=asked, allocates=items, **common))  # type: ignore[arg-type]
        added.append(Operation(id=f"{name}.end", kind=Kind.FREE, sequence=1, after=ends, frees=items, **common))  # type: ignore[arg-type]
    begun, waiting = tuple(op.id for op in added if op.kind == Kind.ALLOCATE), {op.id for op in first}
    operations = (replace(op, after=(*op.after, *begun)) if op.id in waiting else op for op in program.operations)
    return replace(
        program,
        streams=(*program.streams, *streams),
        operations=(*operations, *added),
        resident=tuple(row for row in program.resident if row not in late),
    )
