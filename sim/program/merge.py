"""Several jobs in one simulation: their programs side by side, sharing the channels and tiers that have one name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from sim.errors import InputError
from sim.program.life import lasts
from sim.records import Allocation, Channel, ChannelTotal, Kind, Operation, Program, Replay, Stream, Tier

#: between the name of a job and the name of its stream or operation
SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class Part:
    """One job's program and when it starts: `start_s` after the beginning, or after the job `after` has ended.

    `tiers` renames tiers of which every host has its own part; `kept` is the share of a tensor class in a tier that is
    the job's own (what it shares with another job is there once); `weight` multiplies the sharing weights of its flows.
    """

    name: str
    program: Program
    start_s: float = 0.0
    after: str = ""
    tiers: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[tuple[str, str], float] = field(default_factory=dict)
    weight: float = 1.0


def merge(parts: Sequence[Part], name: str) -> Program:
    """One program of all jobs; streams and operations are prefixed with the job's name.

    What a job holds throughout appears when it starts and leaves when its last operation ends. Channels and tiers of one
    name are one thing. Raises InputError when a job folded a channel that another one uses: its members would no longer be
    alike (lower the jobs unfolded then).
    """
    channels: dict[str, Channel] = {}
    tiers: dict[str, Tier] = {}
    for part in parts:
        for channel in part.program.channels:
            if channel.name in channels and (channels[channel.name] != channel or channel.multiplicity > 1):
                raise InputError(f"jobs share channel {channel.name!r}, of which {part.name!r} folds several into one")
            channels[channel.name] = channel
        for tier in (replace(tier, name=part.tiers.get(tier.name, tier.name)) for tier in part.program.tiers):
            if tier.name in tiers and (tiers[tier.name] != tier or tier.multiplicity > 1):
                raise InputError(f"jobs share tier {tier.name!r}, of which {part.name!r} folds several into one")
            tiers[tier.name] = tier
    return Program(
        name=name,
        channels=tuple(channels[key] for key in sorted(channels)),
        tiers=tuple(tiers[key] for key in sorted(tiers)),
        streams=tuple(stream for part in parts for stream in _streams(part)),
        operations=tuple(operation for part in parts for operation in _operations(part, _ends(part.after, parts))),
        model_flops=sum(part.program.model_flops for part in parts),
        num_tokens=sum(part.program.num_tokens for part in parts),
        peak_flops_per_s=sum(part.program.peak_flops_per_s for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.program.notes)),
    )


def of_job(part: Part, replay: Replay) -> Replay:
    """What the merged replay says of one job: its operations, timed from its start, and its own bytes on each channel.

    Tiers are those of the whole simulation: memory is shared. Busy and saturated seconds of a channel are everybody's,
    at most the job's own span.
    """
    prefix = part.name + SEPARATOR
    own, begin_s = {operation.id for operation in part.program.operations}, start_of(part, replay)
    records = tuple(
        replace(
            record,
            id=record.id.removeprefix(prefix),
            ready_s=max(0.0, record.ready_s - begin_s),
            start_s=max(0.0, record.start_s - begin_s),
            end_s=max(0.0, record.end_s - begin_s),
        )
        for record in replay.operations
        if record.id.startswith(prefix) and record.id.removeprefix(prefix) in own
    )
    span_s = max((record.end_s for record in records), default=0.0)
    names = {part.tiers.get(tier.name, tier.name): tier.name for tier in part.program.tiers}
    return replace(
        replay,
        makespan_s=span_s,
        operations=records,
        channels=_own_totals(part.program, replay, span_s),
        tiers=tuple(replace(tier, name=names[tier.name]) for tier in replay.tiers if tier.name in names),
        segments=(),
        occupancy=(),
    )


def _own_totals(program: Program, replay: Replay, span_s: float) -> tuple[ChannelTotal, ...]:
    multiplicity = {stream.name: stream.multiplicity for stream in program.streams}
    members = {channel.name: channel.multiplicity for channel in program.channels}
    amounts: dict[str, float] = dict.fromkeys(members, 0.0)
    for operation in program.operations:
        for channel, cost in operation.uses:
            amounts[channel] += operation.work * cost * multiplicity[operation.stream] / members[channel]
    return tuple(
        replace(
            total,
            amount=amounts[total.name],
            busy_s=min(total.busy_s, span_s),
            saturated_s=min(total.saturated_s, span_s),
        )
        for total in replay.channels
        if total.name in members
    )


def _streams(part: Part) -> list[Stream]:
    prefix = part.name + SEPARATOR
    own = [replace(stream, name=prefix + stream.name) for stream in part.program.streams]
    if _is_late(part):
        own.append(Stream(name=f"{prefix}start", role="clock"))
    return own + [Stream(name=f"{prefix}life.{num}", role="clock", multiplicity=num) for num in _held(part)]


def start_of(part: Part, replay: Replay) -> float:
    """When the job began, in seconds of the merged replay."""
    own = f"{part.name}{SEPARATOR}start"
    return next((record.end_s for record in replay.operations if record.id == own), 0.0)


def _is_late(part: Part) -> bool:
    return part.start_s > 0 or bool(part.after)


def _ends(name: str, parts: Sequence[Part]) -> tuple[str, ...]:
    """The last operations of the job of that name, in the merged program: what waits for its end waits for these."""
    found = []
    for part in parts:
        if part.name == name:
            clock, life, _ = _life(part, part.name + SEPARATOR)
            found = [item.id for item in (*clock, *life)] + [part.name + SEPARATOR + item.id for item in lasts(part.program)]
    return tuple(found)


def _operations(part: Part, earlier: tuple[str, ...]) -> list[Operation]:
    prefix = part.name + SEPARATOR
    clock, life, first = _life(part, prefix, earlier)
    own = []
    for operation in part.program.operations:
        after = tuple(prefix + name for name in operation.after)
        own.append(
            replace(
                operation,
                id=prefix + operation.id,
                stream=prefix + operation.stream,
                after=(*after, *first) if operation.sequence == 0 else after,
                weight=operation.weight * part.weight,
                allocates=_owned(part, operation.allocates),
                frees=_owned(part, operation.frees),
            )
        )
    return clock + life + own


def _life(part: Part, prefix: str, earlier: tuple[str, ...] = ()) -> tuple[list[Operation], list[Operation], tuple[str, ...]]:
    """The clock of a late start, what appears and leaves with the job, and what its first operations wait for."""
    clock = []
    if _is_late(part):
        clock = [
            Operation(
                id=f"{prefix}start", kind=Kind.MARKER, stream=f"{prefix}start", sequence=0, name="start", after=earlier,
                latency_s=part.start_s, category="idle",
            )
        ]  # fmt: skip
    begin = tuple(operation.id for operation in clock)
    ends = tuple(prefix + operation.id for operation in lasts(part.program))
    life = []
    for num, rows in _held(part).items():
        stream = f"{prefix}life.{num}"
        common = {"stream": stream, "category": "idle"}
        life.append(Operation(id=f"{stream}.begin", kind=Kind.ALLOCATE, sequence=0, after=begin, allocates=rows, **common))  # type: ignore[arg-type]
        life.append(Operation(id=f"{stream}.end", kind=Kind.FREE, sequence=1, after=ends, frees=rows, **common))  # type: ignore[arg-type]
    return clock, life, (*begin, *(item.id for item in life if item.kind == Kind.ALLOCATE))


def _held(part: Part) -> dict[int, tuple[Allocation, ...]]:
    """What the job holds throughout, by the multiplicity of its owners."""
    found: dict[int, tuple[Allocation, ...]] = {}
    for item, num in part.program.resident:
        found[num] = (*found.get(num, ()), *_owned(part, (item,)))
    return found


def _owned(part: Part, items: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """Allocations in the host's own parts of the tiers, without what another job holds already."""
    return tuple(
        replace(
            item,
            tier=part.tiers.get(item.tier, item.tier),
            size_bytes=item.size_bytes * part.kept.get((item.tier, item.tensor_class), 1.0),
        )
        for item in items
    )
