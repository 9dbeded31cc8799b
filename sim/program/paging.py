"""Paging as operations: what does not fit a full tier comes back by faults before it can be used."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from sim.laws.paging import miss_share, swap_rate
from sim.records import Channel, Kind, Operation, Program, Uses
from sim.topology.machine import Machine
from sim.topology.route import merged


def with_swap(
    program: Program,
    machine: Machine,
    *,
    tier: str,
    storage: str,
    updated_bytes: float,
    room_bytes: float,
    replacement: str,
    copied_bytes: float = 0.0,
    num_sweeps: int = 1,
) -> Program:
    """The program on a host whose `tier` has room for `room_bytes` of the pageable bytes that a step sweeps.

    The CPU's operations sweep `updated_bytes` `num_sweeps` times, in proportion to their work; copies between the GPU and
    the tier sweep `copied_bytes`. Each first waits for the pages that it misses: a fault blocks the thread that takes it, so
    the fetch runs in front of the operation on its own stream. Changed pages are written back to `storage` to make room.
    Returns the program itself when everything fits.
    """
    swept = updated_bytes + copied_bytes
    missed = miss_share(swept, room_bytes, replacement)
    if missed == 0.0:
        return program
    drive = machine.tiers[storage].device
    inward = machine.route(storage, tier, initiator=drive)
    outward = machine.route(tier, storage, initiator=drive)
    both = merged(inward.uses, outward.uses)
    cores = float(machine.part(machine.tiers[tier].device).get("cores", 1) or 1)  # type: ignore[arg-type]
    owners = {stream.name: stream.multiplicity for stream in program.streams}
    updates = [op for op in program.operations if op.kind == Kind.HOST_UPDATE]
    total = sum(op.work * owners[op.stream] for op in updates)
    cap = swap_rate(inward.latency_s, cores / max((owners[op.stream] for op in updates), default=1))
    operations: list[Operation] = []
    for operation in program.operations:
        size, is_dirty = 0.0, operation.write_share > 0
        if operation.kind == Kind.HOST_UPDATE:
            size = operation.work * updated_bytes * num_sweeps / total
        elif operation.kind == Kind.TRANSFER and copied_bytes and tier in dict(operation.uses):
            size, is_dirty = operation.work, operation.stream.endswith(".d2h")
        if size > 0.0:
            uses = both if is_dirty else inward.uses
            operations.append(_fault(operation, size * missed, uses, cap, inward.latency_s))
        operations.append(_after_fault(operation))
    added = _missing(program, machine, both)
    note = f"{tier} swaps to {storage}: {100 * missed:.0f} % of the swept {swept / 2**30:.1f} GiB miss ({replacement})"
    channels = tuple(sorted((*program.channels, *added), key=lambda channel: channel.name))
    return replace(program, operations=tuple(operations), channels=channels, notes=(*program.notes, note))


def _fault(
    operation: Operation, size: float, uses: Uses, cap: float, latency_s: float
) -> Operation:  # fmt: skip
    return Operation(
        id=f"{operation.id}.fault", kind=Kind.IO, stream=operation.stream, sequence=2 * operation.sequence, name="page in",
        after=operation.after, work=size, uses=uses, rate_cap=cap, latency_s=latency_s, phase=operation.phase,
        category="paging", layer=operation.layer, micro_batch=operation.micro_batch, size_bytes=size,
    )  # fmt: skip


def _after_fault(operation: Operation) -> Operation:
    """The operation itself, renumbered so that a fault may stand in front of it."""
    return replace(operation, sequence=2 * operation.sequence + 1)


def _missing(program: Program, machine: Machine, uses: Iterable[tuple[str, float]]) -> list[Channel]:
    """Channels of the machine that the program did not use before."""
    known = {channel.name for channel in program.channels}
    return [machine.channels[name] for name, _ in uses if name not in known]
