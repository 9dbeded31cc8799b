"""Pages on the move: what of them moves during one step, beside its traffic, and where they lie afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from sim.placement.plan import Placement
from sim.placement.policies import Migration, Pages
from sim.program.merge import Part, merge, of_job
from sim.records import Kind, Operation, Program, Replay, Stream, TensorClass
from sim.topology.machine import Machine


def portion(pending: Sequence[Migration], size_bytes: float) -> tuple[list[Migration], list[Migration]]:
    """The first `size_bytes` of what waits to be moved, and the rest."""
    now, later = list[Migration](), list[Migration]()
    for move in pending:
        part = min(move.size_bytes, size_bytes)
        size_bytes -= part
        now += [dataclasses.replace(move, size_bytes=part)] if part > 0 else []
        rest = move.size_bytes - part
        later += [dataclasses.replace(move, size_bytes=rest)] if rest > 1e-9 * move.size_bytes else []
    return now, later


def beside(program: Program, pending: Sequence[Migration], machine: Machine, device: str, rate_bytes_per_s: float) -> Replay:
    """The step replayed beside its migrations at no more than that rate; the records are the job's own."""
    from sim.engine import replay as replay_program

    if not pending:
        return replay_program(program, capacity="observe")
    job, kernel = Part("job", program), Part("kernel", _migrations(pending, machine, device, rate_bytes_per_s))
    return of_job(job, replay_program(merge([job, kernel], program.name), capacity="observe"))


def _migrations(pending: Sequence[Migration], machine: Machine, device: str, rate_bytes_per_s: float) -> Program:
    cpu = machine.host_of(device)
    operations, used = list[Operation](), dict[str, None]()
    for index, move in enumerate(pending):
        route = machine.route(move.source, move.target, initiator=cpu)
        used |= dict.fromkeys(name for name, _ in route.uses)
        operations.append(
            Operation(
                id=f"migrate.{index}", kind=Kind.TRANSFER, stream="kernel.migration", sequence=index, name="migrate pages",
                work=move.size_bytes, uses=route.uses, rate_cap=min(rate_bytes_per_s, route.rate_cap_bytes_per_s),
                category="paging",
            )
        )  # fmt: skip
    return Program(
        name="migration",
        channels=tuple(machine.channels[name] for name in used),
        tiers=(),
        streams=(Stream(name="kernel.migration", role="migration"),),
        operations=tuple(operations),
    )


def after(
    lying: Mapping[Pages, Mapping[str, float]], pending: Sequence[Migration], sizes: Mapping[TensorClass, float]
) -> dict[Pages, dict[str, float]]:
    """Where the pages lie after the migrations."""
    found = {pages: dict(parts) for pages, parts in lying.items()}
    for move in pending:
        own, share = found[move.tensor_class, move.group], move.size_bytes / sizes[move.tensor_class]
        own[move.source] = max(0.0, own.get(move.source, 0.0) - share)
        own[move.target] = own.get(move.target, 0.0) + share
    return found


def placed(
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
